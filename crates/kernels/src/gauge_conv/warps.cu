// Gauge convolution without rows in memory: the sums of 8 vertices are multiplied as they lie in registers. This text
// stands after `units.cu`. See the documentation of `gauge_conv::warps`.
//
// OUT_STARTS: where the numbers of each order of the result (RESULT numbers) start. OUT_TILES, TILE_ORDERS,
// TILE_FIRSTS: runs of 16 numbers of an order. WEIGHTS: a quarter of the number of weights. OWN: 1 for orders with a
// self term. Heads are runs of channels.

__device__ constexpr u32 out_start(u32 order) {
    constexpr u32 of[] = {OUT_STARTS};
    return of[order];
}

__device__ constexpr bool has_own(u32 order) {
    constexpr u32 of[] = {OWN};
    return order < OUT_ORDERS && of[order] > 0;
}

// The order of a run of 16 numbers of the result, and its place among those of the order.
__device__ constexpr u32 tile_order(u32 tile) {
    constexpr u32 of[] = {TILE_ORDERS};
    return of[tile];
}

__device__ constexpr u32 tile_first(u32 tile) {
    constexpr u32 of[] = {TILE_FIRSTS};
    return of[tile];
}

// The harmonics in the order of products: all cosines, then all sines, so that products that follow each other are of
// different orders and do not wait for each other.
__device__ constexpr u32 harmonic_at(u32 i) { return i == 0 ? 0 : i < OUT_ORDERS ? 2 * i - 1 : 2 * (i - OUT_ORDERS + 1); }

// Factor of the features of the vertex itself.
__device__ inline float own_scale(const Graph &graph, const Row &row) {
    return graph.aggregation == MEAN_WITH_SELF ? fast_scale(graph.aggregation, row.end - row.begin) : 1.0f;
}

#if __CUDA_ARCH__ >= 900
#define WAIT "try_wait"
#else
#define WAIT "test_wait"
#endif

__device__ inline void init_barrier(u32 barrier, u32 count) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
#endif
}

__device__ inline void arrive(u32 barrier) {
#if __CUDA_ARCH__ >= 800
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
#endif
}

__device__ inline void wait(u32 barrier, u32 parity) {
#if __CUDA_ARCH__ >= 800
    u32 done = 0;
    while (!done)
        asm volatile("{\n.reg .pred p;\nmbarrier." WAIT ".parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
#endif
}

// results += weights of an order times two channels of each lane; `weights` moves on.
__device__ inline void multiply_order(const float4 *&weights, u32 order, float b0, float b1,
                                      float (&results)[OUT_TILES][4]) {
#pragma unroll
    for (u32 tile = 0; tile < OUT_TILES; ++tile) {
        if (tile_order(tile) != order) continue;
        float4 weight = *weights;
        float a[4] = {weight.x, weight.y, weight.z, weight.w};
        weights += 32;
        multiply(results[tile], a, b0, b1);
    }
}

// Sums of a unit of 8 vertices for the warps that compute gradients, a row of SLOT numbers for each vertex, and
// features of the vertices in rows of FEATURES numbers. `full` and `empty` are barriers: of the warp that writes, and
// of those that read.
constexpr u32 SLOT = 32 * HARMONICS + 8, FEATURES = RESULT + 8;

struct Slot {
    float *rows;
    u32 full, empty, uses;

    __device__ inline void await() const {
        if (uses > 0) wait(empty, (uses - 1) % 2);
    }

    // Begins to copy the features of 8 vertices.
    __device__ inline void copy(const float *__restrict__ x, u32 vertices) const {
        await();
#if __CUDA_ARCH__ >= 800
        constexpr u32 FOURS = RESULT / 4;
        u32 to = (u32)__cvta_generic_to_shared(rows + 8 * SLOT);
#pragma unroll
        for (u32 i = 0; i < FOURS / 4; ++i) {
            u32 place = threadIdx.x % 32 + 32 * i, vertex = place / FOURS, four = place % FOURS;
            if (vertex < vertices)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + 4 * (vertex * FEATURES + 4 * four)),
                             "l"(x + vertex * RESULT + 4 * four)
                             : "memory");
        }
#endif
    }

    __device__ inline void write(const float (&sums)[2][HARMONICS][4], u32 components) {
        u32 lane = threadIdx.x % 32;
        await();
#pragma unroll
        for (u32 i = 0; i < 2 * HARMONICS; ++i) {
            if (i >= components * HARMONICS) continue;
            const float(&sum)[4] = sums[i / HARMONICS][i % HARMONICS];
            float *to = rows + lane / 4 * SLOT + 16 * i + lane % 4 * 4;
            *reinterpret_cast<float4 *>(to) = {sum[0], sum[1], sum[2], sum[3]};
        }
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.wait_all;" ::: "memory");
#endif
        __syncwarp();
        if (lane == 0) arrive(full);
        ++uses;
    }
};

