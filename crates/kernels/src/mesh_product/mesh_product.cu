// Rows around the products with bases; see the page of `mesh_product`.

// y = w x; without weights, w is 1. x and y may be the same.
extern "C" __global__ void weigh(const float *weights, const float *x, float *y, u32 width, u64 count) {
    u64 i = item();
    if (i < count) y[i] = (weights ? weights[i / width] : 1.0f) * x[i];
}

// y = sign i w x, for rows of real parts, then imaginary parts.
extern "C" __global__ void weigh_times_i(const float *__restrict__ weights, float sign, const float *__restrict__ x,
                                         float *__restrict__ y, u32 width, u64 count) {
    u64 i = item();
    if (i >= count) return;
    u32 half = width / 2;
    bool real = i % width < half;
    float value = real ? -x[i + half] : x[i - half];
    y[i] = sign * (weights ? weights[i / width] : 1.0f) * value;
}
