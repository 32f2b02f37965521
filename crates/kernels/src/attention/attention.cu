// Attention of one head over the neighbours of VERTICES vertices, forward and backward; see the page of `attention`.
// This text stands after `gather.cu`, compiled with TENSOR 1. Both directions are
//
//   B = left x stacked,  s_pq = <B_p, t(theta_pq) rho(g_pq - theta_pq) x_q>,  w_pq = edge(s),
//   y = (sum_q w_pq t(theta_pq) rho(g_pq - theta_pq) x_q) x stacked
//
// forward:  left is the query, edge is the softmax over q, the weights are those of keys, then of values
// BACKWARD: left is dy, edge is a_pq (s_pq - sum_r a_pr s_pr), the weights are those of values, then of keys
//
// The first QUERY numbers of shared rows of stride QUERY hold `left`, rows of stride OWN the features of the vertices,
// rows of stride ROW first B, then the sums.

// Features of the neighbour of an edge in the frame of the edge. The features of the next edge are loaded while those
// of this edge are used.
struct Reader {
    const float *__restrict__ x;
    u32 dimension;
    uint4 irrep;
    bool active;
    Channels next_a, next_b;

    __device__ inline void load_next(const Edge &edge) {
        if (!active) return;
        const float *features = x + (u64)edge.neighbour * dimension;
        next_a = next_b = load(features + irrep.x);
        if (irrep.z > 0) next_b = load(features + irrep.y);
    }

    __device__ inline void turn(const Edge &edge, float scale, Channels &a, Channels &b) {
        Phase turn = edge.turn[irrep.z];
        turn = {scale * turn.c, scale * turn.s};
#pragma unroll
        for (u32 i = 0; i < VECTOR; ++i) {
            float turned = turn.c * a.v[i] - turn.s * b.v[i];
            b.v[i] = turn.s * a.v[i] + turn.c * b.v[i];
            a.v[i] = turned;
        }
    }
};

