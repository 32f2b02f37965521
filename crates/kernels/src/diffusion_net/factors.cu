// What the block on Hopper needs beside its passes over tiles: right factors in the layout that wgmma reads, and kernels on spectra; see
// `half.cu`. `filter.cu` and `scales.cu` stand before this text.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr u32 C = 128, FACTOR = C * C;
// Factors of all rows, and of each mesh: S, S a^T, S b^T and S W1d^T.
constexpr u32 SHARED_FACTORS = 8, MESH_FACTORS = 4;
// Rows of a spectrum for a block of threads, blocks of a spectrum, and blocks that pack the factors of all rows.
constexpr u32 SPECTRUM_ROWS = 8, SPECTRUM_BLOCKS = C / SPECTRUM_ROWS, SHARED_BLOCKS = 64;

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
__device__ inline Number to_number(float x) {
    Number y;
    asm("cvt.rn." NUMBER ".f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

struct __align__(2 * sizeof(Number)) Pair {
    Number first, second;
};

// Where a column of a result lies in the order of wgmma, in which a thread holds pairs of neighbours: four neighbours are two of its pairs, so
// that it loads and stores 16 bytes.
__device__ inline u32 slot_of(u32 column) { return column / 16 * 16 + column % 4 / 2 * 8 + column % 16 / 4 * 2 + column % 2; }

// Terms that lie in 128 bytes, and in 16.
constexpr u32 PANEL = 128 / sizeof(Number), CHUNK = 16 / sizeof(Number);

// Place of B[k, n] in panels of which `panels` hold all terms of a row.
__device__ inline u32 swizzled_place(u32 n, u32 k, u32 panels) {
    return (n / 8 * panels + k / PANEL) * 8 * PANEL + n % 8 * PANEL + (k % PANEL / CHUNK ^ n % 8) * CHUNK + k % CHUNK;
}

// Place of B[k, n] in a packed factor of two halves of its rows. A left factor from registers, which are the result of another product, has
// its columns in another order.
__device__ inline u32 packed_place(u32 n, u32 k, bool from_registers) {
    if (from_registers) k = slot_of(k);
    return k / 64 * (FACTOR / 2) + swizzled_place(slot_of(n), k % 64, 64 / PANEL);
}

// The same for two halves of its columns.
__device__ inline u32 packed_place_of_columns(u32 n, u32 k) { return swizzled_place(slot_of(n), k, C / PANEL); }

// sums += a b, 16x8 times 8x8; lane 4 g + t holds a[g, g + 8][t, t + 4], b[t, t + 4][g], sums[g, g + 8][2 t, 2 t + 1]. Rows, columns and terms
// can be numbered as one likes: below, a lane takes four neighbours from memory for several of them.
__device__ inline void multiply_lanes(float (&sums)[4], float a0, float a1, float a2, float a3, float b0, float b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(__float_as_uint(a0)), "r"(__float_as_uint(a1)), "r"(__float_as_uint(a2)), "r"(__float_as_uint(a3)), "r"(__float_as_uint(b0)),
          "r"(__float_as_uint(b1)));
}

__device__ inline float4 rounded(const float *from) {
    float4 v = *(const float4 *)from;
    return {to_tf32(v.x), to_tf32(v.y), to_tf32(v.z), to_tf32(v.w)};
}

// Adds the sum over slabs of `size` numbers, for COUNT numbers.
template <u32 COUNT> __device__ inline void add_slabs(float (&sums)[COUNT], const float *from, u32 stride, u32 slabs, u32 size) {
#pragma unroll 2
    for (u32 slab = 0; slab < slabs; ++slab) {
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) sums[i] += from[(u64)slab * size + i * stride];
    }
}

// What applies to spectra: rows of a, of b, and of the part of W1 that reads diffused scalars.
struct Maps {
    const float *product, *scalars;
    __device__ inline const float *row(u32 i) const { return i < 2 * C ? product + i * C : scalars + (i - 2 * C) * 2 * C + C; }
};

struct Layers {
    const float *scalars, *invariants, *hidden, *update, *first_bias, *hidden_bias, *update_bias;
};

#if FP16
// Blocks of threads that measure the weights: 8 for the rows of each of seven matrices, 8 for their columns, and one for bands and biases.
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
extern "C" __global__ void forget(float *measured, u64 count) {
    if (item() < count) measured[item()] = 0.0f;
}

