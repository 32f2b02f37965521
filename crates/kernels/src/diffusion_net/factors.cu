// What the block on Hopper needs beside its passes over tiles: right factors in the layout that wgmma reads, and kernels on spectra; see
// `hopper.cu`.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr u32 C = 128, FACTOR = C * C;
// Factors of all rows, and of each mesh: S, S a^T, S b^T and S W1d^T.
constexpr u32 SHARED_FACTORS = 8, MESH_FACTORS = 4;

__device__ inline float to_tf32(float x) {
    u32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return __uint_as_float(y);
}

// Place of B[k, n] in a packed factor of two halves of its rows. A left factor from registers, which are the result of another product, has
// its columns in another order.
__device__ inline u32 packed_place(u32 n, u32 k, bool from_registers) {
    if (from_registers) k = k / 8 * 8 + k % 2 * 4 + k % 8 / 2;
    return k / 64 * (FACTOR / 2) + n / 8 * 512 + k % 64 / 32 * 256 + n % 8 * 32 + (k % 32 / 4 ^ n % 8) * 4 + k % 4;
}

// The same for two halves of its columns.
__device__ inline u32 packed_place_of_columns(u32 n, u32 k) {
    return n / 8 * 1024 + k / 32 * 256 + n % 8 * 32 + (k % 32 / 4 ^ n % 8) * 4 + k % 4;
}

// Packs all factors of a block, and copies the spectra S and the three biases behind them. One thread for each number; grid rows are
// factors. `maps`: for each mesh S a^T, S b^T and S W1d^T, transposed. `stride`: numbers from the spectrum of one mesh to the next.
extern "C" __global__ void pack(const float *__restrict__ scalars, const float *__restrict__ invariants, const float *__restrict__ hidden,
                                const float *__restrict__ update, const float *__restrict__ first_bias, const float *__restrict__ hidden_bias,
                                const float *__restrict__ update_bias, const float *__restrict__ spectra, u64 stride,
                                const float *__restrict__ maps, float *__restrict__ packed, float *__restrict__ biases) {
    u32 i = (u32)item(), n = i / C, k = i % C, factor = blockIdx.y;
    if (factor < 3 && i < C) {
        const float *bias = factor == 0 ? first_bias : factor == 1 ? hidden_bias : update_bias;
        biases[factor * C + i] = bias[i % 32 / 2 * 8 + i / 32 * 2 + i % 2];
    }
    float *to = packed + (u64)factor * FACTOR;
    if (factor >= SHARED_FACTORS) {
        u32 mesh = (factor - SHARED_FACTORS) / MESH_FACTORS, one = (factor - SHARED_FACTORS) % MESH_FACTORS;
        if (one == 0) n = i % C, k = i / C;
        float value = one == 0 ? spectra[mesh * stride + i] : maps[(u64)(mesh * 3 + one - 1) * FACTOR + i];
        if (one == 0) packed[(u64)(gridDim.y + mesh) * FACTOR + i] = value;
        to[one < 3 ? packed_place_of_columns(n, k) : packed_place(n, k, false)] = to_tf32(value);
        return;
    }
    // 0 to 3: W1x, W1p, W2, W3 transposed, for products with them; then W3, W2, W1x, W1p, for those of the backward pass.
    u32 which = factor < 4 ? factor : factor < 6 ? 7 - factor : factor - 6;
    float value = which == 0   ? scalars[n * 2 * C + k]
                  : which == 1 ? invariants[i]
                  : which == 2 ? hidden[i]
                               : update[i];
    if (factor >= 4) n = i % C, k = i / C;
    to[packed_place(n, k, factor != 0 && factor != 4)] = to_tf32(value);
}

// Packs one factor for each mesh.
extern "C" __global__ void pack_spectra(const float *__restrict__ spectra, float *__restrict__ packed) {
    u32 i = (u32)item();
    packed[(u64)blockIdx.y * FACTOR + packed_place(i % C, i / C, false)] = to_tf32(spectra[(u64)blockIdx.y * FACTOR + i]);
}

// Copies x to the features [p | x]; weighted = m x. One thread for each four numbers.
extern "C" __global__ void enter(const float4 *__restrict__ x, const float *__restrict__ mass, float4 *__restrict__ features,
                                 float4 *__restrict__ weighted, u64 count) {
    u64 i = item(), row = i / (C / 4);
    if (i >= count) return;
    float4 value = x[i];
    float m = mass[row];
    features[i + (row + 1) * (C / 4)] = value;
    weighted[i] = {m * value.x, m * value.y, m * value.z, m * value.w};
}

// Gradients of the spectra, from sums over slabs of Phi^T dh, G1^T [dg1 | dm1 | dm2] and G2^T [dm1 | dm2 | dg2]: those of S but for its
// maps, and of the maps as rows [S a^T | S b^T | S W1d^T]. One thread for each number of a spectrum; grid rows are meshes.
extern "C" __global__ void combine(const float *__restrict__ scalars, u32 scalar_slabs, const float *__restrict__ vectors, u32 vector_slabs,
                                   float *__restrict__ dspectra, float *__restrict__ dmaps) {
    u32 i = (u32)item(), mesh = blockIdx.y;
    u64 row = (u64)mesh * C + i / C, place = row * 3 * C + i % C;
    auto sum = [&](const float *from, u32 slabs, u32 size) {
        from += (u64)mesh * slabs * size;
        float total = 0.0f;
#pragma unroll 4
        for (u32 slab = 0; slab < slabs; ++slab) total += from[(u64)slab * size];
        return total;
    };
    const float *first = vectors + i / C * (3 * C) + i % C, *second = first + 3 * FACTOR;
    auto of_vectors = [&](const float *from) { return sum(from, vector_slabs, 6 * FACTOR); };
    dspectra[(u64)mesh * FACTOR + i] = of_vectors(first) + of_vectors(second + 2 * C);
    dmaps[place] = of_vectors(first + C) + of_vectors(second + C);
    dmaps[place + C] = of_vectors(second) - of_vectors(first + 2 * C);
    dmaps[place + 2 * C] = sum(scalars + i, scalar_slabs, FACTOR);
}

// Adds rows [p | x] of the gradient of W1 to those of its parts. One thread for each number.
extern "C" __global__ void add_first(const float *__restrict__ all, float *__restrict__ invariants, float *__restrict__ scalars) {
    u32 i = (u32)item(), row = i / (2 * C), column = i % (2 * C);
    float *to = column < C ? invariants + row * C + column : scalars + row * 2 * C + (column - C);
    *to += all[i];
}

#endif

