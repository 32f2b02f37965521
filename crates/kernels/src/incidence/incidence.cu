// Sums over the entries of each row or column; see the page of `incidence`.

// places: of the entries among the phases and weights, in their order where there are none. No phases are no rotations,
// no weights are ones. back: angles
// change sign. normalise: offsets of the sources where their number of entries counts, else the target's counts.
extern "C" __global__ void incidence_sum(const u32 *__restrict__ offsets, const u32 *__restrict__ sources,
                                         const u32 *__restrict__ places, const float2 *__restrict__ phases,
                                         const float *__restrict__ weights, u32 back,
                                         const u32 *__restrict__ normalise, u32 aggregation,
                                         const float *__restrict__ x, float *__restrict__ y,
                                         const uint4 *__restrict__ irreps, u32 irrep_count, u32 width, u32 rows) {
    u32 count = 0;
    rotated_sum(
        irreps, irrep_count, width, rows, x, y,
        [&](u32 row) {
            count = offsets[row + 1] - offsets[row];
            return make_uint2(offsets[row], offsets[row + 1]);
        },
        [&](u32 entry, u32) {
            u32 source = sources[entry];
            u32 terms = normalise ? normalise[source + 1] - normalise[source] : count;
            Phase phase = {1.0f, 0.0f};
            u32 place = places ? places[entry] : entry;
            if (phases) {
                float2 angle = phases[place];
                phase = {angle.x, back ? -angle.y : angle.y};
            }
            return Term{source, phase, scale_of(aggregation, terms) * (weights ? weights[place] : 1.0f)};
        });
}
