// Rows of edges (or vertices) whose values stay in registers, and chains of products on tensor cores with them. This
// text stands after `tensor.cu`, before the kernels that use it.
//
// Channels come in octets: IN_OCTETS for each of the IN_COMPONENTS components of the features, OCTETS for each of the
// COMPONENTS of a result. WARPS: warps of a block that compute rows, 16 rows each. BACKWARD: COLLECTORS other warps add
// up gradients of weights.
//
// Lane 4 g + t of a warp holds the columns 2 t and 2 t + 1 of each octet of the rows g and g + 8: all components of its
// channels, so that rotations and nonlinearities need no other lane. These are the sums of one product and, with the
// terms of each octet in the order 0, 2, 4, 6, 1, 3, 5, 7, the factors of the next.

constexpr u32 INPUT = 8 * IN_OCTETS * IN_COMPONENTS, WIDTH = 8 * OCTETS * COMPONENTS;
constexpr u32 IN_TILES = INPUT / 8, TILES = WIDTH / 8;
// Columns of weights are exchanged in each row, so that a warp reads 8 rows of an octet or 8 octets of a row from
// different banks.
__device__ inline u32 exchange(u32 row) { return 8 * ((row & 3) ^ (row >> 2 & 1)); }

// Weights and what follows them, `count` numbers, a multiple of 4.
__device__ inline void load_weights(const float *__restrict__ weights, u32 count, float *to) {
#pragma unroll 8
    for (u32 i = threadIdx.x; i < count / 4; i += blockDim.x)
        reinterpret_cast<float4 *>(to)[i] = reinterpret_cast<const float4 *>(weights)[i];
}

struct Lane {
    u32 lane, g, t;
};

template <u32 COUNT> struct Tiles {
    // Two columns of row g, then of row g + 8.
    float v[COUNT][4];
};

constexpr u32 LANE_ROWS = 2, WARP_ROWS = 16;

template <u32 COUNT> __device__ inline void round(Tiles<COUNT> &tiles) {
#pragma unroll
    for (u32 n = 0; n < COUNT; ++n)
#pragma unroll
        for (u32 i = 0; i < 4; ++i) tiles.v[n][i] = factor(tiles.v[n][i]);
}

// The rows `rows` of x, with TILES octets each.
template <u32 COUNT>
__device__ inline void load_rows(Tiles<COUNT> &to, const float *__restrict__ x, const u32 (&rows)[LANE_ROWS], Lane lane) {
#pragma unroll
    for (u32 r = 0; r < LANE_ROWS; ++r) {
        const float2 *from = reinterpret_cast<const float2 *>(x + (u64)rows[r] * 8 * COUNT) + lane.t;
#pragma unroll
        for (u32 n = 0; n < COUNT; ++n) {
            float2 value = from[4 * n];
            to.v[n][2 * r] = value.x;
            to.v[n][2 * r + 1] = value.y;
        }
    }
}

template <u32 STRIDE, u32 COUNT> __device__ inline void store_rows(const Tiles<COUNT> &from, float *rows, Lane lane) {
#pragma unroll
    for (u32 r = 0; r < LANE_ROWS; ++r)
#pragma unroll
        for (u32 n = 0; n < COUNT; ++n)
            *reinterpret_cast<float2 *>(rows + (lane.g + 8 * r) * STRIDE + 8 * n + 2 * lane.t) =
                make_float2(from.v[n][2 * r], from.v[n][2 * r + 1]);
}

template <u32 STRIDE, u32 COUNT> __device__ inline void restore_rows(Tiles<COUNT> &to, const float *rows, Lane lane) {
#pragma unroll
    for (u32 r = 0; r < LANE_ROWS; ++r)
#pragma unroll
        for (u32 n = 0; n < COUNT; ++n) {
            float2 value = *reinterpret_cast<const float2 *>(rows + (lane.g + 8 * r) * STRIDE + 8 * n + 2 * lane.t);
            to.v[n][2 * r] = value.x;
            to.v[n][2 * r + 1] = value.y;
        }
}

