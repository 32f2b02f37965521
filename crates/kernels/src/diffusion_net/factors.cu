// What the block on Hopper needs beside its passes over tiles: right factors in the layout that wgmma reads, and
// kernels on spectra; see `half_precision.cu`. `filter.cu` and `scales.cu` stand before this text.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr u32 C = 128, FACTOR = C * C;
// Factors of all rows, and of each mesh: S, S a^T, S b^T and S W1d^T.
constexpr u32 SHARED_FACTORS = 8, MESH_FACTORS = 4;
// Blocks of threads that pack the factors of all rows, and for products with the spectrum of a mesh: 32 rows and a map
// each, or 32 rows and 32 channels.
constexpr u32 SHARED_BLOCKS = 4 * SHARED_FACTORS, MAP_BLOCKS = 12, SPECTRUM_BLOCKS = 16;

__device__ inline float to_tf32(float x) {
    u32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return __uint_as_float(y);
}

// A number of a packed matrix: fp16 or bf16.
#if FP16
#define NUMBER "f16"
#else
#define NUMBER "bf16"
#endif
typedef unsigned short Number;

// Two numbers, the first in the lower half.
__device__ inline u32 pair_of(float low, float high) {
    u32 pair;
    asm("cvt.rn." NUMBER "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Where a column of a result lies in the order of wgmma, in which a thread holds pairs of neighbours: four neighbours
// are two of its pairs, so that it loads and stores 16 bytes.
__device__ inline u32 slot_of(u32 column) { return column / 16 * 16 + column % 4 / 2 * 8 + column % 16 / 4 * 2 + column % 2; }

// Terms that lie in 128 bytes, and in 16.
constexpr u32 PANEL = 128 / sizeof(Number), CHUNK = 16 / sizeof(Number);

// Place of B[k, n] in panels of which `panels` hold all terms of a row.
__device__ inline u32 swizzled_place(u32 n, u32 k, u32 panels) {
    return (n / 8 * panels + k / PANEL) * 8 * PANEL + n % 8 * PANEL + (k % PANEL / CHUNK ^ n % 8) * CHUNK + k % CHUNK;
}

// Place of B[k, n] in a packed factor of two halves of its rows.
__device__ inline u32 packed_place(u32 n, u32 k) { return k / 64 * (FACTOR / 2) + swizzled_place(slot_of(n), k % 64, 64 / PANEL); }

// The same for two halves of its columns.
__device__ inline u32 packed_place_of_columns(u32 n, u32 k) { return swizzled_place(slot_of(n), k, C / PANEL); }

// sums += a b, 16x8 times 8x8; lane 4 g + t holds a[g, g + 8][t, t + 4], b[t, t + 4][g], sums[g, g + 8][2 t, 2 t + 1].
// Rows, columns and terms can be numbered as one likes: below, a lane takes four neighbours from memory for several of
// them.
__device__ inline void multiply_lanes(float (&sums)[4], float a0, float a1, float a2, float a3, float b0, float b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(__float_as_uint(a0)), "r"(__float_as_uint(a1)), "r"(__float_as_uint(a2)), "r"(__float_as_uint(a3)), "r"(__float_as_uint(b0)),
          "r"(__float_as_uint(b1)));
}

__device__ inline float4 rounded(float4 v) { return {to_tf32(v.x), to_tf32(v.y), to_tf32(v.z), to_tf32(v.w)}; }
__device__ inline float4 rounded(const float *from) { return rounded(*(const float4 *)from); }

__device__ inline float4 plus(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// Stores four neighbours at once: the compiler divides some of such stores.
__device__ inline void store_four(float *to, float4 v) {
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}

// `count` partial sums of `size` numbers each.
struct Partials {
    const float *from;
    u32 count, size;
};

// Sums `width` numbers from `first` on, a power of two from 4 to 1,024, over all parts, which 256 threads share.
// `take(place, sum)` takes four neighbours.
template <typename Take> __device__ inline void sum_parts(float4 (&parts)[256], const Partials &partials, u32 first, u32 width, Take take) {
    u32 lanes = width / 4, place = first + threadIdx.x % lanes * 4;
    float4 sum = {};
    in_batches<8>(
        threadIdx.x / lanes, partials.count, 256 / lanes, [&](u32 k) { return *(const float4 *)(partials.from + (u64)k * partials.size + place); },
        [&](u32, float4 v) { sum = plus(sum, v); });
    parts[threadIdx.x] = sum;
    for (u32 half = 128; half >= lanes; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x] = plus(parts[threadIdx.x], parts[threadIdx.x + half]);
    }
    if (threadIdx.x < lanes) take(place, parts[threadIdx.x]);
}

// Adds four neighbours, which may begin anywhere.
__device__ inline void add_four(float *to, float4 v) { to[0] += v.x, to[1] += v.y, to[2] += v.z, to[3] += v.w; }

// What applies to spectra: rows of a, of b, and of the part of W1 that reads diffused scalars.
struct Maps {
    const float *product, *scalars;
    __device__ inline const float *row(u32 i) const { return i < 2 * C ? product + i * C : scalars + (i - 2 * C) * 2 * C + C; }
};

struct Layers {
    const float *scalars, *invariants, *hidden, *update, *first_bias, *hidden_bias, *update_bias;
};

#if FP16
// Blocks of threads that measure the weights: 8 for the rows of each of seven matrices, 8 for their columns, and one
// for bands and biases.
constexpr u32 WEIGHT_BLOCKS = 7 * 16 + 1;

// Measures a part of the weights. 256 threads.
__device__ inline void measure_weights(u32 block, const Maps &maps, const Layers &layers, const float *bands, float *measured) {
    u32 which = block / 16, first = block % 8 * 16;
    if (which == 7) {
        for (u32 i = threadIdx.x / C; i < 3; i += 2) {
            const float *from = i == 0 ? bands : i == 1 ? layers.first_bias : layers.hidden_bias;
            measure(measured + BANDS + i, fabsf(from[threadIdx.x % C]));
        }
        return;
    }
    const float *from = which < 2    ? maps.product + which * FACTOR
                        : which < 4  ? layers.scalars + (which - 2) * C
                        : which == 4 ? layers.invariants
                        : which == 5 ? layers.hidden
                                     : layers.update;
    u32 stride = which == 2 || which == 3 ? 2 * C : C;
    // 16 threads for each of 16 rows or columns, with eight numbers each.
    bool columns = block % 16 >= 8;
    u32 line = columns ? threadIdx.x % 16 : threadIdx.x / 16, part = columns ? threadIdx.x / 16 : threadIdx.x % 16;
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        u32 term = 16 * i + part;
        sum += fabsf(columns ? from[term * stride + first + line] : from[(first + line) * stride + term]);
    }
    __shared__ float sums[16][17];
    sums[line][part] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = 0.0f;
    for (u32 i = 0; i < 16; ++i) sum += sums[threadIdx.x % 16][i];
    measure(measured + NORMS + which, sum);
}

