// What follows a linear map, four numbers of a row at a time: y = dropout(f(z + bias)). DROPOUT: 1 if there is one; its
// words are those of `philox.cu`, which stands before.

// Factors of the numbers 4 i to 4 i + 3.
__device__ inline float4 factors(u64 i, const u64 *__restrict__ stream, u64 salt, u64 threshold, float scale) {
#if DROPOUT
    uint4 words = block_of(i, stream[0] ^ salt, stream[1]);
    auto factor = [&](u32 word) { return word >= threshold ? scale : 0.0f; };
    return make_float4(factor(words.x), factor(words.y), factor(words.z), factor(words.w));
#else
    return make_float4(1.0f, 1.0f, 1.0f, 1.0f);
#endif
}

// fours: a quarter of the width of a row; count: a quarter of all numbers.
extern "C" __global__ void activate(const float4 *__restrict__ z, const float4 *__restrict__ bias,
                                    float4 *__restrict__ y, u32 fours, const u64 *__restrict__ stream, u64 salt,
                                    u64 threshold, float scale, u64 count) {
    u64 i = item();
    if (i >= count) return;
    float4 v = z[i], b = bias[i % fours], kept = factors(i, stream, salt, threshold, scale);
    y[i] = make_float4(kept.x * activation(v.x + b.x), kept.y * activation(v.y + b.y),
                       kept.z * activation(v.z + b.z), kept.w * activation(v.w + b.w));
}

// dz, and partials[block][column] = its sum over the rows of a block. Block (fours, rows), a run of rows for each
// block.
extern "C" __global__ void __launch_bounds__(256, 4)
activate_backward(const float4 *__restrict__ z, const float4 *__restrict__ bias, const float4 *__restrict__ dy, float4 *__restrict__ dz, u32 fours,
                  u32 rows, u32 rows_of_block, const u64 *__restrict__ stream, u64 salt, u64 threshold, float scale,
                  double *__restrict__ partials) {
    __shared__ double parts[4][BLOCK];
    float4 b = bias[threadIdx.x];
    double sums[4] = {};
    u32 first = blockIdx.x * rows_of_block, end = min(rows, first + rows_of_block);
#pragma unroll 4
    for (u32 row = first + threadIdx.y; row < end; row += blockDim.y) {
        u64 i = (u64)row * fours + threadIdx.x;
        float4 v = z[i], g = dy[i], kept = factors(i, stream, salt, threshold, scale);
        g.x *= kept.x * activation_slope(v.x + b.x);
        g.y *= kept.y * activation_slope(v.y + b.y);
        g.z *= kept.z * activation_slope(v.z + b.z);
        g.w *= kept.w * activation_slope(v.w + b.w);
        dz[i] = g;
        sums[0] += g.x, sums[1] += g.y, sums[2] += g.z, sums[3] += g.w;
    }
    for (u32 k = 0; k < 4; ++k) parts[k][threadIdx.y * fours + threadIdx.x] = sums[k];
    __syncthreads();
    if (threadIdx.y > 0) return;
    for (u32 k = 0; k < 4; ++k) {
        for (u32 y = 1; y < blockDim.y; ++y) sums[k] += parts[k][y * fours + threadIdx.x];
        partials[4 * ((u64)blockIdx.x * fours + threadIdx.x) + k] = sums[k];
    }
}
