// The prelude of every kernel source.

typedef unsigned int u32;
typedef unsigned long long u64;

// Begins every kernel. On Hopper and later a kernel is launched while the one before it on its stream ends
// (programmatic dependent launch), so it waits for the results of that one.
__device__ inline void start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Threads of a block, unless an operator chooses another number.
constexpr u32 BLOCK = 256;

// Index of this thread, in kernels with one thread for each item.
__device__ inline u64 item() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }

// The cosine and the sine of an angle.
struct Phase {
    float c, s;
};

// The phase of the sum of two angles.
__device__ inline Phase times(Phase a, Phase b) { return {a.c * b.c - a.s * b.s, a.s * b.c + a.c * b.s}; }

// (cos n a, sin n a) from (cos a, sin a).
__device__ inline Phase multiple(Phase phase, u32 order) {
    Phase result = {1.0f, 0.0f};
#pragma unroll 1
    for (u32 n = 0; n < order; ++n) result = times(result, phase);
    return result;
}

// Kinds of aggregation as `aggregate::cuda::number` counts them, and the factor of a sum over `degree` terms.
enum : u32 { SUM, MEAN, MEAN_WITH_SELF };

__device__ inline float scale_of(u32 aggregation, u32 degree) {
    if (aggregation == MEAN) return 1.0f / (float)max(degree, 1u);
    return aggregation == MEAN_WITH_SELF ? 1.0f / (float)(degree + 1) : 1.0f;
}

// Calls `add(value(i))` for i = first, first + step, .. below `end`, in this order, with BATCH loads in flight.
template <u32 BATCH, typename Value, typename Add>
__device__ inline void in_batches(u32 first, u32 end, u32 step, Value value, Add add) {
    using Item = decltype(value(first));
    for (u32 start = first; start < end; start += BATCH * step) {
        Item items[BATCH];
#pragma unroll
        for (u32 i = 0; i < BATCH; ++i) items[i] = start + i * step < end ? value(start + i * step) : Item{};
#pragma unroll
        for (u32 i = 0; i < BATCH; ++i) add(start + i * step, items[i]);
    }
}

// Calls `store(i, load(i))` for i below `count`, four of them in each thread of `Launch::over_fours`, with all loads in
// flight before the first store.
template <typename Load, typename Store> __device__ inline void in_fours(u64 count, Load load, Store store) {
    u64 first = (u64)blockIdx.x * 4 * blockDim.x + threadIdx.x;
    float values[4];
#pragma unroll
    for (u32 k = 0; k < 4; ++k)
        if (first + k * blockDim.x < count) values[k] = load(first + k * blockDim.x);
#pragma unroll
    for (u32 k = 0; k < 4; ++k)
        if (first + k * blockDim.x < count) store(first + k * blockDim.x, values[k]);
}

// Sum over the threads of a warp, always in the same order; valid in its first thread.
__device__ inline float warp_sum(float value) {
    for (u32 step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
    return value;
}

// Sum over a block of BLOCK threads, always in the same order. The result is valid in thread 0.
__device__ inline double block_sum(double value) {
    __shared__ double parts[BLOCK / 32];
    u32 thread = threadIdx.y * blockDim.x + threadIdx.x;
    for (u32 step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
    __syncthreads();
    if (thread % 32 == 0) parts[thread / 32] = value;
    __syncthreads();
    double sum = 0.0;
    if (thread == 0) {
        for (u32 warp = 0; warp < BLOCK / 32; ++warp) sum += parts[warp];
    }
    return sum;
}

#ifdef ACTIVATION
// Numbers of the activations, as in `activation::cuda`.
#define IDENTITY 0
#define RELU 1
#define ELU 2
#define GELU 3
#define TANH 4
#define POLYNOMIAL 5

#if ACTIVATION == POLYNOMIAL
__constant__ float coefficients[] = {COEFFICIENTS};
constexpr int DEGREE = sizeof(coefficients) / sizeof(float) - 1;
#endif

// The argument of the hyperbolic tangent in GELU, and its derivative.
__device__ inline float gelu_inner(float x, float *slope) {
    const float scale = 0.7978845608028654f, cube = 0.044715f;
    *slope = scale * (1.0f + 3.0f * cube * x * x);
    return scale * x * (1.0f + cube * x * x);
}

__device__ inline float activation(float x) {
#if ACTIVATION == IDENTITY
    return x;
#elif ACTIVATION == RELU
    return x < 0.0f ? 0.0f : x;
#elif ACTIVATION == ELU
    return x > 0.0f ? x : expm1f(x);
#elif ACTIVATION == GELU
    float slope;
    return 0.5f * x * (1.0f + tanhf(gelu_inner(x, &slope)));
#elif ACTIVATION == TANH
    return tanhf(x);
#else
    float sum = 0.0f;
    for (int n = DEGREE; n >= 0; --n) sum = sum * x + coefficients[n];
    return sum;
#endif
}

__device__ inline float activation_slope(float x) {
#if ACTIVATION == IDENTITY
    return 1.0f;
#elif ACTIVATION == RELU
    return x > 0.0f ? 1.0f : 0.0f;
#elif ACTIVATION == ELU
    return x > 0.0f ? 1.0f : expf(x);
#elif ACTIVATION == GELU
    float slope, tanh = tanhf(gelu_inner(x, &slope));
    return 0.5f * (1.0f + tanh + x * (1.0f - tanh * tanh) * slope);
#elif ACTIVATION == TANH
    float tanh = tanhf(x);
    return 1.0f - tanh * tanh;
#else
    float sum = 0.0f;
    for (int n = DEGREE; n >= 1; --n) sum = sum * x + n * coefficients[n];
    return sum;
#endif
}
#endif