// rho of an angle of each edge.
template <u32 PER_COMPONENT, u32 COUNT, typename Angle> __device__ inline void rotate(Tiles<COUNT> &tiles, Angle angle) {
    if (ROWS_ARE_VERTICES) return;
#pragma unroll
    for (u32 r = 0; r < LANE_ROWS; ++r) {
        Phase turn = {1.0f, 0.0f};
#pragma unroll
        for (u32 k = 1; k < COUNT / PER_COMPONENT; k += 2) {
            turn = times(turn, angle(r));
#pragma unroll
            for (u32 i = 0; i < 2 * PER_COMPONENT; ++i) {
                float &a = tiles.v[k * PER_COMPONENT + i / 2][2 * r + i % 2];
                float &b = tiles.v[(k + 1) * PER_COMPONENT + i / 2][2 * r + i % 2], old = a;
                a = turn.c * a - turn.s * b;
                b = turn.s * old + turn.c * b;
            }
        }
    }
}

// Factors of a product, from two columns of each of the rows g and g + 8.
__device__ inline void factors_of(const float2 &top, const float2 &bottom, float (&a)[4]) {
    a[0] = top.x, a[1] = bottom.x, a[2] = top.y, a[3] = bottom.y;
}

__device__ inline void factors_of(const float (&values)[4], float (&a)[4]) {
    factors_of(make_float2(values[0], values[1]), make_float2(values[2], values[3]), a);
}

// sums += from W^T. `from(j, a)` are the factors of octet j.
template <u32 STRIDE, u32 COUNT, typename From>
__device__ inline void apply(Tiles<TILES> &sums, const float *weights, Lane lane, From from) {
    const float *base = weights + lane.g * STRIDE + 2 * lane.t;
#pragma unroll
    for (u32 j = 0; j < COUNT; ++j) {
        const float *at = base + (8 * j ^ exchange(lane.g));
        float a[4];
        from(j, a);
#pragma unroll
        for (u32 n = 0; n < TILES; ++n) {
            float2 b = *reinterpret_cast<const float2 *>(at + 8 * n * STRIDE);
            multiply(sums.v[n], a, b.x, b.y);
        }
    }
}

template <u32 COUNT> __device__ inline void clear(Tiles<COUNT> &tiles) {
#pragma unroll
    for (u32 n = 0; n < COUNT; ++n)
#pragma unroll
        for (u32 i = 0; i < 4; ++i) tiles.v[n][i] = 0.0f;
}

// sums += from W, for the columns of W from octet `octet` on.
template <u32 STRIDE, u32 COUNT>
__device__ inline void apply_transposed(Tiles<COUNT> &sums, const Tiles<TILES> &from, const float *weights, u32 octet,
                                        Lane lane) {
    const float *even[4], *odd[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        even[i] = weights + 2 * lane.t * STRIDE + (8 * i ^ exchange(2 * lane.t)) + lane.g;
        odd[i] = weights + (2 * lane.t + 1) * STRIDE + (8 * i ^ exchange(2 * lane.t + 1)) + lane.g;
    }
#pragma unroll
    for (u32 j = 0; j < TILES; ++j) {
        float a[4];
        factors_of(from.v[j], a);
#pragma unroll
        for (u32 n = 0; n < COUNT; ++n) {
            u32 place = 8 * j * STRIDE + (octet + n) / 4 * 32;
            multiply(sums.v[n], a, even[(octet + n) % 4][place], odd[(octet + n) % 4][place]);
        }
    }
}

struct Graph {
    const u32 *__restrict__ offsets;
    const u32 *__restrict__ neighbours;
    const u32 *__restrict__ reverse;
    const float4 *__restrict__ phases;

    __device__ inline u32 centre(u32 edge) const { return neighbours[reverse[edge]]; }
};

// The edges of a lane, the same ones in four lanes.
struct Edges {
    u32 own[LANE_ROWS], other[LANE_ROWS];
    float4 phase[LANE_ROWS];

    // The vertices of the edges from `start` on, below `stop`.
    __device__ inline void read_vertices(const Graph &graph, u32 start, u32 stop, Lane lane) {
#pragma unroll
        for (u32 r = 0; r < LANE_ROWS; ++r) {
            u32 edge = min(start + lane.g + 8 * r, stop - 1);
            own[r] = ROWS_ARE_VERTICES ? edge : graph.centre(edge);
            other[r] = ROWS_ARE_VERTICES ? edge : graph.neighbours[edge];
        }
    }