// Before anything is measured.
extern "C" __global__ void clear_statistics(float *measured, u64 count) {
    if (item() < count) measured[item()] = 0.0f;
}

// Measures x, of `count` times four numbers; and, in WEIGHT_BLOCKS blocks of threads before, the weights, if there are
// any.
extern "C" __global__ void __launch_bounds__(256, 4)
largest(const float4 *__restrict__ x, u32 count, float *__restrict__ entry, float *__restrict__ measured, const float *__restrict__ bands,
        const float *__restrict__ product, const float *__restrict__ scalars, const float *__restrict__ invariants,
        const float *__restrict__ hidden, const float *__restrict__ update, const float *__restrict__ first_bias,
        const float *__restrict__ hidden_bias) {
    u32 before = product ? WEIGHT_BLOCKS : 0;
    if (blockIdx.x < before) {
        measure_weights(blockIdx.x, {product, scalars}, {scalars, invariants, hidden, update, first_bias, hidden_bias, nullptr}, bands, measured);
        return;
    }
    float most = 0.0f;
    in_batches<8>(
        (blockIdx.x - before) * 256 + threadIdx.x, count, (gridDim.x - before) * 256, [&](u32 i) { return x[i]; },
        [&](u32, float4 v) { most = fmaxf(most, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)))); });
    measure_block(entry, most);
}
#endif

