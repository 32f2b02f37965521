// The block in bf16 on Hopper (compute capability 9.0), for 128 channels and 128 eigenvectors; see the page of `diffusion_net`. Factors of
// products are in bf16, and so is all that the backward pass reads again. Sums, x, y and their gradients are in f32.
//
// A matrix over all vertices, in bf16, is packed in half tiles: 64 rows of one mesh, in the layout that wgmma reads from shared memory with
// swizzles of 128 bytes. Rows behind the last one of a mesh, up to a whole tile, are there and multiply to zero. So 64 rows are one copy of
// 16 KB, and serve as they are in products with them and, transposed, over them.
//
// In the passes over tiles, two warpgroups multiply 64 rows each; two threads of a third one load: rows for each of the others, and a stream of
// right factors, in halves. `rows.cu` stands before this text.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Bytes and numbers of a half tile. Bytes of half of a right factor, of which STAGES fit in shared memory beside SLOTS half tiles for each warpgroup.
constexpr u32 HALF_TILE = 64 * C * 2, HALF_NUMBERS = 64 * C, HALF_BYTES = FACTOR, STAGES = 6, SLOTS = 4;

extern __shared__ unsigned char memory[];

// d = a B, or d += a B, for 16 terms; with SIGN -1, a is negated. TRANSPOSED: rows of both are terms, not rows of a and columns of B.
template <int SIGN, int TRANSPOSED> __device__ inline void multiply(float (&d)[64], u64 a, u64 b, u32 add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" P32_0 "," P32_1
                 "}, %64, %65, p, %67, 1, %68, %68;\n}"
                 : R32(d, 0), R32(d, 32)
                 : "l"(a), "l"(b), "r"(add), "n"(SIGN), "n"(TRANSPOSED));
}

// The same for half of the columns of B.
template <int SIGN, int TRANSPOSED> __device__ inline void multiply(float (&d)[32], u64 a, u64 b, u32 add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" P32_0
                 "}, %32, %33, p, %35, 1, %36, %36;\n}"
                 : R32(d, 0)
                 : "l"(a), "l"(b), "r"(add), "n"(SIGN), "n"(TRANSPOSED));
}

