// Gauge aggregation: GROUP lanes work on one vertex, each on VECTOR adjacent channels of one order. The sums of
// HARMONICS harmonics on RINGS rings stay in registers, few enough for BLOCKS blocks of THREADS threads on a
// multiprocessor. The edges of the vertices of a block are contiguous and are read together, EDGES at a time; values
// that depend only on the edge are computed once. RADIAL: 1 if there is more than one ring in all. ORDERS: number of
// orders of the features, from 0. COLUMNS: coefficients of each edge; 1 is a factor, more take the place of the
// harmonics. HEADS: above 1, each edge has a factor for each head, whose number is the last of the numbers of a run of
// channels. See the documentation of `aggregate`.
//
// TENSOR: the rows stay in shared memory and are multiplied there by the stacked weights on tensor cores, with VERTICES
// vertices (a multiple of 16) in a block and rows of stride ROW. See the documentation of `gauge_conv`. This text
// stands after `tensor.cu`.

struct alignas(4 * VECTOR) Channels {
    float v[VECTOR];
};

__device__ inline Channels load(const float *from) { return *reinterpret_cast<const Channels *>(from); }

__device__ inline void store(float *to, const Channels &value) { *reinterpret_cast<Channels *>(to) = value; }

// Weight of a ring at a radius: linear hat functions, the last one constant beyond the largest radius.
__device__ inline float ring_weight(u32 ring, u32 rings, float radius, float max_radius) {
    float place = fminf(radius / max_radius, 1.0f) * (float)(rings - 1);
    return fmaxf(1.0f - fabsf(place - (float)ring), 0.0f);
}

// Edges and features. reversed: the edges are those of the transposed operator, so scales belong to the neighbours.
// irreps: (index of cosine, index of sine, order, head) of each run of VECTOR channels. own: features of the vertices
// themselves.
struct Source {
    const u32 *__restrict__ offsets;
    const u32 *__restrict__ neighbours;
    const float4 *__restrict__ phases;
    const float *__restrict__ radius;
    const float *__restrict__ coefficients;
    const float *__restrict__ x;
    u32 dimension;
    const uint4 *__restrict__ irreps;
    u32 irrep_count, aggregation, reversed, rings;
    float max_radius;
    const float *__restrict__ own;
};

// Layout of a row. destinations: index of each ring and harmonic, negative if it is not needed. own: (from, to, width)
// of the features of the vertex itself.
struct Layout {
    const int *__restrict__ destinations;
    const uint4 *__restrict__ own;
    u32 own_count;
};

// The values of an edge that the sums need.
struct alignas(16) Edge {
    Phase turn[ORDERS];
    u32 neighbour;
    float harmonic[HARMONICS];
#if RADIAL
    float ring[RINGS];
#endif
#if HEADS > 1
    float scale[HEADS];
#endif
};

__device__ inline void read_edge(const Source &from, u32 edge, u32 first_ring, Edge &to) {
    u32 q = from.neighbours[edge];
    float4 phase = from.phases[edge];
    to.neighbour = q;
    Phase turn = {1.0f, 0.0f};
    Phase rotation = {phase.z, phase.w};
#if HEADS > 1
    for (u32 head = 0; head < HEADS; ++head) to.scale[head] = from.coefficients[(u64)edge * HEADS + head];
#elif COLUMNS == 1
    turn.c = from.coefficients[edge];
#elif COLUMNS == 0
    if (from.reversed && from.aggregation != SUM)
        turn.c = scale_of(from.aggregation, from.offsets[q + 1] - from.offsets[q]);
#else
    rotation = times({phase.x, phase.y}, rotation);
#endif
#pragma unroll
    for (u32 order = 0; order < ORDERS; ++order) {
        to.turn[order] = turn;
        turn = times(turn, rotation);
    }
#if COLUMNS > 1
#pragma unroll
    for (u32 k = 0; k < HARMONICS; ++k) to.harmonic[k] = from.coefficients[(u64)edge * COLUMNS + k];
#else
    to.harmonic[0] = 1.0f;
    Phase angle = {1.0f, 0.0f};
#pragma unroll
    for (u32 k = 1; k + 1 < HARMONICS; k += 2) {
        angle = times(angle, {phase.x, phase.y});
        to.harmonic[k] = angle.c;
        to.harmonic[k + 1] = angle.s;
    }
#endif
#if RADIAL
#pragma unroll
    for (u32 r = 0; r < RINGS; ++r)
        to.ring[r] = ring_weight(first_ring + r, from.rings, from.radius[edge], from.max_radius);
#endif
}

