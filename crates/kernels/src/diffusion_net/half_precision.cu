// The block on Hopper (compute capability 9.0), for 128 channels and 128 eigenvectors; see the page of `diffusion_net`.
// Factors of products are in bf16, or in fp16 with scales, and so is all that the backward pass reads again. Sums, x, y
// and their gradients are in f32.
//
// In the passes over tiles, two warpgroups multiply 64 rows each; two threads of a third one load: half tiles for each
// of the others, and a stream of right factors, in halves. `half_precision_tiles.cu` stands before this text.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Bytes of half of a right factor, of which STAGES fit in shared memory beside SLOTS half tiles for each warpgroup.
constexpr u32 HALF_BYTES = FACTOR, STAGES = 6, SLOTS = 4;

// Addresses of barriers and buffers in shared memory.
struct Shared {
    u32 rows, stages, full, empty, rows_full, rows_empty;
};

// What a warpgroup that multiplies knows of the streams.
struct Streams {
    Shared shared;
    // `weight`: warps that an arrival stands for.
    u32 group, stage = 0, round = 0, tiles = 0, last = 0, weight = 1;
    bool pending = false;

    __device__ inline Streams(const Shared &shared, u32 group) : shared(shared), group(group) {}

    // Address of the rows in a slot, which stay until they are given back.
    __device__ __forceinline__ u32 take(u32 slot) {
        wait(shared.rows_full + 8 * (2 * slot + group), tiles % 2);
        return shared.rows + (group * SLOTS + slot) * HALF_TILE;
    }

    __device__ __forceinline__ void give(u32 slot) {
        if (threadIdx.x % 32 == 0) arrive(shared.rows_empty + 8 * (2 * slot + group));
    }

    // Multiplies with the next half of a right factor.
    template <typename Multiply> __device__ __forceinline__ void half(Multiply multiply) {
        wait(shared.full + 8 * stage, round % 2);
        begin_products();
        multiply(shared.stages + stage * HALF_BYTES);
        commit_products();
        wait_for_products<1>();
        release();
        last = stage;
        pending = true;
        if (++stage == STAGES) stage = 0, ++round;
    }

    __device__ __forceinline__ void release() {
        if (pending && threadIdx.x % 32 == 0) arrive(shared.empty + 8 * last, weight);
    }

    // d += a B with the next right factor.
    __device__ __forceinline__ void product(float (&d)[64], u64 a) {
#pragma unroll
        for (u32 h = 0; h < 2; ++h)
            half([&](u32 address) {
#pragma unroll
                for (u32 k = 0; k < 4; ++k) multiply<1, 0>(d, a + (h * 1024 + k * 32) / 16, matrix(address, 1024) + k * 2, 1);
            });
    }

    // d = a B, or d += a B.
    __device__ __forceinline__ void product(float (&d)[64], const u32 (&a)[32], bool add) {
#pragma unroll
        for (u32 h = 0; h < 2; ++h)
            half([&](u32 address) {
#pragma unroll
                for (u32 k = 0; k < 4; ++k) multiply_registers(d, a + 4 * (4 * h + k), matrix(address, 1024) + k * 2, add || h + k > 0);
            });
    }

    // d1 = a1 B and d2 = a2 B with the next half of the columns of a right factor, or d1 += and d2 +=; with SIGN -1, d2
    // -= a2 B.
    template <int SIGN> __device__ __forceinline__ void products(float (&d1)[32], u64 a1, float (&d2)[32], u64 a2, bool add) {
        half([&](u32 address) {
            u64 b = matrix(address, 2048);
#pragma unroll
            for (u32 k = 0; k < 8; ++k) {
                u32 place = (k / 4 * 1024 + k % 4 * 32) / 16;
                multiply<1, 0>(d1, a1 + place, b + place, add || k > 0);
                multiply<SIGN, 0>(d2, a2 + place, b + place, add || k > 0);
            }
        });
    }

