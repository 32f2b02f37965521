// Softmax cross-entropy of rows of logits, a block of THREADS for each row in turn. With ITEMS > 0 a thread
// keeps its ITEMS logits of the row, and then their exponentials, in registers; with ITEMS = 0 they are read again from memory.

struct Peak {
    float value;
    u32 place;
};

__device__ inline Peak larger(Peak a, Peak b) {
    return b.value > a.value || (b.value == a.value && b.place < a.place) ? b : a;
}

constexpr u32 WARPS = THREADS / 32;

__device__ inline Peak block_peak(Peak peak) {
    __shared__ Peak parts[WARPS];
    for (u32 step = 16; step > 0; step /= 2) {
        Peak other = {__shfl_xor_sync(0xffffffffu, peak.value, step), __shfl_xor_sync(0xffffffffu, peak.place, step)};
        peak = larger(peak, other);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = peak;
    __syncthreads();
    peak = parts[0];
    for (u32 warp = 1; warp < WARPS; ++warp) peak = larger(peak, parts[warp]);
    return peak;
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

constexpr u32 IGNORE = 0xffffffffu;

#if BF16
typedef unsigned short Gradient;

// Rounds to the nearest number in bf16, to even in ties; NaN stays.
__device__ inline Gradient gradient_of(float value) {
    u32 bits = __float_as_uint(value);
    return value != value ? 0x7fff : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

extern "C" __global__ void round_numbers(const float *__restrict__ from, Gradient *__restrict__ to, u64 count) {
    u64 i = item();
    if (i < count) to[i] = gradient_of(from[i]);
}
#else
typedef float Gradient;
__device__ inline Gradient gradient_of(float value) { return value; }
#endif

// logits: rows of `stride` numbers, plus `bias` where there is one. gradients, where wanted, are rows of `stride` numbers, in bf16
// if BF16, whose numbers beyond the classes are set to zero; in f32 they may be the logits. losses[row] is the weighted loss. With
// SMOOTHED, `smoothing` of the target of each row is spread evenly over all classes. marks[row] is 1 for a counted and 3 for a
// correct row. bias_partials[block][class]: sums of gradients over the rows of a block.
extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
softmax_rows(const float *logits, Gradient *gradients, u32 stride, u32 rows, u32 classes, const float *__restrict__ bias,
             const u32 *__restrict__ labels, const float *__restrict__ class_weights, const double *__restrict__ normaliser, double dloss,
             double smoothing, double *__restrict__ losses, u32 *__restrict__ marks, u32 *__restrict__ predictions,
             u32 *__restrict__ ranks, float *__restrict__ bias_partials) {
#if ITEMS > 0
    float z[ITEMS], bias_sum[ITEMS];
#pragma unroll
    for (u32 i = 0; i < ITEMS; ++i) bias_sum[i] = 0.0f;
#define FOR_CLASSES                                                                                                    \
    _Pragma("unroll") for (u32 i = 0, k = threadIdx.x; i < ITEMS; ++i, k += THREADS) if (k < classes)
#define LOGIT z[i]
#define KEEP_EXPONENTIAL z[i] = expf(z[i] - shift);
#define EXPONENTIAL z[i]
#else
#define FOR_CLASSES for (u32 k = threadIdx.x; k < classes; k += THREADS)
#define LOGIT (from[k] + (bias ? bias[k] : 0.0f))
#define KEEP_EXPONENTIAL
#define EXPONENTIAL expf(LOGIT - shift)
#endif
    for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
        const float *from = logits + (u64)row * stride;
#if ITEMS > 0
        FOR_CLASSES { z[i] = from[k] + (bias ? bias[k] : 0.0f); }
#endif
        Peak peak = {-__int_as_float(0x7f800000), 0xffffffffu};
        // Classes come in order, so the first of equal ones stays.
        FOR_CLASSES {
            float value = LOGIT;
            if (value > peak.value) peak = {value, k};
        }
        peak = block_peak(peak);
        float shift = peak.value == -__int_as_float(0x7f800000) ? 0.0f : peak.value;
        if (peak.place == 0xffffffffu) peak.place = 0;
        u32 label = labels[row];
        double weight = label == IGNORE ? 0.0 : class_weights ? (double)class_weights[label] : 1.0;
        float own = label == IGNORE ? 0.0f : from[label] + (bias ? bias[label] : 0.0f);
        if (ranks) {
            u32 before = 0;
            FOR_CLASSES {
                float value = LOGIT;
                bool behind = value < own || (value == own && k >= label);
                before += behind ? 0u : 1u;
            }
            before = sum_over_block(before);
            if (threadIdx.x == 0) ranks[row] = label == IGNORE ? IGNORE : before;
        }
#if SMOOTHED
        float logit_sum = 0.0f;
        FOR_CLASSES { logit_sum += LOGIT; }
        logit_sum = sum_over_block(logit_sum);
#endif
        float sum = 0.0f;
        FOR_CLASSES {
            KEEP_EXPONENTIAL
            sum += EXPONENTIAL;
        }
        sum = sum_over_block(sum);
        if (threadIdx.x == 0) {
            double loss = log((double)sum) + ((double)peak.value - (double)own);
#if SMOOTHED
            loss += smoothing * ((double)own - (double)logit_sum / classes);
#endif
            losses[row] = weight > 0.0 ? weight * loss : 0.0;
            marks[row] = label == IGNORE ? 0 : peak.place == label && loss == loss ? 3 : 1;
            if (predictions) predictions[row] = peak.place;
        }
        if (gradients) {
            // Every thread has read the row's logits that it overwrites, and the label's.
            __syncthreads();
            Gradient *to = gradients + (u64)row * stride;
            double share = dloss * *normaliser * weight;
            float factor = share == 0.0 ? 0.0f : (float)(share / (double)sum);
#if SMOOTHED
            float even = (float)(share * smoothing / classes), at_label = (float)(share * (1.0 - smoothing));
#else
            float even = 0.0f, at_label = (float)share;
#endif
            FOR_CLASSES {
                float value = share == 0.0 ? 0.0f : EXPONENTIAL * factor - even;
                if (k == label) value -= at_label;
                to[k] = gradient_of(value);
#if ITEMS > 0
                bias_sum[i] += value;
#endif
            }
            for (u32 k = classes + threadIdx.x; k < stride; k += THREADS) to[k] = 0;
        }
    }
#if ITEMS > 0
    if (bias_partials) {
        FOR_CLASSES { bias_partials[(u64)blockIdx.x * classes + k] = bias_sum[i]; }
    }
#endif
}

// score = (sum of losses, correct rows, counted rows). One block.
extern "C" __global__ void __launch_bounds__(THREADS)
tally(const double *__restrict__ losses, const u32 *__restrict__ marks, u32 rows, const double *__restrict__ normaliser,
      double *__restrict__ score) {
    double loss = 0.0;
    u32 correct = 0, counted = 0;
    for (u32 row = threadIdx.x; row < rows; row += THREADS) {
        loss += losses[row];
        counted += marks[row] & 1;
        correct += marks[row] >> 1;
    }
    loss = sum_over_block(loss);
    correct = sum_over_block(correct);
    counted = sum_over_block(counted);
    if (threadIdx.x == 0) {
        score[0] = loss * *normaliser;
        score[1] = correct;
        score[2] = counted;
    }
}