// Measures x, of `count` times four numbers; and, in WEIGHT_BLOCKS blocks of threads before, the weights, if there are any.
extern "C" __global__ void __launch_bounds__(256)
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
    measure(entry, most);
}
#endif

// Packs a part of the factors of all rows: W1x, W1p, W2, W3 transposed, for products with them; then W3, W2, W1x, W1p, for those of the
// backward pass. And the three biases, in the order of threads.
__device__ inline void pack_shared(u32 part, const Layers &layers, const Scales &scales, Number *packed, float *biases) {
    constexpr u32 COUNT = SHARED_FACTORS * FACTOR / SHARED_BLOCKS;
    if (part < 3 && threadIdx.x < C) {
        const float *bias = part == 0 ? layers.first_bias : part == 1 ? layers.hidden_bias : layers.update_bias;
        biases[part * C + threadIdx.x] = bias[threadIdx.x % 32 / 4 * 16 + threadIdx.x / 32 * 4 + threadIdx.x % 4];
    }
    u32 factor = part * COUNT / FACTOR, which = factor < 4 ? factor : factor < 6 ? 7 - factor : factor - 6;
    const float *from = which == 0 ? layers.scalars : which == 1 ? layers.invariants : which == 2 ? layers.hidden : layers.update;
    float scale = factor == 0   ? scales.first_sums() / scales.x()
                  : factor == 1 ? scales.first_sums() / P_SCALE
                                : scales.weight(which == 0 ? 2 : 3 + which);
    for (u32 at = threadIdx.x; at < COUNT; at += blockDim.x) {
        u32 i = (part * COUNT + at) % FACTOR, row = i / C, column = i % C;
        float value = from[row * (which == 0 ? 2 * C : C) + column];
        u32 n = factor < 4 ? row : column, k = factor < 4 ? column : row;
        packed[factor * FACTOR + packed_place(n, k, factor != 0)] = to_number(scale * value);
    }
}

// Sums the raw spectra over slabs, saves and filters them, and multiplies them with the maps: all factors of a block, packed, and the
// spectra S. A block of threads for SPECTRUM_ROWS rows of a mesh, then SHARED_BLOCKS for the factors of all rows.
extern "C" __global__ void __launch_bounds__(3 * C)
spectra_forward(const float *__restrict__ raw, u32 slabs, u32 meshes, const float *__restrict__ eigenvalues, const float *__restrict__ log_times,
                const float *__restrict__ bands, const float *__restrict__ product, const float *__restrict__ scalars,
                const float *__restrict__ invariants, const float *__restrict__ hidden, const float *__restrict__ update,
                const float *__restrict__ first_bias, const float *__restrict__ hidden_bias, const float *__restrict__ update_bias,
                float *__restrict__ saved, Number *__restrict__ packed, float *__restrict__ spectra, float *__restrict__ biases, const float *of_bases,
                const float *of_block, float drop) {
    Measured measured = {of_bases, of_block, drop};
    Scales scales = {measured};
    float of_spectrum = scales.spectrum(), of_maps = scales.maps(), of_diffused = scales.first_sums() / scales.phi();
    if (blockIdx.x >= meshes * SPECTRUM_BLOCKS) {
        pack_shared(blockIdx.x - meshes * SPECTRUM_BLOCKS, {scalars, invariants, hidden, update, first_bias, hidden_bias, update_bias}, scales,
                    packed, biases);
        return;
    }
    __shared__ __align__(16) float spectrum[SPECTRUM_ROWS][C + 16];
    u32 mesh = blockIdx.x / SPECTRUM_BLOCKS, first = blockIdx.x % SPECTRUM_BLOCKS * SPECTRUM_ROWS;
    Number *of_mesh = packed + (u64)(SHARED_FACTORS + mesh * MESH_FACTORS) * FACTOR;
    // 32 rows of the maps for each warp, which are in flight while spectra are summed: latency takes the time of this kernel.
    Maps maps = {product, scalars};
    u32 warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, which = warp / 4;
    float4 top[2][8], bottom[2][8];
#pragma unroll
    for (u32 i = 0; i < 16; ++i) {
        const float *of_map = maps.row(32 * warp + i / 8 * 16 + g) + i % 8 * 16 + 4 * t;
        top[i / 8][i % 8] = rounded(of_map), bottom[i / 8][i % 8] = rounded(of_map + 8 * (which < 2 ? C : 2 * C));
    }
    // Four neighbours for each thread.
    u32 i = threadIdx.x / (C / 4), row = first + i, channel = threadIdx.x % (C / 4) * 4, place = row * C + channel;
    if (i < SPECTRUM_ROWS) {
        float4 sum = {};
        in_batches<8>(
            0, slabs, 1, [&](u32 slab) { return *(const float4 *)(raw + ((u64)mesh * slabs + slab) * FACTOR + place); },
            [&](u32, float4 v) { sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w; });
        *(float4 *)(saved + (u64)mesh * FACTOR + place) = sum;
        float s[4] = {sum.x, sum.y, sum.z, sum.w}, eigenvalue = eigenvalues[mesh * C + row];
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            s[k] *= filter_of(eigenvalue, log_times[channel + k], bands[channel + k]).f;
            spectrum[i][channel + k] = to_tf32(s[k]);
            of_mesh[packed_place_of_columns(channel + k, row)] = to_number(of_spectrum * s[k]);
        }
        *(float4 *)(spectra + (u64)mesh * FACTOR + place) = {s[0], s[1], s[2], s[3]};
    }
    __syncthreads();
    float sums[2][4] = {};
