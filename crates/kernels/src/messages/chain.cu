// Messages whose layers chain in registers, forward and backward; see the page of `messages::chain`. This text stands
// after `regular.cu` and `tiles.cu`. LAYERS: how many layers there are, each with COMPONENTS components of OCTETS
// octets.
//
// UPDATE: 1 for the update of vertices, y_p = x_p + phi(x_p, m_p), where rows are vertices in the place of edges, there
// are no rotations, and the last layer has no nonlinearity.
//
// There are as many samples as components, so the maps of the nonlinearity to samples and back are parts of the
// weights: layers are computed on samples, and the nonlinearity is ReLU (`fold`).

// Strides of the weights [output, input] of the first layer and of the next ones.
constexpr u32 FIRST = (2 * INPUT + 31) / 32 * 32, NEXT = (WIDTH + 31) / 32 * 32;
constexpr u32 MATRICES = WIDTH * (2 * INPUT + (LAYERS - 1) * WIDTH);
constexpr u32 SHARED_WEIGHTS = WIDTH * (FIRST + (LAYERS - 1) * NEXT);

__device__ inline u32 weights_of(u32 layer) { return layer == 0 ? 0 : WIDTH * (FIRST + (layer - 1) * NEXT); }

__device__ inline void load_biases(Tiles<TILES> &to, const float *biases, Lane lane) {
#pragma unroll
    for (u32 n = 0; n < TILES; ++n) {
        float2 bias = *reinterpret_cast<const float2 *>(biases + 8 * n + 2 * lane.t);
        to.v[n][0] = to.v[n][2] = bias.x;
        to.v[n][1] = to.v[n][3] = bias.y;
    }
}

template <u32 COUNT> __device__ inline void relu(Tiles<COUNT> &tiles) {
#pragma unroll
    for (u32 n = 0; n < COUNT; ++n)
#pragma unroll
        for (u32 i = 0; i < 4; ++i) tiles.v[n][i] = fmaxf(tiles.v[n][i], 0.0f);
}

// Gradients where the values are positive, before or after ReLU.
template <u32 COUNT> __device__ inline void relu_backward(Tiles<COUNT> &gradients, const Tiles<COUNT> &values) {
#pragma unroll
    for (u32 n = 0; n < COUNT; ++n)
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
            if (!(values.v[n][i] > 0.0f)) gradients.v[n][i] = 0.0f;
}

// An entry of the map from samples to a component.
__device__ inline float projection(u32 k, u32 t) { return (k == 0 ? 1.0f : 2.0f) / SAMPLES * harmonic(t, k); }

// From samples to components, or with TRANSPOSED the transposed map.
template <bool TRANSPOSED> __device__ inline void project(Tiles<TILES> &tiles) {
#pragma unroll
    for (u32 i = 0; i < 4 * OCTETS; ++i) {
        float result[COMPONENTS] = {};
        auto value = [&](u32 k) -> float & { return tiles.v[k * OCTETS + i / 4][i % 4]; };
#pragma unroll
        for (u32 a = 0; a < COMPONENTS; ++a)
#pragma unroll
            for (u32 b = 0; b < COMPONENTS; ++b)
                result[a] += (TRANSPOSED ? projection(b, a) : projection(a, b)) * value(b);
#pragma unroll
        for (u32 a = 0; a < COMPONENTS; ++a) value(a) = result[a];
    }
}

// x, z: features of both ends.
__device__ inline void load_ends(Tiles<IN_TILES> &own, Tiles<IN_TILES> &other, const float *__restrict__ x,
                                 const float *__restrict__ z, const Edges &edges, Lane lane) {
    load_rows(own, x, edges.own, lane);
    load_rows(other, z, edges.other, lane);
    rotate<IN_OCTETS>(own, edges.to_edge());
    rotate<IN_OCTETS>(other, edges.transport());
    round(own);
    round(other);
}