__device__ inline void multiply_registers(float (&d)[64], const u32 *a, u64 b, u32 add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" P32_0 "," P32_1
                 "}, {%64,%65,%66,%67}, %68, p, 1, 1, 0;\n}"
                 : R32(d, 0), R32(d, 32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

// A half tile in shared memory.
__device__ inline u64 half_tile(u32 address) { return matrix(address, 2048); }

// Two numbers, the first in the lower half.
__device__ inline u32 pair_of(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Place in bytes, in a half tile, of eight neighbours of a row.
__device__ inline u32 place_of(u32 row, u32 eight) { return row / 8 * 2048 + eight / 8 * 1024 + row % 8 * 128 + (eight % 8 ^ row % 8) * 16; }

__device__ inline uint4 eight_of(float4 a, float4 b) { return {pair_of(a.x, a.y), pair_of(a.z, a.w), pair_of(b.x, b.y), pair_of(b.z, b.w)}; }

// Packs the eigenvectors, those times masses, and both components of their gradients, `stride` numbers from one to the next. A thread for each
// eight numbers.
extern "C" __global__ void pack_bases(u32 first_row, u32 size, u32 tiles_of_mesh, u32 tiles, u32 first_tile, u32, const float *__restrict__ basis,
                                      const float *__restrict__ gradients, const float *__restrict__ mass, Number *__restrict__ packed, u64 stride) {
    u64 i = item();
    u32 eight = i % 16, row = i / 16 % TILE_ROWS, tile = i / (16 * TILE_ROWS);
    if (tile >= tiles) return;
    u32 of_mesh = tile % tiles_of_mesh * TILE_ROWS + row;
    u64 from = first_row + tile / tiles_of_mesh * size + of_mesh;
    bool inside = of_mesh < size;
    float m = inside ? mass[from] : 0.0f;
    auto put = [&](u32 which, const float *numbers, float factor) {
        float4 v[2] = {};
        if (inside) v[0] = ((const float4 *)numbers)[0], v[1] = ((const float4 *)numbers)[1];
#pragma unroll
        for (u32 k = 0; k < 2; ++k) v[k] = {factor * v[k].x, factor * v[k].y, factor * v[k].z, factor * v[k].w};
        unsigned char *to = (unsigned char *)(packed + which * stride + (u64)(first_tile + tile) * 2 * HALF_NUMBERS);
        *(uint4 *)(to + row / 64 * HALF_TILE + place_of(row % 64, eight)) = eight_of(v[0], v[1]);
    };
    put(0, basis + from * C + 8 * eight, 1.0f);
    put(1, basis + from * C + 8 * eight, m);
    put(2, gradients + from * 2 * C + 8 * eight, 1.0f);
    put(3, gradients + from * 2 * C + C + 8 * eight, 1.0f);
}

template <u32 COUNT> __device__ inline void clear(float (&numbers)[COUNT]) {
#pragma unroll
    for (u32 i = 0; i < COUNT; ++i) numbers[i] = 0.0f;
}

// Half tiles of a mesh that a block of threads sums over: one of `slabs` parts.
struct Slab {
    u32 first, end;
    __device__ inline Slab(u32 halves, u32 slab, u32 slabs) : first(slab * halves / slabs), end((slab + 1) * halves / slabs) {}
};

constexpr u32 ENTER_STAGES = 4;

// Packs x, and sums the spectra B^T x over slabs, with B the packed eigenvectors times masses. Loads take the time of this kernel, so it draws the
// masks of both dropouts as well. A block of threads for each slab; each warpgroup has a quarter of the spectrum.
extern "C" __global__ void __launch_bounds__(512, 1)
enter(u32 first_row, u32 size, u32 tiles_of_mesh, u32 tiles, u32 first_tile, u32 first_mesh, const float *__restrict__ x,
      const Number *__restrict__ basis, u32 slabs, Number *__restrict__ packed, float *__restrict__ sums, const u64 *one, u64 one_salt,
      const u64 *two, u64 two_salt, u64 threshold, u32 *__restrict__ masks) {
    __shared__ __align__(8) u64 barriers[ENTER_STAGES];
    unsigned char *aligned = memory + (-(u32)__cvta_generic_to_shared(memory) & 1023);
    u32 own = (u32)__cvta_generic_to_shared(aligned), stages = own + 2 * HALF_TILE, full = (u32)__cvta_generic_to_shared(barriers);
    u32 mesh = blockIdx.x / slabs, halves = 2 * tiles_of_mesh;
    Slab slab(halves, blockIdx.x % slabs, slabs);
    u64 before = 2 * first_tile + mesh * halves;
    auto load_basis = [&](u32 half) {
        if (threadIdx.x != 0 || half >= slab.end) return;
        u32 stage = (half - slab.first) % ENTER_STAGES;
        expect(full + 8 * stage, HALF_TILE);
        load(stages + stage * HALF_TILE, basis + (before + half) * HALF_NUMBERS, HALF_TILE, full + 8 * stage);
    };
    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < ENTER_STAGES; ++stage) init_barrier(full + 8 * stage, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    for (u32 i = 0; i < ENTER_STAGES; ++i) load_basis(slab.first + i);
    // Eight neighbours in each of two rows.
    u32 row = threadIdx.x / 16, eight = threadIdx.x % 16;
    float4 next[4];
    auto load_x = [&](u32 half) {
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            u32 of_mesh = half * 64 + row + 32 * i;
            const float4 *from = (const float4 *)(x + (u64)(first_row + mesh * size + of_mesh) * C + 8 * eight);
            bool inside = half < slab.end && of_mesh < size;
            next[2 * i] = inside ? from[0] : float4{}, next[2 * i + 1] = inside ? from[1] : float4{};
        }
    };
    float d[32];
    u32 group = threadIdx.x / 128;
    load_x(slab.first);
    for (u32 half = slab.first; half < slab.end; ++half) {
        u32 count = half - slab.first, stage = count % ENTER_STAGES, place = count % 2 * HALF_TILE;
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            uint4 numbers = eight_of(next[2 * i], next[2 * i + 1]);
            u32 at = place_of(row + 32 * i, eight);
            *(uint4 *)(aligned + place + at) = numbers;
            *(uint4 *)((unsigned char *)(packed + (before + half) * HALF_NUMBERS) + at) = numbers;
        }
        load_x(half + 1);
        if (one) {
            // Half of the columns of a thread of a pass over tiles, for one of the dropouts.
            u32 thread = threadIdx.x / 4, pass_row = half * 64 + thread / 32 * 16 + thread % 32 / 4;
            Drop drop = threadIdx.x / 2 % 2 ? Drop{two, two_salt, threshold, 0.0f} : Drop{one, one_salt, threshold, 0.0f};
            masks[(before + half) * 512 + threadIdx.x] = draw(drop, first_row + mesh * size + pass_row, thread % 4, threadIdx.x % 2);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        wait_for_products<0>();
        settle(d);
        __syncthreads();
        // All are done with the rows before.
        if (count > 0) load_basis(half - 1 + ENTER_STAGES);
        wait(full + 8 * stage, count / ENTER_STAGES % 2);
        u64 a = half_tile(stages + stage * HALF_TILE + group % 2 * 1024), b = half_tile(own + place + group / 2 * 1024);
        begin_products();
#pragma unroll
        for (u32 k = 0; k < 4; ++k) multiply<1, 1>(d, a + k * (4096 / 16), b + k * (4096 / 16), count + k > 0);
        commit_products();
    }
    wait_for_products<0>();
    settle(d);
    if (slab.first == slab.end) clear(d);
    u32 lane = threadIdx.x % 32, result_row = group % 2 * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
    float *to = sums + (u64)((first_mesh + mesh) * slabs + blockIdx.x % slabs) * FACTOR + result_row * C + group / 2 * 64 + lane % 4 * 2;
#pragma unroll
    for (u32 j = 0; j < 8; ++j) {
        *(float2 *)(to + 8 * j) = {d[4 * j], d[4 * j + 1]};
        *(float2 *)(to + 8 * C + 8 * j) = {d[4 * j + 2], d[4 * j + 3]};
    }
}

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

    // d1 = a1 B and d2 = a2 B with the next half of the columns of a right factor, or d1 += and d2 +=; with SIGN -1, d2 -= a2 B.
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
        settle(g[0]), settle(g[1]), settle(mapped[0]), settle(mapped[1]);
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

// Runs a pass over all tiles. Pass: HALVES halves of right factors and LOADS copies of rows of a tile, what threads do before all tiles, and what
// is done with a tile.
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

__device__ __forceinline__ void pack(u32 (&pairs)[32], const float (&d)[64]) {
#pragma unroll
    for (u32 i = 0; i < 32; ++i) pairs[i] = pair_of(d[2 * i], d[2 * i + 1]);
}

// Stores 16 PARTS columns of a thread's rows in a half tile. get(i): the pair d[2 i], d[2 i + 1].
template <u32 PARTS, typename Get> __device__ __forceinline__ void store_pairs(Number *half_tile, u32 column, Get get) {
    u32 row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (u32 h = 0; h < 2; ++h)
#pragma unroll
        for (u32 j = 0; j < PARTS; ++j) {
            u32 at = place_of(row + 8 * h, column / 8 + 2 * j + threadIdx.x % 4 / 2) + threadIdx.x % 2 * 8;
            *(uint2 *)((unsigned char *)half_tile + at) = {get(4 * j + h), get(4 * j + h + 2)};
        }
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
    Drop drop;
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

    __device__ inline void prepare() const {}

    __device__ __forceinline__ void tile(Streams &streams, u32 end, u32 row, u32 place) const {
        u32 left[32];
        u64 g1 = half_tile(streams.take(0)), g2 = half_tile(streams.take(1));
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            float g[2][32], mapped[2][32];
            streams.vectors(g, mapped, g1, g2);
            auto p = [&](u32 i) { return tanh_of(g[0][i] * mapped[0][i] + g[1][i] * mapped[1][i]); };
#pragma unroll
            for (u32 i = 0; i < 16; ++i) left[16 * half + i] = pair_of(p(2 * i), p(2 * i + 1));
        }
        streams.give(0), streams.give(1);
        store_pairs(left, invariants, place);
        float a[64], b[64];
        uint4 drawn = drop.stream ? masks[place * 128 + threadIdx.x % 128] : uint4{~0u, ~0u, ~0u, ~0u};
        u32 first_kept[2] = {drawn.x, drawn.y}, second_kept[2] = {drawn.z, drawn.w};
        begin(a, biases);
        streams.product(a, half_tile(streams.take(2)));
        streams.product(a, half_tile(streams.take(3)));
        streams.product(a, left, true);
        streams.finish();
        settle(a);
        streams.give(2), streams.give(3);
        activate(a, first_kept, drop);
        pack(left, a);
        store_pairs(left, first, place);
        begin(b, biases + C);
        streams.product(b, left, true);
        streams.finish();
        settle(b);
        activate(b, second_kept, drop);
        masks[place * 128 + threadIdx.x % 128] = {first_kept[0], first_kept[1], second_kept[0], second_kept[1]};
        pack(left, b);
        store_pairs(left, second, place);
        begin(a, biases + 2 * C);
        fetch(b, x, C, row, end);
        streams.product(a, left, true);
        streams.finish();
        settle(a);
#pragma unroll
        for (u32 i = 0; i < 64; ++i) a[i] += b[i];
        store(a, y, C, row, end);
    }
};

// From x to the result. bases: as packed. own: packed x. masks: bits for each thread of a tile, of what both dropouts keep, if there is a random
// stream; then those of numbers of both activations above zero.
extern "C" __global__ void __launch_bounds__(384, 1)
block_forward(u32 first_row, u32 size, u32 tiles_of_mesh, u32 tiles, u32 first_tile, u32 first_mesh, const Number *bases, u64 stride,
              const Number *packed, const float *biases, const u64 *random, float scale, const float *x, const Number *own, Number *invariants, Number *first, Number *second, float *y, uint4 *masks) {
    Meshes meshes = {first_row, size, tiles_of_mesh, tiles, first_tile};
    run(meshes, Forward{bases, stride, packed, biases, first_mesh, {random, 0, 0, scale}, x, own, invariants, first, second, y, masks});
}

struct Backward {
    static constexpr u32 HALVES = 14, LOADS = 3;
    const Number *bases;
    u64 stride;
    const float *dy;
    const Number *packed;
    const uint4 *masks;
    u32 first_mesh;
    float scale;
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

    __device__ inline void prepare() const {
#pragma unroll
        for (u32 i = 0; i < 3; ++i) *(float4 *)ColumnSums::place(bias_sums + i * C) = {};
    }

    __device__ __forceinline__ void tile(Streams &streams, u32 end, u32 row, u32 place) const {
        float a[64], b[64];
        u32 left[32];
        uint4 kept = masks[place * 128 + threadIdx.x % 128];
        bool inside[2] = {row < end, row + 8 < end};
        auto mask = [&](float (&d)[64], u32 low, u32 high) {
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
            b[i] = four.x, b[i + 1] = four.y, b[i + 4] = four.z, b[i + 5] = four.w;
        });
        pack(left, b);
        streams.product(a, left, false);
        store_pairs(left, dlast, place);
        ColumnSums::add(b, bias_sums + 2 * C);
        streams.finish();
        settle(a);
        mask(a, kept.z, kept.w);
        pack(left, a);
        streams.product(b, left, false);
        store_pairs(left, dsecond, place);
        ColumnSums::add(a, bias_sums + C);
        streams.finish();
        settle(b);
        mask(b, kept.x, kept.y);
        pack(left, b);
        streams.product(a, left, false);
        store_pairs(left, dfirst, place);
        ColumnSums::add(b, bias_sums);
        streams.finish();
        settle(a);
        if (dx)
            in_quads(row, end, [&](u32 i, u32 r, u32 column) {
                float4 four = given_four(i, column);
                *(float4 *)(dx + (u64)r * C + column) = {a[i] + four.x, a[i + 1] + four.y, a[i + 4] + four.z, a[i + 5] + four.w};
            });
        streams.give(0);
        streams.product(a, left, false);
        streams.finish();
        settle(a);
        // Gradients of g from its product with A g, and of A g: g1, A g 1, A g 2, g2.
        u64 g1 = half_tile(streams.take(2)), g2 = half_tile(streams.take(3));
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            float g[2][32], mapped[2][32];
            streams.vectors(g, mapped, g1, g2);
            if (half == 1) streams.give(2), streams.give(3);
#pragma unroll
            for (u32 i = 0; i < 32; ++i) a[32 * half + i] *= tanh_slope(g[0][i] * mapped[0][i] + g[1][i] * mapped[1][i]);
            auto put = [&](const float (&d)[32], u32 which) {
                const float *by = a + 32 * half;
                store_pairs<4>(dvectors + which * stride + (u64)place * HALF_NUMBERS, 64 * half,
                               [&](u32 i) { return pair_of(by[2 * i] * d[2 * i], by[2 * i + 1] * d[2 * i + 1]); });
            };
            put(mapped[0], 0), put(g[0], 1), put(g[1], 2), put(mapped[1], 3);
        }
    }
};

