// Dropout of whole units, one thread for each irrep of each vertex. The words are those of `philox.cu`, which stands
// before.

__device__ inline u32 word_of(u64 index, u64 seed, u64 step) {
    uint4 c = block_of(index / 4, seed, step);
    switch (index % 4) {
    case 0: return c.x;
    case 1: return c.y;
    case 2: return c.z;
    default: return c.w;
    }
}

// irreps: (place of a, place of b, order, unit); stream: seed and step.
extern "C" __global__ void dropout(const float *__restrict__ x, float *__restrict__ y,
                                   const uint4 *__restrict__ irreps, u32 irrep_count, u32 units, u32 width,
                                   const u64 *__restrict__ stream, u64 salt, u64 threshold, float scale,
                                   u32 vertices) {
    u64 i = item();
    if (i >= (u64)vertices * irrep_count) return;
    u64 vertex = i / irrep_count;
    uint4 irrep = irreps[i % irrep_count];
    float factor = word_of(vertex * units + irrep.w, stream[0] ^ salt, stream[1]) >= threshold ? scale : 0.0f;
    u64 row = vertex * width;
    y[row + irrep.x] = x[row + irrep.x] * factor;
    if (irrep.z > 0) y[row + irrep.y] = x[row + irrep.y] * factor;
}

// Dropout of irreps, one thread for each four channels of an order, whose words are one block. runs: (place of the
// first a, place of the first b, order, unit), all multiples of 4.
extern "C" __global__ void dropout_fours(const float4 *__restrict__ x, float4 *__restrict__ y,
                                         const uint4 *__restrict__ runs, u32 run_count, u32 width,
                                         const u64 *__restrict__ stream, u64 salt, u64 threshold, float scale,
                                         u64 count) {
    u64 i = item();
    if (i >= count) return;
    u64 vertex = i / run_count;
    uint4 run = runs[i % run_count];
    uint4 words = block_of(vertex * run_count + run.w / 4, stream[0] ^ salt, stream[1]);
    auto factor = [&](u32 word) { return word >= threshold ? scale : 0.0f; };
    float4 kept = make_float4(factor(words.x), factor(words.y), factor(words.z), factor(words.w));
    u64 row = vertex * width;
    for (u32 component = 0; component < (run.z > 0 ? 2 : 1); ++component) {
        u64 place = (row + (component > 0 ? run.y : run.x)) / 4;
        float4 v = x[place];
        y[place] = make_float4(v.x * kept.x, v.y * kept.y, v.z * kept.z, v.w * kept.w);
    }
}

// Grid (pieces, meshes): the rows of a mesh times the factor of the mesh; stream: seed and step.
extern "C" __global__ void drop_meshes(const float *__restrict__ x, float *__restrict__ y,
                                       const u32 *__restrict__ mesh_offsets, u32 width,
                                       const u64 *__restrict__ stream, u64 salt, u64 threshold, float scale) {
    u32 mesh = blockIdx.y;
    float factor = word_of(mesh, stream[0] ^ salt, stream[1]) >= threshold ? scale : 0.0f;
    u64 end = (u64)mesh_offsets[mesh + 1] * width;
    for (u64 i = (u64)mesh_offsets[mesh] * width + item(); i < end; i += (u64)gridDim.x * blockDim.x) y[i] = x[i] * factor;
}