#pragma unroll
    for (u32 k = 0; k < 8; ++k) {
        float4 s = *(const float4 *)&spectrum[g][16 * k + 4 * t];
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            float4 a = top[i][k], b = bottom[i][k];
            multiply_lanes(sums[i], a.x, b.x, a.y, b.y, s.x, s.y);
            multiply_lanes(sums[i], a.z, b.z, a.w, b.w, s.z, s.w);
        }
    }
    of_mesh += (1 + which) * FACTOR;
    float scale = which < 2 ? of_maps : of_diffused;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        u32 n = (32 * warp + 8 * i + g) % C, k = first + 2 * t;
        Pair pair = {to_number(scale * sums[i / 2][i % 2 * 2]), to_number(scale * sums[i / 2][i % 2 * 2 + 1])};
        *(Pair *)(of_mesh + (which < 2 ? packed_place_of_columns(n, k) : packed_place(n, k, false))) = pair;
    }
}

// Gradients of the spectra, from sums over slabs of Phi^T dh, and of those of the vectors: for a, for b, and of the spectrum itself. dmaps: those of
// the maps, as rows [S a^T | S b^T | S W1d^T]. packed: those of the raw spectra, packed, or with FP16 as they are, until they are measured. partials:
// sums of the gradients by times, then by bands, for each block of threads. Blocks as in `spectra_forward`.
extern "C" __global__ void __launch_bounds__(3 * C)
spectra_backward(const float *__restrict__ scalar_sums, u32 scalar_slabs, const float *__restrict__ vector_sums, u32 vector_slabs,
                 const float *__restrict__ product, const float *__restrict__ scalars, const float *__restrict__ saved,
                 const float *__restrict__ eigenvalues, const float *__restrict__ log_times, const float *__restrict__ bands,
                 float *__restrict__ dmaps, void *__restrict__ packed, float *__restrict__ partials, float *__restrict__ entry) {
    __shared__ float of_maps[SPECTRUM_ROWS][3 * C + 4], parts[3][SPECTRUM_ROWS][C], by_filter[2][C];
    u32 mesh = blockIdx.x / SPECTRUM_BLOCKS, first = blockIdx.x % SPECTRUM_BLOCKS * SPECTRUM_ROWS;
    u32 channel = threadIdx.x % C, part = threadIdx.x / C;
    // A map and 32 channels for each warp, in flight while the sums are.
    Maps maps = {product, scalars};
    u32 warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, columns = warp % 4 * 32 + 4 * g;
    float4 of_map[32];
#pragma unroll
    for (u32 i = 0; i < 32; ++i) of_map[i] = rounded(maps.row(part * C + 4 * i + t) + columns);
    constexpr u32 VECTORS = 3 * FACTOR;
    const float *vectors = vector_sums + (u64)mesh * vector_slabs * VECTORS + channel;
    auto kind = [&](u32 which, u32 row) { return vectors + which * FACTOR + row * C; };
    float values[SPECTRUM_ROWS] = {}, own[4] = {};
    if (part == 2)
        add_slabs(values, scalar_sums + (u64)mesh * scalar_slabs * FACTOR + first * C + channel, C, scalar_slabs, FACTOR);
    else
        add_slabs(values, kind(part, first), C, vector_slabs, VECTORS);
    // Of the rows that are filtered here.
    if (part < 2) add_slabs(own, kind(2, first + part * 4), C, vector_slabs, VECTORS);
#pragma unroll
    for (u32 i = 0; i < SPECTRUM_ROWS; ++i) {
        dmaps[(u64)(mesh * C + first + i) * 3 * C + threadIdx.x] = values[i];
        of_maps[i][threadIdx.x] = to_tf32(values[i]);
    }
    __syncthreads();
    float sums[2][4] = {};
#pragma unroll
    for (u32 i = 0; i < 16; ++i) {
        u32 k = part * C + 8 * i + t;
        float4 low = of_map[2 * i], high = of_map[2 * i + 1];
        float b0 = of_maps[g][k], b1 = of_maps[g][k + 4];
        multiply_lanes(sums[0], low.x, low.y, high.x, high.y, b0, b1);
        multiply_lanes(sums[1], low.z, low.w, high.z, high.w, b0, b1);
    }
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        u32 column = columns + i / 2 * 2 + i % 2;
        parts[part][2 * t][column] = sums[i / 2][i % 2 * 2];
        parts[part][2 * t + 1][column] = sums[i / 2][i % 2 * 2 + 1];
    }
    __syncthreads();
    float by_time = 0.0f, by_band = 0.0f, largest = 0.0f;
    if (part < 2) {
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            u32 i = part * 4 + k, row = first + i;
            float ds = own[k] + parts[0][i][channel] + parts[1][i][channel] + parts[2][i][channel];
            float of_product = ds * saved[(u64)mesh * FACTOR + row * C + channel];
            Filter filter = filter_of(eigenvalues[mesh * C + row], log_times[channel], bands[channel]);
            by_time += filter.by_time * of_product;
            by_band += filter.by_band * of_product;
            u64 of_mesh = (u64)mesh * FACTOR;
            if (FP16)
                ((float *)packed)[of_mesh + row * C + channel] = filter.f * ds;
            else
                ((Number *)packed)[of_mesh + packed_place(channel, row, false)] = to_number(filter.f * ds);
            largest = fmaxf(largest, fabsf(filter.f * ds));
        }
        if (FP16) measure(entry, largest);
    }
    if (part == 1) by_filter[0][channel] = by_time, by_filter[1][channel] = by_band;
    __syncthreads();
    if (part > 0) return;
    partials[(u64)blockIdx.x * 2 * C + channel] = by_time + by_filter[0][channel];
    partials[((u64)blockIdx.x * 2 + 1) * C + channel] = by_band + by_filter[1][channel];
}