// From the gradient of the result, which is packed: those before both activations, that of x but for its diffusion, those of the vectors, and
// sums for the biases.
extern "C" __global__ void __launch_bounds__(384, 1)
block_backward(u32 first_row, u32 size, u32 tiles_of_mesh, u32 tiles, u32 first_tile, u32 first_mesh, const Number *bases, u64 stride,
               const float *dy, const Number *packed, const uint4 *masks, float scale, Number *dlast, Number *dsecond, Number *dfirst,
               Number *dvectors, float *dx, float *bias_sums) {
    Meshes meshes = {first_row, size, tiles_of_mesh, tiles, first_tile};
    run(meshes, Backward{bases, stride, dy, packed, masks, first_mesh, scale, dlast, dsecond, dfirst, dvectors, dx, bias_sums});
}

struct EnterBackward {
    static constexpr u32 HALVES = 2, LOADS = 1;
    const Number *basis, *packed;
    u32 first_mesh;
    float *dx;

    __device__ inline const Number *half(u32 i, u32 mesh) const { return packed + ((u64)(first_mesh + mesh) * 2 + i) * (FACTOR / 2); }
    __device__ inline Rows rows(u32, u32 half, u32, u32) const { return {0, basis + (u64)half * HALF_NUMBERS, HALF_TILE}; }
    __device__ inline void prepare() const {}

