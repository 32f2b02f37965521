// Training of a classifier with few classes, in one pass over the features: logits, softmax, and all gradients.
//
// The channels of a row lie on the lanes of SLICES warps, VECTOR neighbours on each. A thread has the weights of its
// channels, and the sums of their gradients, in registers. GROUPS times as many warps take ROWS rows at a time each,
// and read the next ones meanwhile. Products with the weights are summed over the lanes so that each lane ends with one
// of VALUES logits, or COPIES of them with the same one.

constexpr u32 SLICES = (CHANNELS + 32 * VECTOR - 1) / (32 * VECTOR), WARPS = GROUPS * SLICES;
constexpr u32 LANES = CLASSES > 16 ? 32 : CLASSES > 8 ? 16 : CLASSES > 4 ? 8 : CLASSES > 2 ? 4 : CLASSES;
constexpr u32 VALUES = ROWS * LANES, COPIES = 32 / VALUES;

struct alignas(4 * VECTOR) Channels {
    float numbers[VECTOR];
};

// values[0] = the sum over the lanes of values[lane / COPIES]. WIDTH: half of the values that are left.
template <u32 WIDTH, u32 STEP> __device__ inline void sum_over_lanes(float (&values)[VALUES], u32 lane) {
    if constexpr (WIDTH > 0) {
        bool upper = lane & STEP;
#pragma unroll
        for (u32 i = 0; i < WIDTH; ++i) {
            float kept = upper ? values[i + WIDTH] : values[i], sent = upper ? values[i] : values[i + WIDTH];
            values[i] = kept + __shfl_xor_sync(0xffffffffu, sent, STEP);
        }
    } else {
        values[0] += __shfl_xor_sync(0xffffffffu, values[0], STEP);
    }
    if constexpr (STEP > 1) sum_over_lanes<WIDTH / 2, STEP / 2>(values, lane);
}

// Sum over the lanes of a row.
__device__ inline float sum_over_classes(float value) {
#pragma unroll
    for (u32 step = COPIES; step < COPIES * LANES; step *= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

// Of the rows of each block of threads: partials[block][class][channel] and bias_partials[block][class], the gradients
// of weights and bias, and scores[block].
extern "C" __global__ void __launch_bounds__(32 * WARPS)
train(const float *__restrict__ features, u32 rows, const float *__restrict__ weight, const float *__restrict__ bias,
      const u32 *__restrict__ labels, const float *__restrict__ class_weights, const double *__restrict__ normaliser, double dloss,
      double smoothing, float *__restrict__ dfeatures, u32 *__restrict__ predictions, float *__restrict__ partials,
      float *__restrict__ bias_partials, Score *__restrict__ scores) {
    // Memory of its own for every second step, so that one barrier is enough.
    __shared__ float slices[2][GROUPS][SLICES][32];
    __shared__ __align__(16) float gradients[WARPS][VALUES];
    __shared__ Channels sums[GROUPS > 1 ? GROUPS / 2 : 1][SLICES][CLASSES][32];
    __shared__ float bias_sums[GROUPS][LANES];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, slice = warp % SLICES, group = warp / SLICES;
    u32 channel = (slice * 32 + lane) * VECTOR, own = lane / COPIES, own_row = own / LANES, k = own % LANES;
    bool inside = channel < CHANNELS, is_class = k < CLASSES, counts = slice == 0 && k == 0 && lane % COPIES == 0;
    Channels w[CLASSES] = {}, dw[CLASSES] = {};
#pragma unroll
    for (u32 c = 0; c < CLASSES; ++c)
        if (inside) w[c] = *(const Channels *)(weight + c * CHANNELS + channel);
    float own_bias = is_class ? bias[k] : 0.0f, bias_sum = 0.0f;
    double dmean = dloss * *normaliser;
    Score score = {};
    Channels x[ROWS], next[ROWS];
    u32 label, next_label;
    auto load = [&](u32 first) {
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) {
            next[r] = {};
            if (inside && first + r < rows) next[r] = *(const Channels *)(features + (u64)(first + r) * CHANNELS + channel);
        }
        next_label = first + own_row < rows ? labels[first + own_row] : IGNORE;
    };
    u32 first = (blockIdx.x * GROUPS + group) * ROWS, step = gridDim.x * GROUPS * ROWS, half = 0;
    load(first);
    for (; first < rows; first += step, half ^= 1) {
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) x[r] = next[r];
        label = next_label;
        double class_weight = label == IGNORE ? 0.0 : class_weights ? (double)class_weights[label] : 1.0;
        load(first + step);
        float values[VALUES];
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) {
#pragma unroll
            for (u32 c = 0; c < LANES; ++c) {
                float sum = 0.0f;
#pragma unroll
                for (u32 i = 0; i < VECTOR && c < CLASSES; ++i) sum = fmaf(x[r].numbers[i], w[c].numbers[i], sum);
                values[r * LANES + c] = sum;
            }
        }
        sum_over_lanes<VALUES / 2, 16>(values, lane);
        float z = values[0];
        if constexpr (SLICES > 1) {
            slices[half][group][slice][lane] = z;
            // The warps of a group.
            asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(32 * SLICES) : "memory");
            z = 0.0f;
#pragma unroll
            for (u32 s = 0; s < SLICES; ++s) z += slices[half][group][s][lane];
        }
        z = is_class ? z + own_bias : -INFINITE;
        float at_label = __shfl_sync(0xffffffffu, z, (own_row * LANES + label) * COPIES), peak = -INFINITE;
        u32 place = IGNORE;
        if (z > peak) peak = z, place = k;
