// Whole messages: both ends of edges, the layers and the mean over edges, without values of edges in main memory; see the page of
// `messages`. This text stands after `tensor.cu`, with the macros of `regular.cu`. A block takes NODES vertices, whose edges are
// rows of shared memory, VERTICES at a time: first of stride ENDS, then of stride HIDDEN. All layers have WIDTH outputs,
// CHANNELS channels of each component.

__device__ inline float2 turned(Phase phase, uint4 irrep, const float *row) {
    Phase turn = multiple(phase, irrep.z);
    float a = row[irrep.x], b = irrep.z > 0 ? row[irrep.y] : 0.0f;
    return make_float2(turn.c * a - turn.s * b, turn.s * a + turn.c * b);
}

// The regular nonlinearity of each channel of `rows` rows, in place. Factors of a product that follows are rounded.
__device__ inline void activate(float *tile, u32 rows, bool last) {
    for (u32 i = threadIdx.x; i < rows * CHANNELS; i += THREADS) {
        float *at = tile + i / CHANNELS * HIDDEN + i % CHANNELS, values[INPUTS], result[OUTPUTS];
#pragma unroll
        for (u32 k = 0; k < INPUTS; ++k) values[k] = at[k * CHANNELS];
#pragma unroll
        for (u32 k = 0; k < OUTPUTS; ++k) result[k] = 0.0f;
#pragma unroll
        for (u32 t = 0; t < SAMPLES; ++t) {
            float value = activation(sample(values, t));
#pragma unroll
            for (u32 k = 0; k < OUTPUTS; ++k) result[k] += harmonic(t, k) * value;
        }
#pragma unroll
        for (u32 k = 0; k < OUTPUTS; ++k) {
            float value = result[k] * ((k == 0 ? 1.0f : 2.0f) / SAMPLES);
            at[k * CHANNELS] = last ? value : factor(value);
        }
    }
}

// irreps: of the features x. out_irreps: of the messages. biases: WIDTH numbers of each layer.
extern "C" __global__ void __launch_bounds__(THREADS, 3)
send(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours, const float4 *__restrict__ phases,
     const float *__restrict__ x, u32 dimension, const uint4 *__restrict__ irreps, u32 irrep_count, u32 vertices,
     const float4 *__restrict__ stacked, const Columns *__restrict__ columns, u32 column_count, u32 layers,
     const float *__restrict__ biases, const uint4 *__restrict__ out_irreps, u32 out_irrep_count,
     float *__restrict__ y) {
    extern __shared__ float4 shared[];
    __shared__ u32 bounds[NODES + 1], owners[VERTICES];
    float *ends = reinterpret_cast<float *>(shared), *hidden = ends + VERTICES * ENDS, *sums = hidden + VERTICES * HIDDEN;
    u32 first = blockIdx.x * NODES, here = min(vertices - first, (u32)NODES);
    if (threadIdx.x <= here) bounds[threadIdx.x] = offsets[first + threadIdx.x];
    for (u32 i = threadIdx.x; i < NODES * WIDTH; i += THREADS) sums[i] = 0.0f;
    __syncthreads();
    u32 all_begin = bounds[0], all_end = bounds[here];
    for (u32 start = all_begin; start < all_end; start += VERTICES) {
        u32 rows = min(all_end - start, (u32)VERTICES), groups = (rows + 15) / 16;
        __syncthreads();
        for (u32 row = threadIdx.x; row < rows; row += THREADS) {
            u32 owner = 0;
            while (bounds[owner + 1] <= start + row) ++owner;
            owners[row] = owner;
        }
        // The last steps of products reach beyond the terms, where their weights are zero.
        for (u32 i = threadIdx.x; i < VERTICES * (ENDS - 2 * dimension); i += THREADS) {
            u32 pad = ENDS - 2 * dimension;
            ends[i / pad * ENDS + 2 * dimension + i % pad] = 0.0f;
        }
        for (u32 i = threadIdx.x; i < VERTICES * (HIDDEN - WIDTH); i += THREADS)
            hidden[i / (HIDDEN - WIDTH) * HIDDEN + WIDTH + i % (HIDDEN - WIDTH)] = 0.0f;
        __syncthreads();
        for (u32 i = threadIdx.x; i < rows * irrep_count; i += THREADS) {
            u32 row = i / irrep_count, edge = start + row;
            uint4 irrep = irreps[i % irrep_count];
            float4 phase = phases[edge];
            const float *own = x + (u64)(first + owners[row]) * dimension;
            const float *other = x + (u64)neighbours[edge] * dimension;
            float2 a = turned({phase.x, -phase.y}, irrep, own), b = turned({phase.z, phase.w}, irrep, other);
            float *to = ends + row * ENDS;
            to[irrep.x] = factor(a.x);
            to[dimension + irrep.x] = factor(b.x);
            if (irrep.z == 0) continue;
            to[irrep.y] = factor(a.y);
            to[dimension + irrep.y] = factor(b.y);
        }
        __syncthreads();
        const Columns *of_layer = columns;
        const float *bias = biases;
        multiply_rows<ENDS>(ends, groups, stacked, of_layer, column_count,
                            [&](u32 row, u32 to, float value) { hidden[row * HIDDEN + to] = value + bias[to]; });
        __syncthreads();
        activate(hidden, rows, layers == 1);
        __syncthreads();
        float *from = hidden, *to_rows = ends;
        for (u32 layer = 1; layer < layers; ++layer) {
            of_layer += column_count;
            bias += WIDTH;
            for (u32 i = threadIdx.x; i < VERTICES * (HIDDEN - WIDTH); i += THREADS)
                to_rows[i / (HIDDEN - WIDTH) * HIDDEN + WIDTH + i % (HIDDEN - WIDTH)] = 0.0f;
            multiply_rows<HIDDEN>(from, groups, stacked, of_layer, column_count, [&](u32 row, u32 to, float value) {
                to_rows[row * HIDDEN + to] = value + bias[to];
            });
            __syncthreads();
            activate(to_rows, rows, layer + 1 == layers);
            __syncthreads();
            float *other = from;
            from = to_rows;
            to_rows = other;
        }
        for (u32 i = threadIdx.x; i < here * out_irrep_count; i += THREADS) {
            u32 node = i / out_irrep_count;
            uint4 irrep = out_irreps[i % out_irrep_count];
            float2 sum = make_float2(0.0f, 0.0f);
            u32 end = min(bounds[node + 1], start + rows);
            for (u32 edge = max(bounds[node], start); edge < end; ++edge) {
                float4 phase = phases[edge];
                float2 value = turned({phase.x, phase.y}, irrep, from + (edge - start) * HIDDEN);
                sum.x += value.x, sum.y += value.y;
            }
            sums[node * WIDTH + irrep.x] += sum.x;
            if (irrep.z > 0) sums[node * WIDTH + irrep.y] += sum.y;
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < here * WIDTH; i += THREADS) {
        u32 node = i / WIDTH;
        y[(u64)first * WIDTH + i] = scale_of(MEAN, bounds[node + 1] - bounds[node]) * sums[i];
    }
}
