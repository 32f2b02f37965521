// What passes over tiles of rows share: which rows a tile has, and what a thread does with its numbers;
// see `half_precision.cu`. `philox.cu` and `factors.cu` stand before this text.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr u32 TILE_ROWS = 128;
// Nanoseconds between the starts of blocks of threads that begin later.
constexpr u32 SKEW = 2000;

// Meshes of equal size: the first row, rows of a mesh, tiles of a mesh, tiles of all, and tiles of other meshes before
// them.
struct Meshes {
    u32 first_row, size, tiles_of_mesh, tiles, first_tile;
};

// Rows first..end of a mesh, at most TILE_ROWS of which are the tile. If the last tiles are for less than half of the
// blocks of threads, each is divided: the first warpgroups of two blocks do its parts.
struct Tile {
    u32 mesh, first, end, number, part;
    bool divided;
    __device__ inline Tile(const Meshes &meshes, u32 at) {
        u32 whole = meshes.tiles - meshes.tiles % gridDim.x;
        divided = at >= whole && divides(meshes);
        part = divided ? (at - whole) % 2 : 0;
        u32 tile = divided ? whole + (at - whole) / 2 : at;
        number = meshes.first_tile + tile;
        mesh = tile / meshes.tiles_of_mesh;
        first = meshes.first_row + mesh * meshes.size + tile % meshes.tiles_of_mesh * TILE_ROWS;
        end = meshes.first_row + (mesh + 1) * meshes.size;
    }

    __device__ static inline bool divides(const Meshes &meshes) { return 2 * (meshes.tiles % gridDim.x) <= gridDim.x; }

    // Tiles and divided tiles.
    __device__ static inline u32 count(const Meshes &meshes) { return meshes.tiles + (divides(meshes) ? meshes.tiles % gridDim.x : 0); }
};

// A thread holds numbers of two rows, `row` and `row` + 8. Calls `run(i, row, column)` for every four neighbours in
// rows before `end`, of 16 PARTS columns: they are d[i], d[i + 1], d[i + 4] and d[i + 5].
template <u32 PARTS = 8, typename Run> __device__ __forceinline__ void in_quads(u32 row, u32 end, Run run) {
#pragma unroll
    for (u32 h = 0; h < 2; ++h) {
        if (row + 8 * h >= end) continue;
#pragma unroll
        for (u32 j = 0; j < PARTS; ++j) run(8 * j + 2 * h, row + 8 * h, 16 * j + threadIdx.x % 4 * 4);
    }
}

__device__ __forceinline__ void store(const float (&d)[64], float *to, u32 stride, u32 row, u32 end) {
    in_quads(row, end, [&](u32 i, u32 r, u32 column) { *(float4 *)(to + (u64)r * stride + column) = {d[i], d[i + 1], d[i + 4], d[i + 5]}; });
}

// Rows from `end` on become zero.
__device__ __forceinline__ void fetch(float (&d)[64], const float *from, u32 stride, u32 row, u32 end) {
#pragma unroll
    for (u32 i = 0; i < 64; ++i) d[i] = 0.0f;
    in_quads(row, end, [&](u32 i, u32 r, u32 column) {
        float4 four = *(const float4 *)(from + (u64)r * stride + column);
        d[i] = four.x, d[i + 1] = four.y, d[i + 4] = four.z, d[i + 5] = four.w;
    });
}

// Blocks of threads that have a tile less than others begin later, at different times: all would store and load at
// once.
__device__ inline void wait_for_turn(u32 tiles) {
    u32 longest = (tiles - 1) % gridDim.x + 1;
    if (tiles > gridDim.x && blockIdx.x >= longest) __nanosleep((blockIdx.x - longest) % 8 * SKEW);
}

// Dropout: a null stream drops nothing.
struct Drop {
    const u64 *stream;
    u64 salt, threshold;
};

// Bits of the numbers of a thread that are kept, for half of its columns: of those that a thread with this `lane` of
// four has in `row` and `row` + 8. Four neighbours take a block of random words.
__device__ inline u32 draw(const Drop &drop, u32 row, u32 lane, u32 half) {
    if (!drop.stream) return 0xffffffffu;
    u64 seed = drop.stream[0] ^ drop.salt, step = drop.stream[1], least = drop.threshold;
    u32 kept = 0;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        u32 j = i / 2, h = i % 2;
        uint4 words = block_of((u64)(row + 8 * h) * (C / 4) + 16 * half + 4 * j + lane, seed, step);
        u32 bits = (words.x >= least) | (words.y >= least) << 1 | (words.z >= least) << 4 | (words.w >= least) << 5;
        kept |= bits << (8 * j + 2 * h);
    }
    return kept;
}

// d = scale drop(relu(d)). `kept` becomes the bits of numbers above zero.
__device__ __forceinline__ void activate(float (&d)[64], u32 (&kept)[2], float scale) {
    u32 above[2] = {};
#pragma unroll
    for (u32 i = 0; i < 64; ++i) {
        d[i] = (d[i] < 0.0f ? 0.0f : d[i]) * (kept[i / 32] >> i % 32 & 1 ? scale : 0.0f);
        above[i / 32] |= (d[i] > 0.0f) << i % 32;
    }
    kept[0] = above[0], kept[1] = above[1];
}

// d = a bias, which is ordered by threads.
__device__ __forceinline__ void begin(float (&d)[64], const float *bias) {
    const float4 *from = (const float4 *)(bias + threadIdx.x % 4 * 32);
#pragma unroll
    for (u32 j = 0; j < 8; ++j) {
        float4 four = from[j];
        d[8 * j] = d[8 * j + 2] = four.x, d[8 * j + 1] = d[8 * j + 3] = four.y;
        d[8 * j + 4] = d[8 * j + 6] = four.z, d[8 * j + 5] = d[8 * j + 7] = four.w;
    }
}

__device__ inline float one_less_tanh(float x) { return __fdividef(2.0f, 1.0f + __expf(2.0f * fminf(x, 15.0f))); }
__device__ inline float tanh_of(float x) { return 1.0f - one_less_tanh(x); }
__device__ inline float tanh_slope(float x) {
    float less = one_less_tanh(x);
    return less * (2.0f - less);
}

// Sums of columns over the rows of a warp, times `scale`, which it alone adds to in memory: registers are scarce.
struct ColumnSums {
    // Keeps one half of the sums, and adds those of the thread that keeps the other.
    template <u32 COUNT> __device__ __forceinline__ static void exchange(float (&v)[32]) {
        bool upper = threadIdx.x & COUNT;
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            float sent = upper ? v[i] : v[i + COUNT], kept = upper ? v[i + COUNT] : v[i];
            v[i] = kept + __shfl_xor_sync(0xffffffffu, sent, COUNT);
        }
    }

    // Four neighbours of each thread in the sums of its warp.
    __device__ __forceinline__ static float *place(float *sums) {
        return sums + (u64)(blockIdx.x * 8 + threadIdx.x / 32 - 4) * 3 * C + threadIdx.x % 32 * 4;
    }

    __device__ __forceinline__ static void add(const float (&d)[64], float scale, float *sums) {
        float v[32];
#pragma unroll
        for (u32 i = 0; i < 32; ++i) v[i] = d[i / 2 * 4 + i % 2] + d[i / 2 * 4 + 2 + i % 2];
        exchange<16>(v), exchange<8>(v), exchange<4>(v);
        asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(place(sums)), "f"(scale * v[0]), "f"(scale * v[1]), "f"(scale * v[2]), "f"(scale * v[3]) : "memory");
    }
};

#endif
