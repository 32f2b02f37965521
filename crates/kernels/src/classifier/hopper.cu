// The classifier on Hopper (compute capability 9.0), without logits in memory. Factors are in bf16, or with FP16 in
// fp16.
//
// Two kernels multiply twice each, on tensor cores (wgmma), as attention does. `classify` holds BM rows of features and
// streams tiles of BN classes: logits, their running maximum and sum of exponentials, and the sum of exponentials times
// weights. `weigh` holds BM classes and streams tiles of BN rows: the logits again, now their gradients, and those
// times features. `finish_rows` and `finish_weights` combine partial results in a fixed order. `store_logits`
// multiplies as `classify` does, once, and writes the logits.
//
// fp16 has the mantissa of tf32 but a small range. So numbers are packed as multiples of a scale, a power of two with
// which the largest of them has the exponent LIFT: each row of features has a scale of its own, all weights share one.
// Exponentials are lifted to 2^LIFT at most. Gradients of logits are multiplied by the scale of their row, over that of
// the row in which scale times share is largest.
//
// Features and weights are packed in the layout that wgmma reads from shared memory with swizzles of 128 bytes: eight
// rows are GROUP bytes, in panels of 64 channels. So any tile of whole groups is one contiguous copy.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr u32 BM = 128, BN = 96, PANELS = CHANNELS / 64, GROUP = PANELS * 1024;
constexpr u32 HELD = BM / 8 * GROUP, TILE = BN / 8 * GROUP;
constexpr u32 LIFT = 14;
constexpr float LOG2E = 1.4426950408889634f;
// Above it, the largest logit of a row is subtracted before the product with LOG2E, whose rounding would count.
constexpr float LARGE = 512.0f;

#if FP16
#define PAIR "f16x2"
#define FACTORS "f16.f16"
#else
#define PAIR "bf16x2"
#define FACTORS "bf16.bf16"
#endif

// Two packed numbers, the first in the lower half.
__device__ inline u32 packed_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn." PAIR ".f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Place in bytes of eight packed channels of a row.
__device__ inline u64 packed_place(u32 row, u32 eight) {
    return (u64)(row / 8) * GROUP + eight / 8 * 1024 + row % 8 * 128 + (eight % 8 ^ row % 8) * 16;
}

// Eight channels.
struct Eight {
    float numbers[8];
};

__device__ inline void pack_eight(unsigned char *to, u32 row, u32 eight, Eight x, float scale) {
    u32 pairs[4];
    float factor = 1.0f / scale;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) pairs[i] = packed_pair(x.numbers[2 * i] * factor, x.numbers[2 * i + 1] * factor);
    *(uint4 *)(to + packed_place(row, eight)) = {pairs[0], pairs[1], pairs[2], pairs[3]};
}

// As multiples of the scale.
__device__ inline Eight eight_of(const unsigned char *packed, u32 row, u32 eight) {
    uint4 pairs = *(const uint4 *)(packed + packed_place(row, eight));
    u32 words[4] = {pairs.x, pairs.y, pairs.z, pairs.w};
    Eight result;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
#if FP16
        asm("cvt.f32.f16 %0, %1;" : "=f"(result.numbers[i]) : "h"((unsigned short)(words[i / 2] >> i % 2 * 16)));
#else
        result.numbers[i] = __uint_as_float(i % 2 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16);
#endif
    }
    return result;
}

// Bits of the largest of some numbers, leaving out those that are not finite: they are the same with any scale.
__device__ inline u32 largest_of(const float *numbers, u32 count) {
    u32 largest = 0;
    for (u32 i = 0; i < count; ++i) {
        u32 bits = __float_as_uint(numbers[i]) & 0x7fffffffu;
        largest = max(largest, bits < 0x7f800000u ? bits : 0u);
    }
    return largest;
}

// The scale of numbers of which this is the largest. It and its inverse are normal numbers. bf16 has the range of f32
// and needs none.
__device__ inline float scale_for(u32 largest) { return FP16 ? __uint_as_float(max(largest >> 23, LIFT + 1) - LIFT << 23) : 1.0f; }

