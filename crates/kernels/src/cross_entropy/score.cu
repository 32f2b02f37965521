// What all kernels of cross-entropy share: scores of rows, and their sums.

#define INFINITE __int_as_float(0x7f800000)
constexpr u32 IGNORE = 0xffffffffu;

// Of some rows: sum of weighted losses, correct rows, counted rows.
struct Score {
    double loss, correct, counted;
};

__device__ inline Score plus(Score a, Score b) { return {a.loss + b.loss, a.correct + b.correct, a.counted + b.counted}; }

// Of a row with this weight, loss and label, and the class of its largest logit.
__device__ inline Score score_of(double weight, double loss, u32 label, u32 place) {
    bool counted = label != IGNORE;
    return {weight > 0.0 ? weight * loss : 0.0, counted && place == label && loss == loss ? 1.0 : 0.0, counted ? 1.0 : 0.0};
}

// Sum over a block of WARPS warps, always in the same order; valid in thread 0. Once in a kernel.
template <u32 WARPS> __device__ inline Score score_of_block(Score own) {
    __shared__ Score parts[WARPS];
    for (u32 step = 16; step > 0; step /= 2) {
        Score other = {__shfl_down_sync(0xffffffffu, own.loss, step), __shfl_down_sync(0xffffffffu, own.correct, step),
                       __shfl_down_sync(0xffffffffu, own.counted, step)};
        own = plus(own, other);
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
    __syncthreads();
    for (u32 warp = 1; threadIdx.x == 0 && warp < WARPS; ++warp) own = plus(own, parts[warp]);
    return own;
}

// score = (mean loss, correct rows, counted rows) of all parts. One block of WARPS warps.
template <u32 WARPS>
__device__ inline void sum_scores(const Score *__restrict__ parts, u32 count, const double *__restrict__ normaliser,
                                  Score *__restrict__ score) {
    Score own = {};
    in_batches<4>(
        threadIdx.x, count, 32 * WARPS, [&](u32 part) { return parts[part]; }, [&](u32, const Score &part) { own = plus(own, part); });
    own = score_of_block<WARPS>(own);
    if (threadIdx.x == 0) *score = {own.loss * *normaliser, own.correct, own.counted};
}