// Packs a part of the factors of all rows: W1x, W1p, W2, W3 transposed, for products with them; then W3, W2, W1x, W1p,
// for those of the backward pass. And the three biases, in the order of threads. A block of 256 threads for 32 columns
// of a factor.
__device__ inline void pack_shared(u32 block, const Layers &layers, const Scales &scales, Number *packed, float *biases) {
    if (block < 3 && threadIdx.x < C) {
        const float *bias = block == 0 ? layers.first_bias : block == 1 ? layers.hidden_bias : layers.update_bias;
        biases[block * C + threadIdx.x] = bias[threadIdx.x % 32 / 4 * 16 + threadIdx.x / 32 * 4 + threadIdx.x % 4];
    }
    u32 factor = block / 4, which = factor < 4 ? factor : factor < 6 ? 7 - factor : factor - 6, stride = which == 0 ? 2 * C : C;
    const float *from = which == 0 ? layers.scalars : which == 1 ? layers.invariants : which == 2 ? layers.hidden : layers.update;
    float scale = factor == 0   ? scales.first_sums() / scales.x()
                  : factor == 1 ? scales.first_sums() / P_SCALE
                                : scales.weight(which == 0 ? 2 : 3 + which);
    // 16 terms of a column for each thread.
    u32 lane = threadIdx.x % 32, column = block % 4 * 32, first = threadIdx.x / 32 * 16;
    __shared__ float rows[32][C + 1];
    float terms[16];
    if (factor < 4) {
#pragma unroll
        for (u32 i = 0; i < 16; ++i) terms[i] = from[(column + 2 * i + threadIdx.x / C) * stride + threadIdx.x % C];
#pragma unroll
        for (u32 i = 0; i < 16; ++i) rows[2 * i + threadIdx.x / C][threadIdx.x % C] = terms[i];
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < 16; ++i) terms[i] = rows[lane][first + i];
    } else {
#pragma unroll
        for (u32 i = 0; i < 16; ++i) terms[i] = from[(first + i) * stride + column + lane];
    }
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
        u32 pairs[4];
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            // A left factor from registers, which are the result of another product, has its columns in the order of
            // `slot_of`.
            float low = factor ? terms[4 * i + 2 * half] : terms[8 * half + 2 * i];
            float high = factor ? terms[4 * i + 2 * half + 1] : terms[8 * half + 2 * i + 1];
            pairs[i] = pair_of(scale * low, scale * high);
        }
        *(uint4 *)(packed + factor * FACTOR + packed_place(column + lane, first + 8 * half)) = {pairs[0], pairs[1], pairs[2], pairs[3]};
    }
}

// Eight neighbours of a column, `stride` numbers from each other, times `scale`.
__device__ inline uint4 packed_eight(const float *from, u32 stride, float scale) {
    float v[8];
#pragma unroll
    for (u32 i = 0; i < 8; ++i) v[i] = scale * from[i * stride];
    return {pair_of(v[0], v[1]), pair_of(v[2], v[3]), pair_of(v[4], v[5]), pair_of(v[6], v[7])};
}

// Sums the raw spectra over slabs, saves and filters them: the spectra S. SHARED_BLOCKS blocks of threads pack the
// factors of all rows; the others sum `width` numbers each.
extern "C" __global__ void __launch_bounds__(256, 4)
filter_spectra(const float *__restrict__ raw, u32 slabs, u32 width, const float *__restrict__ eigenvalues, const float *__restrict__ log_times,
               const float *__restrict__ bands, const float *__restrict__ scalars, const float *__restrict__ invariants,
               const float *__restrict__ hidden, const float *__restrict__ update, const float *__restrict__ first_bias,
               const float *__restrict__ hidden_bias, const float *__restrict__ update_bias, float *__restrict__ saved, float *__restrict__ spectra,
               Number *__restrict__ packed, float *__restrict__ biases, const float *of_bases, const float *of_block) {
    if (blockIdx.x < SHARED_BLOCKS) {
        Measured measured = {of_bases, of_block, 1.0f};
        Layers layers = {scalars, invariants, hidden, update, first_bias, hidden_bias, update_bias};
        pack_shared(blockIdx.x, layers, {measured}, packed, biases);
        return;
    }
    __shared__ float4 parts[256];
    u32 block = blockIdx.x - SHARED_BLOCKS, blocks = FACTOR / width, mesh = block / blocks;
    Partials partials = {raw + (u64)mesh * slabs * FACTOR, slabs, FACTOR};
    sum_parts(parts, partials, block % blocks * width, width, [&](u32 place, float4 sum) {
        u32 channel = place % C;
        u64 to = (u64)mesh * FACTOR + place;
        float eigenvalue = eigenvalues[to / C];
        auto filter = [&](u32 i) { return filter_of(eigenvalue, log_times[channel + i], bands[channel + i]).f; };
        *(float4 *)(saved + to) = sum;
        *(float4 *)(spectra + to) = {sum.x * filter(0), sum.y * filter(1), sum.z * filter(2), sum.w * filter(3)};
    });
}

