// Sums of rotated rows; see `rotated_sum.rs`. This text stands before the kernels that use it.

struct Term {
    u64 source;
    Phase phase;
    float weight;
};

// One thread for each irrep of each row: y_r = sum over i in row(r) of weight rho(phase) x_source, where
// (source, phase, weight) = term(i, head of the irrep).
template <typename Row, typename Terms>
__device__ inline void rotated_sum(const uint4 *__restrict__ irreps, u32 irrep_count, u32 width, u32 rows,
                                   const float *__restrict__ x, float *__restrict__ y, Row row, Terms terms) {
    u64 i = item();
    if (i >= (u64)rows * irrep_count) return;
    u32 r = i / irrep_count;
    uint4 irrep = irreps[i % irrep_count];
    uint2 range = row(r);
    float sum_a = 0.0f, sum_b = 0.0f;
    for (u32 place = range.x; place < range.y; ++place) {
        Term term = terms(place, irrep.w);
        Phase turn = multiple(term.phase, irrep.z);
        float a = x[term.source * width + irrep.x];
        float b = irrep.z > 0 ? x[term.source * width + irrep.y] : 0.0f;
        sum_a += term.weight * (turn.c * a - turn.s * b);
        sum_b += term.weight * (turn.s * a + turn.c * b);
    }
    y[(u64)r * width + irrep.x] = sum_a;
    if (irrep.z > 0) y[(u64)r * width + irrep.y] = sum_b;
}
