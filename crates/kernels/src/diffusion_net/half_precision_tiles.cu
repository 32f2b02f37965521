// Matrices over all vertices in fp16 or bf16, for the block on Hopper: their layout, and kernels that sum over rows;
// see `half_precision.cu`, which stands behind this text, and the page of `diffusion_net`.
//
// A matrix is packed in half tiles: 64 rows of one mesh, in the layout that wgmma reads from shared memory with
// swizzles of 128 bytes. Rows behind the last one of a mesh, up to a whole tile, are there and multiply to zero. So 64
// rows are one copy of 16 KB, and serve as they are in products with them and, transposed, over them. `rows.cu` stands
// before this text.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Bytes and numbers of a half tile.
constexpr u32 HALF_TILE = 64 * C * 2, HALF_NUMBERS = 64 * C;

extern __shared__ unsigned char memory[];

// d = a B, or d += a B, for 16 terms; with SIGN -1, a is negated. TRANSPOSED: rows of both are terms, not rows of a and
// columns of B.
template <int SIGN, int TRANSPOSED> __device__ inline void multiply(float (&d)[64], u64 a, u64 b, u32 add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32." NUMBER "." NUMBER " {" P32_0 "," P32_1
                 "}, %64, %65, p, %67, 1, %68, %68;\n}"
                 : R32(d, 0), R32(d, 32)
                 : "l"(a), "l"(b), "r"(add), "n"(SIGN), "n"(TRANSPOSED));
}

// The same for half of the columns of B.
template <int SIGN, int TRANSPOSED> __device__ inline void multiply(float (&d)[32], u64 a, u64 b, u32 add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32." NUMBER "." NUMBER " {" P32_0
                 "}, %32, %33, p, %35, 1, %36, %36;\n}"
                 : R32(d, 0)
                 : "l"(a), "l"(b), "r"(add), "n"(SIGN), "n"(TRANSPOSED));
}