// Packs the spectra S, and their products with the maps. MAP_BLOCKS blocks of threads for each mesh.
extern "C" __global__ void __launch_bounds__(256, 2)
spectra_forward(const float *__restrict__ spectra, const float *__restrict__ product, const float *__restrict__ scalars, Number *__restrict__ packed,
                const float *of_bases, const float *of_block) {
    __shared__ __align__(16) float spectrum[32][C + 16];
    u32 mesh = blockIdx.x / MAP_BLOCKS, which = blockIdx.x % 3, first = blockIdx.x % MAP_BLOCKS / 3 * 32;
    Number *of_mesh = packed + (u64)(SHARED_FACTORS + mesh * MESH_FACTORS) * FACTOR;
    // 16 rows of the map for each warp, and all rows of the spectrum, in flight together: latency takes the time of
    // this kernel.
    Maps maps = {product, scalars};
    u32 warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float4 top[8], bottom[8], own[4];
    const float *of_map = maps.row(which * C + 16 * warp + g) + 4 * t;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) top[i] = *(const float4 *)(of_map + 16 * i), bottom[i] = *(const float4 *)(of_map + 8 * (which < 2 ? C : 2 * C) + 16 * i);
    const float *from = spectra + (u64)mesh * FACTOR + first * C;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) own[i] = rounded(from + (i * 256 + threadIdx.x) * 4);
    Measured measured = {of_bases, of_block, 1.0f};
    Scales scales = {measured};
    float of_spectrum = scales.spectrum(), scale = which < 2 ? scales.maps() : scales.first_sums() / scales.phi();
#pragma unroll
    for (u32 i = 0; i < 4; ++i) *(float4 *)&spectrum[i * 8 + warp][threadIdx.x % 32 * 4] = own[i];
    __syncthreads();
    // tf32 has more digits than what is packed.
    for (u32 i = threadIdx.x; which == 0 && i < 4 * C; i += 256)
        *(uint4 *)(of_mesh + packed_place_of_columns(i % C, first + i / C * 8)) = packed_eight(&spectrum[i / C * 8][i % C], C + 16, of_spectrum);
    float sums[4][4] = {};
#pragma unroll
    for (u32 k = 0; k < 8; ++k) {
        float4 a = rounded(top[k]), b = rounded(bottom[k]);
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            float4 s = *(const float4 *)&spectrum[8 * i + g][16 * k + 4 * t];
            multiply_lanes(sums[i], a.x, b.x, a.y, b.y, s.x, s.y);
            multiply_lanes(sums[i], a.z, b.z, a.w, b.w, s.z, s.w);
        }
    }
    of_mesh += (1 + which) * FACTOR;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        u32 n = 16 * warp + i % 2 * 8 + g, k = first + i / 2 * 8 + 2 * t;
        const float *pair = &sums[i / 2][i % 2 * 2];
        *(u32 *)(of_mesh + (which < 2 ? packed_place_of_columns(n, k) : packed_place(n, k))) = pair_of(scale * pair[0], scale * pair[1]);
    }
}

// Adds up sums over slabs. To the gradients of the biases [b1 | b2 | b3], of W3, W2 and [W1p | W1x], over `all_slabs`
// of all meshes. For each mesh: to dmaps, the gradients of the maps as rows [S a^T | S b^T | S W1d^T], and to dspectra,
// those of the spectra that do not come from them. There, a block of threads sums `width` numbers, after
// GRADIENT_BLOCKS others.
constexpr u32 BIAS_WIDTH = 8, BIAS_BLOCKS = 3 * C / BIAS_WIDTH, GRADIENT_WIDTH = 256, FACTOR_BLOCKS = FACTOR / GRADIENT_WIDTH,
              GRADIENT_BLOCKS = BIAS_BLOCKS + 4 * FACTOR_BLOCKS;
