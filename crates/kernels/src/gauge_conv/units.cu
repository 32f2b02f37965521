// Sums over neighbours in the registers in which tensor cores take them as a factor: a warp for 8 vertices. This text
// stands after `tensor.cu`. See the documentation of `gauge_conv::warps`.
//
// Lane 4 g + t of a warp works on vertex g and on channels 4 t to 4 t + 3 of runs of 16 channels, the UNITS of the
// features (DIMENSION numbers): UNIT_ORDERS, UNIT_COSINES and UNIT_SINES are their orders and places, MAX_ORDER is the
// highest of these orders. PASS_UNITS of them are summed at a time. OUT_WIDTHS: numbers of each of the OUT_ORDERS
// orders of the result. COLUMNS: 1 if every edge has a factor, for each of HEADS heads. CHANGING: 1 if the kernel
// writes them itself. BACKWARD: 1 for the transposed operator.

__device__ constexpr u32 unit_order(u32 unit) {
    constexpr u32 of[] = {UNIT_ORDERS};
    return of[unit];
}

__device__ constexpr u32 unit_cosine(u32 unit) {
    constexpr u32 of[] = {UNIT_COSINES};
    return of[unit];
}

__device__ constexpr u32 unit_sine(u32 unit) {
    constexpr u32 of[] = {UNIT_SINES};
    return of[unit];
}

__device__ constexpr u32 out_width(u32 order) {
    constexpr u32 of[] = {OUT_WIDTHS};
    return order < OUT_ORDERS ? of[order] : 0;
}

__device__ constexpr u32 order_of(u32 harmonic) { return (harmonic + 1) / 2; }

constexpr u32 HARMONICS = 2 * OUT_ORDERS - 1;

struct Graph {
    const u32 *__restrict__ offsets;
    const u32 *__restrict__ neighbours;
    const float4 *__restrict__ phases;
    const float *factors;
    u32 aggregation;
    u32 head;
};

__device__ inline float fast_scale(u32 aggregation, u32 degree) {
    if (aggregation == SUM) return 1.0f;
    return __fdividef(1.0f, (float)max(aggregation == MEAN ? degree : degree + 1, 1u));
}

// The edges of a vertex, and the factor of its sums.
struct Row {
    u32 begin, end;
    float scale;
};

__device__ inline Row row_of(const Graph &graph, u32 vertex, bool used) {
    Row row = {0, 0, 1.0f};
    if (used) row.begin = graph.offsets[vertex], row.end = graph.offsets[vertex + 1];
    if (!BACKWARD) row.scale = fast_scale(graph.aggregation, row.end - row.begin);
    return row;
}

// An edge but for its neighbour. begin, end: edges of the neighbour, if its degree is needed.
struct Edge {
    float4 phase;
    float scale;
    u32 begin, end;
};

template <bool FACTORS> __device__ inline Edge read_edge(const Graph &graph, const Row &row, u32 edge, u32 neighbour) {
    Edge result = {graph.phases[edge], row.scale, 0, 0};
    if (FACTORS) {
        const float *factor = graph.factors + (u64)edge * HEADS + graph.head;
        result.scale *= CHANGING ? __ldcg(factor) : __ldg(factor);
    }
    if (BACKWARD && graph.aggregation != SUM)
        result.begin = graph.offsets[neighbour], result.end = graph.offsets[neighbour + 1];
    return result;
}

// The factor of an edge. That of the transposed operator is of the degree of the neighbour.
__device__ inline float scale_of_edge(const Graph &graph, const Edge &edge) {
    return BACKWARD ? edge.scale * fast_scale(graph.aggregation, edge.end - edge.begin) : edge.scale;
}

__device__ inline void harmonics_of(const Edge &edge, float (&harmonic)[HARMONICS]) {
    harmonic[0] = 1.0f;
    Phase angle = {1.0f, 0.0f};
#pragma unroll
    for (u32 k = 1; k + 1 < HARMONICS; k += 2) {
        angle = times(angle, {edge.phase.x, edge.phase.y});
        harmonic[k] = angle.c;
        harmonic[k + 1] = angle.s;
    }
}

__device__ inline float4 load4(const float *from) { return *reinterpret_cast<const float4 *>(from); }

// sums += weight * values.
__device__ inline void add(float (&sums)[4], float weight, const float (&values)[4]) {
#pragma unroll
    for (u32 i = 0; i < 4; ++i) sums[i] += weight * values[i];
}

// The channels of a lane of a unit.
struct Features {
    float4 a, b;
};

