// Edge arrays of the transposed operator: along the edge p <- q features flow from p to q, with the angle -(g - theta)
// and the rotation by -theta. The number of edges is read from the row offsets: a captured launch is replayed on graphs
// with other numbers of edges. Coefficients of harmonics are transported to the other vertex: those of order k rotate
// by -k g.
extern "C" __global__ void reverse_edges(const u32 *__restrict__ offsets, u32 vertices,
                                         const u32 *__restrict__ reverse, const float4 *__restrict__ phases,
                                         const float *__restrict__ radius, const float *__restrict__ coefficients,
                                         u32 columns, float4 *__restrict__ reversed_phases,
                                         float *__restrict__ reversed_radius,
                                         float *__restrict__ reversed_coefficients) {
    u64 edge = item();
    if (edge >= offsets[vertices]) return;
    u32 other = reverse[edge];
    float4 phase = phases[other];
    reversed_phases[edge] = make_float4(phase.z, -phase.w, phase.x, -phase.y);
    reversed_radius[edge] = radius[other];
    if (columns == 0) return;
    const float *from = coefficients + (u64)other * columns;
    float *to = reversed_coefficients + edge * columns;
    to[0] = from[0];
    Phase back = times({phase.x, phase.y}, {phase.z, phase.w}), turn = {1.0f, 0.0f};
    back.s = -back.s;
    for (u32 k = 1; k < columns; k += 2) {
        turn = times(turn, back);
        Phase value = times({from[k], from[k + 1]}, turn);
        to[k] = value.c;
        to[k + 1] = value.s;
    }
}
