// Norms, dot products and products with invariants; see the page of `irrep`.

__device__ inline float product_of(const float *a, const float *b, uint4 irrep) {
    float sum = a[irrep.x] * b[irrep.x];
    return irrep.z > 0 ? sum + a[irrep.y] * b[irrep.y] : sum;
}

// One thread for each irrep of each row: y = <a, b>, or its square root with epsilon.
extern "C" __global__ void dot_irreps(const float *__restrict__ a, const float *__restrict__ b, u32 root, float epsilon,
                                      float *__restrict__ y, const uint4 *__restrict__ irreps, u32 irrep_count,
                                      u32 width, u32 rows) {
    u64 i = item();
    if (i >= (u64)rows * irrep_count) return;
    u64 row = i / irrep_count * width;
    float sum = product_of(a + row, b + row, irreps[i % irrep_count]);
    y[i] = root ? sqrtf(sum + epsilon) : sum;
}

// One warp for each head of each row.
extern "C" __global__ void dot_heads(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ y,
                                     u32 heads, const uint4 *__restrict__ irreps, u32 irrep_count, u32 width,
                                     u32 rows) {
    u64 i = item() / 32;
    if (i >= (u64)rows * heads) return;
    u64 row = i / heads * width;
    u32 share = irrep_count / heads, first = (u32)(i % heads) * share;
    float sum = 0.0f;
    for (u32 place = threadIdx.x % 32; place < share; place += 32)
        sum += product_of(a + row, b + row, irreps[first + place]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) y[i] = sum;
}

extern "C" __global__ void norm_backward(const float *__restrict__ x, float epsilon, const float *__restrict__ dy,
                                         float *__restrict__ dx, const uint4 *__restrict__ irreps, u32 irrep_count,
                                         u32 width, u32 rows) {
    u64 i = item();
    if (i >= (u64)rows * irrep_count) return;
    u64 row = i / irrep_count * width;
    uint4 irrep = irreps[i % irrep_count];
    float factor = dy[i] / sqrtf(product_of(x + row, x + row, irrep) + epsilon);
    dx[row + irrep.x] = factor * x[row + irrep.x];
    if (irrep.z > 0) dx[row + irrep.y] = factor * x[row + irrep.y];
}

// One thread for each irrep of each row; irrep.w is its scalar.
extern "C" __global__ void scale(const float *__restrict__ x, const float *__restrict__ factors, float *__restrict__ y,
                                 u32 scalars, const uint4 *__restrict__ irreps, u32 irrep_count, u32 width, u32 rows) {
    u64 i = item();
    if (i >= (u64)rows * irrep_count) return;
    u64 row = i / irrep_count;
    uint4 irrep = irreps[i % irrep_count];
    float factor = factors[row * scalars + irrep.w];
    y[row * width + irrep.x] = factor * x[row * width + irrep.x];
    if (irrep.z > 0) y[row * width + irrep.y] = factor * x[row * width + irrep.y];
}