// One block for VERTICES vertices of one head. places: index of each number of a head in a result vector, head after
// head. own: features of the vertices (forward) or dy. queries: null if they are not wanted. given: a (backward only).
// edge_values: w, [edges, heads]. stride: numbers of `stacked` of a head, in runs of 4; bias_stride: of `bias`.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
attend(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours, const float4 *__restrict__ phases,
       const float *__restrict__ x, u32 dimension, const uint4 *__restrict__ irreps, u32 irrep_count,
       const int *__restrict__ destinations, u32 width, u32 vertices, const float *__restrict__ own,
       const u32 *__restrict__ places, u32 part, u32 y_width, const float4 *__restrict__ stacked, u32 stride,
       const Columns *__restrict__ columns, u32 query_columns, u32 row_columns, u32 result_columns, float scale,
       float *__restrict__ queries, const float *__restrict__ given, float *edge_values,
       const float *__restrict__ bias, u32 bias_stride, u32 bias_count, float *__restrict__ y) {
    extern __shared__ float4 shared[];
    __shared__ Edge edges[EDGES];
    __shared__ float products[EDGES];
    float *tile = reinterpret_cast<float *>(shared), *left = tile + VERTICES * ROW;
    u32 head = blockIdx.y, heads = gridDim.y, first = blockIdx.x * VERTICES, here = min(vertices - first, (u32)VERTICES);
    u32 lane = threadIdx.x % GROUP, place = threadIdx.x / GROUP, p = first + place;
    bool used = place < here;
    stacked += (u64)head * stride;
    places += head * part;
    for (u32 i = lane; i < QUERY; i += GROUP) {
        float value = 0.0f;
#if BACKWARD
        if (used && i < part) value = factor(own[(u64)p * y_width + places[i]]);
#endif
        left[place * QUERY + i] = value;
    }
#if !BACKWARD
    for (u32 i = lane; i < OWN; i += GROUP)
        tile[place * OWN + i] = used && i < dimension ? factor(own[(u64)p * dimension + i]) : 0.0f;
    __syncthreads();
    multiply_rows<OWN>(tile, VERTICES / 16, stacked, columns, query_columns, [&](u32 vertex, u32 to, float value) {
        value *= scale;
        left[vertex * QUERY + to] = factor(value);
        if (queries && vertex < here) queries[(u64)(first + vertex) * y_width + places[to]] = value;
    });
#endif
    __syncthreads();
    float *row = tile + place * ROW;
    // The last steps reach beyond the terms, where their weights are zero.
    for (u32 i = width + lane; i < ROW; i += GROUP) row[i] = 0.0f;
    columns += query_columns;
    multiply_rows<QUERY>(left, VERTICES / 16, stacked, columns, row_columns,
                         [&](u32 vertex, u32 to, float value) { tile[vertex * ROW + to] = value; });
    columns += row_columns;
    __syncthreads();

    bool active = used && lane < irrep_count;
    uint4 irrep = active ? irreps[lane] : make_uint4(0, 0, 0, 0);
    Channels cosine[HARMONICS], sine[HARMONICS];
#pragma unroll
    for (u32 k = 0; k < HARMONICS; ++k) {
#pragma unroll
        for (u32 i = 0; i < VECTOR; ++i) cosine[k].v[i] = sine[k].v[i] = 0.0f;
        int from = destinations[k];
        if (!active || from < 0) continue;
        cosine[k] = load(row + from + irrep.x);
        if (irrep.z > 0) sine[k] = load(row + from + irrep.y);
    }
    Source source = {offsets, neighbours, phases, nullptr, nullptr, x, dimension, irreps, irrep_count, SUM, 0, 1, 1.0f, x};
    Reader reader = {x, dimension, irrep, active};
    u32 begin = 0, end = 0;
    if (used) begin = offsets[p], end = offsets[p + 1];
    u32 all_begin = offsets[first], all_end = offsets[first + here];
    // True if the edges of the block are in shared memory all at once.
    bool whole = all_end - all_begin <= EDGES;
    u32 group = GROUP == 32 ? 0xffffffffu : ((1u << (GROUP % 32)) - 1) << (threadIdx.x % 32 / GROUP * GROUP);
    // Forward: sum of exp(s - largest). Backward: sum of a s.
    float largest = __int_as_float(0xff800000), total = 0.0f;
    for (u32 start = all_begin; start < all_end; start += EDGES) {
        u32 stop = min(all_end, start + EDGES);
        __syncthreads();
        for (u32 edge = start + threadIdx.x; edge < stop; edge += THREADS)
            read_edge(source, edge, 0, edges[edge - start]);
        __syncthreads();
        u32 at = max(begin, start), until = min(end, stop);
        if (at < until) reader.load_next(edges[at - start]);
#pragma unroll 1
        for (; at < until; ++at) {
            const Edge &edge = edges[at - start];
            Channels a = reader.next_a, b = reader.next_b;
            if (at + 1 < until) reader.load_next(edges[at + 1 - start]);
            float sum = 0.0f;
            if (active) {
                reader.turn(edge, 1.0f, a, b);
#pragma unroll
                for (u32 k = 0; k < HARMONICS; ++k) {
                    float part_sum = 0.0f;
#pragma unroll
                    for (u32 i = 0; i < VECTOR; ++i) part_sum += cosine[k].v[i] * a.v[i] + sine[k].v[i] * b.v[i];
                    sum += edge.harmonic[k] * part_sum;
                }
            }
#pragma unroll
            for (u32 step = GROUP / 2; step > 0; step /= 2) sum += __shfl_xor_sync(group, sum, step);
#if BACKWARD
            total += given[(u64)at * heads + head] * sum;
#else
            float larger = fmaxf(largest, sum);
            total = total * __expf(largest - larger) + __expf(sum - larger);
            largest = larger;
#endif
            if (lane > 0) continue;
            products[at - start] = sum;
            if (!whole) edge_values[(u64)at * heads + head] = sum;
        }
    }
#if !BACKWARD
    total = 1.0f / total;
#endif
#pragma unroll
    for (u32 k = 0; k < HARMONICS; ++k)
#pragma unroll
        for (u32 i = 0; i < VECTOR; ++i) cosine[k].v[i] = sine[k].v[i] = 0.0f;
    for (u32 start = all_begin; start < all_end; start += EDGES) {
        u32 stop = min(all_end, start + EDGES);
        __syncthreads();
        if (!whole) {
            for (u32 edge = start + threadIdx.x; edge < stop; edge += THREADS) {
                read_edge(source, edge, 0, edges[edge - start]);
                products[edge - start] = __ldcg(edge_values + (u64)edge * heads + head);
            }
            __syncthreads();
        }
        u32 at = max(begin, start), until = min(end, stop);
        if (at < until) reader.load_next(edges[at - start]);
#pragma unroll 1
        for (; at < until; ++at) {
            const Edge &edge = edges[at - start];
            Channels a = reader.next_a, b = reader.next_b;
            if (at + 1 < until) reader.load_next(edges[at + 1 - start]);
            float product = products[at - start];
#if BACKWARD
            float weight = given[(u64)at * heads + head] * (product - total);
#else
            float weight = __expf(product - largest) * total;
#endif
            if (lane == 0) edge_values[(u64)at * heads + head] = weight;
            if (!active) continue;
            reader.turn(edge, weight, a, b);
#pragma unroll
            for (u32 k = 0; k < HARMONICS; ++k) {
                float harmonic = k == 0 ? 1.0f : edge.harmonic[k];
#pragma unroll
                for (u32 i = 0; i < VECTOR; ++i) {
                    cosine[k].v[i] += harmonic * a.v[i];
                    sine[k].v[i] += harmonic * b.v[i];
                }
            }
        }
    }
    if (active) {
#pragma unroll
        for (u32 k = 0; k < HARMONICS; ++k) {
            int to = destinations[k];
            if (to < 0) continue;
#pragma unroll
            for (u32 i = 0; i < VECTOR; ++i) {
                cosine[k].v[i] = factor(cosine[k].v[i]);
                sine[k].v[i] = factor(sine[k].v[i]);
            }
            store(row + to + irrep.x, cosine[k]);
            if (irrep.z > 0) store(row + to + irrep.y, sine[k]);
        }
    }
    __syncthreads();
    multiply_rows<ROW>(tile, VERTICES / 16, stacked, columns, result_columns, [&](u32 vertex, u32 to, float value) {
        if (vertex >= here) return;
#if BACKWARD
        value *= scale;
#else
        if (to < bias_count) value += bias[head * bias_stride + to];
#endif
        y[(u64)(first + vertex) * y_width + places[to]] = value;
    });
}