// The largest over a block of 256 threads, in all of them.
__device__ inline u32 largest_of_block(u32 value) {
    __shared__ u32 parts[8];
    value = __reduce_max_sync(0xffffffffu, value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    return __reduce_max_sync(0xffffffffu, parts[threadIdx.x % 8]);
}

// What the kernels of one call share: the largest weight, and the largest exponent of a row (see `row_exponent`).
struct Largest {
    u32 weight, row;
};

// The part of a row in the gradient of the loss.
__device__ inline double share_of(u32 label, const float *class_weights, const double *normaliser, double dloss) {
    return label == IGNORE ? 0.0 : dloss * *normaliser * (class_weights ? (double)class_weights[label] : 1.0);
}

// Exponent of a row's scale times its share, plus EXPONENTS. Shares below 2^-112 count as that.
constexpr int EXPONENTS = 127 + 1023;
__device__ inline u32 row_exponent(float scale, double share) {
    return (__float_as_uint(scale) >> 23) + max((u32)__double2hiint(share) >> 20 & 2047u, 1023u - 112u);
}

__device__ inline Eight load_eight(const float *from) {
    float4 a = ((const float4 *)from)[0], b = ((const float4 *)from)[1];
    return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
}

struct Weights {
    const float *from;
    u32 classes, padded;
    unsigned char *to;
    const float *bias;
    float *padded_bias;
};

// Packs weights, and zeros up to `padded` classes; the bias is padded with -infinity. One thread for each eight
// channels.
__device__ inline void pack(u64 i, Weights weights, float scale) {
    if (i < weights.padded) weights.padded_bias[i] = i < weights.classes ? weights.bias[i] : -INFINITE;
    u32 row = i / (CHANNELS / 8), eight = i % (CHANNELS / 8);
    if (row >= weights.padded) return;
    Eight x = {};
    if (row < weights.classes) x = load_eight(weights.from + i * 8);
    pack_eight(weights.to, row, eight, x, scale);
}

// For FP16, after `pack_features` has found the largest numbers of its blocks, `row_parts` and then `parts` in all.
extern "C" __global__ void __launch_bounds__(256)
pack_weight(const float *from, u32 classes, u32 padded, unsigned char *to, const float *bias, float *padded_bias,
            const u32 *__restrict__ found, u32 row_parts, u32 parts, Largest *largest) {
    auto largest_part = [&](u32 first, u32 end) {
        u32 top = 0;
        in_batches<4>(
            first + threadIdx.x, end, 256, [&](u32 part) { return found[part]; }, [&](u32, u32 part) { top = max(top, part); });
        return largest_of_block(top);
    };
    u32 top = largest_part(row_parts, parts);
    pack(item(), {from, classes, padded, to, bias, padded_bias}, scale_for(top));
    if (blockIdx.x > 0) return;
    u32 row = largest_part(0, row_parts);
    if (threadIdx.x == 0) *largest = {top, row};
}

// Threads for rows of features, one for each eight channels, up to a power of two; and how many rows they pack.
constexpr u32 LANES = CHANNELS > 128 ? 32 : CHANNELS / 8, TOGETHER = 4;

// Packs features, and zeros up to `padded` rows, a multiple of TOGETHER. Without labels no row has a share. The blocks
// after `feature_blocks` find the largest weight for `pack_weight`, or pack the weights if they have no scale. With
// FP16, found[block] is the largest exponent of the rows of a block, or its largest weight.
extern "C" __global__ void __launch_bounds__(256)
pack_features(const float *__restrict__ from, u32 rows, u32 padded, const u32 *__restrict__ labels,
              const float *__restrict__ class_weights, const double *__restrict__ normaliser, double dloss,
              unsigned char *__restrict__ to, float *__restrict__ scales, u32 *__restrict__ found, u32 feature_blocks,
              const float *__restrict__ weight, u32 classes, u32 padded_classes, unsigned char *packed_weight, const float *bias,
              float *padded_bias) {
    if (blockIdx.x >= feature_blocks) {
        u32 block = blockIdx.x - feature_blocks, thread = block * 256 + threadIdx.x;
#if FP16
        u32 top = 0;
        in_batches<8>(
            thread, classes * (CHANNELS / 4), (gridDim.x - feature_blocks) * 256,
            [&](u32 four) { return ((const float4 *)weight)[four]; },
            [&](u32, const float4 &four) { top = max(top, largest_of(&four.x, 4)); });
        top = largest_of_block(top);
        if (threadIdx.x == 0) found[blockIdx.x] = top;
#else
        pack(thread, {weight, classes, padded_classes, packed_weight, bias, padded_bias}, 1.0f);
#endif
        return;
    }
    u32 first = item() / LANES * TOGETHER, eight = item() % LANES;
    bool inside = first < padded && eight < CHANNELS / 8;
    u32 row = first + eight, label = labels && eight < TOGETHER && row < rows ? labels[row] : IGNORE;
    Eight x[TOGETHER] = {};
#pragma unroll
    for (u32 i = 0; i < TOGETHER; ++i)
        if (inside && first + i < rows) x[i] = load_eight(from + (u64)(first + i) * CHANNELS + 8 * eight);
    float own_scale = 1.0f;
#pragma unroll
    for (u32 i = 0; i < TOGETHER; ++i) {
        u32 top = largest_of(x[i].numbers, 8);
        for (u32 step = LANES / 2; step > 0; step /= 2) top = max(top, __shfl_xor_sync(0xffffffffu, top, step));
        float scale = scale_for(top);
        if (inside) pack_eight(to, first + i, eight, x[i], scale);
        if (eight == i) own_scale = scale;
    }
    if (eight < TOGETHER && row < padded) scales[row] = own_scale;
#if FP16
    double share = share_of(label, class_weights, normaliser, dloss);
    u32 exponent = largest_of_block(share != 0.0 ? row_exponent(own_scale, share) : 0);
    if (threadIdx.x == 0) found[blockIdx.x] = exponent;
#endif
}

// Work is a list of units (held block, tile), of which each block of threads does a contiguous part. Its partial result
// of a held block has the place `part + held block`: different for all, because at least one of the two grows from one
// to the next. There are no more parts than units, so none is empty.
__device__ inline u64 first_unit(u32 part, u64 units, u32 parts) { return part * units / parts; }
__device__ inline u32 part_of(u64 unit, u64 units, u32 parts) { return ((unit + 1) * parts - 1) / units; }

// Sum over the threads of a warp, in all of them.
__device__ inline float sum_over_warp(float value) {
    for (u32 step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

// Numbers of a row that `weigh` reads: its gradients are 2^(offset + LOG2E (logit - peak)), less parts of `share` for
// the target, and `back` times that for the bias. Logits are `scale` times sums of products, and `peak` is zero unless
// it is large.
struct Column {
    float offset, scale, back, peak, share;
    u32 label;
};
constexpr u32 COLUMN = 6;
#define NO_COLUMN {-INFINITE, 0.0f, 0.0f, 0.0f, 0.0f, IGNORE}

// Each number of BN rows, one after the other.
__device__ inline void store_column(float *columns, u32 row, Column column) {
    float *to = columns + row / BN * (COLUMN * BN) + row % BN;
    to[0] = column.offset;
    to[BN] = column.scale;
    to[2 * BN] = column.back;
    to[3 * BN] = column.peak;
    to[4 * BN] = column.share;
    to[5 * BN] = __uint_as_float(column.label);
}

// Combines the partial results of rows first_row..rows, one warp for each, into all that `softmax_rows` computes,
// gradients of the features, and the columns of `weigh`, which are padded. scores[i] is that of the rows from 8 i on.
// Packed features of rows that do not count become zero, so that `weigh` meets no NaN of theirs. weight_sums: sums of
// weights over the classes and that of the bias, for smoothing.
extern "C" __global__ void __launch_bounds__(256, 4)
finish_rows(const float *__restrict__ partials, const float *__restrict__ row_partials, u32 blocks, u32 tiles, u32 parts, u32 first_row,
            u32 rows, unsigned char *__restrict__ features, const float *__restrict__ scales,
            const unsigned char *__restrict__ weight, const Largest *__restrict__ largest,
            const float *__restrict__ bias, u32 classes, const u32 *__restrict__ labels, const float *__restrict__ class_weights,
            const double *__restrict__ normaliser, double dloss, double smoothing, const float *__restrict__ weight_sums,
            Score *__restrict__ scores, u32 *__restrict__ predictions, float *__restrict__ dfeatures, float *__restrict__ columns) {
    u32 local = item() / 32, row = first_row + local, lane = threadIdx.x % 32;
    auto finish = [&]() {
        if (row >= rows) {
            if (lane == 0) store_column(columns, row, NO_COLUMN);
            return Score{};
        }
        // Loads that depend on nothing else come first.
        u32 label = labels[row];
        bool inside = lane < CHANNELS / 8;
        float scale = scales[row], weight_scale = scale_for(largest->weight);
        Eight x = {}, w = {}, even = {};
        if (inside && label != IGNORE) {
            x = eight_of(features, row, lane);
            w = eight_of(weight, label, lane);
#if SMOOTHED
#pragma unroll
            for (u32 i = 0; i < 8; ++i) even.numbers[i] = weight_sums[8 * lane + i];
#endif
        }
        u32 block = local / BM;
        u64 units = (u64)blocks * tiles;
        u32 from = part_of((u64)block * tiles, units, parts), to = part_of((u64)(block + 1) * tiles - 1, units, parts);
        float peak = -INFINITE, sum = 0.0f, dx[8] = {};
        u32 place = IGNORE;
        for (u32 start = from; start <= to; start += 2) {
            // A part that is not there adds nothing.
            float4 terms[2][2] = {};
            float peaks[2], sums[2] = {}, places[2] = {};
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
                u64 slot = start + i + block;
                const float *numbers = row_partials + slot * (3 * BM) + local % BM;
                peaks[i] = -INFINITE;
                if (start + i > to) continue;
                peaks[i] = numbers[0], sums[i] = numbers[BM], places[i] = numbers[2 * BM];
                const float4 *sums_of_row = (const float4 *)(partials + (slot * BM + local % BM) * CHANNELS) + 2 * lane;
                if (inside) terms[i][0] = sums_of_row[0], terms[i][1] = sums_of_row[1];
            }
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
                float before = peak;
                if (peaks[i] > peak) {
                    peak = peaks[i];
                    place = __float_as_uint(places[i]);
                }
                float base = peak == -INFINITE ? 0.0f : peak;
                float old_factor = exp2f((before - base) * LOG2E), factor = exp2f((peaks[i] - base) * LOG2E);
                sum = sum * old_factor + sums[i] * factor;
#pragma unroll
                for (u32 j = 0; j < 8; ++j) dx[j] = dx[j] * old_factor + ((const float *)terms[i])[j] * factor;
            }
        }
        // Exponentials were times 2^LIFT.
        constexpr float LOWER = 1.0f / (1 << LIFT);
        sum *= LOWER;
        double class_weight = label == IGNORE ? 0.0 : class_weights ? (double)class_weights[label] : 1.0;
        double share = share_of(label, class_weights, normaliser, dloss);
        float at_label = 0.0f;
#pragma unroll
        for (u32 i = 0; i < 8; ++i) at_label += x.numbers[i] * w.numbers[i];
        at_label = sum_over_warp(at_label) * (scale * weight_scale) + (label == IGNORE ? 0.0f : bias[label]);
        // The same logit, but summed in another order.
        if (place == label) at_label = peak;
#if SMOOTHED
        float all = 0.0f;
#pragma unroll
        for (u32 i = 0; i < 8; ++i) all += x.numbers[i] * even.numbers[i];
        all = sum_over_warp(all) * scale + weight_sums[CHANNELS];
#endif
        if (inside) {
            float factor = (float)share / sum * (LOWER * weight_scale), whole = (float)(share * (1.0 - smoothing)) * weight_scale;
            float part = (float)(share * smoothing / classes);
#pragma unroll
            for (u32 i = 0; i < 8; ++i) dx[i] = share == 0.0 ? 0.0f : dx[i] * factor - whole * w.numbers[i] - part * even.numbers[i];
            float4 *to_row = (float4 *)(dfeatures + (u64)row * CHANNELS + 8 * lane);
            to_row[0] = {dx[0], dx[1], dx[2], dx[3]};
            to_row[1] = {dx[4], dx[5], dx[6], dx[7]};
            if (share == 0.0) *(uint4 *)(features + packed_place(row, lane)) = {};
        }
        if (lane > 0) return Score{};
        double loss = (double)logf(sum) + ((peak == -INFINITE ? 0.0 : (double)peak) - (double)at_label);
#if SMOOTHED
        loss += smoothing * ((double)at_label - (double)all / classes);
#endif
        place = place == IGNORE ? 0 : place;
        if (predictions) predictions[row] = place;
        Column column = NO_COLUMN;
        if (share != 0.0) {
            // With this factor, a power of two, gradients of logits are below 2^(LIFT + 1), and their products with
            // packed features have the same scale in all rows. Where it is far below, a row counts in the gradients of
            // the bias only.
            int exponent = (int)(__float_as_uint(scale) >> 23) + EXPONENTS + (int)LIFT - (int)largest->row;
            float factor = FP16 ? __uint_as_float(max(exponent, 127 - 80) << 23) : 1.0f, size = fabsf((float)(share * (double)factor));
            float offset = log2f(size) - log2f(sum);
            bool large = fabsf(peak) > LARGE;
            if (!large) offset = fmaf(-peak, LOG2E, offset);
            column = {offset, scale * weight_scale, 1.0f / factor, large ? peak : 0.0f, size, label};
        }
        store_column(columns, row, column);
        return score_of(class_weight, loss, label, place);
    };
    Score score = score_of_block<8>(finish());
    if (threadIdx.x == 0) scores[row / 8] = score;
}

// Sums the partial gradients of weights and bias, times `sign`. One thread for each four channels; the block after them
// sums the scores.
extern "C" __global__ void __launch_bounds__(256)
finish_weights(const float *__restrict__ partials, const float *__restrict__ bias_partials, u32 blocks, u32 tiles, u32 parts, u32 classes,
               float sign, const Largest *__restrict__ largest, float *__restrict__ dweight, float *__restrict__ dbias,
               const Score *__restrict__ scores, u32 score_parts, const double *__restrict__ normaliser, Score *__restrict__ score) {
    if (blockIdx.x == gridDim.x - 1) return sum_scores<8>(scores, score_parts, normaliser, score);
    u64 i = item();
    u32 row = i / (CHANNELS / 4), four = i % (CHANNELS / 4), block = row / BM;
    if (row >= classes) return;
    u64 units = (u64)blocks * tiles;
    u32 from = part_of((u64)block * tiles, units, parts), to = part_of((u64)(block + 1) * tiles - 1, units, parts);
    auto place = [&](u32 part) { return (u64)(part + block) * BM + row % BM; };
    float4 sum = {};
    in_batches<4>(
        from, to + 1, 1, [&](u32 part) { return ((const float4 *)(partials + place(part) * CHANNELS))[four]; },
        [&](u32, const float4 &term) { sum = {sum.x + term.x, sum.y + term.y, sum.z + term.z, sum.w + term.w}; });
    // Undoes the factors of `finish_rows` and the scales of the features.
    int exponent = FP16 ? (int)largest->row - EXPONENTS - (int)LIFT : 0;
    ((float4 *)dweight)[i] = {sign * ldexpf(sum.x, exponent), sign * ldexpf(sum.y, exponent), sign * ldexpf(sum.z, exponent),
                              sign * ldexpf(sum.w, exponent)};
    if (four > 0) return;
    float bias = 0.0f;
    for (u32 part = from; part <= to; ++part) bias += bias_partials[place(part)];
    dbias[row] = sign * bias;
}

// s = held tile^T, or s += .., for 16 channels.
__device__ inline void multiply_scores(float (&s)[BN / 2], u64 held, u64 tile, u32 add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %50, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n96k16.f32." FACTORS " {" P32_0 "," P8(32, 33, 34, 35, 36, 37, 38, 39) "," P8(
                     40, 41, 42, 43, 44, 45, 46, 47) "}, %48, %49, p, 1, 1, 0, 0;\n}"
                 : R32(s, 0), R8(s, 32), R8(s, 40)
                 : "l"(held), "l"(tile), "r"(add));
}

