// Products of queries with the keys of edges; see the page of `weighted_conv`.

// The factors of the reverse of every edge, [edges, heads].
extern "C" __global__ void reverse_factors(const u32 *__restrict__ reverse, const float *__restrict__ factors,
                                           float *__restrict__ reversed, u32 heads, u32 count) {
    u64 i = item();
    if (i < count) reversed[i] = factors[(u64)reverse[i / heads] * heads + i % heads];
}

// One warp for each vertex p. `rows` holds B of `count` vertices from `first`; `places` the start of B[cos m] and of
// B[sin m] in a row for every order m of the result, negative for orders that it does not have.
extern "C" __global__ void products(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours,
                                    const float4 *__restrict__ phases, const float *__restrict__ x,
                                    const float *__restrict__ rows, u32 row, const int2 *__restrict__ places, u32 orders,
                                    u32 first, float *__restrict__ out, const uint4 *__restrict__ irreps, u32 irrep_count,
                                    u32 width, u32 count) {
    u64 vertex = item() / 32;
    if (vertex >= count) return;
    u32 lane = threadIdx.x % 32, p = first + vertex;
    const float *b = rows + vertex * row;
    for (u32 edge = offsets[p]; edge < offsets[p + 1]; ++edge) {
        float4 phase = phases[edge];
        const float *f = x + (u64)neighbours[edge] * width;
        float sum = 0.0f;
        for (u32 i = lane; i < irrep_count; i += 32) {
            uint4 irrep = irreps[i];
            Phase turn = multiple({phase.z, phase.w}, irrep.z), angle = {1.0f, 0.0f};
            float a = f[irrep.x], s = irrep.z > 0 ? f[irrep.y] : 0.0f;
            float u = turn.c * a - turn.s * s, v = turn.s * a + turn.c * s;
            for (u32 m = 0; m < orders; ++m) {
                if (m > 0) angle = times(angle, {phase.x, phase.y});
                int2 place = places[m];
                if (place.x < 0) continue;
                float cosine = angle.c * b[place.x + irrep.x], sine = angle.c * b[place.x + irrep.y];
                if (m > 0) {
                    cosine += angle.s * b[place.y + irrep.x];
                    sine += angle.s * b[place.y + irrep.y];
                }
                sum += u * cosine;
                if (irrep.z > 0) sum += v * sine;
            }
        }
        sum = warp_sum(sum);
        if (lane == 0) out[edge] = sum;
    }
}
