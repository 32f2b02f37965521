// Softmax cross-entropy of rows of logits, a block of THREADS for each row in turn. With ITEMS > 0 a thread keeps its
// ITEMS logits of the row, and then their exponentials, in registers, and reads those of its next row before it needs
// them; with ITEMS = 0 they are read again from memory. With ROW_LANES > 0 there are at most as many classes, and
// ROW_LANES threads take a row.

constexpr u32 WARPS = THREADS / 32;

// What a row is reduced to: its largest logit, the class of that, and sums over classes.
struct Summary {
    float peak;
    u32 place;
    // Of exp(logit - peak).
    float sum;
#if SMOOTHED
    float logits;
#endif
};

// The order of `a` and `b` does not change a bit, so all threads of a block get the same.
__device__ inline Summary joined(Summary a, Summary b) {
    bool b_first = b.peak > a.peak || (b.peak == a.peak && b.place < a.place);
    Summary high = b_first ? b : a, low = b_first ? a : b;
    high.sum += low.peak == high.peak ? low.sum : low.sum * expf(low.peak - high.peak);
#if SMOOTHED
    high.logits += low.logits;
#endif
    return high;
}

template <u32 LANES> __device__ inline Summary joined_over_lanes(Summary own) {
    for (u32 step = LANES / 2; step > 0; step /= 2) {
        Summary other;
        other.peak = __shfl_xor_sync(0xffffffffu, own.peak, step);
        other.place = __shfl_xor_sync(0xffffffffu, own.place, step);
        other.sum = __shfl_xor_sync(0xffffffffu, own.sum, step);
#if SMOOTHED
        other.logits = __shfl_xor_sync(0xffffffffu, own.logits, step);
#endif
        own = joined(own, other);
    }
    return own;
}

// `parts`: memory of its own for every second call, so that one barrier is enough.
__device__ inline Summary joined_over_block(Summary own, Summary *parts) {
    own = joined_over_lanes<32>(own);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
    __syncthreads();
    return joined_over_lanes<WARPS>(parts[threadIdx.x % WARPS]);
}

