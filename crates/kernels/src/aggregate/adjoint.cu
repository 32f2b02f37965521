// dx = G^T da, one thread for each irrep of each vertex. Edges are those of the transposed operator: their
// rotation is by -theta, their angle -(g - theta).

extern "C" __global__ void adjoint(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours,
                                   const float4 *__restrict__ phases, const float *__restrict__ radius,
                                   const float *__restrict__ coefficients, const float *__restrict__ da,
                                   const uint4 *__restrict__ irreps, u32 irrep_count,
                                   u32 dimension, u32 harmonics, u32 rings, float max_radius, u32 aggregation,
                                   float *__restrict__ dx, u32 vertices) {
    u64 i = item();
    if (i >= (u64)vertices * irrep_count) return;
    u32 q = i / irrep_count;
    uint4 irrep = irreps[i % irrep_count];
    float sum_a = 0.0f, sum_b = 0.0f;
    for (u32 edge = offsets[q]; edge < offsets[q + 1]; ++edge) {
        u32 p = neighbours[edge];
        float4 phase = phases[edge];
        Phase theta = {phase.z, -phase.w}, back = multiple({phase.x, phase.y}, irrep.z);
        u32 degree = offsets[p + 1] - offsets[p];
        float scale = coefficients ? coefficients[edge] : scale_of(aggregation, degree);
        const float *rows = da + (u64)p * rings * harmonics * dimension;
        float a = 0.0f, b = 0.0f;
        for (u32 ring = 0; ring < rings; ++ring) {
            float ring_weight = 1.0f;
            if (rings > 1) {
                float place = fminf(radius[edge] / max_radius, 1.0f) * (float)(rings - 1);
                ring_weight = fmaxf(1.0f - fabsf(place - (float)ring), 0.0f);
            }
            Phase angle = {1.0f, 0.0f};
            for (u32 k = 0; k < harmonics; ++k) {
                if (k % 2 == 1) angle = times(angle, theta);
                float weight = ring_weight * (k > 0 && k % 2 == 0 ? angle.s : angle.c);
                const float *row = rows + ((u64)ring * harmonics + k) * dimension;
                a += weight * row[irrep.x];
                if (irrep.z > 0) b += weight * row[irrep.y];
            }
        }
        sum_a += scale * (back.c * a - back.s * b);
        sum_b += scale * (back.s * a + back.c * b);
    }
    dx[(u64)q * dimension + irrep.x] = sum_a;
    if (irrep.z > 0) dx[(u64)q * dimension + irrep.y] = sum_b;
}