// One thread for each weight. Weights of layers on components to those on samples, as factors in the layout of shared
// memory: L W R, where L goes to samples if a nonlinearity follows, and R is the projection from the samples of the
// layer before. BACKWARD: gradients the other way round, L^T W R^T.
extern "C" __global__ void fold(const float *__restrict__ from, float *__restrict__ to) {
    u64 i = item();
    if (i >= MATRICES + LAYERS * WIDTH) return;
    bool is_bias = i >= MATRICES;
    u32 place = i, inputs = 2 * INPUT, layer = 0;
    if (is_bias) {
        place -= MATRICES, inputs = 1, layer = place / WIDTH;
    } else if (place >= WIDTH * 2 * INPUT) {
        place -= WIDTH * 2 * INPUT, inputs = WIDTH, layer = 1 + place / (WIDTH * WIDTH);
    }
    u32 start = i - (layer > 0 && !is_bias ? place % (WIDTH * WIDTH) : is_bias ? place % WIDTH : place);
    place = i - start;
    constexpr u32 CHANNELS = 8 * OCTETS;
    u32 row = place / inputs, column = place % inputs;
    u32 a = row / CHANNELS, b = column / CHANNELS;
    bool left = !(UPDATE && layer + 1 == LAYERS), right = layer > 0 && !is_bias;
    float sum = 0.0f;
    for (u32 k = left ? 0 : a; k < (left ? COMPONENTS : a + 1); ++k) {
        float outer = left ? BACKWARD ? harmonic(k, a) : harmonic(a, k) : 1.0f;
        for (u32 m = right ? 0 : b; m < (right ? COMPONENTS : b + 1); ++m) {
            float inner = right ? BACKWARD ? projection(b, m) : projection(m, b) : 1.0f;
            u32 other_column = right ? m * CHANNELS + column % CHANNELS : column;
            sum += outer * inner * from[start + (k * CHANNELS + row % CHANNELS) * inputs + other_column];
        }
    }
#if BACKWARD
    to[i] = sum;
#else
    u32 stride = layer == 0 ? FIRST : NEXT;
    if (is_bias) to[SHARED_WEIGHTS + i - MATRICES] = sum;
    else to[weights_of(layer) + row * stride + (column ^ exchange(row % 8))] = factor(sum);
#endif
}

#if !BACKWARD

constexpr u32 STAGE = (WIDTH + 15) / 16 * 16 + 8, COLUMNS_OF_LANE = (WIDTH + 31) / 32;

// Calls `finish(values, edges, start)` for the results of the edges from `begin` up to `stop`, WARP_ROWS at a time,
// `step` apart.
template <typename Finish>
__device__ inline void forward_rows(const Graph &graph, u32 begin, u32 stop, u32 step, const float *__restrict__ x,
                                    const float *__restrict__ z, const float *matrices, Lane lane, Finish finish) {
    const float *biases = matrices + SHARED_WEIGHTS;
    Edges next;
    if (begin < stop) next.read_vertices(graph, begin, stop, lane);
    for (u32 start = begin; start < stop; start += step) {
        Edges edges = next;
        edges.read_phases(graph, start, stop, lane);
        Tiles<TILES> values;
        {
            Tiles<IN_TILES> own, other;
            load_ends(own, other, x, z, edges, lane);
            if (start + step < stop) next.read_vertices(graph, start + step, stop, lane);
            load_biases(values, biases, lane);
            apply<FIRST, 2 * IN_TILES>(values, matrices, lane, [&](u32 j, float(&a)[4]) {
                factors_of(j < IN_TILES ? own.v[j] : other.v[j - IN_TILES], a);
            });
        }
#pragma unroll
        for (u32 layer = 1; layer < LAYERS; ++layer) {
            relu(values);
            round(values);
            Tiles<TILES> from = values;
            load_biases(values, biases + layer * WIDTH, lane);
            apply<NEXT, TILES>(values, matrices + weights_of(layer), lane,
                               [&](u32 j, float(&a)[4]) { factors_of(from.v[j], a); });
        }
        finish(values, edges, start);
    }
}

#if UPDATE