// The row of this thread's vertex, the `place`-th of `here` vertices from `first` on, to `row` and, where it is not
// null, `copy`. All threads of a block take part, also those without a vertex.
__device__ inline void gather_row(const Source &from, const Layout &layout, u32 first, u32 place, u32 here,
                                  u32 first_ring, float *row, float *copy) {
    __shared__ Edge edges[EDGES];
    u32 lane = threadIdx.x % GROUP, p = first + place;
    bool used = place < here;
    u32 begin = 0, end = 0;
    if (used) begin = from.offsets[p], end = from.offsets[p + 1];
    u32 all_begin = from.offsets[first], all_end = from.offsets[first + here];
    float scale = from.reversed ? 1.0f : scale_of(from.aggregation, end - begin);
    for (u32 round = 0; round < from.irrep_count; round += GROUP) {
        bool active = used && round + lane < from.irrep_count;
        uint4 irrep = active ? from.irreps[round + lane] : make_uint4(0, 0, 0, 0);
        Channels cosine[RINGS][HARMONICS], sine[RINGS][HARMONICS];
#pragma unroll
        for (u32 r = 0; r < RINGS; ++r)
#pragma unroll
            for (u32 k = 0; k < HARMONICS; ++k)
#pragma unroll
                for (u32 i = 0; i < VECTOR; ++i) cosine[r][k].v[i] = sine[r][k].v[i] = 0.0f;
        for (u32 start = all_begin; start < all_end; start += EDGES) {
            u32 stop = min(all_end, start + EDGES);
            if (round == 0 || all_end - all_begin > EDGES) {
                __syncthreads();
                for (u32 edge = start + threadIdx.x; edge < stop; edge += THREADS)
                    read_edge(from, edge, first_ring, edges[edge - start]);
                __syncthreads();
            }
            u32 at = max(begin, start), until = active ? min(end, stop) : 0;
            // The features of the next edge are loaded while those of this edge are used.
            Channels next_a, next_b;
            auto load_next = [&](u32 edge) {
                const float *features = from.x + (u64)edges[edge - start].neighbour * from.dimension;
                next_a = next_b = load(features + irrep.x);
                if (irrep.z > 0) next_b = load(features + irrep.y);
            };
            if (at < until) load_next(at);
#pragma unroll 1
            for (; at < until; ++at) {
                Channels a = next_a, b = next_b;
                if (at + 1 < until) load_next(at + 1);
                const Edge &edge = edges[at - start];
                Phase turn = edge.turn[irrep.z];
#if HEADS > 1
                float of_head = edge.scale[irrep.w];
                turn = {of_head * turn.c, of_head * turn.s};
#endif
#pragma unroll
                for (u32 i = 0; i < VECTOR; ++i) {
                    float turned = turn.c * a.v[i] - turn.s * b.v[i];
                    b.v[i] = turn.s * a.v[i] + turn.c * b.v[i];
                    a.v[i] = turned;
                }
#pragma unroll
                for (u32 r = 0; r < RINGS; ++r)
#pragma unroll
                    for (u32 k = 0; k < HARMONICS; ++k) {
                        float weight = k == 0 && COLUMNS < 2 ? 1.0f : edge.harmonic[k];
#if RADIAL
                        weight *= edge.ring[r];
#endif
#pragma unroll
                        for (u32 i = 0; i < VECTOR; ++i) {
                            cosine[r][k].v[i] += weight * a.v[i];
                            sine[r][k].v[i] += weight * b.v[i];
                        }
                    }
            }
        }
        if (!active) continue;
#pragma unroll
        for (u32 r = 0; r < RINGS; ++r)
#pragma unroll
            for (u32 k = 0; k < HARMONICS; ++k) {
                int to = layout.destinations[(first_ring + r) * HARMONICS + k];
                if (to < 0) continue;
#pragma unroll
                for (u32 i = 0; i < VECTOR; ++i) {
                    cosine[r][k].v[i] = factor(cosine[r][k].v[i] * scale);
                    sine[r][k].v[i] = factor(sine[r][k].v[i] * scale);
                }
                store(row + to + irrep.x, cosine[r][k]);
                if (irrep.z > 0) store(row + to + irrep.y, sine[r][k]);
                if (copy) {
                    store(copy + to + irrep.x, cosine[r][k]);
                    if (irrep.z > 0) store(copy + to + irrep.y, sine[r][k]);
                }
            }
    }
    if (!used || first_ring > 0) return;
    float own_scale = from.aggregation == MEAN_WITH_SELF ? scale_of(from.aggregation, end - begin) : 1.0f;
    for (u32 segment = 0; segment < layout.own_count; ++segment) {
        uint4 part = layout.own[segment];
        for (u32 i = lane; i < part.z; i += GROUP) {
            float value = factor(own_scale * from.own[(u64)p * from.dimension + part.x + i]);
            row[part.y + i] = value;
            if (copy) copy[part.y + i] = value;
        }
    }
}