#if FP16
// Packs the gradients of the raw spectra.
extern "C" __global__ void pack_spectra(const float *__restrict__ spectra, Number *__restrict__ packed, const float *of_block, u64 count) {
    u64 i = item();
    if (i >= count) return;
    Measured measured = {nullptr, of_block, 1.0f};
    packed[i / FACTOR * FACTOR + packed_place(i % C, i % FACTOR / C, false)] = to_number(Scales{measured}.dspectrum() * spectra[i]);
}
#endif

// 32 x 32 numbers of dmaps^T S, with `rows` rows in both, for each block of 256 threads. `add(row, column, number)` takes them.
template <typename Add>
__device__ inline void map_gradients(float (&parts)[8][32 * 32], u32 block, const float *dmaps, const float *spectra, u32 rows, Add add) {
    u32 warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, row = block / 4 * 32, column = block % 4 * 32;
    float sums[2][4][4] = {};
    dmaps += row + 4 * g, spectra += column + 4 * g;
    struct Rows {
        float4 low, high, b0, b1;
    };
    in_batches<4>(
        8 * warp + t, rows, 64,
        [&](u32 k) {
            const float *a = dmaps + (u64)k * 3 * C, *b = spectra + (u64)k * C;
            return Rows{rounded(a), rounded(a + 12 * C), rounded(b), rounded(b + 4 * C)};
        },
        [&](u32, const Rows &v) {
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
                float a0 = i ? v.low.z : v.low.x, a1 = i ? v.low.w : v.low.y, a2 = i ? v.high.z : v.high.x, a3 = i ? v.high.w : v.high.y;
                multiply_lanes(sums[i][0], a0, a1, a2, a3, v.b0.x, v.b1.x);
                multiply_lanes(sums[i][1], a0, a1, a2, a3, v.b0.y, v.b1.y);
                multiply_lanes(sums[i][2], a0, a1, a2, a3, v.b0.z, v.b1.z);
                multiply_lanes(sums[i][3], a0, a1, a2, a3, v.b0.w, v.b1.w);
            }
        });