// Adds the terms of PASS_UNITS units of a vertex to the results; x and own start at the first channel of the lane.
// SHARED: the sums are written to a slot too.
template <bool SHARED>
__device__ inline void convolve_units(const Graph &graph, const Row &row, const float *__restrict__ x,
                                      const float *__restrict__ own, bool used, u32 first, const float4 *&weights,
                                      float (&results)[OUT_TILES][4], Slot &slot) {
    float sums[PASS_UNITS][2][HARMONICS][4];
    gather(graph, row, x, first, sums);
    __syncwarp();
#pragma unroll
    for (u32 u = 0; u < PASS_UNITS; ++u) {
#pragma unroll
        for (u32 i = 0; i < 8 * HARMONICS; ++i) {
            float &sum = sums[u][i / 4 / HARMONICS][i / 4 % HARMONICS][i % 4];
            sum = factor(sum);
        }
        if (SHARED) slot.write(sums[u], unit_order(first + u) > 0 ? 2 : 1);
    }
#pragma unroll
    for (u32 u = 0; u < PASS_UNITS; ++u) {
        u32 order = unit_order(first + u);
#pragma unroll
        for (u32 j = 0; j < 2; ++j) {
            if (j > 0 && order == 0) continue;
#pragma unroll
            for (u32 i = 0; i < 4; i += 2)
#pragma unroll
                for (u32 at = 0; at < HARMONICS; ++at) {
                    u32 k = harmonic_at(at);
                    multiply_order(weights, order_of(k), sums[u][j][k][i], sums[u][j][k][i + 1], results);
                }
            if (!has_own(order)) continue;
            float4 self = {};
            if (used) self = load4(own + (j == 0 ? unit_cosine(first + u) : unit_sine(first + u)));
            float scale = own_scale(graph, row);
            multiply_order(weights, order, factor(scale * self.x), factor(scale * self.y), results);
            multiply_order(weights, order, factor(scale * self.z), factor(scale * self.w), results);
        }
    }
}

// The weights of the neighbours and of the vertices themselves. The table has an entry for each of the WEIGHTS fours
// that lanes take: 1 + the place of a weight, negative for its negative, or 0 for none.
struct Parameters {
    const int4 *__restrict__ table;
    const float *__restrict__ neighbour;
    u32 neighbour_count;
    const float *__restrict__ self;

    // Loads in any case, so that a thread has all its loads in flight.
    __device__ inline float at(int entry) const {
        u32 place = max(abs(entry), 1) - 1;
        float value = *(place < neighbour_count ? neighbour + place : self + (place - neighbour_count));
        return entry == 0 ? 0.0f : factor(entry > 0 ? value : -value);
    }
};

// Weights in shared memory. All entries of a thread are read at once, and then all its weights: latency takes the time.
__device__ inline void load_weights(const Parameters &parameters, float4 *weights) {
    constexpr u32 EACH = (WEIGHTS + THREADS - 1) / THREADS;
    int4 entries[EACH];
    float4 values[EACH];
    // Never true, which the compiler does not know: no weight is loaded before all entries are there. Else it would
    // load some entries, their weights, then others.
    bool none = false;
#pragma unroll
    for (u32 k = 0; k < EACH; ++k) {
        entries[k] = parameters.table[min(k * THREADS + threadIdx.x, WEIGHTS - 1)];
        none |= entries[k].x == (int)0x80000000;
    }
    if (none) return;
#pragma unroll
    for (u32 k = 0; k < EACH; ++k) {
        int4 of = entries[k];
        values[k] = {parameters.at(of.x), parameters.at(of.y), parameters.at(of.z), parameters.at(of.w)};
    }
#pragma unroll
    for (u32 k = 0; k < EACH; ++k)
        if (k * THREADS + threadIdx.x < WEIGHTS) weights[k * THREADS + threadIdx.x] = values[k];
}