    __device__ inline void read_phases(const Graph &graph, u32 start, u32 stop, Lane lane) {
#pragma unroll
        for (u32 r = 0; r < LANE_ROWS; ++r)
            if (!ROWS_ARE_VERTICES) phase[r] = graph.phases[min(start + lane.g + 8 * r, stop - 1)];
    }

    // Rotations by theta, -theta, g - theta and theta - g.
    __device__ inline auto angle() const {
        return [this](u32 r) { return Phase{phase[r].x, phase[r].y}; };
    }
    __device__ inline auto to_edge() const {
        return [this](u32 r) { return Phase{phase[r].x, -phase[r].y}; };
    }
    __device__ inline auto transport() const {
        return [this](u32 r) { return Phase{phase[r].z, phase[r].w}; };
    }
    __device__ inline auto transport_back() const {
        return [this](u32 r) { return Phase{phase[r].z, -phase[r].w}; };
    }
};

// Rows of `to` from `start` on, below `stop`: values, plus rows of `add` if it is not null.
template <u32 COUNT>
__device__ inline void write_rows(const Tiles<COUNT> &values, const float *__restrict__ add, float *__restrict__ to, u32 start,
                                  u32 stop, Lane lane) {
#pragma unroll
    for (u32 r = 0; r < LANE_ROWS; ++r) {
        u32 row = start + lane.g + 8 * r;
        if (row >= stop) continue;
        u64 place = (u64)row * 8 * COUNT + 2 * lane.t;
#pragma unroll
        for (u32 n = 0; n < COUNT; ++n) {
            float2 sum = make_float2(0.0f, 0.0f);
            if (add) sum = *reinterpret_cast<const float2 *>(add + place + 8 * n);
            sum.x += values.v[n][2 * r], sum.y += values.v[n][2 * r + 1];
            *reinterpret_cast<float2 *>(to + place + 8 * n) = sum;
        }
    }
}

#if !BACKWARD

// The vertex at which the share of `worker` begins, among `workers` with the same number of edges.
__device__ inline u32 first_vertex(const Graph &graph, u32 worker, u32 workers, u32 edges, u32 vertices) {
    if (worker == workers) return vertices;
    return worker == 0 || edges == 0 ? 0 : graph.centre((u64)edges * worker / workers);
}

#endif

#if BACKWARD

// Rows of a block, groups of 16 columns of a result, and the stride of rows of either type in shared memory.
constexpr u32 ROWS = WARP_ROWS * WARPS, OUT_TILES = (TILES + 1) / 2;
constexpr u32 HIDDEN = (16 * OUT_TILES > INPUT ? 16 * OUT_TILES : INPUT) + 4;

// Slopes and their factors are complete; they are free; gradients of own features are complete; they are free.
enum Barrier : u32 { COMPLETE = 1, FREE, OWN_COMPLETE, OWN_FREE };

__device__ inline void wait(Barrier barrier) { asm volatile("bar.sync %0, %1;" ::"r"((u32)barrier), "n"(32 * (WARPS + COLLECTORS)) : "memory"); }

__device__ inline void arrive(Barrier barrier) {
    asm volatile("bar.arrive %0, %1;" ::"r"((u32)barrier), "n"(32 * (WARPS + COLLECTORS)) : "memory");
}