#pragma unroll
        for (u32 distance = COPIES; distance < COPIES * LANES; distance *= 2) {
            float other = __shfl_xor_sync(0xffffffffu, peak, distance);
            u32 its_place = __shfl_xor_sync(0xffffffffu, place, distance);
            if (other > peak || (other == peak && its_place < place)) peak = other, place = its_place;
        }
        float exponential = is_class ? expf(z - (peak == -INFINITE ? 0.0f : peak)) : 0.0f, sum = sum_over_classes(exponential);
#if SMOOTHED
        float all = sum_over_classes(is_class ? z : 0.0f);
#endif
        u32 row = first + own_row;
        if (counts && row < rows) {
            double own_logit = label == IGNORE ? 0.0 : (double)at_label, loss = (double)logf(sum) + ((double)peak - own_logit);
#if SMOOTHED
            loss += smoothing * (own_logit - (double)all / CLASSES);
#endif
            place = place == IGNORE ? 0 : place;
            score = plus(score, score_of(class_weight, loss, label, place));
            if (predictions) predictions[row] = place;
        }
        // Zero in rows beyond the last one, which have no label.
        double share = dmean * class_weight;
        float gradient = 0.0f;
        if (is_class && share != 0.0) {
#if SMOOTHED
            float even = (float)(share * smoothing / CLASSES), kept = (float)(share * (1.0 - smoothing));
#else
            float even = 0.0f, kept = (float)share;
#endif
            gradient = exponential * ((float)share / sum) - even - (k == label ? kept : 0.0f);
        }
        bias_sum += gradient;
        gradients[warp][own] = gradient;
        __syncwarp();
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) {
            Channels dx = {};
#pragma unroll
            for (u32 c = 0; c < CLASSES; ++c) {
                float p = gradients[warp][r * LANES + c];
#pragma unroll
                for (u32 i = 0; i < VECTOR; ++i) {
                    dx.numbers[i] = fmaf(p, w[c].numbers[i], dx.numbers[i]);
                    dw[c].numbers[i] = fmaf(p, x[r].numbers[i], dw[c].numbers[i]);
                }
            }
            if (inside && first + r < rows) *(Channels *)(dfeatures + (u64)(first + r) * CHANNELS + channel) = dx;
        }
        __syncwarp();
    }
    for (u32 distance = 16; distance >= COPIES * LANES; distance /= 2) bias_sum += __shfl_xor_sync(0xffffffffu, bias_sum, distance);
    if (slice == 0 && own_row == 0) bias_sums[group][k] = bias_sum;
    score = score_of_block<WARPS>(score);
    if (threadIdx.x == 0) scores[blockIdx.x] = score;
    // The groups of the upper half hand their sums to those of the lower half.
#pragma unroll 1
    for (u32 count = GROUPS, lower; count > 1; count = lower) {
        lower = (count + 1) / 2;
        __syncthreads();
        if (group >= lower && group < count) {
#pragma unroll
            for (u32 c = 0; c < CLASSES; ++c) sums[group - lower][slice][c][lane] = dw[c];
        }
        __syncthreads();
        if (group + lower < count) {
#pragma unroll
            for (u32 c = 0; c < CLASSES; ++c) {
                Channels other = sums[group][slice][c][lane];
#pragma unroll
                for (u32 i = 0; i < VECTOR; ++i) dw[c].numbers[i] += other.numbers[i];
            }
        }
    }
    if (group > 0) return;
    if (inside) {
#pragma unroll
        for (u32 c = 0; c < CLASSES; ++c) *(Channels *)(partials + ((u64)blockIdx.x * CLASSES + c) * CHANNELS + channel) = dw[c];
    }
    // After a barrier, that of the score.
    if (slice > 0 || lane >= CLASSES) return;
    float sum = 0.0f;
    for (u32 g = 0; g < GROUPS; ++g) sum += bias_sums[g][lane];
    bias_partials[blockIdx.x * CLASSES + lane] = sum;
}

// Sums the partial results of `count` blocks of `train` in order: a warp of results for each block of 512 threads,
// whose warps share the partial ones. The last block sums the scores.
extern "C" __global__ void __launch_bounds__(512)
finish(const float *__restrict__ partials, const float *__restrict__ bias_partials, const Score *__restrict__ scores, u32 count,
       const double *__restrict__ normaliser, float *__restrict__ dweight, float *__restrict__ dbias, Score *__restrict__ score) {
    if (blockIdx.x == gridDim.x - 1) return sum_scores<16>(scores, count, normaliser, score);
    __shared__ float parts[16][32];
    constexpr u32 SIZE = CLASSES * CHANNELS;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, i = blockIdx.x * 32 + lane;
    bool is_weight = i < SIZE;
    const float *from = is_weight ? partials + i : bias_partials + (i - SIZE);
    u32 stride = is_weight ? SIZE : CLASSES;
    float sum = 0.0f;
    if (i < SIZE + CLASSES) {
        in_batches<12>(
            warp, count, 16, [&](u32 part) { return from[(u64)part * stride]; }, [&](u32, float part) { sum += part; });
    }
    parts[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || i >= SIZE + CLASSES) return;
    for (u32 y = 1; y < 16; ++y) sum += parts[y][lane];
    (is_weight ? dweight[i] : dbias[i - SIZE]) = sum;
}