// sums += p tile, for 16 rows of the tile.
__device__ inline void multiply_sums(float (&sums)[CHANNELS / 2], const u32 *p, u64 tile) {
#define SUMS(n, places, registers, a, b, c, d, e)                                                                                                   \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." FACTORS " {" places "}, {%" #a             \
                 ",%" #b ",%" #c ",%" #d "}, %" #e ", p, 1, 1, 1;\n}"                                                                                \
                 : registers                                                                                                                        \
                 : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(tile))
#define LIST(...) __VA_ARGS__
#if CHANNELS == 64
    SUMS(64, P32_0, R32(sums, 0), 32, 33, 34, 35, 36);
#elif CHANNELS == 128
    SUMS(128, P32_0 "," P32_1, LIST(R32(sums, 0), R32(sums, 32)), 64, 65, 66, 67, 68);
#elif CHANNELS == 192
    SUMS(192, P32_0 "," P32_1 "," P32_2, LIST(R32(sums, 0), R32(sums, 32), R32(sums, 64)), 96, 97, 98, 99, 100);
#else
    SUMS(256, P32_0 "," P32_1 "," P32_2 "," P32_3, LIST(R32(sums, 0), R32(sums, 32), R32(sums, 64), R32(sums, 96)), 128, 129, 130, 131, 132);
