// The regular nonlinearity of INPUTS to OUTPUTS components through SAMPLES samples, with the batch
// normalisation before it on request. Threads (channels, vertices); a thread keeps its channel and walks over
// vertices. See the documentation of `regular`.
//
// COMPONENTS = max(INPUTS, OUTPUTS). VALUES: the matrix of harmonics, samples by components, where it is
// small enough to be written down; else it is computed.

#ifdef VALUES
__constant__ float matrix[] = {VALUES};
__device__ inline float harmonic(u32 t, u32 k) { return matrix[t * COMPONENTS + k]; }
#else
__device__ inline float harmonic(u32 t, u32 k) {
    u32 order = (k + 1) / 2;
    float turn = (float)(((u64)order * t) % SAMPLES) / (float)SAMPLES;
    return k > 0 && k % 2 == 0 ? sinpif(2.0f * turn) : cospif(2.0f * turn);
}
#endif

#if SAMPLES * COMPONENTS <= 512
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("unroll 1")
#endif
#if COMPONENTS <= 33
#define UNROLL_COMPONENTS _Pragma("unroll")
#else
#define UNROLL_COMPONENTS _Pragma("unroll 1")
#endif

// (scale, shift, centre, 1/deviation) of each component of this thread's channel.
struct Normalisation {
    float scale[INPUTS], shift;
};

__device__ inline Normalisation normalisation(const float4 *affine, u32 channels, u32 channel) {
    Normalisation result;
    UNROLL_COMPONENTS
    for (u32 k = 0; k < INPUTS; ++k) result.scale[k] = affine ? affine[k * channels + channel].x : 1.0f;
    result.shift = affine ? affine[channel].y : 0.0f;
    return result;
}

__device__ inline void load_inputs(const float *x, u32 channels, const Normalisation &norm, float *values) {
    UNROLL_COMPONENTS
    for (u32 k = 0; k < INPUTS; ++k) values[k] = x[k * channels] * norm.scale[k];
    values[0] += norm.shift;
}

__device__ inline float sample(const float *values, u32 t) {
    float sum = 0.0f;
    UNROLL_COMPONENTS
    for (u32 k = 0; k < INPUTS; ++k) sum += harmonic(t, k) * values[k];
    return sum;
}

// Factor of a component of the output in the projection.
__device__ inline float output_factor(u32 k) { return (k == 0 ? 1.0f : 2.0f) / SAMPLES; }

// Gradient of the inputs of the nonlinearity.
__device__ inline void gradient(const float *values, const float *dy, u32 channels, float *result) {
    float outer[OUTPUTS];
    UNROLL_COMPONENTS
    for (u32 k = 0; k < OUTPUTS; ++k) outer[k] = dy[k * channels] * output_factor(k);
    UNROLL_COMPONENTS
    for (u32 k = 0; k < INPUTS; ++k) result[k] = 0.0f;
    UNROLL
    for (u32 t = 0; t < SAMPLES; ++t) {
        float of_value = 0.0f;
        UNROLL_COMPONENTS
        for (u32 k = 0; k < OUTPUTS; ++k) of_value += harmonic(t, k) * outer[k];
        of_value *= activation_slope(sample(values, t));
        UNROLL_COMPONENTS
        for (u32 k = 0; k < INPUTS; ++k) result[k] += harmonic(t, k) * of_value;
    }
}

extern "C" __global__ void __launch_bounds__(256)
regular_forward(const float *__restrict__ x, float *__restrict__ y, const float4 *__restrict__ affine, u32 channels,
                u32 vertices) {
    u32 channel = blockIdx.y * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    Normalisation norm = normalisation(affine, channels, channel);
    for (u32 v = blockIdx.x * blockDim.y + threadIdx.y; v < vertices; v += gridDim.x * blockDim.y) {
        float values[INPUTS], result[OUTPUTS];
        load_inputs(x + (u64)v * channels * INPUTS + channel, channels, norm, values);
        UNROLL_COMPONENTS
        for (u32 k = 0; k < OUTPUTS; ++k) result[k] = 0.0f;
        UNROLL
        for (u32 t = 0; t < SAMPLES; ++t) {
            float value = activation(sample(values, t));
            UNROLL_COMPONENTS
            for (u32 k = 0; k < OUTPUTS; ++k) result[k] += harmonic(t, k) * value;
        }
        float *to = y + (u64)v * channels * OUTPUTS + channel;
        UNROLL_COMPONENTS
        for (u32 k = 0; k < OUTPUTS; ++k) to[k * channels] = result[k] * output_factor(k);
    }
}

