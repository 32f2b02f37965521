// Passes between the products of a block; see the page of `diffusion_net`. A row of features is [p | x | d | g1 | g2], each of
// 4 * `quads` numbers. Threads take four numbers. `philox.cu` stands before this text.

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

// Copies x to the features; weighted = m x.
extern "C" __global__ void enter(const float4 *__restrict__ x, const float *__restrict__ mass,
                                 float4 *__restrict__ features, float4 *__restrict__ weighted, u32 quads, u64 count) {
    in_quads(quads, count, [&](u64 i, u64 place, u64 row, u32) {
        float4 value = x[i];
        features[place] = value;
        weighted[i] = mass[row] * value;
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

// From the gradient of p in `dfeatures`: that of g there, of which the part through A is missing, and that of `mapped` in its
// place.
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

// d = scale d where the activated number is above zero, else 0; and partial sums of its columns. Blocks as those of
// `column_partials` in `reduce.cu`.
extern "C" __global__ void activate_backward(const float *__restrict__ activated, float scale, float *__restrict__ d,
                                             u32 rows, u32 columns, u32 rows_of_block, double *__restrict__ partials) {
    __shared__ double parts[BLOCK];
    u32 column = blockIdx.y * blockDim.x + threadIdx.x;
    u32 first = blockIdx.x * rows_of_block, end = min(rows, first + rows_of_block);
    double sum = 0.0;
    if (column < columns) {
        in_batches<8>(
            first + threadIdx.y, end, blockDim.y,
            [&](u32 row) {
                u64 place = (u64)row * columns + column;
                return activated[place] > 0.0f ? scale * d[place] : 0.0f;
            },
            [&](u32 row, float value) {
                if (row < end) d[(u64)row * columns + column] = value;
                sum += value;
            });
    }
    parts[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= columns) return;
    for (u32 y = 1; y < blockDim.y; ++y) sum += parts[y * blockDim.x + threadIdx.x];
    partials[(u64)blockIdx.x * columns + column] = sum;
}

// y += x + bias.
extern "C" __global__ void leave(float4 *__restrict__ y, const float4 *__restrict__ x, const float *__restrict__ bias,
                                 u32 quads, u64 count) {
    in_quads(quads, count, [&](u64 i, u64, u64, u32 quad) { y[i] = y[i] + x[i] + four(bias, quad); });
}

// dx = m dx + dy + the part of x in dfeatures.
extern "C" __global__ void enter_backward(float4 *__restrict__ dx, const float *__restrict__ mass,
                                          const float4 *__restrict__ dy, const float4 *__restrict__ dfeatures,
                                          u32 quads, u64 count) {
    in_quads(quads, count, [&](u64 i, u64 place, u64 row, u32) {
        dx[i] = mass[row] * dx[i] + dy[i] + dfeatures[place];
    });
}

// Rows of W1 = [invariants | scalars], `c` and 2 `c` numbers; with `add`, the parts += those of W1. One thread for each number.
extern "C" __global__ void first_weights(float *__restrict__ all, float *__restrict__ invariants,
                                         float *__restrict__ scalars, u32 c, u32 add) {
    u64 i = item();
    if (i >= (u64)3 * c * c) return;
    u64 row = i / (3 * c), column = i % (3 * c);
    float *part = column < c ? invariants + row * c + column : scalars + row * 2 * c + (column - c);
    if (add) *part += all[i];
    else all[i] = *part;
}