#endif
}

__device__ inline float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// What a thread knows of one of its rows of logits: its part of the sum of exponentials, relative to the largest logit.
struct Row {
    float peak, sum;
    u32 place;
};

// The largest of a thread's logits of a row, which are s[i] with i % 4 / 2 == HALF.
template <u32 HALF> __device__ inline float largest(const float (&s)[BN / 2]) {
    float top = s[2 * HALF];
#pragma unroll
    for (u32 i = 1; i < BN / 4; ++i) top = fmaxf(top, s[i / 2 * 4 + i % 2 + 2 * HALF]);
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    return fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
}

// Replaces the logits of a row by 2^LIFT times their exponentials. Returns the factor of earlier sums.
template <u32 HALF> __device__ inline float online_softmax(float (&s)[BN / 2], Row &row, u32 first_class) {
    float top = largest<HALF>(s);
    bool higher = top > row.peak;
    if (__any_sync(0xffffffffu, higher)) {
        u32 place = BN;
#pragma unroll
        for (u32 i = BN / 4; i-- > 0;)
            if (s[i / 2 * 4 + i % 2 + 2 * HALF] == top) place = i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
        place = min(place, __shfl_xor_sync(0xffffffffu, place, 1));
        place = min(place, __shfl_xor_sync(0xffffffffu, place, 2));
        if (higher) row.place = first_class + place;
    }
    float before = row.peak;
    row.peak = fmaxf(before, top);
    float shift = row.peak == -INFINITE ? 0.0f : row.peak, offset = fmaf(-shift, LOG2E, (float)LIFT);
    float factor = exp2_of((before - shift) * LOG2E), sum = 0.0f, other = 0.0f;
    if (__any_sync(0xffffffffu, fabsf(shift) > LARGE)) {
#pragma unroll
        for (u32 i = 0; i < BN / 4; ++i) s[i / 2 * 4 + i % 2 + 2 * HALF] -= shift;
        offset = (float)LIFT;
    }
#pragma unroll
    for (u32 j = 0; j < BN / 8; ++j) {
        float &a = s[4 * j + 2 * HALF], &b = s[4 * j + 2 * HALF + 1];
        a = exp2_of(fmaf(a, LOG2E, offset));
        b = exp2_of(fmaf(b, LOG2E, offset));
        sum += a;
        other += b;
    }
    row.sum = row.sum * factor + (sum + other);
    return factor;
}