__device__ inline void multiply_registers(float (&d)[64], const u32 *a, u64 b, u32 add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32." NUMBER "." NUMBER " {" P32_0 "," P32_1
                 "}, {%64,%65,%66,%67}, %68, p, 1, 1, 0;\n}"
                 : R32(d, 0), R32(d, 32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

// A half tile in shared memory.
__device__ inline u64 half_tile(u32 address) { return matrix(address, 2048); }

// Place in bytes, in a half tile, of eight neighbours of a row.
__device__ inline u32 place_of(u32 row, u32 eight) { return row / 8 * 2048 + eight / 8 * 1024 + row % 8 * 128 + (eight % 8 ^ row % 8) * 16; }

__device__ inline float4 scaled(float4 v, float factor) { return {factor * v.x, factor * v.y, factor * v.z, factor * v.w}; }
__device__ inline uint4 eight_of(float4 a, float4 b) { return {pair_of(a.x, a.y), pair_of(a.z, a.w), pair_of(b.x, b.y), pair_of(b.z, b.w)}; }

#if FP16
// Measures the eigenvectors. A warp for each row.
extern "C" __global__ void __launch_bounds__(256)
measure_bases(u32 first_row, u32 size, u32 tiles_of_mesh, u32 tiles, u32, u32, const float *__restrict__ basis, const float *__restrict__ gradients,
              const float *__restrict__ mass, float *__restrict__ of_bases) {
    u32 rows = tiles / tiles_of_mesh * size, lane = threadIdx.x % 32;
    float phi = 0.0f, gradient = 0.0f, weighted = 0.0f;
    auto norm = [&](const float *row) {
        float4 v = ((const float4 *)row)[lane];
        float sum = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
#pragma unroll
        for (u32 i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
        return sqrtf(sum);
    };
#pragma unroll 4
    for (u32 i = blockIdx.x * 8 + threadIdx.x / 32; i < rows; i += gridDim.x * 8) {
        u64 row = first_row + i;
        float of_row = norm(basis + row * C);
        phi = fmaxf(phi, of_row), weighted = fmaxf(weighted, fabsf(mass[row]) * of_row);
        gradient = fmaxf(gradient, fmaxf(norm(gradients + row * 2 * C), norm(gradients + row * 2 * C + C)));
    }
    measure(of_bases + PHI, phi), measure(of_bases + GRADIENT, gradient);
    measure(of_bases + WEIGHTED, weighted), measure(of_bases + PROJECTED, (float)size * weighted);
}
#endif

// Packs the eigenvectors, those times masses, and both components of their gradients, `stride` numbers from one to the
// next. A thread for each eight numbers.
extern "C" __global__ void pack_bases(u32 first_row, u32 size, u32 tiles_of_mesh, u32 tiles, u32 first_tile, u32, const float *__restrict__ basis,
                                      const float *__restrict__ gradients, const float *__restrict__ mass, Number *__restrict__ packed, u64 stride,
                                      const float *of_bases) {
    Measured measured = {of_bases, nullptr, 1.0f};
    Scales scales = {measured};
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
        unsigned char *to = (unsigned char *)(packed + which * stride + (u64)(first_tile + tile) * 2 * HALF_NUMBERS);
        *(uint4 *)(to + row / 64 * HALF_TILE + place_of(row % 64, eight)) = eight_of(scaled(v[0], factor), scaled(v[1], factor));
    };
    put(0, basis + from * C + 8 * eight, scales.phi());
    put(1, basis + from * C + 8 * eight, scales.weighted() * m);
    put(2, gradients + from * 2 * C + 8 * eight, scales.gradient());
    put(3, gradients + from * 2 * C + C + 8 * eight, scales.gradient());
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

// Stores 64 rows of sums of a warpgroup times `factor`. A thread has pairs of neighbours; it gives half of them to the
// thread beside it for others, so that both store 16 bytes.
template <u32 COUNT> __device__ inline void store_sums(const float (&d)[COUNT], float factor, float *to, u32 stride) {
    bool odd = threadIdx.x % 2;
    to += (threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4) * stride + threadIdx.x % 4 / 2 * 4 + (odd ? 8 : 0);
#pragma unroll
    for (u32 i = 0; i < COUNT / 4; ++i) {
        // Of 16 columns in one of two rows.
        u32 j = i / 2, h = i % 2;
        const float *low = d + 8 * j + 2 * h, *high = low + 4;
        float x = __shfl_xor_sync(0xffffffffu, odd ? low[0] : high[0], 1), y = __shfl_xor_sync(0xffffffffu, odd ? low[1] : high[1], 1);
        float4 four = odd ? float4{x, y, high[0], high[1]} : float4{low[0], low[1], x, y};
        store_four(to + 8 * h * stride + 16 * j, scaled(four, factor));
    }
}

// Half tiles of eigenvectors, and of x as it is, that are copied to shared memory ahead.
constexpr u32 INPUT_STAGES = 4, INPUT_STAGE = HALF_TILE + 64 * C * 4;

// Packs x, and sums the spectra B^T x over slabs, with B the packed eigenvectors times masses. Loads take the time of
// this kernel, so it draws the masks of both dropouts as well. A block of threads for each slab; each warpgroup has a
// quarter of the spectrum.
extern "C" __global__ void __launch_bounds__(512, 1)
read_input(u32 first_row, u32 size, u32 tiles_of_mesh, u32 tiles, u32 first_tile, u32 first_mesh, const float *__restrict__ x,
      const Number *__restrict__ basis, u32 slabs, Number *__restrict__ packed, float *__restrict__ sums, const u64 *one, u64 one_salt,
      const u64 *two, u64 two_salt, u64 threshold, u32 *__restrict__ masks, const float *of_bases, const float *of_block) {
    Measured measured = {of_bases, of_block, 1.0f};
    Scales scales = {measured};
    float of_x = scales.x(), of_sums = 1.0f / (of_x * scales.weighted());
    __shared__ __align__(8) u64 barriers[INPUT_STAGES];
    unsigned char *aligned = memory + (-(u32)__cvta_generic_to_shared(memory) & 1023);
    u32 own = (u32)__cvta_generic_to_shared(aligned), stages = own + 2 * HALF_TILE, full = (u32)__cvta_generic_to_shared(barriers);
    u32 mesh = blockIdx.x / slabs, halves = 2 * tiles_of_mesh;
    Slab slab(halves, blockIdx.x % slabs, slabs);
    u64 before = 2 * first_tile + mesh * halves;
    auto copy = [&](u32 half) {
        if (threadIdx.x != 0 || half >= slab.end) return;
        u32 stage = (half - slab.first) % INPUT_STAGES, to = stages + stage * INPUT_STAGE, barrier = full + 8 * stage;
        u32 bytes = half * 64 < size ? min(size - half * 64, 64u) * C * 4 : 0;
        expect(barrier, HALF_TILE + bytes);
        load(to, basis + (before + half) * HALF_NUMBERS, HALF_TILE, barrier);
        if (bytes > 0) load(to + HALF_TILE, x + (u64)(first_row + mesh * size + half * 64) * C, bytes, barrier);
    };
    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < INPUT_STAGES; ++stage) init_barrier(full + 8 * stage, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    for (u32 i = 0; i < INPUT_STAGES; ++i) copy(slab.first + i);
    // Eight neighbours in each of two rows.
    u32 row = threadIdx.x / 16, eight = threadIdx.x % 16, group = threadIdx.x / 128;
    float d[32];
    for (u32 half = slab.first; half < slab.end; ++half) {
        u32 count = half - slab.first, stage = count % INPUT_STAGES, place = count % 2 * HALF_TILE;
        wait(full + 8 * stage, count / INPUT_STAGES % 2);
        const float4 *rows = (const float4 *)(aligned + 2 * HALF_TILE + stage * INPUT_STAGE + HALF_TILE);
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            u32 r = row + 32 * i, at = place_of(r, eight);
            float4 low = {}, high = {};
            if (half * 64 + r < size) low = rows[r * (C / 4) + 2 * eight], high = rows[r * (C / 4) + 2 * eight + 1];
            uint4 numbers = eight_of(scaled(low, of_x), scaled(high, of_x));
            *(uint4 *)(aligned + place + at) = numbers;
            *(uint4 *)((unsigned char *)(packed + (before + half) * HALF_NUMBERS) + at) = numbers;
        }
        if (one) {
            // Half of the columns of a thread of a pass over tiles, for one of the dropouts.
            u32 thread = threadIdx.x / 4, pass_row = half * 64 + thread / 32 * 16 + thread % 32 / 4;
            Drop drop = threadIdx.x / 2 % 2 ? Drop{two, two_salt, threshold} : Drop{one, one_salt, threshold};
            masks[(before + half) * 512 + threadIdx.x] = draw(drop, first_row + mesh * size + pass_row, thread % 4, threadIdx.x % 2);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        wait_for_products<0>();
        fence_registers(d);
        __syncthreads();
        // All are done with the rows before.
        if (count > 0) copy(half - 1 + INPUT_STAGES);
        u64 a = half_tile(stages + stage * INPUT_STAGE + group % 2 * 1024), b = half_tile(own + place + group / 2 * 1024);
        begin_products();
#pragma unroll
        for (u32 k = 0; k < 4; ++k) multiply<1, 1>(d, a + k * (4096 / 16), b + k * (4096 / 16), count + k > 0);
        commit_products();
    }
    wait_for_products<0>();
    fence_registers(d);
    if (slab.first == slab.end) clear(d);
    float *to = sums + (u64)((first_mesh + mesh) * slabs + blockIdx.x % slabs) * FACTOR;
    store_sums(d, of_sums, to + group % 2 * 64 * C + group / 2 * 64, C);
}

constexpr u32 NEXT = HALF_TILE / 16;

// Where a result begins, numbers from one row to the next, and the scale that it has before it is stored.
struct Result {
    float *to;
    u32 stride;
    float scale;
};

// Products over the rows of a slab. LOADS matrices, half tiles of which are copied to shared memory together, as often
// as there is room. multiply(d, left, right, add): products of 16 rows, with RESULTS results of 64 x 128 for each
// warpgroup. Columns of a left factor are rows of the result; NEXT lies from one matrix to the next. put(i): where the
// i-th result is stored.
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
            fence_registers(d[i]);
            if (slab.first == slab.end) clear(d[i]);
            Result place = put(i);
            store_sums(d[i], 1.0f / place.scale, place.to + group * 64 * place.stride, place.stride);
        }
    }
}

// Sums over slabs for the gradients of W3, W2, [W1p | W1x], and of the spectra: Phi^T dh, and those of the vectors for
// a, b and the spectrum itself. A block of threads for each slab of a mesh and kind: two kinds with `slabs` of them,
// then the vectors.
extern "C" __global__ void __launch_bounds__(384, 1)
row_products(u32, u32, u32 tiles_of_mesh, u32, u32 first_tile, u32 first_mesh, const Number *bases, u64 stride, u32 slabs, u32 vector_slabs,
             const Number *dlast, const Number *second, const Number *dsecond, const Number *first, const Number *dfirst, const Number *invariants,
             const Number *own, const Number *dvectors, float *update_sums, float *hidden_sums, float *first_sums, float *scalar_sums,
             float *vector_sums, const float *of_bases, const float *of_block, float drop) {
    Measured measured = {of_bases, of_block, drop};
    Scales scales = {measured};
    u32 blocks = 2 * slabs + vector_slabs, mesh = blockIdx.x / blocks, block = blockIdx.x % blocks;
    u64 before = 2 * first_tile + mesh * 2 * tiles_of_mesh;
    bool vectors = block >= 2 * slabs;
    u32 of_mesh = vectors ? block - 2 * slabs : block % slabs, parts = vectors ? vector_slabs : slabs;
    Slab slab(2 * tiles_of_mesh, of_mesh, parts);
    u64 sum = (u64)(first_mesh + mesh) * parts + of_mesh;
    auto rows = [&](const Number *matrix, u32 half) { return matrix + (before + half) * HALF_NUMBERS; };
    if (vectors) {
        float of_mapped = scales.gradient() * scales.dmapped(), of_g = scales.gradient() * scales.dg();
        sum_rows<6, 3>(
            slab, [&](u32 i, u32 half) { return rows(i < 2 ? bases + (2 + i) * stride : dvectors + (i - 2) * stride, half); },
            [](float (&d)[3][64], u64 left, u64 right, u32 add) {
                multiply<1, 1>(d[0], left, right + 3 * NEXT, add), multiply<1, 1>(d[1], left + NEXT, right + 3 * NEXT, add);
                multiply<1, 1>(d[2], left, right + 2 * NEXT, add), multiply<1, 1>(d[0], left + NEXT, right + 4 * NEXT, 1);
                multiply<-1, 1>(d[1], left, right + 4 * NEXT, 1), multiply<1, 1>(d[2], left + NEXT, right + 5 * NEXT, 1);
            },
            [&](u32 i) { return Result{vector_sums + (sum * 3 + i) * FACTOR, C, i < 2 ? of_mapped : of_g}; });
    } else if (block < slabs) {
        float of_update = scales.dy() * scales.second(), of_hidden = scales.dsecond() * scales.first();
        sum_rows<4, 2>(
            slab, [&](u32 i, u32 half) { return rows(i == 0 ? dlast : i == 1 ? second : i == 2 ? dsecond : first, half); },
            [](float (&d)[2][64], u64 left, u64 right, u32 add) {
                multiply<1, 1>(d[0], left, right + NEXT, add), multiply<1, 1>(d[1], left + 2 * NEXT, right + 3 * NEXT, add);
            },
            [&](u32 i) { return Result{(i == 0 ? update_sums : hidden_sums) + sum * FACTOR, C, i == 0 ? of_update : of_hidden}; });
    } else {
        float of_first = scales.dfirst(), of_x = scales.x(), of_phi = scales.phi();
        sum_rows<4, 3>(
            slab, [&](u32 i, u32 half) { return rows(i == 0 ? dfirst : i == 1 ? invariants : i == 2 ? own : bases, half); },
            [](float (&d)[3][64], u64 left, u64 right, u32 add) {
                multiply<1, 1>(d[0], left, right + NEXT, add), multiply<1, 1>(d[1], left, right + 2 * NEXT, add);
                multiply<1, 1>(d[2], left + 3 * NEXT, right, add);
            },
            [&](u32 i) {
                float by = i == 0 ? P_SCALE : i == 1 ? of_x : of_phi;
                return Result{i < 2 ? first_sums + sum * 2 * FACTOR + i * C : scalar_sums + sum * FACTOR, i < 2 ? 2 * C : C, of_first * by};
            });
    }
}

#endif