template <typename T> __device__ inline T sum_over_block(T value) {
    __shared__ T parts[WARPS];
    for (u32 step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    T sum = parts[0];
    for (u32 warp = 1; warp < WARPS; ++warp) sum += parts[warp];
    return sum;
}

// logits: rows of `stride` numbers, plus `bias` where there is one. gradients, where wanted, are rows of `stride`
// numbers, whose numbers beyond the classes are set to zero; they may be the logits. With SMOOTHED, `smoothing` of the target of each row is spread evenly over all classes. scores[block] is
// that of the rows of a block, and bias_partials[block][class], not with ROW_LANES, the sums of their gradients.
#if ROW_LANES > 0
extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
softmax_rows(const float *logits, float *gradients, u32 stride, u32 rows, u32 classes, const float *__restrict__ bias,
             const u32 *__restrict__ labels, const float *__restrict__ class_weights, const double *__restrict__ normaliser, double dloss,
             double smoothing, Score *__restrict__ scores, u32 *__restrict__ predictions, u32 *__restrict__ ranks, float *) {
    constexpr u32 ROWS = THREADS / ROW_LANES;
    u32 k = threadIdx.x % ROW_LANES;
    float own_bias = bias && k < classes ? bias[k] : 0.0f;
    Score score = {};
    double dmean = gradients ? dloss * *normaliser : 0.0;
    // All threads of a warp take part in the exchanges between its lanes.
    for (u32 first = blockIdx.x * ROWS; first < rows; first += gridDim.x * ROWS) {
        u32 row = first + threadIdx.x / ROW_LANES;
        bool inside = row < rows && k < classes;
        u32 label = row < rows ? labels[row] : IGNORE;
        float z = inside ? logits[(u64)row * stride + k] + own_bias : -INFINITE;
        float at_label = __shfl_sync(0xffffffffu, z, label, ROW_LANES);
        Summary own = {-INFINITE, 0xffffffffu, 0.0f};
        if (z > own.peak) own.peak = z, own.place = k;
        float shift = own.peak == -INFINITE ? 0.0f : own.peak;
        own.sum = inside ? expf(z - shift) : 0.0f;
#if SMOOTHED
        own.logits = inside ? z : 0.0f;
#endif
        Summary all = joined_over_lanes<ROW_LANES>(own);
        if (ranks) {
            bool behind = !inside || label == IGNORE || z < at_label || (z == at_label && k >= label);
            u32 before = behind ? 0u : 1u;
            for (u32 step = ROW_LANES / 2; step > 0; step /= 2) before += __shfl_xor_sync(0xffffffffu, before, step);
            if (k == 0 && row < rows) ranks[row] = label == IGNORE ? IGNORE : before;
        }
        double weight = label == IGNORE ? 0.0 : class_weights ? (double)class_weights[label] : 1.0;
        if (k == 0 && row < rows) {
            double loss = log((double)all.sum) + ((double)all.peak - (label == IGNORE ? 0.0 : (double)at_label));
#if SMOOTHED
            loss += smoothing * ((label == IGNORE ? 0.0 : (double)at_label) - (double)all.logits / classes);
#endif
            u32 place = all.place == 0xffffffffu ? 0 : all.place;
            score = plus(score, score_of(weight, loss, label, place));
            if (predictions) predictions[row] = place;
        }
        if (!gradients || row >= rows) continue;
        double share = dmean * weight;
        float peak = all.peak == -INFINITE ? 0.0f : all.peak;
#if SMOOTHED
        float even = (float)(share * smoothing / classes), kept = (float)(share * (1.0 - smoothing));
#else
        float even = 0.0f, kept = (float)share;
#endif
        float value = 0.0f;
        if (inside) {
            value = share == 0.0 ? 0.0f : own.sum * ((float)share / all.sum * expf(shift - peak)) - even;
            if (k == label) value -= kept;
        }
        float *to = gradients + (u64)row * stride;
        for (u32 column = k; column < stride; column += ROW_LANES) to[column] = column == k ? value : 0.0f;
    }
    score = score_of_block<WARPS>(score);
    if (threadIdx.x == 0) scores[blockIdx.x] = score;
}
#else
extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
softmax_rows(const float *logits, float *gradients, u32 stride, u32 rows, u32 classes, const float *__restrict__ bias,
             const u32 *__restrict__ labels, const float *__restrict__ class_weights, const double *__restrict__ normaliser, double dloss,
             double smoothing, Score *__restrict__ scores, u32 *__restrict__ predictions, u32 *__restrict__ ranks,
             float *__restrict__ bias_partials) {
    __shared__ Summary parts[2][WARPS];
    __shared__ float own_logit[2];
    // Only the first thread uses it: no other one has registers for it.
    __shared__ Score score;
    if (threadIdx.x == 0) score = {};
#if ITEMS > 0
    float z[ITEMS], bias_sum[ITEMS], next[ITEMS];
#pragma unroll
    for (u32 i = 0; i < ITEMS; ++i) bias_sum[i] = 0.0f;
#define FOR_CLASSES _Pragma("unroll") for (u32 i = 0, k = threadIdx.x; i < ITEMS; ++i, k += THREADS) if (k < classes)
#define LOGIT z[i]
    if (blockIdx.x < rows) {
        const float *from = logits + (u64)blockIdx.x * stride;
        FOR_CLASSES { next[i] = from[k]; }
    }
#else
#define FOR_CLASSES for (u32 k = threadIdx.x; k < classes; k += THREADS)
#define LOGIT (from[k] + (bias ? bias[k] : 0.0f))
#endif
    u32 half = 0;
    for (u32 row = blockIdx.x; row < rows; row += gridDim.x, half ^= 1) {
        u32 label = labels[row];
#if ITEMS > 0
        FOR_CLASSES { z[i] = next[i] + (bias ? bias[k] : 0.0f); }
        if (row + gridDim.x < rows) {
            const float *from = logits + (u64)(row + gridDim.x) * stride;
            FOR_CLASSES { next[i] = from[k]; }
        }
#else
        const float *from = logits + (u64)row * stride;
#endif
        Summary own = {-INFINITE, 0xffffffffu, 0.0f};
        // Classes come in order, so the first of equal ones stays.
        FOR_CLASSES {
            float value = LOGIT;
            if (value > own.peak) {
                own.peak = value;
                own.place = k;
            }
            if (k == label) own_logit[half] = value;
#if SMOOTHED
            own.logits += value;
#endif
        }
        if (ranks) {
            __syncthreads();
            u32 before = 0;
            FOR_CLASSES {
                float value = LOGIT, at_label = own_logit[half];
                bool behind = label == IGNORE || value < at_label || (value == at_label && k >= label);
                before += behind ? 0u : 1u;
            }
            before = sum_over_block(before);
            if (threadIdx.x == 0) ranks[row] = label == IGNORE ? IGNORE : before;
        }
        float shift = own.peak == -INFINITE ? 0.0f : own.peak;
        FOR_CLASSES {
            float exponential = expf(LOGIT - shift);
            own.sum += exponential;
#if ITEMS > 0
            z[i] = exponential;
#endif
        }
        Summary all = joined_over_block(own, parts[half]);
        float peak = all.peak == -INFINITE ? 0.0f : all.peak;
        double weight = label == IGNORE ? 0.0 : class_weights ? (double)class_weights[label] : 1.0;
        if (threadIdx.x == 0) {
            float at_label = label == IGNORE ? 0.0f : own_logit[half];
            double loss = log((double)all.sum) + ((double)all.peak - (double)at_label);
#if SMOOTHED
            loss += smoothing * ((double)at_label - (double)all.logits / classes);
#endif
            u32 place = all.place == 0xffffffffu ? 0 : all.place;
            score = plus(score, score_of(weight, loss, label, place));
            if (predictions) predictions[row] = place;
        }
        if (gradients) {
            float *to = gradients + (u64)row * stride;
            double share = dloss * *normaliser * weight;
            float factor = share == 0.0 ? 0.0f : (float)share / all.sum;
#if SMOOTHED
            float even = (float)(share * smoothing / classes), at_label = (float)(share * (1.0 - smoothing));
#else
            float even = 0.0f, at_label = (float)share;
#endif
#if ITEMS > 0
            // The exponentials are those of this thread's own largest logit.
            factor *= expf(shift - peak);
            FOR_CLASSES {
                float value = share == 0.0 ? 0.0f : z[i] * factor - even;
                if (k == label) value -= at_label;
                to[k] = value;
                bias_sum[i] += value;
            }
#else
            FOR_CLASSES {
                float value = share == 0.0 ? 0.0f : expf(LOGIT - peak) * factor - even;
                if (k == label) value -= at_label;
                to[k] = value;
            }
#endif
            for (u32 k = classes + threadIdx.x; k < stride; k += THREADS) to[k] = 0;
        }
    }
    if (threadIdx.x == 0) scores[blockIdx.x] = score;
#if ITEMS > 0
    if (bias_partials) {
        FOR_CLASSES { bias_partials[(u64)blockIdx.x * classes + k] = bias_sum[i]; }
    }
#endif
}
#endif

// The score of all rows from those of the blocks of `softmax_rows`. One block.
extern "C" __global__ void __launch_bounds__(THREADS)
tally(const Score *__restrict__ scores, u32 count, const double *__restrict__ normaliser, Score *__restrict__ score) {
    sum_scores<WARPS>(scores, count, normaliser, score);
}