// Parts of the target of a row: of every class, and of the label beside.
struct Smoothing {
    float even, at_label;
};

struct Classify {
    static constexpr u32 COLUMNS = 1;
    static constexpr bool STORES_LOGITS = false;
    Row rows[2];
    float factors[2], scales[2];

    // `held`: scales of the rows.
    __device__ inline void begin(const float *held, float weight_scale, u32 row) {
        rows[0] = rows[1] = {-INFINITE, 0.0f, IGNORE};
        scales[0] = held[row] * weight_scale;
        scales[1] = held[row + 8] * weight_scale;
    }

    // columns: bias.
    __device__ inline void soften_all(float (&s)[BN / 2], const float *columns, u32 tile, Smoothing) {
#pragma unroll
        for (u32 j = 0; j < BN / 8; ++j) {
            float2 bias = ((const float2 *)columns)[4 * j + threadIdx.x % 4];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) s[4 * j + i] = fmaf(s[4 * j + i], scales[i / 2], i % 2 ? bias.y : bias.x);
        }
        factors[0] = online_softmax<0>(s, rows[0], tile * BN);
        factors[1] = online_softmax<1>(s, rows[1], tile * BN);
    }

    __device__ inline void rescale(float (&sums)[CHANNELS / 2]) {
        if (__any_sync(0xffffffffu, factors[0] != 1.0f || factors[1] != 1.0f)) {
#pragma unroll
            for (u32 i = 0; i < CHANNELS / 2; ++i) sums[i] *= factors[i % 4 / 2];
        }
    }

    // [3, BM]: largest logit, sum, place.
    __device__ inline void store(float *to, u32 row) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            float sum = rows[half].sum;
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (threadIdx.x % 4 == 0) {
                to[row + 8 * half] = rows[half].peak;
                to[BM + row + 8 * half] = sum;
                to[2 * BM + row + 8 * half] = __uint_as_float(rows[half].place);
            }
        }
    }
};