// Without normalisation (affine is null), or with one: through[column] = (C/V in order 0, w A/V).
extern "C" __global__ void __launch_bounds__(256)
regular_backward(const float *__restrict__ x, const float *__restrict__ dy, float *__restrict__ dx,
                 const float4 *__restrict__ affine, const float2 *__restrict__ through, u32 channels, u32 vertices) {
    u32 channel = blockIdx.y * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    Normalisation norm = normalisation(affine, channels, channel);
    // What passes through the statistics, scale * (-C/V - w A/V * (x - centre) / deviation), is slope * (x - centre) +
    // constant.
    float slope[INPUTS], constant = 0.0f, centre = 0.0f;
    UNROLL_COMPONENTS
    for (u32 k = 0; k < INPUTS; ++k) {
        slope[k] = 0.0f;
        if (!affine) continue;
        float4 map = affine[k * channels + channel];
        float2 part = through[k * channels + channel];
        slope[k] = -map.x * part.y * map.w;
        if (k == 0) constant = -map.x * part.x, centre = map.z;
    }
    for (u32 v = blockIdx.x * blockDim.y + threadIdx.y; v < vertices; v += gridDim.x * blockDim.y) {
        float values[INPUTS], result[INPUTS];
        const float *from = x + (u64)v * channels * INPUTS + channel;
        load_inputs(from, channels, norm, values);
        gradient(values, dy + (u64)v * channels * OUTPUTS + channel, channels, result);
        float *to = dx + (u64)v * channels * INPUTS + channel;
        UNROLL_COMPONENTS
        for (u32 k = 0; k < INPUTS; ++k) {
            float value = norm.scale[k] * result[k];
            to[k * channels] = k == 0 ? value + slope[k] * (from[0] - centre) + constant : value + slope[k] * from[k * channels];
        }
    }
}

// partials[block][column] = sum of gradient times standardised input, and after them, for each channel, the
// sum of the gradients of order 0. Each block takes a run of vertices.
extern "C" __global__ void __launch_bounds__(256)
regular_backward_sums(const float *__restrict__ x, const float *__restrict__ dy, const float4 *__restrict__ affine,
                      u32 channels, u32 vertices, u32 rows_of_block, double *__restrict__ partials) {
    constexpr u32 GROUP = INPUTS < 8 ? INPUTS + 1 : 8;
    __shared__ double parts[GROUP][BLOCK];
    u32 channel = blockIdx.y * blockDim.x + threadIdx.x;
    double sums[INPUTS + 1];
    UNROLL_COMPONENTS
    for (u32 k = 0; k <= INPUTS; ++k) sums[k] = 0.0;
    if (channel < channels) {
        Normalisation norm = normalisation(affine, channels, channel);
            float centre = affine[channel].z;
        u32 first = blockIdx.x * rows_of_block;
        u32 end = min(vertices, first + rows_of_block);
        for (u32 v = first + threadIdx.y; v < end; v += blockDim.y) {
            float values[INPUTS], result[INPUTS];
            const float *from = x + (u64)v * channels * INPUTS + channel;
            load_inputs(from, channels, norm, values);
            gradient(values, dy + (u64)v * channels * OUTPUTS + channel, channels, result);
            UNROLL_COMPONENTS
            for (u32 k = 0; k < INPUTS; ++k)
                sums[k] += result[k] * (from[k * channels] - (k == 0 ? centre : 0.0f));
            sums[INPUTS] += result[0];
        }
        UNROLL_COMPONENTS
        for (u32 k = 0; k < INPUTS; ++k) sums[k] *= affine[k * channels + channel].w;
    }
    // Some components at a time; the threads then share out components and channels.
    UNROLL_COMPONENTS
    for (u32 from = 0; from <= INPUTS; from += GROUP) {
        u32 thread = threadIdx.y * blockDim.x + threadIdx.x, count = min(GROUP, INPUTS + 1 - from);
        __syncthreads();
#pragma unroll
        for (u32 k = 0; k < GROUP; ++k)
            if (from + k <= INPUTS) parts[k][thread] = sums[from + k];
        __syncthreads();
        for (u32 i = thread; i < count * blockDim.x; i += blockDim.x * blockDim.y) {
            u32 k = i / blockDim.x, x = i % blockDim.x, column = blockIdx.y * blockDim.x + x;
            if (column >= channels) continue;
            double sum = 0.0;
            for (u32 y = 0; y < blockDim.y; ++y) sum += parts[k][y * blockDim.x + x];
            partials[((u64)blockIdx.x * (INPUTS + 1) + from + k) * channels + column] = sum;
        }
    }
}
