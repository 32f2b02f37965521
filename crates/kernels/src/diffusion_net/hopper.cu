// The block in tf32 on Hopper (compute capability 9.0), for 128 channels and 128 eigenvectors: products on tensor cores (wgmma), and all
// that is done with a row while it is in registers; see the page of `diffusion_net`.
//
// A tile is TILE_ROWS rows of one mesh. Two warpgroups multiply 64 of them each; a third one loads. It copies rows of matrices over all
// vertices into two slots for each of the others, and streams the right factors, which are 128 x 128, in halves. Those are packed: B^T, in
// the layout that wgmma reads from shared memory with swizzles of 128 bytes. `rows.cu` stands before this text.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr u32 STAGES = 3, HALF_BYTES = FACTOR * 2, SLOT_BYTES = 64 * C * 4;

// d = a B, or d += a B, for eight columns of a; with SIGN -1, a is negated.
template <int SIGN> __device__ inline void multiply(float (&d)[64], u64 a, u64 b, u32 add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" P32_0 "," P32_1
                 "}, %64, %65, p, %67, 1;\n}"
                 : R32(d, 0), R32(d, 32)
                 : "l"(a), "l"(b), "r"(add), "n"(SIGN));
}

// The same for half of the columns of B.
template <int SIGN> __device__ inline void multiply(float (&d)[32], u64 a, u64 b, u32 add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {" P32_0
                 "}, %32, %33, p, %35, 1;\n}"
                 : R32(d, 0)
                 : "l"(a), "l"(b), "r"(add), "n"(SIGN));
}

__device__ inline void multiply_registers(float (&d)[64], const float *a, u64 b, u32 add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" P32_0 "," P32_1
                 "}, {%64,%65,%66,%67}, %68, p, 1, 1;\n}"
                 : R32(d, 0), R32(d, 32)
                 : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[3])), "l"(b),
                   "r"(add));
}

// Rows of a matrix over all vertices.
struct Rows {
    const float *numbers;
    u32 stride;
};

// Addresses of barriers and buffers in shared memory.
struct Shared {
    u32 slots, stages, full, empty, slot_full, slot_empty;
};

// What a warpgroup that multiplies knows of the streams.
struct Streams {
    Shared shared;
    // `weight`: warps that an arrival stands for.
    u32 group, stage = 0, round = 0, taken = 0, last = 0, weight = 1;
    bool pending = false;

    __device__ inline Streams(const Shared &shared, u32 group) : shared(shared), group(group) {}

    // The next left factor, which stays until it is given back.
    __device__ __forceinline__ u64 take() {
        u32 slot = taken % 2;
        wait(shared.slot_full + 8 * (slot * 2 + group), taken / 2 % 2);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        ++taken;
        return matrix(shared.slots + (slot * 2 + group) * SLOT_BYTES, 4096);
    }