    // Half of the columns of g1, g2, and of both components of A g.
    __device__ __forceinline__ void vectors(float (&g)[2][32], float (&mapped)[2][32], u64 g1, u64 g2) {
        products<1>(g[0], g1, g[1], g2, false);
        products<1>(mapped[0], g1, mapped[1], g2, false);
        products<-1>(mapped[0], g2, mapped[1], g1, true);
        finish();
        fence_registers(g[0]), fence_registers(g[1]), fence_registers(mapped[0]), fence_registers(mapped[1]);
    }

    // Waits for all products.
    __device__ __forceinline__ void finish() {
        wait_for_products<0>();
        release();
        pending = false;
    }
};

// What a warpgroup needs of a tile, from which slot on, and its bytes, which may be none.
struct Rows {
    u32 slot;
    const void *from;
    u32 bytes;
};

// Runs a pass over all tiles. Pass: HALVES halves of right factors and LOADS copies of rows of a tile, what threads do
// before all tiles, and what is done with a tile.
template <typename Pass> __device__ inline void run(const Meshes &meshes, const Pass &pass) {
    __shared__ __align__(8) u64 barriers[2 * STAGES + 4 * SLOTS];
    u32 base = (u32)__cvta_generic_to_shared(memory);
    Shared shared;
    shared.rows = base + (-base & 1023);
    shared.stages = shared.rows + 2 * SLOTS * HALF_TILE;
    shared.full = (u32)__cvta_generic_to_shared(barriers);
    shared.empty = shared.full + 8 * STAGES;
    shared.rows_full = shared.empty + 8 * STAGES;
    shared.rows_empty = shared.rows_full + 16 * SLOTS;
    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; ++stage) {
            init_barrier(shared.full + 8 * stage, 1);
            init_barrier(shared.empty + 8 * stage, 8);
        }
        for (u32 slot = 0; slot < 2 * SLOTS; ++slot) {
            init_barrier(shared.rows_full + 8 * slot, 1);
            init_barrier(shared.rows_empty + 8 * slot, 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    u32 tiles = Tile::count(meshes);
    wait_for_turn(tiles);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            u32 stage = 0, round = 0;
            for (u32 at = blockIdx.x; at < tiles; at += gridDim.x) {
                u32 mesh = Tile(meshes, at).mesh;
                for (u32 half = 0; half < Pass::HALVES; ++half) {
                    wait(shared.empty + 8 * stage, round % 2 ^ 1);
                    expect(shared.full + 8 * stage, HALF_BYTES);
                    load(shared.stages + stage * HALF_BYTES, pass.half(half, mesh), HALF_BYTES, shared.full + 8 * stage);
                    if (++stage == STAGES) stage = 0, ++round;
                }
            }
        } else if (threadIdx.x == 32) {
            u32 before = 0;
            for (u32 at = blockIdx.x; at < tiles; at += gridDim.x, ++before) {
                Tile tile(meshes, at);
                for (u32 one = 0; one < Pass::LOADS; ++one) {
                    for (u32 group = 0; group < (tile.divided ? 1 : 2); ++group) {
                        u32 part = tile.part + group;
                        Rows rows = pass.rows(one, tile.number * 2 + part, tile.first + 64 * part, tile.end);
                        u32 barrier = 8 * (2 * rows.slot + group);
                        wait(shared.rows_empty + barrier, before % 2 ^ 1);
                        expect(shared.rows_full + barrier, rows.bytes);
                        u32 to = shared.rows + (group * SLOTS + rows.slot) * HALF_TILE;
                        if (rows.bytes > 0) load(to, rows.from, rows.bytes, shared.rows_full + barrier);
                    }
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        u32 group = threadIdx.x / 128 - 1;
        Streams streams(shared, group);
        pass.prepare();
        u32 own = group == 1 && Tile::divides(meshes) ? meshes.tiles - meshes.tiles % gridDim.x : tiles;
        for (u32 at = blockIdx.x; at < own; at += gridDim.x, ++streams.tiles) {
            Tile tile(meshes, at);
            u32 part = tile.part + group;
            streams.weight = tile.divided ? 2 : 1;
            u32 row = tile.first + 64 * part + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
            pass.tile(streams, tile.end, row, tile.number * 2 + part);
        }
    }
}

template <u32 COUNT> __device__ __forceinline__ float largest_of(const float (&d)[COUNT]) {
    float largest = 0.0f;
#pragma unroll
    for (u32 i = 0; i < COUNT; ++i) largest = fmaxf(largest, fabsf(d[i]));
    return largest;
}

__device__ __forceinline__ void pack(u32 (&pairs)[32], const float (&d)[64]) {
#pragma unroll
    for (u32 i = 0; i < 32; ++i) pairs[i] = pair_of(d[2 * i], d[2 * i + 1]);
}

// Stores 16 PARTS columns of a thread's rows in a half tile. get(i): the pair d[2 i], d[2 i + 1].
template <u32 PARTS, typename Get> __device__ __forceinline__ void store_pairs(Number *half_tile, u32 column, Get get) {
    // As `place_of`, with one number for all parts: registers are scarce.
    u32 row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, swizzle = (threadIdx.x % 4 / 2 ^ row % 8) * 16 + threadIdx.x % 2 * 8;
    unsigned char *to = (unsigned char *)half_tile + row / 8 * 2048 + row % 8 * 128 + column / 64 * 1024;
#pragma unroll
    for (u32 j = 0; j < PARTS; ++j)
#pragma unroll
        for (u32 h = 0; h < 2; ++h)
            *(uint2 *)(to + (swizzle ^ j % 4 * 32) + (h * 2048 + j / 4 * 1024)) = {get(4 * j + h), get(4 * j + h + 2)};
}

__device__ __forceinline__ void store_pairs(const u32 (&pairs)[32], Number *to, u32 half) {
    store_pairs<8>(to + (u64)half * HALF_NUMBERS, 0, [&](u32 i) { return pairs[i]; });
}

struct Forward {
    static constexpr u32 HALVES = 16, LOADS = 4;
    const Number *bases;
    u64 stride;
    const Number *packed;
    const float *biases;
    u32 first_mesh;
    bool drops;
    Measured measured;
    float *of_block;
    const float *x;
    const Number *own;
    Number *invariants, *first, *second;
    float *y;
    uint4 *masks;

    __device__ inline const Number *half(u32 i, u32 mesh) const {
        const Number *of_mesh = packed + (u64)(SHARED_FACTORS + (first_mesh + mesh) * MESH_FACTORS) * FACTOR;
        if (i < 6) return of_mesh + i % 3 * FACTOR + i / 3 * (FACTOR / 2);
        const Number *whole = i / 2 == 4 ? of_mesh + 3 * FACTOR : packed + (i / 2 == 3 ? 0 : i / 2 - 4) * FACTOR;
        return whole + i % 2 * (FACTOR / 2);
    }

    __device__ inline Rows rows(u32 i, u32 half, u32, u32) const {
        const Number *from = i < 2 ? bases + (2 + i) * stride : i == 2 ? own : bases;
        return {i, from + (u64)half * HALF_NUMBERS, HALF_TILE};
    }

    // In shared memory, as loads from device memory would wait for the stores before them: the biases, with the scales
    // of the sums to which they are added, and factors that take sums to what is packed, or to what they stand for.
    struct Constants {
        float biases[3 * C], of_g, of_mapped, to_first, to_second, of_last;
    };

    __device__ inline Constants &constants() const {
        __shared__ __align__(16) Constants own;
        return own;
    }

    __device__ inline void prepare() const {
        Constants &own = constants();
        Scales scales = {measured};
        float first = scales.first_sums(), second = scales.first() * scales.weight(5), last = scales.second() * scales.weight(6);
        for (u32 i = threadIdx.x - 128; i < 3 * C; i += 256) own.biases[i] = biases[i] * (i < C ? first : i < 2 * C ? second : last);
        if (threadIdx.x == 128) {
            own.of_g = 1.0f / (scales.gradient() * scales.spectrum()), own.of_mapped = 1.0f / (scales.gradient() * scales.maps());
            own.to_first = measured.drop * scales.first() / first, own.to_second = measured.drop * scales.second() / second;
            own.of_last = 1.0f / last;
        }
        asm volatile("bar.sync 1, 256;" ::: "memory");
    }

    __device__ __forceinline__ void tile(Streams &streams, u32 end, u32 row, u32 place) const {
        const Constants &own = constants();
        const float *biases = own.biases;
        u32 left[32];
        u64 g1 = half_tile(streams.take(0)), g2 = half_tile(streams.take(1));
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            float g[2][32], mapped[2][32];
            streams.vectors(g, mapped, g1, g2);
            if (FP16) {
                measure(of_block + LARGEST_G, own.of_g * fmaxf(largest_of(g[0]), largest_of(g[1])));
                measure(of_block + LARGEST_MAPPED, own.of_mapped * fmaxf(largest_of(mapped[0]), largest_of(mapped[1])));
            }
            float of_product = scale_or_one(own.of_g * own.of_mapped);
            auto p = [&](u32 i) { return P_SCALE * tanh_of(of_product * (g[0][i] * mapped[0][i] + g[1][i] * mapped[1][i])); };
#pragma unroll
            for (u32 i = 0; i < 16; ++i) left[16 * half + i] = pair_of(p(2 * i), p(2 * i + 1));
        }
        streams.give(0), streams.give(1);
        store_pairs(left, invariants, place);
        float a[64], b[64];
        uint4 drawn = drops ? masks[place * 128 + threadIdx.x % 128] : uint4{~0u, ~0u, ~0u, ~0u};
        u32 first_kept[2] = {drawn.x, drawn.y}, second_kept[2] = {drawn.z, drawn.w};
        begin(a, biases);
        streams.product(a, half_tile(streams.take(2)));
        streams.product(a, half_tile(streams.take(3)));
        streams.product(a, left, true);
        streams.finish();
        fence_registers(a);
        activate(a, first_kept, own.to_first);
        pack(left, a);
        streams.give(2), streams.give(3);
        store_pairs(left, first, place);
        begin(b, biases + C);
        streams.product(b, left, true);
        streams.finish();
        fence_registers(b);
        activate(b, second_kept, own.to_second);
        masks[place * 128 + threadIdx.x % 128] = {first_kept[0], first_kept[1], second_kept[0], second_kept[1]};
        pack(left, b);
        store_pairs(left, second, place);
        begin(a, biases + 2 * C);
        fetch(b, x, C, row, end);
        streams.product(a, left, true);
        streams.finish();
        fence_registers(a);
#pragma unroll
        for (u32 i = 0; i < 64; ++i) a[i] = scale_or_one(own.of_last) * a[i] + b[i];
        store(a, y, C, row, end);
    }
};

// From x to the result. bases: as packed. own: packed x. masks: bits for each thread of a tile, of what both dropouts
// keep, if there is a random stream; then those of numbers of both activations above zero.
extern "C" __global__ void __launch_bounds__(384, 1)
block_forward(u32 first_row, u32 size, u32 tiles_of_mesh, u32 tiles, u32 first_tile, u32 first_mesh, const Number *bases, u64 stride,
              const Number *packed, const float *biases, const u64 *random, float drop, const float *x, const Number *own, Number *invariants,
              Number *first, Number *second, float *y, uint4 *masks, const float *of_bases, float *of_block) {
    Meshes meshes = {first_row, size, tiles_of_mesh, tiles, first_tile};
    run(meshes, Forward{bases, stride, packed, biases, first_mesh, random != nullptr, {of_bases, of_block, drop}, of_block, x, own, invariants, first, second,
                        y, masks});
}

struct Backward {
    static constexpr u32 HALVES = 14, LOADS = 3;
    const Number *bases;
    u64 stride;
    const float *dy;
    const Number *packed;
    const uint4 *masks;
    u32 first_mesh;
    Measured measured;
    Number *dlast, *dsecond, *dfirst, *dvectors;
    float *dx, *bias_sums;

    __device__ inline const Number *half(u32 i, u32 mesh) const {
        if (i < 8) return packed + (8 + i) * (FACTOR / 2);
        return packed + (u64)(SHARED_FACTORS + (first_mesh + mesh) * MESH_FACTORS + (i - 8) % 3) * FACTOR + (i - 8) / 3 * (FACTOR / 2);
    }

    // dy, as it is, takes two slots.
    __device__ inline Rows rows(u32 i, u32 half, u32 row, u32 end) const {
        if (i == 0) return {0, dy + (u64)row * C, row < end ? min(end - row, 64u) * C * 4 : 0};
        return {1 + i, bases + (1 + i) * stride + (u64)half * HALF_NUMBERS, HALF_TILE};
    }

    // In shared memory: the scale of dy, factors that take sums to what is packed, and those that take what is packed
    // to what it stands for.
    struct Constants {
        float to_last, to_second, to_first, of_last, of_second, of_first, of_own, of_product, by_vectors;
    };

    __device__ inline Constants &constants() const {
        __shared__ Constants own;
        return own;
    }

    __device__ inline void prepare() const {
        if (threadIdx.x == 128) {
            Scales scales = {measured};
            float last = scales.dy(), second = scales.dsecond(), first = scales.dfirst(), drop = measured.drop;
            constants() = {last, drop * second / (last * scales.weight(6)), drop * first / (second * scales.weight(5)), 1.0f / last, 1.0f / second,
                           1.0f / first, 1.0f / (first * scales.weight(2)),
                           1.0f / (scales.gradient() * scales.spectrum()) / (scales.gradient() * scales.maps()), scales.by_vectors()};
        }
        asm volatile("bar.sync 1, 256;" ::: "memory");
#pragma unroll
        for (u32 i = 0; i < 3; ++i) *(float4 *)ColumnSums::place(bias_sums + i * C) = {};
    }

    __device__ __forceinline__ void tile(Streams &streams, u32 end, u32 row, u32 place) const {
        float a[64], b[64];
        u32 left[32];
        uint4 kept = masks[place * 128 + threadIdx.x % 128];
        bool inside[2] = {row < end, row + 8 < end};
        const Constants &own = constants();
        auto mask = [&](float (&d)[64], u32 low, u32 high, float scale) {
#pragma unroll
            for (u32 i = 0; i < 64; ++i) d[i] = inside[i / 2 % 2] && (i < 32 ? low : high) >> i % 32 & 1 ? scale * d[i] : 0.0f;
        };
        // Numbers of dy in this thread's rows.
        u32 given = streams.take(0) + (threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4) * C * 4;
        auto given_four = [&](u32 i, u32 column) {
            float4 four;
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
                         : "r"(given + (i / 2 % 2 * 8 * C + column) * 4));
            return four;
        };
        clear(b);
        in_quads(row, end, [&](u32 i, u32, u32 column) {
            float4 four = given_four(i, column);
            float scale = scale_or_one(own.to_last);
            b[i] = scale * four.x, b[i + 1] = scale * four.y, b[i + 4] = scale * four.z, b[i + 5] = scale * four.w;
        });
        pack(left, b);
        streams.product(a, left, false);
        store_pairs(left, dlast, place);
        ColumnSums::add(b, scale_or_one(own.of_last), bias_sums + 2 * C);
        streams.finish();
        fence_registers(a);
        mask(a, kept.z, kept.w, own.to_second);
        pack(left, a);
        streams.product(b, left, false);
        store_pairs(left, dsecond, place);
        ColumnSums::add(a, scale_or_one(own.of_second), bias_sums + C);
        streams.finish();
        fence_registers(b);
        mask(b, kept.x, kept.y, own.to_first);
        pack(left, b);
        streams.product(a, left, false);
        store_pairs(left, dfirst, place);
        ColumnSums::add(b, scale_or_one(own.of_first), bias_sums);
        streams.finish();
        fence_registers(a);
        if (dx)
            in_quads(row, end, [&](u32 i, u32 r, u32 column) {
                float4 four = given_four(i, column);
                float scale = scale_or_one(own.of_own);
                *(float4 *)(dx + (u64)r * C + column) = {scale * a[i] + four.x, scale * a[i + 1] + four.y, scale * a[i + 4] + four.z,
                                                         scale * a[i + 5] + four.w};
            });
        streams.give(0);
        streams.product(a, left, false);
        streams.finish();
        fence_registers(a);
        // Gradients of g from its product with A g, and of A g: g1, A g 1, A g 2, g2.
        u64 g1 = half_tile(streams.take(2)), g2 = half_tile(streams.take(3));
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            float g[2][32], mapped[2][32];
            streams.vectors(g, mapped, g1, g2);
            if (half == 1) streams.give(2), streams.give(3);
#pragma unroll
            for (u32 i = 0; i < 32; ++i) a[32 * half + i] *= scale_or_one(own.by_vectors) * tanh_slope(scale_or_one(own.of_product) * (g[0][i] * mapped[0][i] + g[1][i] * mapped[1][i]));
            auto put = [&](const float (&d)[32], u32 which) {
                const float *by = a + 32 * half;
                store_pairs<4>(dvectors + which * stride + (u64)place * HALF_NUMBERS, 64 * half,
                               [&](u32 i) { return pair_of(by[2 * i] * d[2 * i], by[2 * i + 1] * d[2 * i + 1]); });
            };
            put(mapped[0], 0), put(g[0], 1), put(g[1], 2), put(mapped[1], 3);
        }
    }
};