// y = x + phi(x, z).
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
update_forward(const float *__restrict__ x, const float *__restrict__ z, const float *__restrict__ weights, u32 vertices,
               float *__restrict__ y) {
    extern __shared__ float4 shared[];
    float *matrices = reinterpret_cast<float *>(shared);
    Lane lane = {threadIdx.x % 32, threadIdx.x % 32 / 4, threadIdx.x % 4};
    load_weights(weights, SHARED_WEIGHTS + LAYERS * WIDTH, matrices);
    __syncthreads();
    u32 worker = blockIdx.x * WARPS + threadIdx.x / 32, workers = gridDim.x * WARPS;
    forward_rows({}, WARP_ROWS * worker, vertices, WARP_ROWS * workers, x, z, matrices, lane,
                 [&](Tiles<TILES> &values, const Edges &, u32 start) { write_rows(values, x, y, start, vertices, lane); });
}

#else

// y = the mean of messages. weights: as `fold` left them. The edges of a vertex are those of one warp.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
messages_forward(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours, const u32 *__restrict__ reverse,
                 const float4 *__restrict__ phases, const float *__restrict__ x, const float *__restrict__ weights,
                 u32 vertices, u32 edge_count, float *__restrict__ y) {
    extern __shared__ float4 shared[];
    float *matrices = reinterpret_cast<float *>(shared);
    float *stage = matrices + SHARED_WEIGHTS + LAYERS * WIDTH + threadIdx.x / 32 * WARP_ROWS * STAGE;
    Graph graph = {offsets, neighbours, reverse, phases};
    Lane lane = {threadIdx.x % 32, threadIdx.x % 32 / 4, threadIdx.x % 4};
    load_weights(weights, SHARED_WEIGHTS + LAYERS * WIDTH, matrices);
    u32 worker = blockIdx.x * WARPS + threadIdx.x / 32, workers = gridDim.x * WARPS;
    u32 vertex = first_vertex(graph, worker, workers, edge_count, vertices);
    u32 end = first_vertex(graph, worker + 1, workers, edge_count, vertices), stop = offsets[end];
    float sums[COLUMNS_OF_LANE] = {}, count = 0.0f;
    // Writes the mean of `vertex`, and zeros up to `next`.
    auto finish = [&](u32 next) {
        for (; vertex < next; ++vertex, count = 0.0f) {
            float scale = 1.0f / fmaxf(count, 1.0f);
#pragma unroll
            for (u32 i = 0; i < COLUMNS_OF_LANE; ++i) {
                u32 column = lane.lane + 32 * i;
                if (column < WIDTH) y[(u64)vertex * WIDTH + column] = scale * sums[i];
                sums[i] = 0.0f;
            }
        }
    };
    __syncthreads();
    forward_rows(graph, offsets[vertex], stop, WARP_ROWS, x, x, matrices, lane, [&](Tiles<TILES> &values, const Edges &edges, u32 start) {
        relu(values);
        project<false>(values);
        rotate<OCTETS>(values, edges.angle());
        store_rows<STAGE>(values, stage, lane);
        __syncwarp();
        float rows[WARP_ROWS][COLUMNS_OF_LANE];
#pragma unroll
        for (u32 r = 0; r < WARP_ROWS; ++r)
#pragma unroll
            for (u32 i = 0; i < COLUMNS_OF_LANE; ++i) rows[r][i] = stage[r * STAGE + min(lane.lane + 32 * i, STAGE - 1)];
#pragma unroll
        for (u32 r = 0; r < WARP_ROWS; ++r) {
            u32 owner = __shfl_sync(0xffffffffu, edges.own[r / 8], r % 8 * 4);
            if (start + r >= stop) continue;
            finish(owner);
#pragma unroll
            for (u32 i = 0; i < COLUMNS_OF_LANE; ++i) sums[i] += rows[r][i];
            count += 1.0f;
        }
        __syncwarp();
    });
    finish(end);
}

#endif

#else

// WARPS warps compute edges, from the gather to the gradient of the gathered features. COLLECTORS other warps add up
// the gradients of weights, which stay in registers, and of the features of the vertices themselves. Rows of shared
// memory: `ends` (gathered features), `hidden` (inputs of the other layers; then gradients of the own features),
// `slopes` (gradients of the sums of one layer at a time).
constexpr u32 ENDS = 2 * INPUT + 4;
constexpr u32 HIDDENS = LAYERS > 1 ? LAYERS - 1 : 1;
constexpr u32 FIRST_PER_WARP = (2 * IN_TILES + COLLECTORS - 1) / COLLECTORS, NEXT_PER_WARP = (TILES + COLLECTORS - 1) / COLLECTORS;

