// The linear map of INPUTS numbers, which are few: y = x W^T + bias. Threads (fours, rows): a thread keeps four outputs and walks over rows.

__device__ inline void load_row(const float *__restrict__ from, float (&values)[INPUTS]) {
#if INPUTS % 4 == 0
#pragma unroll
    for (u32 k = 0; k < INPUTS; k += 4) {
        float4 four = *(const float4 *)(from + k);
        values[k] = four.x, values[k + 1] = four.y, values[k + 2] = four.z, values[k + 3] = four.w;
    }
#else
#pragma unroll
    for (u32 k = 0; k < INPUTS; ++k) values[k] = from[k];
#endif
}

// fours: a quarter of the outputs.
extern "C" __global__ void __launch_bounds__(256)
few_inputs_forward(const float *__restrict__ x, const float *__restrict__ weight, const float4 *__restrict__ bias, float4 *__restrict__ y,
                   u32 fours, u32 rows) {
    u32 four = blockIdx.y * blockDim.x + threadIdx.x;
    if (four >= fours) return;
    float weights[4][INPUTS];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) load_row(weight + (u64)(4 * four + i) * INPUTS, weights[i]);
    float4 begin = bias ? bias[four] : float4{};
#pragma unroll 2
    for (u32 row = blockIdx.x * blockDim.y + threadIdx.y; row < rows; row += gridDim.x * blockDim.y) {
        float values[INPUTS];
        load_row(x + (u64)row * INPUTS, values);
        float4 sum = begin;
#pragma unroll
        for (u32 k = 0; k < INPUTS; ++k) {
            sum.x += weights[0][k] * values[k], sum.y += weights[1][k] * values[k];
            sum.z += weights[2][k] * values[k], sum.w += weights[3][k] * values[k];
        }
        y[(u64)row * fours + four] = sum;
    }
}

// partials[block] = the sums of dy^T x over the rows of a block, and bias_partials[block] those of dy. A run of rows for each block.
extern "C" __global__ void __launch_bounds__(256)
few_inputs_gradients(const float *__restrict__ x, const float4 *__restrict__ dy, u32 fours, u32 rows, u32 rows_of_block,
                     float *__restrict__ partials, double *__restrict__ bias_partials) {
    // Sums of some inputs, the last of which is the constant 1 of the bias.
    constexpr u32 GROUP = 8;
    __shared__ float4 parts[GROUP][BLOCK];
    u32 four = blockIdx.y * blockDim.x + threadIdx.x, first = blockIdx.x * rows_of_block, end = min(rows, first + rows_of_block);
    float4 sums[INPUTS + 1] = {};
    if (four < fours) {
#pragma unroll 2
        for (u32 row = first + threadIdx.y; row < end; row += blockDim.y) {
            float values[INPUTS];
            load_row(x + (u64)row * INPUTS, values);
            float4 d = dy[(u64)row * fours + four];
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
            if (group + k <= INPUTS) parts[k][threadIdx.y * blockDim.x + threadIdx.x] = sums[group + k];
        __syncthreads();
        for (u32 k = threadIdx.y; k < GROUP && group + k <= INPUTS && four < fours; k += blockDim.y) {
            float4 sum = {};
            for (u32 y = 0; y < blockDim.y; ++y) {
                float4 part = parts[k][y * blockDim.x + threadIdx.x];
                sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
            }
            float of_outputs[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                u64 output = (u64)blockIdx.x * 4 * fours + 4 * four + i;
                if (group + k < INPUTS)
                    partials[output * INPUTS + group + k] = of_outputs[i];
                else if (bias_partials)
                    bias_partials[output] = of_outputs[i];
            }
        }
    }
}
