// Features of both vertices of edges, and means over edges, for the edges from `first`; see the page of `messages`. One
// thread for each irrep of each row.

__device__ inline float2 turned(Phase phase, uint4 irrep, const float *__restrict__ row) {
    Phase turn = multiple(phase, irrep.z);
    float a = row[irrep.x], b = irrep.z > 0 ? row[irrep.y] : 0.0f;
    return make_float2(turn.c * a - turn.s * b, turn.s * a + turn.c * b);
}

__device__ inline void put(float2 value, uint4 irrep, float *__restrict__ row) {
    row[irrep.x] = value.x;
    if (irrep.z > 0) row[irrep.y] = value.y;
}

__device__ inline void add(float2 value, uint4 irrep, float *__restrict__ row) {
    row[irrep.x] += value.x;
    if (irrep.z > 0) row[irrep.y] += value.y;
}

extern "C" __global__ void gather(const u32 *__restrict__ neighbours, const u32 *__restrict__ reverse,
                                  const float4 *__restrict__ phases, u32 first, const float *__restrict__ x,
                                  float *__restrict__ z, const uint4 *__restrict__ irreps, u32 irrep_count, u32 width,
                                  u32 edges) {
    u64 i = item();
    if (i >= (u64)edges * irrep_count) return;
    u32 row = i / irrep_count, edge = first + row;
    uint4 irrep = irreps[i % irrep_count];
    float4 phase = phases[edge];
    u32 p = neighbours[reverse[edge]], q = neighbours[edge];
    float *to = z + (u64)row * 2 * width;
    put(turned({phase.x, -phase.y}, irrep, x + (u64)p * width), irrep, to);
    put(turned({phase.z, phase.w}, irrep, x + (u64)q * width), irrep, to + width);
}

extern "C" __global__ void gather_backward(const u32 *__restrict__ offsets, const u32 *__restrict__ reverse,
                                           const float4 *__restrict__ phases, u32 first, u32 edges,
                                           const float *__restrict__ dz, float *__restrict__ dx,
                                           const uint4 *__restrict__ irreps, u32 irrep_count, u32 width, u32 vertices) {
    u64 i = item();
    if (i >= (u64)vertices * irrep_count) return;
    u32 vertex = i / irrep_count;
    uint4 irrep = irreps[i % irrep_count];
    float2 sum = make_float2(0.0f, 0.0f);
    for (u32 edge = offsets[vertex]; edge < offsets[vertex + 1]; ++edge) {
        u32 outgoing = reverse[edge];
        // Differences are without sign: edges before the first are beyond the last.
        if (edge - first < edges) {
            float4 phase = phases[edge];
            float2 value = turned({phase.x, phase.y}, irrep, dz + (u64)(edge - first) * 2 * width);
            sum.x += value.x, sum.y += value.y;
        }
        if (outgoing - first < edges) {
            float4 phase = phases[outgoing];
            float2 value = turned({phase.z, -phase.w}, irrep, dz + (u64)(outgoing - first) * 2 * width + width);
            sum.x += value.x, sum.y += value.y;
        }
    }
    add(sum, irrep, dx + (u64)vertex * width);
}

extern "C" __global__ void reduce(const u32 *__restrict__ offsets, const float4 *__restrict__ phases, u32 first, u32 edges,
                                  const float *__restrict__ values, float *__restrict__ y,
                                  const uint4 *__restrict__ irreps, u32 irrep_count, u32 width, u32 vertices) {
    u64 i = item();
    if (i >= (u64)vertices * irrep_count) return;
    u32 vertex = i / irrep_count, start = offsets[vertex], end = offsets[vertex + 1];
    uint4 irrep = irreps[i % irrep_count];
    u32 from = max(start, first), to = min(end, first + edges);
    if (from >= to) return;
    float2 sum = make_float2(0.0f, 0.0f);
    for (u32 edge = from; edge < to; ++edge) {
        float4 phase = phases[edge];
        float2 value = turned({phase.x, phase.y}, irrep, values + (u64)(edge - first) * width);
        sum.x += value.x, sum.y += value.y;
    }
    float scale = scale_of(MEAN, end - start);
    add(make_float2(scale * sum.x, scale * sum.y), irrep, y + (u64)vertex * width);
}

extern "C" __global__ void reduce_backward(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours,
                                           const u32 *__restrict__ reverse, const float4 *__restrict__ phases, u32 first,
                                           const float *__restrict__ dy, float *__restrict__ dvalues,
                                           const uint4 *__restrict__ irreps, u32 irrep_count, u32 width, u32 edges) {
    u64 i = item();
    if (i >= (u64)edges * irrep_count) return;
    u32 row = i / irrep_count, edge = first + row;
    uint4 irrep = irreps[i % irrep_count];
    float4 phase = phases[edge];
    u32 p = neighbours[reverse[edge]];
    float scale = scale_of(MEAN, offsets[p + 1] - offsets[p]);
    float2 value = turned({phase.x, -phase.y}, irrep, dy + (u64)p * width);
    put(make_float2(scale * value.x, scale * value.y), irrep, dvalues + (u64)row * width);
}

// Columns of rows in another order: to[row][i] = from[row][table[i]], or 0 where the table has the largest number. One
// thread for each number of the result.
extern "C" __global__ void place_columns(const u32 *__restrict__ table, u32 width, const float *__restrict__ from,
                                         u32 from_width, float *__restrict__ to, u64 count) {
    u64 i = item();
    if (i >= count) return;
    u32 column = table[i % width];
    to[i] = column == 0xffffffffu ? 0.0f : from[i / width * from_width + column];
}