extern "C" __global__ void __launch_bounds__(256, 4)
sum_gradients(const float *__restrict__ bias_sums, u32 bias_parts, const float *__restrict__ update_sums, const float *__restrict__ hidden_sums,
              const float *__restrict__ first_sums, u32 all_slabs, const float *__restrict__ scalar_sums, u32 scalar_slabs,
              const float *__restrict__ vector_sums, u32 vector_slabs, u32 width, float *__restrict__ first_bias, float *__restrict__ hidden_bias,
              float *__restrict__ update_bias, float *__restrict__ update, float *__restrict__ hidden, float *__restrict__ invariants,
              float *__restrict__ scalars, float *__restrict__ dmaps, float *__restrict__ dspectra) {
    __shared__ float4 parts[256];
    u32 block = blockIdx.x;
    if (block < BIAS_BLOCKS) {
        sum_parts(parts, {bias_sums, bias_parts, 3 * C}, block * BIAS_WIDTH, BIAS_WIDTH, [&](u32 place, float4 sum) {
            add_four((place < C ? first_bias : place < 2 * C ? hidden_bias : update_bias) + place % C, sum);
        });
        return;
    }
    if (block < GRADIENT_BLOCKS) {
        block -= BIAS_BLOCKS;
        // The last two are the halves of one.
        u32 which = block / FACTOR_BLOCKS, before = min(which, 2u) * FACTOR_BLOCKS;
        Partials partials = {which == 0 ? update_sums : which == 1 ? hidden_sums : first_sums, all_slabs, which < 2 ? FACTOR : 2 * FACTOR};
        sum_parts(parts, partials, (block - before) * GRADIENT_WIDTH, GRADIENT_WIDTH, [&](u32 place, float4 sum) {
            u32 row = place / (2 * C), column = place % (2 * C);
            float *of_first = column < C ? invariants + row * C + column : scalars + row * 2 * C + column - C;
            add_four(which == 0 ? update + place : which == 1 ? hidden + place : of_first, sum);
        });
        return;
    }
    block -= GRADIENT_BLOCKS;
    u32 blocks = FACTOR / width, mesh = block / (4 * blocks), kind = block / blocks % 4;
    Partials partials = {scalar_sums + (u64)mesh * scalar_slabs * FACTOR, scalar_slabs, FACTOR};
    if (kind < 3) partials = {vector_sums + ((u64)mesh * vector_slabs * 3 + kind) * FACTOR, vector_slabs, 3 * FACTOR};
    sum_parts(parts, partials, block % blocks * width, width, [&](u32 place, float4 sum) {
        u64 row = mesh * C + place / C;
        *(float4 *)((kind == 2 ? dspectra + row * C : dmaps + row * 3 * C + min(kind, 2u) * C) + place % C) = sum;
    });
}

// 32 x 32 numbers for each of 8 warps; rows begin at other banks.
struct Squares {
    static constexpr u32 STRIDE = 36;
    float numbers[8][32 * STRIDE];
    __device__ inline void put(u32 row, u32 column, float4 v) { *(float4 *)&numbers[threadIdx.x / 32][row * STRIDE + column] = v; }
    // Four neighbours for each thread, summed over the warps: those of row threadIdx.x / 8.
    __device__ inline float4 sum() const {
        float4 sum = {};
#pragma unroll
        for (u32 warp = 0; warp < 8; ++warp) sum = plus(sum, *(const float4 *)&numbers[warp][threadIdx.x / 8 * STRIDE + threadIdx.x % 8 * 4]);
        return sum;
    }
};

