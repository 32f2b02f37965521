// Attention without rows in memory: a warp for 8 vertices and one head. This text stands after `units.cu`. See the
// documentation of `attention::warps`; both directions are those of `attention.cu`, with LAST 1 for the backward one.
//
// A head has PART octets of channels of each of the OUT_ORDERS orders of the result. Products have the vertices as the
// rows of their left factor, of which the lower half is zero: lane 4 g + t holds two columns of vertex g of a factor,
// and those of a result in the places where the next product takes them as a factor.

// Components of a head's results, and runs of 8 of their numbers.
constexpr u32 PARTS = HARMONICS * PART;
// Numbers of a component of all heads, and of a row of results.
constexpr u32 CHANNELS = 8 * PART * HEADS, RESULT = HARMONICS * CHANNELS;

__device__ constexpr u32 components(u32 order) { return order == 0 ? 1 : 2; }

// The first component of an order.
__device__ constexpr u32 component_of(u32 order) { return order == 0 ? 0 : 2 * order - 1; }

// sums += a factor of two columns of each vertex times weights.
__device__ inline void multiply_half(float (&sums)[4], float a0, float a1, float b0, float b1) {
    float a[4] = {a0, 0.0f, a1, 0.0f};
    multiply(sums, a, b0, b1);
}

// results[tile] += the products of 4 channels of each vertex with the weights of the runs of an order; `weights` moves
// on.
__device__ inline void multiply_channels(const float4 *&weights, u32 order, const float (&channels)[4], float (&results)[PARTS][4]) {
#pragma unroll
    for (u32 i = 0; i < 2 * PART; ++i) {
        if (i >= components(order) * PART) continue;
        float4 weight = *weights;
        weights += 32;
        float(&sums)[4] = results[component_of(order) * PART + i];
        multiply_half(sums, channels[0], channels[1], weight.x, weight.y);
        multiply_half(sums, channels[2], channels[3], weight.z, weight.w);
    }
}

// The place in a row of results of the first of two numbers of a lane.
__device__ inline u32 place_of(u32 tile, u32 head) {
    return tile / PART * CHANNELS + 8 * (head * PART + tile % PART) + threadIdx.x % 4 * 2;
}

// Weights in shared memory.
__device__ inline void load_weights(const float4 *__restrict__ stacked, u32 count, float4 *weights) {
    in_batches<12>(
        threadIdx.x, count, blockDim.x, [&](u32 i) { return stacked[i]; },
        [&](u32 i, float4 of) {
            if (i < count) weights[i] = {factor(of.x), factor(of.y), factor(of.z), factor(of.w)};
        });
}

