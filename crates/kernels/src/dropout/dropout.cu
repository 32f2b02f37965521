// Dropout of whole units, one thread for each irrep of each vertex. The words are those of `philox.cu`, which stands before.

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

// Dropout of scalars, one thread for each four of them, whose words are one block.
extern "C" __global__ void dropout_scalars(const float4 *__restrict__ x, float4 *__restrict__ y,
                                           const u64 *__restrict__ stream, u64 salt, u64 threshold, float scale,
                                           u64 count) {
    u64 i = item();
    if (i >= count) return;
    float4 v = x[i];
    uint4 words = block_of(i, stream[0] ^ salt, stream[1]);
    auto kept = [&](float value, u32 word) { return value * (word >= threshold ? scale : 0.0f); };
    y[i] = make_float4(kept(v.x, words.x), kept(v.y, words.y), kept(v.z, words.z), kept(v.w, words.w));
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