__device__ inline Features load_unit(const float *__restrict__ row, u32 unit) {
    Features features;
    features.a = features.b = load4(row + unit_cosine(unit));
    if (unit_order(unit) > 0) features.b = load4(row + unit_sine(unit));
    return features;
}

// For every edge of a vertex, calls `use(unit, order, harmonics, cosine, sine)` with the channels of PASS_UNITS units
// from `first` on of the neighbour, rotated into the frame of the edge and scaled, then `finish(edge, harmonics)`. x
// starts at the first channel of the lane. FACTORS: edges have factors.
template <bool FACTORS, typename Use, typename Finish>
__device__ inline void each_edge(const Graph &graph, const Row &row, const float *__restrict__ x, u32 first, Use use,
                                 Finish finish) {
    if (row.begin == row.end) return;
    u32 neighbour = graph.neighbours[row.begin], ahead = 0;
    if (row.begin + 1 < row.end) ahead = graph.neighbours[row.begin + 1];
    Edge next = read_edge<FACTORS>(graph, row, row.begin, neighbour);
    Features features[PASS_UNITS];
#pragma unroll
    for (u32 u = 0; u < PASS_UNITS; ++u) features[u] = load_unit(x + (u64)neighbour * DIMENSION, first + u);
#pragma unroll 1
    for (u32 at = row.begin; at < row.end; ++at) {
        bool more = at + 1 < row.end;
        Edge edge = next;
        neighbour = ahead;
        if (more) next = read_edge<FACTORS>(graph, row, at + 1, neighbour);
        if (at + 2 < row.end) ahead = graph.neighbours[at + 2];
        float harmonic[HARMONICS];
        harmonics_of(edge, harmonic);
        Phase turn = {scale_of_edge(graph, edge), 0.0f};
#pragma unroll
        for (u32 u = 0; u < PASS_UNITS; ++u) {
            u32 order = unit_order(first + u), before = u > 0 ? unit_order(first + u - 1) : 0;
#pragma unroll
            for (u32 n = 0; n < MAX_ORDER; ++n)
                if (before <= n && n < order) turn = times(turn, {edge.phase.z, edge.phase.w});
            float4 a = features[u].a, b = features[u].b;
            float cosine[4] = {turn.c * a.x, turn.c * a.y, turn.c * a.z, turn.c * a.w}, sine[4];
            if (order > 0) {
                float from_a[4] = {a.x, a.y, a.z, a.w}, from_b[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    cosine[i] -= turn.s * from_b[i];
                    sine[i] = turn.s * from_a[i] + turn.c * from_b[i];
                }
            }
            // The registers of a unit are free again: they take the features of the next edge.
            if (more) features[u] = load_unit(x + (u64)neighbour * DIMENSION, first + u);
            use(u, order, harmonic, cosine, sine);
        }
        finish(at, harmonic);
    }
}

// The sums of PASS_UNITS units from `first` on over the edges of a vertex; x starts at the first channel of the lane.
__device__ inline void gather(const Graph &graph, const Row &row, const float *__restrict__ x, u32 first,
                              float (&sums)[PASS_UNITS][2][HARMONICS][4]) {
#pragma unroll
    for (u32 u = 0; u < PASS_UNITS; ++u)
#pragma unroll
        for (u32 j = 0; j < 2; ++j)
#pragma unroll
            for (u32 k = 0; k < HARMONICS; ++k)
#pragma unroll
                for (u32 i = 0; i < 4; ++i) sums[u][j][k][i] = 0.0f;
    auto use = [&](u32 u, u32 order, const float(&harmonic)[HARMONICS], const float(&cosine)[4], const float(&sine)[4]) {
#pragma unroll
        for (u32 k = 0; k < HARMONICS; ++k) {
            if (out_width(order_of(k)) == 0) continue;
            add(sums[u][0][k], harmonic[k], cosine);
            if (order > 0) add(sums[u][1][k], harmonic[k], sine);
        }
    };
    each_edge<COLUMNS>(graph, row, x, first, use, [](u32, const float(&)[HARMONICS]) {});
}

// The vertices of a block, in tiles of 8: a run of them, so that neighbours are found in the cache of its
// multiprocessor.
struct Tiles {
    u32 first, last;
};

__device__ inline Tiles tiles_of_block(u32 count) {
    u32 tiles = (count + 7) / 8;
    return {(u32)((u64)tiles * blockIdx.x / gridDim.x), (u32)((u64)tiles * (blockIdx.x + 1) / gridDim.x)};
}
