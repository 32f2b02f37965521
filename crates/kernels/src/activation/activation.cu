// Pointwise functions of every number.

extern "C" __global__ void activation_forward(const float *__restrict__ x, float *__restrict__ y, u64 count) {
    u64 i = item();
    if (i < count) y[i] = activation(x[i]);
}

extern "C" __global__ void activation_backward(const float *__restrict__ x, const float *__restrict__ dy,
                                               float *__restrict__ dx, u64 count) {
    u64 i = item();
    if (i < count) dx[i] = activation_slope(x[i]) * dy[i];
}