// One warp for each 8 vertices and head. own: features of the vertices, or dy (LAST). queries: null if they are not
// wanted. given: weights of attention (LAST). edge_values: weights of attention, or gradients of the logits; [edges,
// heads].
extern "C" __global__ void __launch_bounds__(THREADS, 1)
attend(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours, const float4 *__restrict__ phases, u32 count,
       const float *__restrict__ x, const float *__restrict__ own, const float4 *__restrict__ stacked, u32 weight_count,
       float scale, float *__restrict__ queries, const float *__restrict__ given, float *edge_values,
       const float *__restrict__ bias, u32 bias_stride, u32 bias_count, float *__restrict__ y) {
    extern __shared__ float4 all_weights[];
    load_weights(stacked, HEADS * weight_count, all_weights);
    __syncthreads();
    u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, group = 0xfu << (4 * g);
    Tiles tiles = tiles_of_block(count);
    // Both heads of a tile are computed at the same time, by neighbouring warps.
    for (u32 item = HEADS * tiles.first + threadIdx.x / 32; item < HEADS * tiles.last; item += THREADS / 32) {
        u32 head = item % HEADS, vertex = item / HEADS * 8 + g;
        bool used = vertex < count;
        Graph graph = {offsets, neighbours, phases, given, SUM, head};
        Row row = row_of(graph, vertex, used);
        const float4 *weights = all_weights + head * weight_count + lane;
        float sums[UNITS][2][HARMONICS][4];
        {
            float left[PARTS][4] = {};
#if LAST
#pragma unroll
            for (u32 tile = 0; tile < PARTS; ++tile) {
                float2 value = {};
                if (used) value = *reinterpret_cast<const float2 *>(own + (u64)vertex * RESULT + place_of(tile, head));
                left[tile][0] = value.x, left[tile][1] = value.y;
            }
#else
#pragma unroll
            for (u32 u = 0; u < UNITS; ++u) {
                u32 order = unit_order(u);
                if (order >= OUT_ORDERS) continue;
#pragma unroll
                for (u32 j = 0; j < 2; ++j) {
                    if (j >= components(order)) continue;
                    float4 self = {};
                    if (used) self = load4(own + (u64)vertex * DIMENSION + 4 * t + (j == 0 ? unit_cosine(u) : unit_sine(u)));
                    float channels[4] = {factor(self.x), factor(self.y), factor(self.z), factor(self.w)};
                    multiply_channels(weights, order, channels, left);
                }
            }
#pragma unroll
            for (u32 tile = 0; tile < PARTS; ++tile) {
                left[tile][0] *= scale, left[tile][1] *= scale;
                if (queries && used)
                    *reinterpret_cast<float2 *>(queries + (u64)vertex * RESULT + place_of(tile, head)) =
                        make_float2(left[tile][0], left[tile][1]);
            }
#endif
#pragma unroll
            for (u32 tile = 0; tile < PARTS; ++tile) left[tile][0] = factor(left[tile][0]), left[tile][1] = factor(left[tile][1]);
            // B, in the place of the sums.
#pragma unroll
            for (u32 k = 0; k < HARMONICS; ++k) {
                u32 order = order_of(k);
#pragma unroll
                for (u32 u = 0; u < UNITS; ++u)
#pragma unroll
                    for (u32 j = 0; j < 2; ++j) {
                        if (j >= components(unit_order(u))) continue;
                        float low[4] = {}, high[4] = {};
#pragma unroll
                        for (u32 i = 0; i < 2 * PART; ++i) {
                            if (i >= components(order) * PART) continue;
                            float4 weight = *weights;
                            weights += 32;
                            const float(&a)[4] = left[component_of(order) * PART + i];
                            multiply_half(low, a[0], a[1], weight.x, weight.y);
                            multiply_half(high, a[0], a[1], weight.z, weight.w);
                        }
                        float(&to)[4] = sums[u][j][k];
                        to[0] = low[0], to[1] = low[1], to[2] = high[0], to[3] = high[1];
                    }
            }
        }
        // Forward: sum of exp(s - largest). LAST: sum of a s.
        float largest = __int_as_float(0xff800000), total = 0.0f, dots[HARMONICS] = {};
        auto use = [&](u32 u, u32 order, const float(&)[HARMONICS], const float(&cosine)[4], const float(&sine)[4]) {
#pragma unroll
            for (u32 k = 0; k < HARMONICS; ++k)
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    dots[k] += sums[u][0][k][i] * cosine[i];
                    if (order > 0) dots[k] += sums[u][1][k][i] * sine[i];
                }
        };
        auto finish = [&](u32 edge, const float(&harmonic)[HARMONICS]) {
            float sum = 0.0f;
#pragma unroll
            for (u32 k = 0; k < HARMONICS; ++k) sum += harmonic[k] * dots[k], dots[k] = 0.0f;
            sum += __shfl_xor_sync(group, sum, 1);
            sum += __shfl_xor_sync(group, sum, 2);
#if LAST
            total += sum;
#else
            float larger = fmaxf(largest, sum);
            total = total * __expf(largest - larger) + __expf(sum - larger);
            largest = larger;
#endif
            if ((edge - row.begin) % 4 == t) edge_values[(u64)edge * HEADS + head] = sum;
        };
        each_edge<LAST>(graph, row, x + 4 * t, 0, use, finish);
        // Each lane has the edges whose products it has written.
        for (u32 edge = row.begin + t; edge < row.end; edge += 4) {
            float *value = edge_values + (u64)edge * HEADS + head;
#if LAST
            *value -= given[(u64)edge * HEADS + head] * total;
#else
            *value = __expf(*value - largest) / total;
#endif
        }
        __syncwarp();
        graph.factors = edge_values;
        gather(graph, row, x + 4 * t, 0, sums);
        __syncwarp();
        float results[PARTS][4] = {};
#pragma unroll
        for (u32 k = 0; k < HARMONICS; ++k)
#pragma unroll
            for (u32 u = 0; u < UNITS; ++u)
#pragma unroll
                for (u32 j = 0; j < 2; ++j) {
                    if (j >= components(unit_order(u))) continue;
                    float(&sum)[4] = sums[u][j][k];
#pragma unroll
                    for (u32 i = 0; i < 4; ++i) sum[i] = factor(sum[i]);
                    multiply_channels(weights, order_of(k), sum, results);
                }
#pragma unroll
        for (u32 tile = 0; tile < PARTS; ++tile) {
            if (!used) continue;
            float2 value = make_float2(results[tile][0], results[tile][1]);
#if LAST
            value.x *= scale, value.y *= scale;
#else
            u32 number = 8 * tile + 2 * t;
            if (number < bias_count) value.x += bias[head * bias_stride + number], value.y += bias[head * bias_stride + number + 1];
#endif
            *reinterpret_cast<float2 *>(y + (u64)vertex * RESULT + place_of(tile, head)) = value;
        }
    }
}
