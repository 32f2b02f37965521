// Passes between the products of a block; see the page of `diffusion_net`. A row of features is [p | x | d | g1 | g2],
// each of 4 * `quads` numbers. Threads take four numbers. `philox.cu` stands before this text.

__device__ inline float4 operator+(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
__device__ inline float4 operator*(float4 a, float4 b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }
__device__ inline float4 operator*(float a, float4 b) { return {a * b.x, a * b.y, a * b.z, a * b.w}; }

// Four numbers of a bias, which need not be aligned.
__device__ inline float4 four(const float *bias, u32 quad) {
    bias += 4 * quad;
    return {bias[0], bias[1], bias[2], bias[3]};
}

// Calls `run(i, place of four numbers of x in the features, row, quad)` for four numbers of rows.
template <typename Run> __device__ inline void in_quads(u32 quads, u64 count, Run run) {
    u64 i = item();
    if (i >= count) return;
    u64 row = i / quads;
    u32 quad = (u32)(i - row * quads);
    run(i, row * 5 * quads + quads + quad, row, quad);
}

// Copies x to the features; weighted = m x; y = x + bias, to which the last product is added.
extern "C" __global__ void read_input(const float4 *__restrict__ x, const float *__restrict__ mass,
                                 const float *__restrict__ bias, float4 *__restrict__ features,
                                 float4 *__restrict__ weighted, float4 *__restrict__ y, u32 quads, u64 count) {
    in_quads(quads, count, [&](u64 i, u64 place, u64 row, u32 quad) {
        float4 value = x[i];
        features[place] = value;
        weighted[i] = mass[row] * value;
        y[i] = value + four(bias, quad);
    });
}

// p = tanh(<g, mapped>).
extern "C" __global__ void invariants(float4 *__restrict__ features, const float4 *__restrict__ mapped, u32 quads,
                                      u64 count) {
    in_quads(quads, count, [&](u64, u64 place, u64 row, u32 quad) {
        const float4 *g = features + place + 2 * quads, *m = mapped + row * 2 * quads + quad;
        float4 dot = g[0] * m[0] + g[quads] * m[quads];
        features[place - quads] = {tanhf(dot.x), tanhf(dot.y), tanhf(dot.z), tanhf(dot.w)};
    });
}

// From the gradient of p in `dfeatures`: that of g there, of which the part through A is missing, and that of `mapped`
// in its place.
extern "C" __global__ void invariants_backward(const float4 *__restrict__ features, float4 *__restrict__ mapped,
                                               float4 *__restrict__ dfeatures, u32 quads, u64 count) {
    in_quads(quads, count, [&](u64, u64 place, u64 row, u32 quad) {
        float4 p = features[place - quads], dp = dfeatures[place - quads];
        float4 d = dp * (make_float4(1.0f, 1.0f, 1.0f, 1.0f) + -1.0f * (p * p));
        const float4 *g = features + place + 2 * quads;
        float4 *m = mapped + row * 2 * quads + quad, *dg = dfeatures + place + 2 * quads;
        float4 g1 = g[0], g2 = g[quads], m1 = m[0], m2 = m[quads];
        dg[0] = d * m1, dg[quads] = d * m2;
        m[0] = d * g1, m[quads] = d * g2;
    });
}

// y = drop(relu(y + bias)); without a stream nothing is dropped.
extern "C" __global__ void activate(float4 *__restrict__ y, const float *__restrict__ bias,
                                    const u64 *__restrict__ stream, u64 salt, u64 threshold, float scale, u32 quads,
                                    u64 count) {
    in_quads(quads, count, [&](u64 i, u64, u64, u32 quad) {
        float4 v = y[i] + four(bias, quad);
        uint4 words = stream ? block_of(i, stream[0] ^ salt, stream[1]) : make_uint4(0, 0, 0, 0);
        auto kept = [&](float value, u32 word) {
            value = value < 0.0f ? 0.0f : value;
            return stream ? value * (word >= threshold ? scale : 0.0f) : value;
        };
        y[i] = {kept(v.x, words.x), kept(v.y, words.y), kept(v.z, words.z), kept(v.w, words.w)};
    });
}

// d = scale d where the activated number is above zero, else 0; and partial sums of its columns for each block of
// `rows_of_block` rows. Blocks of quads and rows.
extern "C" __global__ void activate_backward(const float4 *__restrict__ activated, float scale, float4 *__restrict__ d,
                                             u32 rows, u32 quads, u32 rows_of_block, double *__restrict__ partials) {
    __shared__ double parts[4 * BLOCK];
    u32 quad = blockIdx.y * blockDim.x + threadIdx.x;
    u32 first = blockIdx.x * rows_of_block, end = min(rows, first + rows_of_block);
    double sums[4] = {};
    if (quad < quads) {
        in_batches<4>(
            first + threadIdx.y, end, blockDim.y,
            [&](u32 row) {
                u64 place = (u64)row * quads + quad;
                float4 a = activated[place], v = d[place];
                auto masked = [&](float a, float v) { return a > 0.0f ? scale * v : 0.0f; };
                return make_float4(masked(a.x, v.x), masked(a.y, v.y), masked(a.z, v.z), masked(a.w, v.w));
            },
            [&](u32 row, float4 v) {
                if (row < end) d[(u64)row * quads + quad] = v;
                sums[0] += v.x, sums[1] += v.y, sums[2] += v.z, sums[3] += v.w;
            });
    }
    u32 thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
    for (u32 k = 0; k < 4; ++k) parts[k * BLOCK + thread] = sums[k];
    __syncthreads();
    if (threadIdx.y > 0 || quad >= quads) return;
#pragma unroll
    for (u32 k = 0; k < 4; ++k) {
        for (u32 y = 1; y < blockDim.y; ++y) sums[k] += parts[k * BLOCK + y * blockDim.x + threadIdx.x];
        partials[((u64)blockIdx.x * quads + quad) * 4 + k] = sums[k];
    }
}

// dx = m dx + dy + the part of x in dfeatures.
extern "C" __global__ void enter_backward(float4 *__restrict__ dx, const float *__restrict__ mass,
                                          const float4 *__restrict__ dy, const float4 *__restrict__ dfeatures,
                                          u32 quads, u64 count) {
    in_quads(quads, count, [&](u64 i, u64 place, u64 row, u32) {
        dx[i] = mass[row] * dx[i] + dy[i] + dfeatures[place];
    });
}

// Rows of W1 = [invariants | scalars], `c` and 2 `c` numbers; with `add`, the parts += those of W1. One thread for each
// number.
extern "C" __global__ void first_weights(float *__restrict__ all, float *__restrict__ invariants,
                                         float *__restrict__ scalars, u32 c, u32 add) {
    u64 i = item();
    if (i >= (u64)3 * c * c) return;
    u64 row = i / (3 * c), column = i % (3 * c);
    float *part = column < c ? invariants + row * c + column : scalars + row * 2 * c + (column - c);
    if (add) *part += all[i];
    else all[i] = *part;
}
