// Pooling; see the documentation of `pool::global` and `pool::transport`.

// Run of the rows of a mesh that piece `piece` of `pieces` works on.
__device__ inline uint2 piece_of(const u32 *mesh_offsets, u32 mesh, u32 piece, u32 pieces) {
    u32 first = mesh_offsets[mesh], end = mesh_offsets[mesh + 1];
    u32 length = (end - first + pieces - 1) / pieces;
    u32 start = min(end, first + piece * length);
    return make_uint2(start, min(end, start + length));
}

// Grid (pieces, meshes), block (channels, rows). partials[mesh][piece][channel].
extern "C" __global__ void mean_partials(const u32 *__restrict__ mesh_offsets, const float *__restrict__ x, u32 channels,
                                         double *__restrict__ partials) {
    __shared__ double parts[BLOCK];
    uint2 rows = piece_of(mesh_offsets, blockIdx.y, blockIdx.x, gridDim.x);
    for (u32 tile = 0; tile < channels; tile += blockDim.x) {
        u32 channel = tile + threadIdx.x;
        double sum = 0.0;
        if (channel < channels)
            for (u32 row = rows.x + threadIdx.y; row < rows.y; row += blockDim.y) sum += x[(u64)row * channels + channel];
        parts[threadIdx.y * blockDim.x + threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && channel < channels) {
            for (u32 y = 1; y < blockDim.y; ++y) sum += parts[y * blockDim.x + threadIdx.x];
            partials[((u64)blockIdx.y * gridDim.x + blockIdx.x) * channels + channel] = sum;
        }
        __syncthreads();
    }
}

// One thread for each channel of each mesh.
extern "C" __global__ void mean_finish(const u32 *__restrict__ mesh_offsets, const double *__restrict__ partials,
                                       u32 pieces, u32 channels, u32 meshes, float *__restrict__ y) {
    u64 i = item();
    if (i >= (u64)meshes * channels) return;
    u32 mesh = i / channels, channel = i % channels;
    double sum = 0.0;
    for (u32 piece = 0; piece < pieces; ++piece) sum += partials[((u64)mesh * pieces + piece) * channels + channel];
    u32 count = mesh_offsets[mesh + 1] - mesh_offsets[mesh];
    y[i] = count == 0 ? 0.0f : (float)(sum / count);
}

extern "C" __global__ void mean_backward(const u32 *__restrict__ mesh_offsets, const float *__restrict__ dy,
                                         u32 channels, float *__restrict__ dx) {
    uint2 rows = piece_of(mesh_offsets, blockIdx.y, blockIdx.x, gridDim.x);
    float share = (float)(1.0 / max(mesh_offsets[blockIdx.y + 1] - mesh_offsets[blockIdx.y], 1u));
    u64 end = (u64)rows.y * channels;
    for (u64 i = (u64)rows.x * channels + threadIdx.x; i < end; i += blockDim.x)
        dx[i] = dy[(u64)blockIdx.y * channels + i % channels] * share;
}

struct Largest {
    float value;
    u32 vertex;
};

constexpr u32 NO_VERTEX = 0xffffffffu;

// The larger one, NaN being largest, the lower vertex in ties.
__device__ inline Largest larger(Largest a, Largest b) {
    if (b.vertex == NO_VERTEX) return a;
    if (a.vertex == NO_VERTEX) return b;
    bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan || b_nan) {
        if (a_nan != b_nan) return a_nan ? a : b;
        return a.vertex < b.vertex ? a : b;
    }
    if (a.value == b.value) return a.vertex < b.vertex ? a : b;
    return a.value > b.value ? a : b;
}

extern "C" __global__ void max_partials(const u32 *__restrict__ mesh_offsets, const float *__restrict__ x, u32 channels,
                                        Largest *__restrict__ partials) {
    __shared__ Largest parts[BLOCK];
    uint2 rows = piece_of(mesh_offsets, blockIdx.y, blockIdx.x, gridDim.x);
    for (u32 tile = 0; tile < channels; tile += blockDim.x) {
        u32 channel = tile + threadIdx.x;
        Largest largest = {0.0f, NO_VERTEX};
        if (channel < channels)
            for (u32 row = rows.x + threadIdx.y; row < rows.y; row += blockDim.y)
                largest = larger(largest, {x[(u64)row * channels + channel], row});
        parts[threadIdx.y * blockDim.x + threadIdx.x] = largest;
        __syncthreads();
        if (threadIdx.y == 0 && channel < channels) {
            for (u32 y = 1; y < blockDim.y; ++y) largest = larger(largest, parts[y * blockDim.x + threadIdx.x]);
            partials[((u64)blockIdx.y * gridDim.x + blockIdx.x) * channels + channel] = largest;
        }
        __syncthreads();
    }
}