#pragma unroll
    for (u32 i = 0; i < 32; ++i) {
        u32 r = 4 * g + i / 16 * 2 + i % 4 / 2, c = 4 * (2 * t + i % 2) + i % 16 / 4;
        parts[warp][r * 32 + c] = sums[i / 16][i % 16 / 4][i % 4];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < 32 * 32; i += 256) {
        float sum = 0.0f;
#pragma unroll
        for (u32 part = 0; part < 8; ++part) sum += parts[part][i];
        add(row + i / 32, column + i % 32, sum);
    }
}

// `count` partial sums of `size` numbers each.
struct Partials {
    const float *from;
    u32 count, size;
};

// 128 numbers from `first` on, summed over all parts by 256 threads; `add(place, sum)` takes them.
template <typename Add> __device__ inline void sum_parts(float (&parts)[8][32 * 32], const Partials &partials, u32 first, Add add) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float4 sum = {};
    in_batches<16>(
        warp, partials.count, 8, [&](u32 k) { return *(const float4 *)(partials.from + (u64)k * partials.size + first + 4 * lane); },
        [&](u32, float4 v) { sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w; });
    *(float4 *)&parts[warp][4 * lane] = sum;
    __syncthreads();
    if (threadIdx.x >= 128) return;
    float total = 0.0f;
#pragma unroll
    for (u32 part = 0; part < 8; ++part) total += parts[part][threadIdx.x];
    add(first + threadIdx.x, total);
}

// Adds to the gradients of all parameters: the sums over rows of W3, W2 and [W1p | W1x], of the biases [b1 | b2 | b3] and of the filters, and the
// products of spectra for the maps, with `rows` rows. GRADIENT_BLOCKS blocks of threads.
extern "C" __global__ void __launch_bounds__(256, 2)
add_gradients(const float *__restrict__ dmaps, const float *__restrict__ spectra, u32 rows, const float *__restrict__ update_sums,
              const float *__restrict__ hidden_sums, u32 slabs, const float *__restrict__ first_sums, u32 first_slabs,
              const float *__restrict__ bias_sums, u32 bias_parts, const float *__restrict__ filter_sums, u32 filter_parts,
              float *__restrict__ product, float *__restrict__ scalars, float *__restrict__ invariants, float *__restrict__ hidden,
              float *__restrict__ update, float *__restrict__ first_bias, float *__restrict__ hidden_bias, float *__restrict__ update_bias,
              float *__restrict__ log_times, float *__restrict__ bands) {
    __shared__ __align__(16) float parts[8][32 * 32];
    u32 block = blockIdx.x;
    if (block < 48) {
        map_gradients(parts, block, dmaps, spectra, rows, [&](u32 row, u32 column, float value) {
            *(row < 2 * C ? product + row * C + column : scalars + (row - 2 * C) * 2 * C + C + column) += value;
        });
        return;
    }
    block -= 48;
    if (block < 256) {
        Partials partials = {block < 128 ? update_sums : hidden_sums, slabs, FACTOR};
        float *to = block < 128 ? update : hidden;
        sum_parts(parts, partials, block % 128 * C, [&](u32 i, float value) { to[i] += value; });
        return;
    }
    block -= 256;
    if (block < 256) {
        sum_parts(parts, {first_sums, first_slabs, 2 * FACTOR}, block * C, [&](u32 i, float value) {
            u32 row = i / (2 * C), column = i % (2 * C);
            *(column < C ? invariants + row * C + column : scalars + row * 2 * C + column - C) += value;
        });
        return;
    }
    block -= 256;
    if (block < 3) {
        float *to = block == 0 ? first_bias : block == 1 ? hidden_bias : update_bias;
        sum_parts(parts, {bias_sums, bias_parts, 3 * C}, block * C, [&](u32 i, float value) { to[i % C] += value; });
        return;
    }
    block -= 3;
    float *to = block == 0 ? log_times : bands;
    sum_parts(parts, {filter_sums, filter_parts, 2 * C}, block * C, [&](u32 i, float value) { to[i % C] += value; });
}

#endif