// From the gradient of the result, which is packed: those before both activations, that of x but for its diffusion,
// those of the vectors, and sums for the biases.
extern "C" __global__ void __launch_bounds__(384, 1)
block_backward(u32 first_row, u32 size, u32 tiles_of_mesh, u32 tiles, u32 first_tile, u32 first_mesh, const Number *bases, u64 stride,
               const float *dy, const Number *packed, const uint4 *masks, float drop, Number *dlast, Number *dsecond, Number *dfirst,
               Number *dvectors, float *dx, const float *of_bases, const float *of_block, float *bias_sums) {
    Meshes meshes = {first_row, size, tiles_of_mesh, tiles, first_tile};
    run(meshes, Backward{bases, stride, dy, packed, masks, first_mesh, {of_bases, of_block, drop}, dlast, dsecond, dfirst, dvectors, dx, bias_sums});
}

__device__ __forceinline__ void multiply_all(float (&d)[64], float factor) {
#pragma unroll
    for (u32 i = 0; i < 64; ++i) d[i] *= factor;
}

struct EnterBackward {
    static constexpr u32 HALVES = 2, LOADS = 1;
    const Number *basis, *packed;
    u32 first_mesh;
    float *dx, scale;

    __device__ inline const Number *half(u32 i, u32 mesh) const { return packed + ((u64)(first_mesh + mesh) * 2 + i) * (FACTOR / 2); }
    __device__ inline Rows rows(u32, u32 half, u32, u32) const { return {0, basis + (u64)half * HALF_NUMBERS, HALF_TILE}; }
    __device__ inline void prepare() const {}

    __device__ __forceinline__ void tile(Streams &streams, u32 end, u32 row, u32) const {
        float a[64];
        fetch(a, dx, C, row, end);
        multiply_all(a, scale);
        streams.product(a, half_tile(streams.take(0)));
        streams.finish();
        fence_registers(a);
        multiply_all(a, 1.0f / scale);
        streams.give(0);
        store(a, dx, C, row, end);
    }
};

// dx += basis S, with one packed S for each mesh.
extern "C" __global__ void __launch_bounds__(384, 1)
enter_backward(u32 first_row, u32 size, u32 tiles_of_mesh, u32 tiles, u32 first_tile, u32 first_mesh, const Number *basis, const Number *packed,
               float *dx, const float *of_bases, const float *of_block) {
    Measured measured = {of_bases, of_block, 1.0f};
    Scales scales = {measured};
    Meshes meshes = {first_row, size, tiles_of_mesh, tiles, first_tile};
    run(meshes, EnterBackward{basis, packed, first_mesh, dx, scales.weighted() * scales.dspectrum()});
}

#endif