    // Gives back the factor that was taken `ago` before the last one.
    __device__ __forceinline__ void give(u32 ago) {
        if (threadIdx.x % 32 == 0) arrive(shared.slot_empty + 8 * ((taken - 1 - ago) % 2 * 2 + group));
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

    // d = a B or d += a B with the next right factor.
    __device__ __forceinline__ void product(float (&d)[64], u64 a, bool add) {
#pragma unroll
        for (u32 h = 0; h < 2; ++h)
            half([&](u32 address) {
                u64 b = matrix(address, 2048);
#pragma unroll
                for (u32 k = 0; k < 8; ++k)
                    multiply<1>(d, a + ((2 * h + k / 4) * 1024 + k % 4 * 32) / 16, b + (k / 4 * 1024 + k % 4 * 32) / 16, add || h + k > 0);
            });
    }

    __device__ __forceinline__ void product(float (&d)[64], const float (&a)[64], bool add) {
#pragma unroll
        for (u32 h = 0; h < 2; ++h)
            half([&](u32 address) {
                u64 b = matrix(address, 2048);
#pragma unroll
                for (u32 k = 0; k < 8; ++k) multiply_registers(d, a + 4 * (8 * h + k), b + (k / 4 * 1024 + k % 4 * 32) / 16, add || h + k > 0);
            });
    }

    // d1 = a1 B and d2 = a2 B with the next half of the columns of a right factor, or d1 += and d2 +=; with SIGN -1, d2 -= a2 B.
    template <int SIGN> __device__ __forceinline__ void products(float (&d1)[32], u64 a1, float (&d2)[32], u64 a2, bool add) {
        half([&](u32 address) {
            u64 b = matrix(address, 4096);
#pragma unroll
            for (u32 k = 0; k < 16; ++k) {
                u32 place = (k / 4 * 1024 + k % 4 * 32) / 16;
                multiply<1>(d1, a1 + place, b + place, add || k > 0);
                multiply<SIGN>(d2, a2 + place, b + place, add || k > 0);
            }
        });
    }

    // Half of the columns of g1, g2, and of both components of A g.
    __device__ __forceinline__ void vectors(float (&g)[2][32], float (&mapped)[2][32], u64 g1, u64 g2) {
        products<1>(g[0], g1, g[1], g2, false);
        products<1>(mapped[0], g1, mapped[1], g2, false);
        products<-1>(mapped[0], g2, mapped[1], g1, true);
        finish();
        settle(g[0]), settle(g[1]), settle(mapped[0]), settle(mapped[1]);
    }

    // Waits for all products.
    __device__ __forceinline__ void finish() {
        wait_for_products<0>();
        release();
        pending = false;
    }
};

// Copies the rows of a warpgroup to its slot; missing ones are zero. Threads 32 to 127 take a row for each warp.
__device__ inline void load_rows(u32 slot, Rows rows, u32 first, u32 end, u32 barrier) {
    u32 lane = threadIdx.x % 32;
    for (u32 row = threadIdx.x / 32 - 1; row < 64; row += 3) {
        bool inside = first + row < end;
        const float *from = rows.numbers + (u64)(inside ? first + row : end - 1) * rows.stride + 4 * lane;
        u32 to = slot + row / 8 * 4096 + lane / 8 * 1024 + row % 8 * 128 + (lane % 8 ^ row % 8) * 16;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Runs a pass over all tiles. Pass: HALVES halves of right factors and LOADS left factors of a tile, what threads do before all tiles, and what
// is done with a tile.
template <typename Pass> __device__ inline void run(const Meshes &meshes, const Pass &pass) {
    extern __shared__ unsigned char memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES + 8];
    u32 base = (u32)__cvta_generic_to_shared(memory);
    Shared shared;
    shared.slots = base + (-base & 1023);
    shared.stages = shared.slots + 4 * SLOT_BYTES;
    shared.full = (u32)__cvta_generic_to_shared(barriers);
    shared.empty = shared.full + 8 * STAGES;
    shared.slot_full = shared.empty + 8 * STAGES;
    shared.slot_empty = shared.slot_full + 32;
    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; ++stage) {
            init_barrier(shared.full + 8 * stage, 1);
            init_barrier(shared.empty + 8 * stage, 8);
        }
        for (u32 slot = 0; slot < 4; ++slot) {
            init_barrier(shared.slot_full + 8 * slot, 96);
            init_barrier(shared.slot_empty + 8 * slot, 4);
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
        } else if (threadIdx.x >= 32) {
            u32 loaded = 0;
            for (u32 at = blockIdx.x; at < tiles; at += gridDim.x) {
                Tile tile(meshes, at);
                for (u32 one = 0; one < Pass::LOADS; ++one, ++loaded) {
                    Rows rows = pass.rows(one);
                    for (u32 group = 0; group < (tile.divided ? 1 : 2); ++group) {
                        u32 slot = loaded % 2 * 2 + group, first = tile.first + 64 * (tile.part + group);
                        wait(shared.slot_empty + 8 * slot, loaded / 2 % 2 ^ 1);
                        load_rows(shared.slots + slot * SLOT_BYTES, rows, first, tile.end, shared.slot_full + 8 * slot);
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
        for (u32 at = blockIdx.x; at < own; at += gridDim.x) {
            Tile tile(meshes, at);
            u32 part = tile.part + group;
            streams.weight = tile.divided ? 2 : 1;
            u32 row = tile.first + 64 * part + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
            pass.tile(streams, tile.end, row, (tile.number * 2 + part) * 128 + threadIdx.x % 128);
        }
    }
}

__device__ __forceinline__ void round_all(float (&d)[64]) {
#pragma unroll
    for (u32 i = 0; i < 64; ++i) d[i] = to_tf32(d[i]);
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

struct Forward {
    static constexpr u32 HALVES = 16, LOADS = 4;
    const float *basis, *gradients, *packed, *biases;
    u32 first_mesh;
    Drop one, two;
    float *features, *first, *second, *y;
    uint4 *masks;

    __device__ inline const float *half(u32 i, u32 mesh) const {
        const float *of_mesh = packed + (u64)(SHARED_FACTORS + (first_mesh + mesh) * MESH_FACTORS) * FACTOR;
        if (i < 6) return of_mesh + i % 3 * FACTOR + i / 3 * (FACTOR / 2);
        const float *whole = i / 2 == 4 ? of_mesh + 3 * FACTOR : packed + (i / 2 == 3 ? 0 : i / 2 - 4) * FACTOR;
        return whole + i % 2 * (FACTOR / 2);
    }

    __device__ inline Rows rows(u32 i) const {
        return i < 2 ? Rows{gradients + i * C, 2 * C} : i == 2 ? Rows{features + C, 2 * C} : Rows{basis, C};
    }

    __device__ inline void prepare() const {}

    __device__ __forceinline__ void tile(Streams &streams, u32 end, u32 row, u32 place) const {
        float a[64];
        u64 g1 = streams.take(), g2 = streams.take();
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            float g[2][32], mapped[2][32];
            streams.vectors(g, mapped, g1, g2);
#pragma unroll
            for (u32 i = 0; i < 32; ++i) a[32 * half + i] = tanh_of(g[0][i] * mapped[0][i] + g[1][i] * mapped[1][i]);
        }
        streams.give(1), streams.give(0);
        store(a, features, 2 * C, row, end);
        round_all(a);
        float b[64], c[64];
        u32 first_kept[2], second_kept[2];
        begin(b, biases);
        u64 own = streams.take();
        streams.product(b, own, true);
        u64 diffused = streams.take();
        streams.product(b, diffused, true);
        streams.product(b, a, true);
#pragma unroll
        for (u32 half = 0; half < 2; ++half) first_kept[half] = draw(one, row, threadIdx.x % 4, half);
        streams.finish();
        settle(b);
        streams.give(1), streams.give(0);
        activate(b, first_kept, one);
        store(b, first, C, row, end);
        round_all(b);
        begin(c, biases + C);
        streams.product(c, b, true);
#pragma unroll
        for (u32 half = 0; half < 2; ++half) second_kept[half] = draw(two, row, threadIdx.x % 4, half);
        streams.finish();
        settle(c);
        activate(c, second_kept, two);
        masks[place] = {first_kept[0], first_kept[1], second_kept[0], second_kept[1]};
        store(c, second, C, row, end);
        round_all(c);
        begin(a, biases + 2 * C);
        fetch(b, features + C, 2 * C, row, end);
        streams.product(a, c, true);
        streams.finish();
        settle(a);
#pragma unroll
        for (u32 i = 0; i < 64; ++i) a[i] += b[i];
        store(a, y, C, row, end);
    }
};

// From x to the result. features: [p | x] for each row, of which p is written. masks: bits of the numbers of both activations above zero,
// for each thread of a tile.
extern "C" __global__ void __launch_bounds__(384, 1)
block_forward(u32 first_row, u32 size, u32 tiles_of_mesh, u32 tiles, u32 first_tile, u32 first_mesh, const float *basis, const float *gradients,
              const float *packed, const float *biases, const u64 *one, u64 one_salt,
              const u64 *two, u64 two_salt, u64 threshold, float scale, float *features, float *first, float *second, float *y, uint4 *masks) {
    Meshes meshes = {first_row, size, tiles_of_mesh, tiles, first_tile};
    run(meshes, Forward{basis, gradients, packed, biases, first_mesh, {one, one_salt, threshold, scale},
                        {two, two_salt, threshold, scale}, features, first, second, y, masks});
}

struct Backward {
    static constexpr u32 HALVES = 14, LOADS = 3;
    const float *gradients, *dy, *packed, *features;
    const uint4 *masks;
    u32 first_mesh;
    float scale;
    float *dfirst, *dsecond, *dx, *dvectors, *bias_sums;

    __device__ inline const float *half(u32 i, u32 mesh) const {
        if (i < 8) return packed + (8 + i) * (FACTOR / 2);
        return packed + (u64)(SHARED_FACTORS + (first_mesh + mesh) * MESH_FACTORS + (i - 8) % 3) * FACTOR + (i - 8) / 3 * (FACTOR / 2);
    }

    __device__ inline Rows rows(u32 i) const { return i == 0 ? Rows{dy, C} : Rows{gradients + (i - 1) * C, 2 * C}; }

    __device__ inline void prepare() const {
#pragma unroll
        for (u32 i = 0; i < 3; ++i) *(float4 *)ColumnSums::place(bias_sums + i * C) = {};
    }

    __device__ __forceinline__ void tile(Streams &streams, u32 end, u32 row, u32 place) const {
        float a[64], b[64], c[64];
        uint4 kept = masks[place];
        bool inside[2] = {row < end, row + 8 < end};
        auto mask = [&](float (&d)[64], u32 low, u32 high) {
#pragma unroll
            for (u32 i = 0; i < 64; ++i) d[i] = inside[i / 2 % 2] && (i < 32 ? low : high) >> i % 32 & 1 ? scale * d[i] : 0.0f;
        };
        u64 last = streams.take();
        streams.product(a, last, false);
        streams.finish();
        settle(a);
        streams.give(0);
        mask(a, kept.z, kept.w);
        store(a, dsecond, C, row, end);
        ColumnSums::add(a, bias_sums + C);
        round_all(a);
        streams.product(c, a, false);
        streams.finish();
        settle(c);
        mask(c, kept.x, kept.y);
        store(c, dfirst, C, row, end);
        ColumnSums::add(c, bias_sums);
        round_all(c);
        fetch(b, dy, C, row, end);
        streams.product(a, c, false);
        streams.finish();
        settle(a);
        ColumnSums::add(b, bias_sums + 2 * C);
#pragma unroll
        for (u32 i = 0; i < 64; ++i) a[i] += b[i];
        if (dx) store(a, dx, C, row, end);
        fetch(b, features, 2 * C, row, end);
        streams.product(a, c, false);
        streams.finish();
        settle(a);
#pragma unroll
        for (u32 i = 0; i < 64; ++i) a[i] *= 1.0f - b[i] * b[i];
        // Gradients of g from its product with A g, and of A g: [g1 | A g 1 | A g 2 | g2].
        u64 g1 = streams.take(), g2 = streams.take();
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            float g[2][32], mapped[2][32];
            streams.vectors(g, mapped, g1, g2);
            if (half == 1) streams.give(1), streams.give(0);
            auto put = [&](const float (&d)[32], u32 column) {
                in_quads<4>(row, end, [&](u32 i, u32 r, u32 at) {
                    const float *by = a + 32 * half + i;
                    float *to = dvectors + (u64)r * 4 * C + column + 64 * half + at;
                    *(float4 *)to = {by[0] * d[i], by[1] * d[i + 1], by[4] * d[i + 4], by[5] * d[i + 5]};
                });
            };
            put(mapped[0], 0), put(g[0], C), put(g[1], 2 * C), put(mapped[1], 3 * C);
        }
    }
};

// From the gradient of the result: those before both activations, that of x but for its diffusion, those of the vectors, and sums for the
// biases.
extern "C" __global__ void __launch_bounds__(384, 1)
block_backward(u32 first_row, u32 size, u32 tiles_of_mesh, u32 tiles, u32 first_tile, u32 first_mesh, const float *gradients, const float *dy,
               const float *packed, const float *features, const uint4 *masks, float scale, float *dfirst, float *dsecond, float *dx,
               float *dvectors, float *bias_sums) {
    Meshes meshes = {first_row, size, tiles_of_mesh, tiles, first_tile};
    run(meshes, Backward{gradients, dy, packed, features, masks, first_mesh, scale, dfirst, dsecond, dx, dvectors, bias_sums});
}

struct EnterBackward {
    static constexpr u32 HALVES = 2, LOADS = 1;
    const float *basis, *packed, *mass;
    u32 first_mesh;
    float *dx;

    __device__ inline const float *half(u32 i, u32 mesh) const { return packed + ((u64)(first_mesh + mesh) * 2 + i) * (FACTOR / 2); }
    __device__ inline Rows rows(u32) const { return {basis, C}; }
    __device__ inline void prepare() const {}

    __device__ __forceinline__ void tile(Streams &streams, u32 end, u32 row, u32) const {
        float a[64], b[64];
        fetch(b, dx, C, row, end);
        u64 rows = streams.take();
        streams.product(a, rows, false);
        float masses[2] = {row < end ? mass[row] : 0.0f, row + 8 < end ? mass[row + 8] : 0.0f};
        streams.finish();
        settle(a);
        streams.give(0);
#pragma unroll
        for (u32 i = 0; i < 64; ++i) a[i] = masses[i / 2 % 2] * a[i] + b[i];
        store(a, dx, C, row, end);
    }
};

// dx += m basis S, with one packed S for each mesh.
extern "C" __global__ void __launch_bounds__(384, 1)
enter_backward(u32 first_row, u32 size, u32 tiles_of_mesh, u32 tiles, u32 first_tile, u32 first_mesh, const float *basis, const float *packed,
               const float *mass, float *dx) {
    Meshes meshes = {first_row, size, tiles_of_mesh, tiles, first_tile};
    run(meshes, EnterBackward{basis, packed, mass, first_mesh, dx});
}

#endif