// What a convolution writes: y = it + bias, or with `add` y += it. Nothing without y.
struct Target {
    const float *__restrict__ bias;
    u32 bias_count;
    float *__restrict__ y;
    u32 add;
};

// The convolution of a tile by a warp.
template <bool SHARED>
__device__ inline void convolve_tile(const Graph &graph, u32 tile, u32 count, const float *__restrict__ x,
                                     const float *__restrict__ own, const float4 *weights, const Target &target,
                                     Slot &slot) {
    u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, vertex = tile * 8 + g;
    bool used = vertex < count;
    Row row = row_of(graph, vertex, used);
    float results[OUT_TILES][4] = {};
    const float4 *from = weights + lane;
    const float *self = own + (u64)vertex * DIMENSION + 4 * t;
#pragma unroll
    for (u32 unit = 0; unit < UNITS; unit += PASS_UNITS)
        convolve_units<SHARED>(graph, row, x + 4 * t, self, used, unit, from, results, slot);
    if (!target.y) return;
#pragma unroll
    for (u32 part = 0; part < OUT_TILES; ++part)
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            u32 order = tile_order(part), number = tile_first(part) + g + i / 2 * 8;
            vertex = tile * 8 + 2 * t + i % 2;
            if (vertex >= count || number >= out_width(order)) continue;
            float *result = target.y + (u64)vertex * RESULT + out_start(order) + number;
            float value = results[part][i];
            if (order == 0 && number < target.bias_count) value += target.bias[number];
            *result = target.add ? *result + value : value;
        }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
convolve(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours, const float4 *__restrict__ phases,
         const float *__restrict__ factors, u32 aggregation, u32 count, const float *__restrict__ x,
         const float *__restrict__ own, const int4 *__restrict__ table, const float *__restrict__ neighbour_weights,
         u32 neighbour_count, const float *__restrict__ self_weights, const float *__restrict__ bias, u32 bias_count,
         float *__restrict__ y) {
    extern __shared__ float4 weights[];
    load_weights({table, neighbour_weights, neighbour_count, self_weights}, weights);
    __syncthreads();
    Graph graph = {offsets, neighbours, phases, factors, aggregation, threadIdx.x % 4 * HEADS / 4};
    Tiles tiles = tiles_of_block(count);
    Slot slot = {};
    for (u32 tile = tiles.first + threadIdx.x / 32; tile < tiles.last; tile += THREADS / 32)
        convolve_tile<false>(graph, tile, count, x, own, weights, {bias, bias_count, y, 0}, slot);
}

#if BACKWARD

// Both types are 16 channels of each order from 0 on, so the places of the components of an order follow from it.
__device__ inline u32 place_of(u32 order, u32 component) { return order == 0 ? 0 : 32 * order - 16 + 16 * component; }

// Warps of a block: those that compute gradients, one for each harmonic from 1 on, and those that convolve. KINDS:
// components of all units. SHARES: how many warps share the gradients of half of the numbers of order 0.
constexpr u32 CONSUMERS = HARMONICS - 1, PRODUCERS = THREADS / 32 - CONSUMERS;
constexpr u32 KINDS = 2 * UNITS - 1, SHARES = CONSUMERS / 2;
constexpr u32 SLOT_SIZE = 8 * (SLOT + FEATURES);

// Two channels of two vertices, as a factor whose terms are vertices.
__device__ inline void pair(const float *from, u32 stride, float (&to)[4]) {
    float2 low = *reinterpret_cast<const float2 *>(from), high = *reinterpret_cast<const float2 *>(from + 4 * stride);
    to[0] = low.x, to[1] = low.y, to[2] = high.x, to[3] = high.y;
}