extern "C" __global__ void max_finish(const Largest *__restrict__ partials, u32 pieces, u32 channels, u32 meshes,
                                      float *__restrict__ y, u32 *__restrict__ arguments) {
    u64 i = item();
    if (i >= (u64)meshes * channels) return;
    u32 mesh = i / channels, channel = i % channels;
    Largest largest = {0.0f, NO_VERTEX};
    for (u32 piece = 0; piece < pieces; ++piece)
        largest = larger(largest, partials[((u64)mesh * pieces + piece) * channels + channel]);
    y[i] = largest.value;
    arguments[i] = largest.vertex;
}

// dx is zero before; every argument is another number of dx.
extern "C" __global__ void max_backward(const u32 *__restrict__ mesh_offsets, const u32 *__restrict__ arguments,
                                        const float *__restrict__ dy, u32 channels, u32 meshes,
                                        float *__restrict__ dx) {
    u64 i = item();
    if (i >= (u64)meshes * channels) return;
    u32 mesh = i / channels, channel = i % channels, vertex = arguments[i];
    if (vertex >= mesh_offsets[mesh] && vertex < mesh_offsets[mesh + 1]) dx[(u64)vertex * channels + channel] = dy[i];
}

// y_c = w sum over the members f of rho(g_f) x_f; w is 1 or 1/|c|. One thread for each irrep of each cluster.
extern "C" __global__ void transport_gather(const u32 *__restrict__ offsets, const u32 *__restrict__ members,
                                            const float2 *__restrict__ phases, const float *__restrict__ x,
                                            float *__restrict__ y, const uint4 *__restrict__ irreps, u32 irrep_count,
                                            u32 width, u32 mean, u32 clusters) {
    u64 i = item();
    if (i >= (u64)clusters * irrep_count) return;
    u32 cluster = i / irrep_count;
    uint4 irrep = irreps[i % irrep_count];
    u32 first = offsets[cluster], end = offsets[cluster + 1];
    float sum_a = 0.0f, sum_b = 0.0f;
    for (u32 place = first; place < end; ++place) {
        u32 member = members[place];
        float2 phase = phases[member];
        Phase turn = multiple({phase.x, phase.y}, irrep.z);
        float a = x[(u64)member * width + irrep.x];
        float b = irrep.z > 0 ? x[(u64)member * width + irrep.y] : 0.0f;
        sum_a += turn.c * a - turn.s * b;
        sum_b += turn.s * a + turn.c * b;
    }
    float weight = mean ? 1.0f / (float)max(end - first, 1u) : 1.0f;
    y[(u64)cluster * width + irrep.x] = weight * sum_a;
    if (irrep.z > 0) y[(u64)cluster * width + irrep.y] = weight * sum_b;
}

// y_f = w rho(-g_f) x_c. One thread for each irrep of each fine vertex.
extern "C" __global__ void transport_spread(const u32 *__restrict__ offsets, const u32 *__restrict__ cluster_of,
                                            const float2 *__restrict__ phases, const float *__restrict__ x,
                                            float *__restrict__ y, const uint4 *__restrict__ irreps, u32 irrep_count,
                                            u32 width, u32 mean, u32 vertices) {
    u64 i = item();
    if (i >= (u64)vertices * irrep_count) return;
    u32 vertex = i / irrep_count, cluster = cluster_of[vertex];
    uint4 irrep = irreps[i % irrep_count];
    float2 phase = phases[vertex];
    Phase turn = multiple({phase.x, -phase.y}, irrep.z);
    float a = x[(u64)cluster * width + irrep.x];
    float b = irrep.z > 0 ? x[(u64)cluster * width + irrep.y] : 0.0f;
    float weight = mean ? 1.0f / (float)max(offsets[cluster + 1] - offsets[cluster], 1u) : 1.0f;
    y[(u64)vertex * width + irrep.x] = weight * (turn.c * a - turn.s * b);
    if (irrep.z > 0) y[(u64)vertex * width + irrep.y] = weight * (turn.s * a + turn.c * b);
}