// 32 x 32 numbers of dmaps^T S, over rows first..end of both, a multiple of 128, for each block of 256 threads.
__device__ inline void map_gradients(Squares &squares, u32 block, const float *dmaps, const float *spectra, u32 first, u32 end, float *sums_of_part) {
    u32 warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, row = block / 4 * 32, column = block % 4 * 32;
    float sums[2][4][4] = {};
    dmaps += row + 4 * g, spectra += column + 4 * g;
    for (u32 k = first + 8 * warp + t; k < end; k += 128) {
        // All are in flight together, as none depends on a condition.
        float4 a[2][2], b[2][2];
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            u64 at = k + i / 2 * 64 + i % 2 * 4;
            a[i / 2][i % 2] = *(const float4 *)(dmaps + at * 3 * C), b[i / 2][i % 2] = *(const float4 *)(spectra + at * C);
        }
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            float4 low = rounded(a[i][0]), high = rounded(a[i][1]), b0 = rounded(b[i][0]), b1 = rounded(b[i][1]);
            auto multiply = [&](float (&sums)[4][4], float a0, float a1, float a2, float a3) {
                multiply_lanes(sums[0], a0, a1, a2, a3, b0.x, b1.x), multiply_lanes(sums[1], a0, a1, a2, a3, b0.y, b1.y);
                multiply_lanes(sums[2], a0, a1, a2, a3, b0.z, b1.z), multiply_lanes(sums[3], a0, a1, a2, a3, b0.w, b1.w);
            };
            multiply(sums[0], low.x, low.y, high.x, high.y), multiply(sums[1], low.z, low.w, high.z, high.w);
        }
    }
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        const float(&of_row)[4][4] = sums[i / 4];
        squares.put(4 * g + i / 2, 4 * (2 * t + i % 2), {of_row[0][i % 4], of_row[1][i % 4], of_row[2][i % 4], of_row[3][i % 4]});
    }
    __syncthreads();
    store_four(sums_of_part + (row + threadIdx.x / 8) * C + column + threadIdx.x % 8 * 4, squares.sum());
}

// Gradients of the raw spectra from those of the maps, in dspectra, to which they add; and sums of the gradients by
// times, then by bands, for each 32 rows. SPECTRUM_BLOCKS blocks of threads for each mesh; then 48 for the gradients of
// the maps, for each `meshes_of_part` meshes.
extern "C" __global__ void __launch_bounds__(256, 2)
spectra_backward(const float *__restrict__ dmaps, const float *__restrict__ spectra, u32 meshes, u32 meshes_of_part,
                 const float *__restrict__ product, const float *__restrict__ scalars, const float *__restrict__ saved,
                 const float *__restrict__ eigenvalues, const float *__restrict__ log_times, const float *__restrict__ bands,
                 float *__restrict__ dspectra, float *__restrict__ filter_sums, float *__restrict__ map_sums, float *__restrict__ entry) {
    __shared__ __align__(16) Squares squares;
    if (blockIdx.x >= meshes * SPECTRUM_BLOCKS) {
        u32 block = blockIdx.x - meshes * SPECTRUM_BLOCKS, part = block / 48, first = part * meshes_of_part;
        map_gradients(squares, block % 48, dmaps, spectra, first * C, min(first + meshes_of_part, meshes) * C, map_sums + (u64)part * 3 * FACTOR);
        return;
    }
    u32 mesh = blockIdx.x / SPECTRUM_BLOCKS, first = mesh * C + blockIdx.x % SPECTRUM_BLOCKS / 4 * 32, column = blockIdx.x % 4 * 32;
    // 48 rows of the maps for each warp.
    Maps maps = {product, scalars};
    u32 warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float *of_row = dmaps + (u64)(first + g) * 3 * C + 48 * warp + 4 * t;
    float sums[2][4][4] = {};
#pragma unroll
    for (u32 k = 0; k < 3; ++k) {
        float4 a[4], b[4];
#pragma unroll
        for (u32 i = 0; i < 4; ++i) a[i] = rounded(maps.row(48 * warp + 16 * k + 4 * t + i) + column + 4 * g), b[i] = rounded(of_row + 8 * i * 3 * C + 16 * k);
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            multiply_lanes(sums[0][i], a[0].x, a[0].y, a[1].x, a[1].y, b[i].x, b[i].y);
            multiply_lanes(sums[1][i], a[0].z, a[0].w, a[1].z, a[1].w, b[i].x, b[i].y);
            multiply_lanes(sums[0][i], a[2].x, a[2].y, a[3].x, a[3].y, b[i].z, b[i].w);
            multiply_lanes(sums[1][i], a[2].z, a[2].w, a[3].z, a[3].w, b[i].z, b[i].w);
        }
    }
    // Four channels of a row for each thread, which are in flight while the products end.
    u32 row = first + threadIdx.x / 8, channel = column + threadIdx.x % 8 * 4;
    float4 *to = (float4 *)(dspectra + (u64)row * C + channel), before = *to, raw = *(const float4 *)(saved + (u64)row * C + channel);
    float eigenvalue = eigenvalues[row];
    Filter filters[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) filters[i] = filter_of(eigenvalue, log_times[channel + i], bands[channel + i]);
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        u32 n = i / 2, e = i % 2;
        squares.put(8 * n + 2 * t + e, 4 * g, {sums[0][n][e], sums[0][n][e + 2], sums[1][n][e], sums[1][n][e + 2]});
    }
    __syncthreads();
    float4 ds = plus(before, squares.sum());
    float4 result = {filters[0].f * ds.x, filters[1].f * ds.y, filters[2].f * ds.z, filters[3].f * ds.w};
    *to = result;
    float of_products[4] = {ds.x * raw.x, ds.y * raw.y, ds.z * raw.z, ds.w * raw.w};
    // Sums over the four rows of a warp, then over all.
    __shared__ float by_filter[8][2][32];
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        float sum = (i < 4 ? filters[i % 4].by_time : filters[i % 4].by_band) * of_products[i % 4];
        sum += __shfl_xor_sync(0xffffffffu, sum, 8);
        sum += __shfl_xor_sync(0xffffffffu, sum, 16);
        if (threadIdx.x % 32 < 8) by_filter[warp][i / 4][threadIdx.x * 4 % 32 + i % 4] = sum;
    }
    if (FP16) measure_block(entry, fmaxf(fmaxf(fabsf(result.x), fabsf(result.y)), fmaxf(fabsf(result.z), fabsf(result.w))));
    __syncthreads();
    if (threadIdx.x >= 64) return;
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) sum += by_filter[i][threadIdx.x / 32][threadIdx.x % 32];
    filter_sums[(first / 32 * 2 + threadIdx.x / 32) * C + column + threadIdx.x % 32] = sum;
}

