// Gauge aggregation: GROUP lanes work on one vertex, each on VECTOR neighbouring channels of one order,
// with the sums of HARMONICS harmonics on RINGS rings in registers, few enough of them for BLOCKS blocks at a time on
// a multiprocessor. RADIAL: whether there is more than one ring in all. See the page of `aggregate`.

struct alignas(4 * VECTOR) Channels {
    float v[VECTOR];
};

__device__ inline Channels load(const float *from) { return *reinterpret_cast<const Channels *>(from); }

__device__ inline void store(float *to, const Channels &value) { *reinterpret_cast<Channels *>(to) = value; }

constexpr u32 SUM = 0, MEAN = 1, MEAN_WITH_SELF = 2;

__device__ inline float scale_of(u32 aggregation, u32 degree) {
    if (aggregation == MEAN) return 1.0f / (float)max(degree, 1u);
    return aggregation == MEAN_WITH_SELF ? 1.0f / (float)(degree + 1) : 1.0f;
}

// Weight of a ring at a radius: linear hats, the last one constant beyond.
__device__ inline float ring_weight(u32 ring, u32 rings, float radius, float max_radius) {
    float place = fminf(radius / max_radius, 1.0f) * (float)(rings - 1);
    return fmaxf(1.0f - fabsf(place - (float)ring), 0.0f);
}

// Rows `first .. first + count` of the result. irreps: (place of cosine, place of sine, order) of each run of
// VECTOR channels. destinations: place of each ring and harmonic in a row of `out`, negative if it is not
// wanted. reversed: the edges are those of the transposed operator, so scales belong to the neighbours.
// own: (from, to, width) of the vertex's own features. bias goes to the first numbers of the rows of `y`.
extern "C" __global__ void __launch_bounds__(256, BLOCKS)
gather(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours, const float4 *__restrict__ phases,
       const float *__restrict__ radius, const float *__restrict__ x, u32 dimension,
       const uint4 *__restrict__ irreps, u32 irrep_count, const int *__restrict__ destinations,
       float *__restrict__ out, u32 row, u32 first, u32 count, u32 aggregation, u32 reversed, u32 rings,
       float max_radius, const uint4 *__restrict__ own, u32 own_count, const float *__restrict__ bias,
       u32 bias_count, float *__restrict__ y, u32 y_width) {
    u32 place = (u32)(item() / GROUP), lane = threadIdx.x % GROUP;
    if (place >= count) return;
    u32 p = first + place;
    u32 begin = offsets[p], end = offsets[p + 1];
    u32 first_ring = blockIdx.y * RINGS;
    float scale = reversed ? 1.0f : scale_of(aggregation, end - begin);
    float *result = out + (u64)place * row;
    for (u32 unit = lane; unit < irrep_count; unit += GROUP) {
        uint4 irrep = irreps[unit];
        Channels cosine[RINGS][HARMONICS], sine[RINGS][HARMONICS];
#pragma unroll
        for (u32 r = 0; r < RINGS; ++r)
#pragma unroll
            for (u32 k = 0; k < HARMONICS; ++k)
#pragma unroll
                for (u32 i = 0; i < VECTOR; ++i) cosine[r][k].v[i] = sine[r][k].v[i] = 0.0f;
        // Place and angles of the next edge are loaded while this one's features are on their way.
        u32 next_q = begin < end ? neighbours[begin] : 0;
        float4 next_phase = begin < end ? phases[begin] : make_float4(1.0f, 0.0f, 1.0f, 0.0f);
#pragma unroll 1
        for (u32 edge = begin; edge < end; ++edge) {
            u32 q = next_q;
            float4 phase = next_phase;
            if (edge + 1 < end) {
                next_q = neighbours[edge + 1];
                next_phase = phases[edge + 1];
            }
            const float *features = x + (u64)q * dimension;
            Channels a = load(features + irrep.x), b = a;
            if (irrep.z > 0) b = load(features + irrep.y);
            Phase turn = multiple({phase.z, phase.w}, irrep.z);
            if (reversed && aggregation != SUM) {
                float weight = scale_of(aggregation, offsets[q + 1] - offsets[q]);
                turn = {turn.c * weight, turn.s * weight};
            }
#pragma unroll
            for (u32 i = 0; i < VECTOR; ++i) {
                float ca = turn.c * a.v[i] - turn.s * b.v[i];
                b.v[i] = turn.s * a.v[i] + turn.c * b.v[i];
                a.v[i] = ca;
            }
            float harmonic[HARMONICS];
            harmonic[0] = 1.0f;
            Phase angle = {1.0f, 0.0f};
#pragma unroll
            for (u32 k = 1; k + 1 < HARMONICS; k += 2) {
                angle = times(angle, {phase.x, phase.y});
                harmonic[k] = angle.c;
                harmonic[k + 1] = angle.s;
            }
#pragma unroll
            for (u32 r = 0; r < RINGS; ++r) {
#if RADIAL
                float ring = ring_weight(first_ring + r, rings, radius[edge], max_radius);
#else
                constexpr float ring = 1.0f;
#endif
#pragma unroll
                for (u32 k = 0; k < HARMONICS; ++k) {
                    float weight = ring * harmonic[k];
#pragma unroll
                    for (u32 i = 0; i < VECTOR; ++i) {
                        cosine[r][k].v[i] += weight * a.v[i];
                        sine[r][k].v[i] += weight * b.v[i];
                    }
                }
            }
        }
#pragma unroll
        for (u32 r = 0; r < RINGS; ++r)
#pragma unroll
            for (u32 k = 0; k < HARMONICS; ++k) {
                int to = destinations[(first_ring + r) * HARMONICS + k];
                if (to < 0) continue;
#pragma unroll
                for (u32 i = 0; i < VECTOR; ++i) {
                    cosine[r][k].v[i] *= scale;
                    sine[r][k].v[i] *= scale;
                }
                store(result + to + irrep.x, cosine[r][k]);
                if (irrep.z > 0) store(result + to + irrep.y, sine[r][k]);
            }
    }
    if (blockIdx.y > 0) return;
    float own_scale = aggregation == MEAN_WITH_SELF ? scale_of(aggregation, end - begin) : 1.0f;
    for (u32 segment = 0; segment < own_count; ++segment) {
        uint4 part = own[segment];
        for (u32 i = lane; i < part.z; i += GROUP)
            result[part.y + i] = own_scale * x[(u64)p * dimension + part.x + i];
    }
    for (u32 i = lane; i < bias_count; i += GROUP) y[(u64)p * y_width + i] = bias[i];
}
