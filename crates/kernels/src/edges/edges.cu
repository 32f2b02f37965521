// Gather, spread, reduce and softmax on edges; see the page of `edges`.

constexpr u32 EDGE_FRAME = 1;

// phases: (cos, sin) of theta, then of g - theta. The rotation from the frame of q to the chosen one.
__device__ inline Phase from_neighbour(u32 frame, float4 phase) {
    Phase transport = {phase.z, phase.w};
    return frame == EDGE_FRAME ? transport : times({phase.x, phase.y}, transport);
}

// The rotation from the chosen frame to the frame of p.
__device__ inline Phase to_vertex(u32 frame, float4 phase) {
    if (frame == EDGE_FRAME) return {phase.x, phase.y};
    return {1.0f, 0.0f};
}

__device__ inline Phase back(Phase phase) { return {phase.c, -phase.s}; }

extern "C" __global__ void gather(const u32 *__restrict__ neighbours, const float4 *__restrict__ phases, u32 frame,
                                  const float *__restrict__ x, float *__restrict__ y, const uint4 *__restrict__ irreps,
                                  u32 irrep_count, u32 width, u32 edges) {
    rotated_sum(
        irreps, irrep_count, width, edges, x, y, [&](u32 edge) { return make_uint2(edge, edge + 1); },
        [&](u32 edge, u32) { return Term{neighbours[edge], from_neighbour(frame, phases[edge]), 1.0f}; });
}

extern "C" __global__ void gather_backward(const u32 *__restrict__ offsets, const u32 *__restrict__ reverse,
                                           const float4 *__restrict__ phases, u32 frame, const float *__restrict__ dy,
                                           float *__restrict__ dx, const uint4 *__restrict__ irreps, u32 irrep_count,
                                           u32 width, u32 vertices) {
    rotated_sum(
        irreps, irrep_count, width, vertices, dy, dx, [&](u32 q) { return make_uint2(offsets[q], offsets[q + 1]); },
        [&](u32 edge, u32) {
            u32 outgoing = reverse[edge];
            return Term{outgoing, back(from_neighbour(frame, phases[outgoing])), 1.0f};
        });
}

// y_p = s_p sum of w R v. No weights are ones.
extern "C" __global__ void reduce(const u32 *__restrict__ offsets, const float4 *__restrict__ phases, u32 frame,
                                  u32 aggregation, const float *__restrict__ weights, u32 heads,
                                  const float *__restrict__ values, float *__restrict__ y,
                                  const uint4 *__restrict__ irreps, u32 irrep_count, u32 width, u32 vertices) {
    float scale = 1.0f;
    rotated_sum(
        irreps, irrep_count, width, vertices, values, y,
        [&](u32 p) {
            scale = scale_of(aggregation, offsets[p + 1] - offsets[p]);
            return make_uint2(offsets[p], offsets[p + 1]);
        },
        [&](u32 edge, u32 head) {
            float weight = weights ? weights[(u64)edge * heads + head] : 1.0f;
            return Term{edge, to_vertex(frame, phases[edge]), scale * weight};
        });
}

// y_pq = s_p w R^T x_p.
extern "C" __global__ void spread(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours,
                                  const u32 *__restrict__ reverse, const float4 *__restrict__ phases, u32 frame,
                                  u32 aggregation, const float *__restrict__ weights, u32 heads,
                                  const float *__restrict__ x, float *__restrict__ y, const uint4 *__restrict__ irreps,
                                  u32 irrep_count, u32 width, u32 edges) {
    rotated_sum(
        irreps, irrep_count, width, edges, x, y, [&](u32 edge) { return make_uint2(edge, edge + 1); },
        [&](u32 edge, u32 head) {
            u32 p = neighbours[reverse[edge]];
            float weight = weights ? weights[(u64)edge * heads + head] : 1.0f;
            float scale = scale_of(aggregation, offsets[p + 1] - offsets[p]);
            return Term{p, back(to_vertex(frame, phases[edge])), scale * weight};
        });
}

// dw_pq = s_p <R v, dy_p>, one warp for each head of each edge.
extern "C" __global__ void reduce_backward_weights(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours,
                                                   const u32 *__restrict__ reverse, const float4 *__restrict__ phases,
                                                   u32 frame, u32 aggregation, u32 heads,
                                                   const float *__restrict__ values, const float *__restrict__ dy,
                                                   float *__restrict__ dweights, const uint4 *__restrict__ irreps,
                                                   u32 irrep_count, u32 width, u32 edges) {
    u64 i = item() / 32;
    if (i >= (u64)edges * heads) return;
    u32 edge = i / heads, p = neighbours[reverse[edge]];
    u32 share = irrep_count / heads, first = (u32)(i % heads) * share;
    const float *v = values + (u64)edge * width, *d = dy + (u64)p * width;
    Phase phase = to_vertex(frame, phases[edge]);
    float sum = 0.0f;
    for (u32 place = threadIdx.x % 32; place < share; place += 32) {
        uint4 irrep = irreps[first + place];
        if (irrep.z == 0) {
            sum += v[irrep.x] * d[irrep.x];
            continue;
        }
        Phase turn = multiple(phase, irrep.z);
        float a = v[irrep.x], b = v[irrep.y];
        sum += (turn.c * a - turn.s * b) * d[irrep.x] + (turn.s * a + turn.c * b) * d[irrep.y];
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) dweights[i] = scale_of(aggregation, offsets[p + 1] - offsets[p]) * sum;
}

// One thread for each head of each vertex.
extern "C" __global__ void softmax(const u32 *__restrict__ offsets, const float *__restrict__ x, float *__restrict__ y,
                                   u32 heads, u32 vertices) {
    u64 i = item();
    if (i >= (u64)vertices * heads) return;
    u32 vertex = i / heads, head = i % heads;
    u64 first = (u64)offsets[vertex] * heads + head, end = (u64)offsets[vertex + 1] * heads;
    float lowest = __int_as_float(0xff800000), largest = lowest, sum = 0.0f;
    for (u64 at = first; at < end; at += heads) largest = fmaxf(largest, x[at]);
    // All scores are minus infinity: exponentials and weights are 0.
    if (largest == lowest) largest = 0.0f;
    for (u64 at = first; at < end; at += heads) sum += expf(x[at] - largest);
    for (u64 at = first; at < end; at += heads) y[at] = sum == 0.0f ? 0.0f : expf(x[at] - largest) / sum;
}

extern "C" __global__ void softmax_backward(const u32 *__restrict__ offsets, const float *__restrict__ y,
                                            const float *__restrict__ dy, float *__restrict__ dx, u32 heads,
                                            u32 vertices) {
    u64 i = item();
    if (i >= (u64)vertices * heads) return;
    u32 vertex = i / heads, head = i % heads;
    u64 first = (u64)offsets[vertex] * heads + head, end = (u64)offsets[vertex + 1] * heads;
    float mean = 0.0f;
    for (u64 at = first; at < end; at += heads) mean += y[at] * dy[at];
    for (u64 at = first; at < end; at += heads) dx[at] = y[at] * (dy[at] - mean);
}
