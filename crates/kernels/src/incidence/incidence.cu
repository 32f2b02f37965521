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

// y[column][m * channels + c] = s(n) sum over the rows of the column of w[row][m] x[row][c]. A block for each column;
// each thread takes 4 numbers at a time.
extern "C" __global__ void incidence_mix(const u32 *__restrict__ offsets, const u32 *__restrict__ rows, u32 aggregation,
                                         const float *__restrict__ x, u32 channels, const float *__restrict__ w,
                                         u32 weights, float *__restrict__ y) {
    u32 column = blockIdx.x, first = offsets[column], end = offsets[column + 1], outputs = weights * channels;
    float scale = scale_of(aggregation, end - first);
    for (u32 start = threadIdx.x; start < outputs; start += 4 * blockDim.x) {
        float sums[4] = {};
        for (u32 entry = first; entry < end; ++entry) {
            u64 row = rows[entry];
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                u32 at = start + k * blockDim.x;
                if (at < outputs) sums[k] += w[row * weights + at / channels] * x[row * channels + at % channels];
            }
        }
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            u32 at = start + k * blockDim.x;
            if (at < outputs) y[(u64)column * outputs + at] = scale * sums[k];
        }
    }
}

// Gradients of incidence_mix. A warp for each row; each thread has two channels at a time.
extern "C" __global__ void incidence_mix_backward(const u32 *__restrict__ offsets, const u32 *__restrict__ columns,
                                                  const u32 *__restrict__ column_offsets, u32 aggregation,
                                                  const float *__restrict__ x, u32 channels,
                                                  const float *__restrict__ w, u32 weights,
                                                  const float *__restrict__ dy, float *__restrict__ dx, float *dw,
                                                  u32 rows) {
    u64 row = item() / 32;
    u32 lane = threadIdx.x % 32, outputs = weights * channels;
    if (row >= rows) return;
    u32 first = offsets[row], end = offsets[row + 1];
    for (u32 start = 0; start < channels; start += 64) {
        u32 place[2] = {start + lane, start + lane + 32};
        float values[2], sums[2] = {}, kept = 0.0f;
#pragma unroll
        for (u32 k = 0; k < 2; ++k) values[k] = place[k] < channels ? x[row * channels + place[k]] : 0.0f;
        for (u32 m = 0; m < weights; ++m) {
            float gradient[2] = {};
            for (u32 entry = first; entry < end; ++entry) {
                u64 column = columns[entry];
                float scale = scale_of(aggregation, column_offsets[column + 1] - column_offsets[column]);
#pragma unroll
                for (u32 k = 0; k < 2; ++k)
                    if (place[k] < channels) gradient[k] += scale * dy[column * outputs + m * channels + place[k]];
            }
            float weight = w[row * weights + m];
            sums[0] += weight * gradient[0];
            sums[1] += weight * gradient[1];
            float product = values[0] * gradient[0] + values[1] * gradient[1];
            for (u32 step = 16; step > 0; step /= 2) product += __shfl_xor_sync(0xffffffffu, product, step);
            if (lane == m % 32) kept = product;
            if (m % 32 == 31 || m + 1 == weights) {
                u32 own = m / 32 * 32 + lane;
                if (own <= m) dw[row * weights + own] = start ? dw[row * weights + own] + kept : kept;
            }
        }
#pragma unroll
        for (u32 k = 0; k < 2; ++k)
            if (place[k] < channels) dx[row * channels + place[k]] = sums[k];
    }
}