// sums[n][m] += slopes^T factors: octet first + n STEP of the factors, 16 slopes from 16 m on.
template <u32 STRIDE, u32 COUNT, u32 OCTETS_OF_FACTORS, u32 STEP>
__device__ inline void collect(float (&sums)[COUNT][OUT_TILES][4], float (&bias)[OUT_TILES][2], bool with_bias,
                               const float *slopes, const float *factors, u32 first, Lane lane) {
    slopes += 2 * lane.t * HIDDEN + lane.g;
    factors += 2 * lane.t * STRIDE + lane.g + 8 * first;
#pragma unroll 2
    for (u32 row = 0; row < ROWS; row += 8, slopes += 8 * HIDDEN, factors += 8 * STRIDE) {
        float a[OUT_TILES][4];
#pragma unroll
        for (u32 m = 0; m < OUT_TILES; ++m) {
            a[m][0] = slopes[16 * m], a[m][1] = slopes[16 * m + 8];
            a[m][2] = slopes[HIDDEN + 16 * m], a[m][3] = slopes[HIDDEN + 16 * m + 8];
        }
#pragma unroll
        for (u32 n = 0; n < COUNT; ++n) {
            if (first + n * STEP >= OCTETS_OF_FACTORS) break;
            float b0 = factors[8 * n * STEP], b1 = factors[STRIDE + 8 * n * STEP];
#pragma unroll
            for (u32 m = 0; m < OUT_TILES; ++m) multiply(sums[n][m], a[m], b0, b1);
        }
        if (with_bias) {
#pragma unroll
            for (u32 m = 0; m < OUT_TILES; ++m) bias[m][0] += a[m][0] + a[m][2], bias[m][1] += a[m][1] + a[m][3];
        }
    }
}

template <u32 COUNT, u32 OCTETS_OF_FACTORS, u32 STEP>
__device__ inline void write_sums(const float (&sums)[COUNT][OUT_TILES][4], float *to, u32 first, Lane lane) {
#pragma unroll
    for (u32 n = 0; n < COUNT; ++n) {
        u32 octet = first + n * STEP;
        if (octet >= OCTETS_OF_FACTORS) break;
#pragma unroll
        for (u32 m = 0; m < OUT_TILES; ++m)
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                u32 row = 16 * m + lane.g + i / 2 * 8;
                if (row < WIDTH) to[row * 8 * OCTETS_OF_FACTORS + 8 * octet + 2 * lane.t + i % 2] = sums[n][m][i];
            }
    }
}

// The first row of the share of `block` among the rows from `first` up to `end`; the edges of a vertex are those of one
// block.
__device__ inline u32 first_row(const Graph &graph, u32 block, u32 first, u32 end) {
    u32 row = first + (u64)(end - first) * block / gridDim.x;
    if (ROWS_ARE_VERTICES || block == 0 || block == gridDim.x) return row;
    return max(graph.offsets[graph.centre(row)], first);
}

// to[p] += the sum of the rows of the edges of vertex p, for the edges from `start` up to `until`, whose vertices are
// those from p up to `end`. For all collectors together; rows of `to` have COUNT octets.
template <u32 COUNT>
__device__ inline void add_rows(const Graph &graph, u32 start, u32 until, u32 p, u32 end, const float *rows, u32 thread,
                                float *to) {
    constexpr u32 FOURS = 2 * COUNT;
    for (u32 i = thread; i < (end - p) * FOURS; i += 32 * COLLECTORS) {
        u32 vertex = p + i / FOURS, column = i % FOURS * 4;
        float4 *place = reinterpret_cast<float4 *>(to + (u64)vertex * 8 * COUNT + column), sum = *place;
        u32 edge = max(graph.offsets[vertex], start), edge_end = min(graph.offsets[vertex + 1], until);
        for (; edge < edge_end; ++edge) {
            float4 part = *reinterpret_cast<const float4 *>(rows + (edge - start) * HIDDEN + column);
            sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
        }
        *place = sum;
    }
}

// dx += the gradients of the features of the neighbour of the edges from `first` up to `end` that lead to other
// vertices. One thread for four numbers of a vertex.
extern "C" __global__ void neighbour_gradients(const u32 *__restrict__ offsets, const u32 *__restrict__ reverse, u32 first,
                                               u32 end, const float4 *__restrict__ dz, float4 *__restrict__ dx,
                                               u32 vertices) {
    u64 i = item();
    if (i >= (u64)vertices * (INPUT / 4)) return;
    u32 vertex = i / (INPUT / 4), column = i % (INPUT / 4);
    float4 sum = dx[i];
    in_batches<8>(
        offsets[vertex], offsets[vertex + 1], 1,
        [&](u32 edge) {
            u32 leaving = reverse[edge];
            bool here = leaving >= first && leaving < end;
            return here ? dz[(u64)(leaving - first) * (INPUT / 4) + column] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        },
        [&](u32, float4 part) { sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w; });
    dx[i] = sum;
}

#endif
