// Regression losses, one thread for each irrep of each vertex; see the documentation of `regression`.

__device__ inline bool counts(const unsigned char *mask, u64 vertex) { return !mask || mask[vertex]; }

// partials[block] = sum of penalties over the block's run of items.
extern "C" __global__ void regression_partials(const float *__restrict__ prediction, const float *__restrict__ target,
                                               const unsigned char *__restrict__ mask,
                                               const uint4 *__restrict__ irreps, u32 irrep_count, u32 width,
                                               u32 absolute, u64 items, u64 items_of_block,
                                               double *__restrict__ partials) {
    u64 first = blockIdx.x * items_of_block;
    u64 end = min(items, first + items_of_block);
    double sum = 0.0;
    for (u64 i = first + threadIdx.x; i < end; i += blockDim.x) {
        u64 vertex = i / irrep_count, row = vertex * width;
        if (!counts(mask, vertex)) continue;
        uint4 irrep = irreps[i % irrep_count];
        double a = (double)prediction[row + irrep.x] - target[row + irrep.x];
        double b = irrep.z > 0 ? (double)prediction[row + irrep.y] - target[row + irrep.y] : 0.0;
        double squared = a * a + b * b;
        sum += absolute ? sqrt(squared) : squared;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// loss = normaliser times the sum of the partials. One block.
extern "C" __global__ void regression_finish(const double *__restrict__ partials, u32 count,
                                             const double *__restrict__ normaliser, double *__restrict__ loss) {
    double sum = 0.0;
    for (u32 part = threadIdx.x; part < count; part += blockDim.x) sum += partials[part];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *loss = *normaliser * sum;
}

extern "C" __global__ void regression_backward(const float *__restrict__ prediction, const float *__restrict__ target,
                                               const unsigned char *__restrict__ mask,
                                               const uint4 *__restrict__ irreps, u32 irrep_count, u32 width,
                                               u32 absolute, u64 items, const double *__restrict__ normaliser, double dloss,
                                               float *__restrict__ gradient) {
    u64 i = item();
    if (i >= items) return;
    double scale = dloss * *normaliser;
    u64 vertex = i / irrep_count, row = vertex * width;
    uint4 irrep = irreps[i % irrep_count];
    float a = prediction[row + irrep.x] - target[row + irrep.x];
    float b = irrep.z > 0 ? prediction[row + irrep.y] - target[row + irrep.y] : 0.0f;
    float factor = 0.0f;
    if (counts(mask, vertex)) {
        float length = sqrtf(a * a + b * b);
        factor = absolute ? (length == 0.0f ? 0.0f : (float)scale / length) : 2.0f * (float)scale;
    }
    gradient[row + irrep.x] = factor * a;
    if (irrep.z > 0) gradient[row + irrep.y] = factor * b;
}
