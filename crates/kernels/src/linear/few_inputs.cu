// The linear map of INPUTS numbers, which are few: y = x W^T + bias. A thread keeps four outputs; a warp takes ROWS
// rows at a time, which its lanes load together, and the next ones meanwhile. Block (32, 8); blockIdx.y: which 32 times
// four outputs.

constexpr u32 ROWS = 8, LOADS = (ROWS * INPUTS + 31) / 32;

// The inputs of some rows, by warp.
struct Rows {
    const float *__restrict__ x;
    u64 count;
    float *shared;
    float next[LOADS];

    // Begins to load the rows from `first` on.
    __device__ inline void load(u32 first) {
#pragma unroll
        for (u32 i = 0; i < LOADS; ++i) {
            u32 place = 32 * i + threadIdx.x;
            u64 at = (u64)first * INPUTS + place;
            next[i] = place < ROWS * INPUTS && at < count ? x[at] : 0.0f;
        }
    }

    // What was loaded is in shared memory then, and the rows from `first` on are loaded next.
    __device__ inline void step(u32 first) {
        __syncwarp();
#pragma unroll
        for (u32 i = 0; i < LOADS; ++i) shared[32 * i + threadIdx.x] = next[i];
        __syncwarp();
        load(first);
    }

    __device__ inline void row(u32 r, float (&values)[INPUTS]) const {
#pragma unroll
        for (u32 k = 0; k < INPUTS; ++k) values[k] = shared[r * INPUTS + k];
    }
};

// fours: a quarter of the outputs.
extern "C" __global__ void __launch_bounds__(256)
few_inputs_forward(const float *__restrict__ x, const float *__restrict__ weight, const float4 *__restrict__ bias, float4 *__restrict__ y,
                   u32 fours, u32 rows) {
    // Padded, so that lanes read different banks.
    constexpr u32 STRIDE = 4 * INPUTS + (INPUTS % 2 ? 0 : 4);
    __shared__ __align__(16) float weights_of[32 * STRIDE], inputs[8][32 * LOADS];
    u32 four = blockIdx.y * 32 + threadIdx.x, outputs = min(fours - blockIdx.y * 32, 32u) * 4;
    u32 first = (blockIdx.x * 8 + threadIdx.y) * ROWS, step = gridDim.x * 8 * ROWS;
    Rows all = {x, (u64)rows * INPUTS, inputs[threadIdx.y]};
    all.load(first);
    for (u32 i = threadIdx.y * 32 + threadIdx.x; i < outputs * INPUTS; i += 256)
        weights_of[i / (4 * INPUTS) * STRIDE + i % (4 * INPUTS)] = weight[(u64)blockIdx.y * 128 * INPUTS + i];
    float4 begin = bias && four < fours ? bias[four] : float4{};
    __syncthreads();
    float weights[4][INPUTS];
#pragma unroll
    for (u32 i = 0; i < 4 * INPUTS; ++i) weights[i / INPUTS][i % INPUTS] = weights_of[threadIdx.x * STRIDE + i];
    for (; first < rows; first += step) {
        all.step(first + step);
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) {
            float values[INPUTS];
            all.row(r, values);
            float4 sum = begin;
#pragma unroll
            for (u32 k = 0; k < INPUTS; ++k) {
                sum.x += weights[0][k] * values[k], sum.y += weights[1][k] * values[k];
                sum.z += weights[2][k] * values[k], sum.w += weights[3][k] * values[k];
            }
            if (four < fours && first + r < rows) y[(u64)(first + r) * fours + four] = sum;
        }
    }
}

// Of the rows of each block: partials[block], the sums of dy^T x, and bias_partials[block], those of dy.
extern "C" __global__ void __launch_bounds__(256)
few_inputs_gradients(const float *__restrict__ x, const float4 *__restrict__ dy, u32 fours, u32 rows, float *__restrict__ partials,
                     double *__restrict__ bias_partials) {
    // Sums of some inputs, the last of which is the constant 1 of the bias.
    constexpr u32 GROUP = 8;
    __shared__ float4 parts[GROUP][BLOCK];
    __shared__ float inputs[8][32 * LOADS], results[128][INPUTS + 1];
    u32 four = blockIdx.y * 32 + threadIdx.x, first = (blockIdx.x * 8 + threadIdx.y) * ROWS, step = gridDim.x * 8 * ROWS;
    Rows all = {x, (u64)rows * INPUTS, inputs[threadIdx.y]};
    all.load(first);
    float4 sums[INPUTS + 1] = {};
    for (; first < rows; first += step) {
        float4 gradients[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) {
            gradients[r] = {};
            if (four < fours && first + r < rows) gradients[r] = dy[(u64)(first + r) * fours + four];
        }
        all.step(first + step);
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) {
            float values[INPUTS];
            all.row(r, values);
            float4 d = gradients[r];
#pragma unroll
            for (u32 k = 0; k <= INPUTS; ++k) {
                float value = k < INPUTS ? values[k] : 1.0f;
                sums[k].x += d.x * value, sums[k].y += d.y * value, sums[k].z += d.z * value, sums[k].w += d.w * value;
            }
        }
    }
#pragma unroll
    for (u32 group = 0; group <= INPUTS; group += GROUP) {
        __syncthreads();
#pragma unroll
        for (u32 k = 0; k < GROUP; ++k)
            if (group + k <= INPUTS) parts[k][threadIdx.y * 32 + threadIdx.x] = sums[group + k];
        __syncthreads();
        u32 k = group + threadIdx.y;
        if (k > INPUTS || four >= fours) continue;
        float4 sum = {};
#pragma unroll
        for (u32 y = 0; y < 8; ++y) {
            float4 part = parts[threadIdx.y][y * 32 + threadIdx.x];
            sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
        }
        float of_outputs[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
        for (u32 i = 0; i < 4; ++i) results[4 * threadIdx.x + i][k] = of_outputs[i];
    }
    __syncthreads();
    u32 outputs = min(fours - blockIdx.y * 32, 32u) * 4, thread = threadIdx.y * 32 + threadIdx.x;
    u64 before = ((u64)blockIdx.x * fours + blockIdx.y * 32) * 4;
    for (u32 i = thread; i < outputs * INPUTS; i += 256) partials[before * INPUTS + i] = results[i / INPUTS][i % INPUTS];
    if (bias_partials && thread < outputs) bias_partials[before + thread] = results[thread][INPUTS];
}