// Packs the gradients of the raw spectra, in 8 blocks of 256 threads for each mesh; and adds to the gradients of the
// filters and the maps, in FILTER_BLOCKS and 3 FACTOR_BLOCKS.
constexpr u32 FILTER_WIDTH = 32, FILTER_BLOCKS = 2 * C / FILTER_WIDTH;
extern "C" __global__ void __launch_bounds__(256, 4)
add_gradients(const float *__restrict__ dspectra, u32 meshes, Number *__restrict__ packed, const float *of_block, const float *__restrict__ filter_sums,
              u32 filter_parts, const float *__restrict__ map_sums, u32 map_parts, float *__restrict__ log_times, float *__restrict__ bands,
              float *__restrict__ product, float *__restrict__ scalars) {
    u32 block = blockIdx.x;
    if (block < 8 * meshes) {
        Measured measured = {nullptr, of_block, 1.0f};
        u32 n = threadIdx.x % C, k = block % 8 * 16 + threadIdx.x / C * 8;
        u64 of_mesh = (u64)(block / 8) * FACTOR;
        *(uint4 *)(packed + of_mesh + packed_place(n, k)) = packed_eight(dspectra + of_mesh + k * C + n, C, Scales{measured}.dspectrum());
        return;
    }
    block -= 8 * meshes;
    __shared__ float4 parts[256];
    if (block < FILTER_BLOCKS) {
        sum_parts(parts, {filter_sums, filter_parts, 2 * C}, block * FILTER_WIDTH, FILTER_WIDTH,
                  [&](u32 place, float4 sum) { add_four((place < C ? log_times : bands) + place % C, sum); });
        return;
    }
    block -= FILTER_BLOCKS;
    sum_parts(parts, {map_sums, map_parts, 3 * FACTOR}, block * GRADIENT_WIDTH, GRADIENT_WIDTH, [&](u32 place, float4 sum) {
        u32 row = place / C, column = place % C;
        add_four(row < 2 * C ? product + place : scalars + (row - 2 * C) * 2 * C + C + column, sum);
    });
}

#endif