// Gradients of the weights of a harmonic and of its part of harmonic 0: the sum over vertices of gathered rows of `dy`
// times features. Lane 4 g + t takes channels 2 g and 2 g + 1 of vertices t and t + 4.
__device__ inline void consume(const Graph &graph, const Tiles &tiles, u32 count, const float *__restrict__ own,
                               const float *slots, u32 barriers, u32 harmonic, float *__restrict__ gradients) {
    u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, order = order_of(harmonic);
    // Half of the numbers of order 0, and component of the own features; and the share of the components of all units.
    u32 half = (harmonic - 1) % 2, share = (harmonic - 1) / 2;
    bool has_own_of_order = false;
#pragma unroll
    for (u32 m = 1; m < OUT_ORDERS; ++m)
        if (m == order) has_own_of_order = has_own(m);
    float totals[KINDS][4][4] = {}, own_totals[4][4] = {}, zero_totals[(KINDS + SHARES - 1) / SHARES][4] = {},
          own_zero_totals[4] = {};
    for (u32 tile = tiles.first; tile < tiles.last; ++tile) {
        u32 warp = (tile - tiles.first) % PRODUCERS, uses = (tile - tiles.first) / PRODUCERS * UNITS;
        const float *rows = slots + warp * SLOT_SIZE + t * SLOT + 2 * g;
        const float *features = slots + warp * SLOT_SIZE + 8 * SLOT + t * FEATURES + g;
        // Own features of order 0 and of the order of the harmonic; zero beyond the last vertex.
        float self[2][4] = {}, b[5][2];
#pragma unroll
        for (u32 v = 0; v < 2; ++v) {
            u32 vertex = tile * 8 + t + 4 * v;
            if (vertex >= count) continue;
            const float *from = own + (u64)vertex * DIMENSION + 2 * g;
            float2 zero = {}, of_order = {};
            if (has_own(0) && share == 0) zero = *reinterpret_cast<const float2 *>(from);
            if (has_own_of_order) of_order = *reinterpret_cast<const float2 *>(from + place_of(order, half));
            float scale = 1.0f;
            if (graph.aggregation == MEAN_WITH_SELF) scale = own_scale(graph, row_of(graph, vertex, true));
            self[0][2 * v] = scale * zero.x, self[0][2 * v + 1] = scale * zero.y;
            self[1][2 * v] = scale * of_order.x, self[1][2 * v + 1] = scale * of_order.y;
        }
#pragma unroll
        for (u32 u = 0; u < UNITS; ++u) {
            wait(barriers + 16 * warp, (uses + u) % 2);
            float a[4];
            if (u == 0) {
#pragma unroll
                for (u32 i = 0; i < 10; ++i) {
                    u32 place = i < 8 ? place_of(order, 0) + i / 2 * 8 : 8 * half;
                    bool used = tile * 8 + t + i % 2 * 4 < count;
                    b[i / 2][i % 2] = used ? factor(features[i % 2 * 4 * FEATURES + place]) : 0.0f;
                }
#pragma unroll
                for (u32 i = 0; i < 8; ++i) self[i / 4][i % 4] = factor(self[i / 4][i % 4]);
                if (has_own(0) && share == 0) multiply(own_zero_totals, self[0], b[4][0], b[4][1]);
#pragma unroll
                for (u32 n = 0; n < 4; ++n)
                    if (has_own_of_order) multiply(own_totals[n], self[1], b[n][0], b[n][1]);
            }
#pragma unroll
            for (u32 j = 0; j < 2; ++j) {
                if (u == 0 && j > 0) continue;
                u32 kind = u == 0 ? 0 : 2 * u - 1 + j;
                pair(rows + 16 * (j * HARMONICS + harmonic), SLOT, a);
#pragma unroll
                for (u32 n = 0; n < 4; ++n) multiply(totals[kind][n], a, b[n][0], b[n][1]);
                if (kind % SHARES == share) {
                    pair(rows + 16 * j * HARMONICS, SLOT, a);
                    multiply(zero_totals[kind / SHARES], a, b[4][0], b[4][1]);
                }
            }
            __syncwarp();
            if (lane == 0) arrive(barriers + 16 * warp + 8);
        }
    }
    auto write = [&](u32 of_order, u32 term, u32 number, const float (&values)[4]) {
        constexpr u32 stacks[] = {STACK_STARTS};
        u32 width = of_order == 0 ? 16 : 32, start = 0;
#pragma unroll
        for (u32 m = 0; m < OUT_ORDERS; ++m)
            if (m == of_order) start = stacks[m];
        float *to = gradients + start + (term + 2 * g) * width + number + 2 * t;
        *reinterpret_cast<float2 *>(to) = {values[0], values[1]};
        *reinterpret_cast<float2 *>(to + width) = {values[2], values[3]};
    };
#pragma unroll
    for (u32 kind = 0; kind < KINDS; ++kind) {
        u32 place = place_of((kind + 1) / 2, (kind + 1) % 2);
#pragma unroll
        for (u32 n = 0; n < 4; ++n) write(order, half * DIMENSION + place, 8 * n, totals[kind][n]);
        if (kind % SHARES == share) write(0, place, 8 * half, zero_totals[kind / SHARES]);
    }
#pragma unroll
    for (u32 n = 0; n < 4; ++n)
        if (has_own_of_order) write(order, 2 * DIMENSION + 16 * half, 8 * n, own_totals[n]);
    if (has_own(0) && share == 0) write(0, DIMENSION, 8 * half, own_zero_totals);
}