struct Weigh {
    static constexpr u32 COLUMNS = COLUMN;
    static constexpr bool STORES_LOGITS = false;
    float bias[2], sums[2];
    u32 first_class;

    // `held`: bias; `row`: this thread's first class.
    __device__ inline void begin(const float *held, float, u32 row) {
        bias[0] = held[row];
        bias[1] = held[row + 8];
        sums[0] = sums[1] = 0.0f;
        first_class = row - threadIdx.x % 32 / 4;
    }

    // Replaces sums of products by gradients for the even part of the target, and adds those to `sum`.
    template <bool WITH_PEAKS>
    __device__ inline void soften_rows(float (&s)[BN / 2], const float *columns, Smoothing smoothing, float (&sum)[2]) {
#pragma unroll
        for (u32 j = 0; j < BN / 8; ++j) {
            auto pair = [&](u32 number) { return ((const float2 *)(columns + number * BN))[4 * j + threadIdx.x % 4]; };
            float2 offset = pair(0), scale = FP16 ? pair(1) : float2{1.0f, 1.0f}, back = FP16 ? pair(2) : float2{1.0f, 1.0f};
            float2 peak = WITH_PEAKS ? pair(3) : float2{};
#if SMOOTHED
            float2 share = pair(4);
#endif
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                float &p = s[4 * j + i];
                float logit = fmaf(p, i % 2 ? scale.y : scale.x, bias[i / 2]);
                if (WITH_PEAKS) logit -= i % 2 ? peak.y : peak.x;
                p = exp2_of(fmaf(logit, LOG2E, i % 2 ? offset.y : offset.x));
#if SMOOTHED
                p -= (i % 2 ? share.y : share.x) * smoothing.even;
#endif
                sum[i / 2] = fmaf(p, i % 2 ? back.y : back.x, sum[i / 2]);
            }
        }
    }

    // columns: see Column.
    __device__ inline void soften_all(float (&s)[BN / 2], const float *columns, u32, Smoothing smoothing) {
        float sum[2] = {};
        bool large = false;
        for (u32 row = threadIdx.x % 32; row < BN; row += 32) large |= columns[3 * BN + row] != 0.0f;
        if (__any_sync(0xffffffffu, large))
            soften_rows<true>(s, columns, smoothing, sum);
        else
            soften_rows<false>(s, columns, smoothing, sum);
        // Few labels are among the 16 classes of a warp.
        const u32 *labels = (const u32 *)(columns + 5 * BN);
        for (u32 start = 0; start < BN; start += 32) {
            u32 mine = start + threadIdx.x % 32;
            u32 found = __ballot_sync(0xffffffffu, mine < BN && labels[min(mine, BN - 1)] - first_class < 16);
            for (; found; found &= found - 1) {
                u32 column = start + __ffs(found) - 1, row = labels[column] - first_class;
                if (threadIdx.x % 32 == row % 8 * 4 + column % 8 / 2) {
                    float share = columns[4 * BN + column] * smoothing.at_label, less = share * (FP16 ? columns[2 * BN + column] : 1.0f);
                    u32 own = column / 8 * 4 + row / 8 * 2 + column % 2;
#pragma unroll
                    for (u32 i = 0; i < BN / 2; ++i)
                        if (i == own) s[i] -= share;
                    sum[0] -= row < 8 ? less : 0.0f;
                    sum[1] -= row < 8 ? 0.0f : less;
                }
            }
        }
        sums[0] += sum[0];
        sums[1] += sum[1];
    }

    __device__ inline void rescale(float (&)[CHANNELS / 2]) {}

    // [BM]: gradients of the bias.
    __device__ inline void store(float *to, u32 row) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            float sum = sums[half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (threadIdx.x % 4 == 0) to[row + 8 * half] = sum;
        }
    }
};