    __device__ __forceinline__ void tile(Streams &streams, u32 end, u32 row, u32) const {
        float a[64];
        fetch(a, dx, C, row, end);
        streams.product(a, half_tile(streams.take(0)));
        streams.finish();
        settle(a);
        streams.give(0);
        store(a, dx, C, row, end);
    }
};

// dx += basis S, with one packed S for each mesh.
extern "C" __global__ void __launch_bounds__(384, 1)
enter_backward(u32 first_row, u32 size, u32 tiles_of_mesh, u32 tiles, u32 first_tile, u32 first_mesh, const Number *basis, const Number *packed,
               float *dx) {
    Meshes meshes = {first_row, size, tiles_of_mesh, tiles, first_tile};
    run(meshes, EnterBackward{basis, packed, first_mesh, dx});
}

constexpr u32 NEXT = HALF_TILE / 16;

// Where a result begins, and numbers from one row to the next.
struct Result {
    float *to;
    u32 stride;
};

// Products over the rows of a slab. LOADS matrices, half tiles of which are copied to shared memory together, as often as there is room.
// multiply(d, left, right, add): products of 16 rows, with RESULTS results of 64 x 128 for each warpgroup. Columns of a left factor are rows of the
// result; NEXT lies from one matrix to the next. put(i): where the i-th result is stored.
template <u32 LOADS, u32 RESULTS, typename From, typename Multiply, typename Put>
__device__ inline void sum_rows(Slab slab, From from, Multiply multiply, Put put) {
    constexpr u32 SETS = 12 / LOADS, SET_BYTES = LOADS * HALF_TILE;
    __shared__ __align__(8) u64 barriers[2 * SETS];
    u32 base = (u32)__cvta_generic_to_shared(memory), sets = base + (-base & 1023);
    u32 full = (u32)__cvta_generic_to_shared(barriers), empty = full + 8 * SETS;
    if (threadIdx.x == 0) {
        for (u32 set = 0; set < SETS; ++set) init_barrier(full + 8 * set, 1), init_barrier(empty + 8 * set, 8);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    u32 set = 0, round = 0;
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        for (u32 half = slab.first; threadIdx.x == 0 && half < slab.end; ++half) {
            wait(empty + 8 * set, round % 2 ^ 1);
            expect(full + 8 * set, SET_BYTES);
#pragma unroll
            for (u32 i = 0; i < LOADS; ++i) load(sets + set * SET_BYTES + i * HALF_TILE, from(i, half), HALF_TILE, full + 8 * set);
            if (++set == SETS) set = 0, ++round;
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        u32 group = threadIdx.x / 128 - 1, lane = threadIdx.x % 32, last = 0;
        float d[RESULTS][64];
        for (u32 half = slab.first; half < slab.end; ++half) {
            wait(full + 8 * set, round % 2);
            begin_products();
            u64 right = half_tile(sets + set * SET_BYTES), left = right + group * (1024 / 16);
#pragma unroll
            for (u32 k = 0; k < 4; ++k) multiply(d, left + k * (4096 / 16), right + k * (4096 / 16), half > slab.first || k > 0);
            commit_products();
            wait_for_products<1>();
            if (half > slab.first && lane == 0) arrive(empty + 8 * last);
            last = set;
            if (++set == SETS) set = 0, ++round;
        }
        wait_for_products<0>();
#pragma unroll
        for (u32 i = 0; i < RESULTS; ++i) {
            settle(d[i]);
            if (slab.first == slab.end) clear(d[i]);
            Result place = put(i);
            float *to = place.to + (group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4) * place.stride + lane % 4 * 2;
#pragma unroll
            for (u32 j = 0; j < 16; ++j) {
                *(float2 *)(to + 8 * j) = {d[i][4 * j], d[i][4 * j + 1]};
                *(float2 *)(to + 8 * place.stride + 8 * j) = {d[i][4 * j + 2], d[i][4 * j + 3]};
            }
        }
    }
}

// Sums over slabs for the gradients of W3, W2, [W1p | W1x], and of the spectra: Phi^T dh, and those of the vectors for a, b and the spectrum
// itself. A block of threads for each slab of a mesh and kind: two kinds with `slabs` of them, then the vectors.
extern "C" __global__ void __launch_bounds__(384, 1)
row_products(u32, u32, u32 tiles_of_mesh, u32, u32 first_tile, u32 first_mesh, const Number *bases, u64 stride, u32 slabs, u32 vector_slabs,
             const Number *dlast, const Number *second, const Number *dsecond, const Number *first, const Number *dfirst, const Number *invariants,
             const Number *own, const Number *dvectors, float *update_sums, float *hidden_sums, float *first_sums, float *scalar_sums,
             float *vector_sums) {
    u32 blocks = 2 * slabs + vector_slabs, mesh = blockIdx.x / blocks, block = blockIdx.x % blocks;
    u64 before = 2 * first_tile + mesh * 2 * tiles_of_mesh;
    bool vectors = block >= 2 * slabs;
    u32 of_mesh = vectors ? block - 2 * slabs : block % slabs, parts = vectors ? vector_slabs : slabs;
    Slab slab(2 * tiles_of_mesh, of_mesh, parts);
    u64 sum = (u64)(first_mesh + mesh) * parts + of_mesh;
    auto rows = [&](const Number *matrix, u32 half) { return matrix + (before + half) * HALF_NUMBERS; };
    if (vectors) {
        sum_rows<6, 3>(
            slab, [&](u32 i, u32 half) { return rows(i < 2 ? bases + (2 + i) * stride : dvectors + (i - 2) * stride, half); },
            [](float (&d)[3][64], u64 left, u64 right, u32 add) {
                multiply<1, 1>(d[0], left, right + 3 * NEXT, add), multiply<1, 1>(d[1], left + NEXT, right + 3 * NEXT, add);
                multiply<1, 1>(d[2], left, right + 2 * NEXT, add), multiply<1, 1>(d[0], left + NEXT, right + 4 * NEXT, 1);
                multiply<-1, 1>(d[1], left, right + 4 * NEXT, 1), multiply<1, 1>(d[2], left + NEXT, right + 5 * NEXT, 1);
            },
            [&](u32 i) { return Result{vector_sums + (sum * 3 + i) * FACTOR, C}; });
    } else if (block < slabs) {
        sum_rows<4, 2>(
            slab, [&](u32 i, u32 half) { return rows(i == 0 ? dlast : i == 1 ? second : i == 2 ? dsecond : first, half); },
            [](float (&d)[2][64], u64 left, u64 right, u32 add) {
                multiply<1, 1>(d[0], left, right + NEXT, add), multiply<1, 1>(d[1], left + 2 * NEXT, right + 3 * NEXT, add);
            },
            [&](u32 i) { return Result{(i == 0 ? update_sums : hidden_sums) + sum * FACTOR, C}; });
    } else {
        sum_rows<4, 3>(
            slab, [&](u32 i, u32 half) { return rows(i == 0 ? dfirst : i == 1 ? invariants : i == 2 ? own : bases, half); },
            [](float (&d)[3][64], u64 left, u64 right, u32 add) {
                multiply<1, 1>(d[0], left, right + NEXT, add), multiply<1, 1>(d[1], left, right + 2 * NEXT, add);
                multiply<1, 1>(d[2], left + 3 * NEXT, right, add);
            },
            [&](u32 i) { return i < 2 ? Result{first_sums + sum * 2 * FACTOR + i * C, 2 * C} : Result{scalar_sums + sum * FACTOR, C}; });
    }
}

#endif