// Convolution of the gradients `dy` with the transposed weights, and gradients of the weights: each block writes the
// sum over its vertices, in the layout of `stacked.rs`. The first PRODUCERS warps convolve and pass their sums to the
// others; then they write sums of scalars of `own` over their vertices, the gradients of the bias, unless
// `bias_partials` is null.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
differentiate(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours, const float4 *__restrict__ phases,
              const float *__restrict__ factors, u32 aggregation, u32 count, const float *__restrict__ dy,
              const float *__restrict__ own, const int4 *__restrict__ table,
              const float *__restrict__ neighbour_weights, u32 neighbour_count, const float *__restrict__ self_weights,
              float *__restrict__ dx, u32 add, const float *__restrict__ x, float *__restrict__ partials,
              double *__restrict__ bias_partials) {
    extern __shared__ float4 weights[];
    float *slots = reinterpret_cast<float *>(weights + WEIGHTS);
    // For each producer, a barrier for a slot that is full and one for a slot that is empty.
    u32 barriers = (u32)__cvta_generic_to_shared(slots + PRODUCERS * SLOT_SIZE), warp = threadIdx.x / 32;
    load_weights({table, neighbour_weights, neighbour_count, self_weights}, weights);
    if (threadIdx.x < PRODUCERS) {
        init_barrier(barriers + 16 * threadIdx.x, 1);
        init_barrier(barriers + 16 * threadIdx.x + 8, CONSUMERS);
    }
    __syncthreads();
    Graph graph = {offsets, neighbours, phases, factors, aggregation, threadIdx.x % 4 * HEADS / 4};
    Tiles tiles = tiles_of_block(count);
    if (warp >= PRODUCERS) {
        float *gradients = partials + (u64)blockIdx.x * (4 * WEIGHTS);
        return consume(graph, tiles, count, own, slots, barriers, warp - PRODUCERS + 1, gradients);
    }
    Slot slot = {slots + warp * SLOT_SIZE, barriers + 16 * warp, barriers + 16 * warp + 8, 0};
    for (u32 tile = tiles.first + warp; tile < tiles.last; tile += PRODUCERS) {
        slot.copy(x + (u64)tile * 8 * RESULT, min(count - tile * 8, 8u));
        convolve_tile<true>(graph, tile, count, dy, own, weights, {nullptr, 0, dx, add}, slot);
    }
    if (!bias_partials) return;
    // While the others still multiply: two rows at a time.
    u32 lane = threadIdx.x % 32;
    double sum = 0.0;
    for (u32 tile = tiles.first + warp; tile < tiles.last; tile += PRODUCERS) {
        in_batches<4>(
            tile * 8 + lane / 16, min(count, tile * 8 + 8), 2, [&](u32 row) { return own[(u64)row * DIMENSION + lane % 16]; },
            [&](u32, float value) { sum += value; });
    }
    sum += __shfl_down_sync(0xffffffffu, sum, 16);
    if (lane < 16) bias_partials[((u64)blockIdx.x * PRODUCERS + warp) * 16 + lane] = sum;
}

#endif