struct Logits {
    static constexpr u32 COLUMNS = 1;
    static constexpr bool STORES_LOGITS = true;
    float *to;
    u32 rows, classes;
    // True if two neighbours can be stored at once.
    bool pairs;
    float scales[2];

    // `held`: scales of the rows.
    __device__ inline void begin(const float *held, float weight_scale, u32 row) {
        scales[0] = held[row] * weight_scale;
        scales[1] = held[row + 8] * weight_scale;
    }

    // `row`: this thread's first row; columns: bias.
    __device__ inline void store(const float (&s)[BN / 2], const float *columns, u32 row, u32 first_class) {
#pragma unroll
        for (u32 i = 0; i < BN / 4; ++i) {
            u32 j = i / 2, half = i % 2, k = 8 * j + threadIdx.x % 4 * 2;
            float2 bias = *(const float2 *)(columns + k);
            float2 two = {fmaf(s[4 * j + 2 * half], scales[half], bias.x), fmaf(s[4 * j + 2 * half + 1], scales[half], bias.y)};
            k += first_class;
            float *place = to + (u64)(row + 8 * half) * classes + k;
            if (row + 8 * half >= rows || k >= classes) continue;
            if (pairs) {
                *(float2 *)place = two;
            } else {
                place[0] = two.x;
                if (k + 1 < classes) place[1] = two.y;
            }
        }
    }
};

