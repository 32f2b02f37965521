// Edge arrays of the transposed operator: along the edge p <- q features flow from p to q, with the angle
// -(g - theta) and the rotation by -theta. The number of edges is read from the row offsets: a captured launch
// is replayed on graphs with other numbers of edges.
extern "C" __global__ void reverse_edges(const u32 *__restrict__ offsets, u32 vertices,
                                         const u32 *__restrict__ reverse, const float4 *__restrict__ phases,
                                         const float *__restrict__ radius, float4 *__restrict__ reversed_phases,
                                         float *__restrict__ reversed_radius) {
    u64 edge = item();
    if (edge >= offsets[vertices]) return;
    u32 other = reverse[edge];
    float4 phase = phases[other];
    reversed_phases[edge] = make_float4(phase.z, -phase.w, phase.x, -phase.y);
    reversed_radius[edge] = radius[other];
}
