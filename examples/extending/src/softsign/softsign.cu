extern "C" __global__ void softsign_forward(const float *__restrict__ x, float *__restrict__ y,
                                            u32 count) {
    u64 i = item();
    if (i < count) y[i] = x[i] / (1.0f + fabsf(x[i]));
}

extern "C" __global__ void softsign_backward(const float *__restrict__ x,
                                             const float *__restrict__ dy, float *__restrict__ dx,
                                             u32 count) {
    u64 i = item();
    if (i >= count) return;
    float scale = 1.0f / (1.0f + fabsf(x[i]));
    dx[i] = dy[i] * scale * scale;
}
