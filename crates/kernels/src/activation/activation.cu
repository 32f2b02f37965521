// Pointwise functions of every number.

extern "C" __global__ void activation_forward(const float *__restrict__ x, float *__restrict__ y, u64 count) {
    in_fours(count, [&](u64 i) { return activation(x[i]); }, [&](u64 i, float value) { y[i] = value; });
}

extern "C" __global__ void activation_backward(const float *__restrict__ x, const float *__restrict__ dy,
                                               float *__restrict__ dx, u64 count) {
    in_fours(
        count, [&](u64 i) { return activation_slope(x[i]) * dy[i]; }, [&](u64 i, float value) { dx[i] = value; });
}