#if !TENSOR

// Rows of `count` vertices from `first` on. bias goes to the first numbers of the rows of `y`.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
gather(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours, const float4 *__restrict__ phases,
       const float *__restrict__ radius, const float *__restrict__ coefficients, const float *__restrict__ x, u32 dimension,
       const uint4 *__restrict__ irreps, u32 irrep_count, u32 aggregation, u32 reversed, u32 rings, float max_radius,
       const int *__restrict__ destinations, const uint4 *__restrict__ own, u32 own_count, u32 first, u32 count,
       float *__restrict__ out, u32 width, const float *__restrict__ bias, u32 bias_count, float *__restrict__ y,
       u32 y_width, const float *__restrict__ own_features) {
    Source from = {offsets, neighbours,  phases,      radius,   coefficients, x,         dimension,
                   irreps,  irrep_count, aggregation, reversed, rings,        max_radius, own_features};
    constexpr u32 VERTICES = THREADS / GROUP;
    u32 place = threadIdx.x / GROUP, before = blockIdx.x * VERTICES, here = min(count - before, VERTICES);
    float *row = out + (u64)(before + place) * width;
    gather_row(from, {destinations, own, own_count}, first + before, place, here, blockIdx.y * RINGS, row, nullptr);
    if (blockIdx.y > 0 || place >= here) return;
    for (u32 i = threadIdx.x % GROUP; i < bias_count; i += GROUP)
        y[(u64)(first + before + place) * y_width + i] = bias[i];
}

#elif !ATTENTION

// Convolution of `count` vertices from `first` on: y = rows x stacked + bias. The rows are copied to `out` unless it is
// null. add: 1 to add to y.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
convolve(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours, const float4 *__restrict__ phases,
         const float *__restrict__ radius, const float *__restrict__ coefficients, const float *__restrict__ x, u32 dimension,
         const uint4 *__restrict__ irreps, u32 irrep_count, u32 aggregation, u32 reversed, u32 rings,
         float max_radius, const int *__restrict__ destinations, const uint4 *__restrict__ own, u32 own_count,
         u32 first, u32 count, float *__restrict__ out, u32 width, const float *__restrict__ bias, u32 bias_count,
         float *__restrict__ y, u32 y_width, const float *__restrict__ own_features,
         const float4 *__restrict__ stacked, const Columns *__restrict__ columns, u32 column_count, u32 add) {
    extern __shared__ float4 shared[];
    float *tile = reinterpret_cast<float *>(shared);
    Source from = {offsets, neighbours,  phases,      radius,   coefficients, x,         dimension,
                   irreps,  irrep_count, aggregation, reversed, rings,        max_radius, own_features};
    u32 place = threadIdx.x / GROUP, before = blockIdx.x * VERTICES, here = min(count - before, (u32)VERTICES);
    float *row = tile + place * ROW;
    // The last steps reach beyond the terms, where their weights are zero.
    for (u32 i = width + threadIdx.x % GROUP; i < ROW; i += GROUP) row[i] = 0.0f;
    float *copy = out ? out + (u64)(before + place) * width : nullptr;
    gather_row(from, {destinations, own, own_count}, first + before, place, here, 0, row, copy);
    __syncthreads();
    multiply_rows<ROW>(tile, VERTICES / 16, stacked, columns, column_count, [&](u32 vertex, u32 to, float value) {
        if (vertex >= here) return;
        float *result = y + (u64)(first + before + vertex) * y_width + to;
        *result = value + (to < bias_count ? bias[to] : 0.0f) + (add ? *result : 0.0f);
    });
}

#endif