// One warpgroup loads, two multiply 64 held rows each.
template <typename Pass>
__device__ inline void run(Pass pass, const unsigned char *held, const unsigned char *streamed, const float *columns, const float *held_numbers,
                           float weight_scale, u32 blocks, u32 tiles, Smoothing smoothing, float *partials,
                           float *row_partials, u32 row_numbers) {
    extern __shared__ unsigned char memory[];
    __shared__ __align__(8) u64 barriers[2 + 2 * STAGES];
    constexpr u32 COLUMN_BYTES = Pass::COLUMNS * BN * 4;
    unsigned char *aligned = memory + (-(u32)__cvta_generic_to_shared(memory) & 1023);
    float *columns_here = (float *)(aligned + HELD + STAGES * TILE);
    u32 held_here = (u32)__cvta_generic_to_shared(aligned), tiles_here = held_here + HELD;
    u32 held_full = (u32)__cvta_generic_to_shared(barriers), held_empty = held_full + 8;
    u32 full = held_full + 16, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        init_barrier(held_full, 1);
        init_barrier(held_empty, 8);
        for (u32 stage = 0; stage < STAGES; ++stage) {
            init_barrier(full + 8 * stage, 1);
            init_barrier(empty + 8 * stage, 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    u64 units = (u64)blocks * tiles, unit = first_unit(blockIdx.x, units, gridDim.x), last = first_unit(blockIdx.x + 1, units, gridDim.x);
    u32 stage = 0, round = 0, holds = 0;
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        for (; threadIdx.x == 0 && unit < last; ++holds) {
            u32 block = unit / tiles, tile = unit % tiles, end = min((u64)tiles, tile + last - unit);
            wait(held_empty, holds % 2 ^ 1);
            expect(held_full, HELD);
            load(held_here, held + (u64)block * HELD, HELD, held_full);
            for (; tile < end; ++tile, ++unit) {
                wait(empty + 8 * stage, round % 2 ^ 1);
                expect(full + 8 * stage, TILE + COLUMN_BYTES);
                load(tiles_here + stage * TILE, streamed + (u64)tile * TILE, TILE, full + 8 * stage);
                load((u32)__cvta_generic_to_shared(columns_here) + stage * COLUMN_BYTES, columns + (u64)tile * (COLUMN_BYTES / 4), COLUMN_BYTES,
                     full + 8 * stage);
                if (++stage == STAGES) stage = 0, ++round;
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        u32 group = threadIdx.x / 128 - 1, lane = threadIdx.x % 32;
        u32 row = group * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
        u64 own = matrix(held_here + group * (HELD / 2), GROUP);
        float s[BN / 2], sums[CHANNELS / 2];
        u32 p[BN / 4];
        auto scores = [&](u32 at) {
            u64 tile = matrix(tiles_here + at * TILE, GROUP);
#pragma unroll
            for (u32 k = 0; k < CHANNELS / 16; ++k)
                multiply_scores(s, own + (k / 4 * 1024 + k % 4 * 32) / 16, tile + (k / 4 * 1024 + k % 4 * 32) / 16, k > 0);
            commit_products();
        };
        auto products = [&](u32 at) {
            u64 tile = matrix(tiles_here + at * TILE, GROUP);
#pragma unroll
            for (u32 k = 0; k < BN / 16; ++k) multiply_sums(sums, p + 4 * k, tile + k * (2 * GROUP / 16));
            commit_products();
        };
        auto round_scores = [&]() {
#pragma unroll
            for (u32 i = 0; i < BN / 4; ++i) p[i] = packed_pair(s[2 * i], s[2 * i + 1]);
        };
        auto release = [&](u32 barrier) {
            if (lane == 0) arrive(barrier);
        };
        for (; unit < last; ++holds) {
            u32 block = unit / tiles, tile = unit % tiles, end = min((u64)tiles, tile + last - unit);
            unit += end - tile;
            pass.begin(held_numbers, weight_scale, block * BM + row);
#pragma unroll
            for (u32 i = 0; i < CHANNELS / 2; ++i) sums[i] = 0.0f;
            wait(held_full, holds % 2);
            if constexpr (Pass::STORES_LOGITS) {
                for (; tile < end; ++tile) {
                    wait(full + 8 * stage, round % 2);
                    begin_products();
                    scores(stage);
                    wait_for_products<0>();
                    fence_registers(s);
                    if (tile + 1 == end) release(held_empty);
                    pass.store(s, columns_here + stage * (COLUMN_BYTES / 4), block * BM + row, tile * BN);
                    __syncwarp();
                    release(empty + 8 * stage);
                    if (++stage == STAGES) stage = 0, ++round;
                }
            } else {
                wait(full + 8 * stage, round % 2);
                begin_products();
                scores(stage);
                wait_for_products<0>();
                fence_registers(s);
                if (tile + 1 == end) release(held_empty);
                pass.soften_all(s, columns_here + stage * (COLUMN_BYTES / 4), tile, smoothing);
                round_scores();
                u32 earlier = stage;
                for (++tile; tile < end; ++tile) {
                    if (++stage == STAGES) stage = 0, ++round;
                    wait(full + 8 * stage, round % 2);
                    fence_registers(sums);
                    begin_products();
                    scores(stage);
                    products(earlier);
                    wait_for_products<1>();
                    fence_registers(s);
                    if (tile + 1 == end) release(held_empty);
                    pass.soften_all(s, columns_here + stage * (COLUMN_BYTES / 4), tile, smoothing);
                    wait_for_products<0>();
                    fence_registers(sums);
                    release(empty + 8 * earlier);
                    pass.rescale(sums);
                    round_scores();
                    earlier = stage;
                }
                fence_registers(sums);
                begin_products();
                products(earlier);
                wait_for_products<0>();
                fence_registers(sums);
                release(empty + 8 * earlier);
                if (++stage == STAGES) stage = 0, ++round;
                u64 slot = blockIdx.x + block;
                float2 *to = (float2 *)(partials + (slot * BM + row) * CHANNELS) + lane % 4;
#pragma unroll
                for (u32 j = 0; j < CHANNELS / 8; ++j) {
                    to[4 * j] = {sums[4 * j], sums[4 * j + 1]};
                    to[4 * j + 4 * CHANNELS] = {sums[4 * j + 2], sums[4 * j + 3]};
                }
                pass.store(row_partials + slot * row_numbers, row);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
classify(const unsigned char *features, const float *scales, const unsigned char *weight, const Largest *largest, const float *bias, u32 blocks,
         u32 tiles, float *partials, float *row_partials) {
    run(Classify{}, features, weight, bias, scales, scale_for(largest->weight), blocks, tiles, {}, partials, row_partials, 3 * BM);
}

extern "C" __global__ void __launch_bounds__(384, 1)
weigh(const unsigned char *weight, const unsigned char *features, const float *columns, const float *bias, u32 blocks, u32 tiles, float even,
      float at_label, float *partials, float *row_partials) {
    run(Weigh{}, weight, features, columns, bias, 1.0f, blocks, tiles, {even, at_label}, partials, row_partials, BM);
}

// to[row][class] = logit.
extern "C" __global__ void __launch_bounds__(384, 1)
store_logits(const unsigned char *features, const float *scales, const unsigned char *weight, const Largest *largest, const float *bias,
             u32 blocks, u32 tiles, float *to, u32 rows, u32 classes) {
    bool pairs = classes % 2 == 0 && (u64)to % 8 == 0;
    run(Logits{to, rows, classes, pairs}, features, weight, bias, scales, scale_for(largest->weight), blocks, tiles, {}, nullptr, nullptr, 0);
}

#endif