// For the edges from `first` up to `end`: dx += the gradient of own features, dz = that of the features of the
// neighbour, in the frame of the neighbour, a row for each edge; partials[block] = gradients of all matrices and
// biases. UPDATE: for the vertices from 0 up to `end`, dx and dz = the gradients of x and z.
extern "C" __global__ void __launch_bounds__(32 * (WARPS + COLLECTORS), 1)
backward(const u32 *__restrict__ offsets, const u32 *__restrict__ neighbours, const u32 *__restrict__ reverse,
         const float4 *__restrict__ phases, const float *__restrict__ x, const float *__restrict__ z,
         const float *__restrict__ weights, const float *__restrict__ dy, u32 first, u32 end, float *dx,
         float *__restrict__ dz, float *__restrict__ partials) {
    extern __shared__ float4 shared[];
    float *matrices = reinterpret_cast<float *>(shared), *biases = matrices + SHARED_WEIGHTS;
    float *ends = biases + LAYERS * WIDTH, *hidden = ends + ROWS * ENDS, *slopes = hidden + HIDDENS * ROWS * HIDDEN;
    Graph graph = {offsets, neighbours, reverse, phases};
    Lane lane = {threadIdx.x % 32, threadIdx.x % 32 / 4, threadIdx.x % 4};
    u32 warp = threadIdx.x / 32;
    load_weights(weights, SHARED_WEIGHTS + LAYERS * WIDTH, matrices);
    u32 begin = first_row(graph, blockIdx.x, first, end), stop = first_row(graph, blockIdx.x + 1, first, end);
    __syncthreads();
    if (warp < WARPS) {
        Edges next;
        if (begin < stop) next.read_vertices(graph, begin + WARP_ROWS * warp, stop, lane);
        for (u32 start = begin; start < stop; start += ROWS) {
            u32 row = start + WARP_ROWS * warp;
            Edges edges = next;
            edges.read_phases(graph, row, stop, lane);
            Tiles<TILES> values;
            {
                Tiles<IN_TILES> own, other;
                load_ends(own, other, x, z, edges, lane);
                if (start + ROWS < stop) next.read_vertices(graph, row + ROWS, stop, lane);
                wait(FREE);
                store_rows<ENDS>(own, ends + WARP_ROWS * warp * ENDS, lane);
                store_rows<ENDS>(other, ends + WARP_ROWS * warp * ENDS + INPUT, lane);
            }
            load_biases(values, biases, lane);
            const float *gathered = ends + (WARP_ROWS * warp + lane.g) * ENDS + 2 * lane.t;
            apply<FIRST, 2 * IN_TILES>(values, matrices, lane, [&](u32 j, float(&a)[4]) {
                const float *row = gathered + 8 * j;
                factors_of(*reinterpret_cast<const float2 *>(row), *reinterpret_cast<const float2 *>(row + 8 * ENDS), a);
            });
            wait(OWN_FREE);
#pragma unroll
            for (u32 layer = 1; layer < LAYERS; ++layer) {
                relu(values);
                round(values);
                Tiles<TILES> from = values;
                store_rows<HIDDEN>(from, hidden + ((layer - 1) * ROWS + WARP_ROWS * warp) * HIDDEN, lane);
                if (UPDATE && layer + 1 == LAYERS) break;
                load_biases(values, biases + layer * WIDTH, lane);
                apply<NEXT, TILES>(values, matrices + weights_of(layer), lane,
                               [&](u32 j, float(&a)[4]) { factors_of(from.v[j], a); });
            }
            Tiles<TILES> slope;
            load_rows(slope, dy, edges.own, lane);
#pragma unroll
            for (u32 r = 0; r < LANE_ROWS; ++r) {
                u32 p = edges.own[r];
                float scale = UPDATE ? 1.0f : 1.0f / (float)(offsets[p + 1] - offsets[p]);
                if (row + lane.g + 8 * r >= stop) scale = 0.0f;
#pragma unroll
                for (u32 n = 0; n < TILES; ++n) slope.v[n][2 * r] *= scale, slope.v[n][2 * r + 1] *= scale;
            }
            if (!UPDATE) {
                rotate<OCTETS>(slope, edges.to_edge());
                project<true>(slope);
                relu_backward(slope, values);
            }
            round(slope);
            store_rows<HIDDEN>(slope, slopes + WARP_ROWS * warp * HIDDEN, lane);
            arrive(COMPLETE);
#pragma unroll
            for (u32 layer = LAYERS - 1; layer > 0; --layer) {
                clear(values);
                apply_transposed<NEXT>(values, slope, matrices + weights_of(layer), 0, lane);
                slope = values;
                restore_rows<HIDDEN>(values, hidden + ((layer - 1) * ROWS + WARP_ROWS * warp) * HIDDEN, lane);
                relu_backward(slope, values);
                round(slope);
                wait(FREE);
                store_rows<HIDDEN>(slope, slopes + WARP_ROWS * warp * HIDDEN, lane);
                arrive(COMPLETE);
            }
            Tiles<IN_TILES> gradient;
            clear(gradient);
            apply_transposed<FIRST>(gradient, slope, matrices, 0, lane);
            rotate<IN_OCTETS>(gradient, edges.angle());
            if (UPDATE) write_rows(gradient, dy, dx, row, stop, lane);
            else store_rows<HIDDEN>(gradient, hidden + WARP_ROWS * warp * HIDDEN, lane);
            arrive(OWN_COMPLETE);
            clear(gradient);
            apply_transposed<FIRST>(gradient, slope, matrices, IN_TILES, lane);
            rotate<IN_OCTETS>(gradient, edges.transport_back());
            write_rows(gradient, nullptr, dz, row - first, stop - first, lane);
        }
        wait(FREE);
        wait(OWN_FREE);
        return;
    }
    warp -= WARPS;
    float of_first[FIRST_PER_WARP][OUT_TILES][4] = {}, of_next[HIDDENS][NEXT_PER_WARP][OUT_TILES][4] = {};
    // The bias of the first layer in the last warp, those of the next ones in the first warps; warps with the fewest
    // octets.
    float bias[OUT_TILES][2] = {};
    arrive(FREE);
    arrive(OWN_FREE);
    for (u32 start = begin; start < stop; start += ROWS) {
        u32 until = min(start + ROWS, stop), p = UPDATE ? 0 : graph.centre(start);
        u32 vertex_end = UPDATE ? 0 : graph.centre(until - 1) + 1;
#pragma unroll
        for (u32 layer = LAYERS; layer-- > 1;) {
            wait(COMPLETE);
            collect<HIDDEN, NEXT_PER_WARP, TILES, COLLECTORS>(of_next[layer - 1], bias, warp + 1 == layer, slopes,
                                                  hidden + (layer - 1) * ROWS * HIDDEN, COLLECTORS - 1 - warp, lane);
            arrive(FREE);
        }
        wait(COMPLETE);
        collect<ENDS, FIRST_PER_WARP, 2 * IN_TILES, COLLECTORS>(of_first, bias, warp + 1 == COLLECTORS, slopes, ends, warp, lane);
        arrive(FREE);
        wait(OWN_COMPLETE);
        add_rows<IN_TILES>(graph, start, until, p, vertex_end, hidden, 32 * warp + lane.lane, dx);
        arrive(OWN_FREE);
    }
    partials += (u64)blockIdx.x * (MATRICES + LAYERS * WIDTH);
    write_sums<FIRST_PER_WARP, 2 * IN_TILES, COLLECTORS>(of_first, partials, warp, lane);
#pragma unroll
    for (u32 layer = 1; layer < LAYERS; ++layer)
        write_sums<NEXT_PER_WARP, TILES, COLLECTORS>(of_next[layer - 1], partials + WIDTH * (2 * INPUT + (layer - 1) * WIDTH),
                                         COLLECTORS - 1 - warp, lane);
    u32 layer = warp + 1 == COLLECTORS ? 0 : warp + 1;
    if (layer >= LAYERS) return;
#pragma unroll
    for (u32 i = 0; i < 2 * OUT_TILES; ++i) {
        float sum = bias[i / 2][i % 2];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        u32 column = 8 * i + lane.g;
        if (lane.t == 0 && column < WIDTH) partials[MATRICES + layer * WIDTH + column] = sum;
    }
}

#endif
