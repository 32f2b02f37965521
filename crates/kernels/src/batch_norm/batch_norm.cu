// Batch normalisation; see the documentation of `batch_norm`. A slot is (first column, columns from one member to the
// next, members); its first column is of order 0 if it is below `scalars`.

// partials[block][column] = (sum of x, sum of x^2). Block (columns, rows), a run of rows for each block.
extern "C" __global__ void moments(const float *__restrict__ x, u32 rows, u32 width, u32 rows_of_block,
                                   double2 *__restrict__ partials) {
    __shared__ double2 parts[BLOCK];
    u32 column = blockIdx.y * blockDim.x + threadIdx.x;
    u32 first = blockIdx.x * rows_of_block;
    u32 end = min(rows, first + rows_of_block);
    double2 sum = make_double2(0.0, 0.0);
    if (column < width) {
        in_batches<12>(
            first + threadIdx.y, end, blockDim.y, [&](u32 row) { return x[(u64)row * width + column]; },
            [&](u32, double value) {
                sum.x += value;
                sum.y += value * value;
            });
    }
    parts[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < width) {
        for (u32 y = 1; y < blockDim.y; ++y) {
            double2 part = parts[y * blockDim.x + threadIdx.x];
            sum.x += part.x;
            sum.y += part.y;
        }
        partials[(u64)blockIdx.x * width + column] = sum;
    }
}

// (scale, shift, centre, 1/deviation) of a column.
__device__ inline float4 affine_of(bool scalar, double mean, double variance, double gamma, double beta, double epsilon) {
    double inverse = 1.0 / sqrt(variance + epsilon), scale = gamma * inverse;
    double centre = scalar ? mean : 0.0, shift = scalar ? beta - scale * centre : 0.0;
    return make_float4((float)scale, (float)shift, (float)centre, (float)inverse);
}

// (1 - momentum) r + momentum s.
__device__ inline float average(float running, double momentum, double value) {
    return (float)((1.0 - momentum) * running + momentum * value);
}

// Sums over a block of BLOCK threads, always in the same order; valid in all of them.
__device__ inline double2 block_sums(double2 value) {
    __shared__ double2 parts[BLOCK / 32];
    for (u32 step = 16; step > 0; step /= 2) {
        value.x += __shfl_down_sync(0xffffffffu, value.x, step);
        value.y += __shfl_down_sync(0xffffffffu, value.y, step);
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    double2 sum = make_double2(0.0, 0.0);
    for (u32 warp = 0; warp < BLOCK / 32; ++warp) {
        sum.x += parts[warp].x;
        sum.y += parts[warp].y;
    }
    return sum;
}

// Calls `add(column, value)` for two rows of partial sums and all columns of a slot at a time, in threads that share
// out the rows.
template <typename Number, typename Add>
__device__ inline void over_slot(const uint4 &slot, const Number *partials, u32 count, u32 stride, Add add) {
    struct Two {
        Number first, second;
    };
    for (u32 part = threadIdx.x; part < count; part += 2 * BLOCK) {
        const Number *from = partials + (u64)part * stride + slot.x;
        bool both = part + BLOCK < count;
        in_batches<8>(
            0, slot.z, 1,
            [&](u32 member) {
                const Number *place = from + member * slot.y;
                return Two{*place, both ? place[(u64)BLOCK * stride] : Number{}};
            },
            [&](u32 member, const Two &two) { add(slot.x + member * slot.y, two.first), add(slot.x + member * slot.y, two.second); });
    }
}

// Mean and variance of each slot; one block for each. If there is an `affine`, also the map of each column, and the new
// running averages unless there are no vertices.
extern "C" __global__ void finish_moments(const double2 *__restrict__ partials, u32 count, u32 width,
                                          const uint4 *__restrict__ slots, u32 scalars, double vertices,
                                          double *__restrict__ mean, double *__restrict__ variance,
                                          const float *__restrict__ gamma, const float *__restrict__ beta,
                                          double epsilon, double momentum, float *__restrict__ running_mean,
                                          float *__restrict__ running_variance, float4 *__restrict__ affine) {
    u32 i = blockIdx.x;
    uint4 slot = slots[i];
    // In flight with the partial sums.
    bool averages = threadIdx.x == 0 && affine && vertices > 0.0;
    float scale = affine ? gamma[i] : 0.0f, shift = affine ? beta[i] : 0.0f;
    float old_mean = averages ? running_mean[i] : 0.0f, old_variance = averages ? running_variance[i] : 0.0f;
    double first = 0.0, second = 0.0;
    over_slot(slot, partials, count, width, [&](u32 column, double2 sum) {
        bool scalar = column < scalars;
        if (scalar) first += sum.x;
        second += (scalar ? 1.0 : 0.5) * sum.y;
    });
    double2 sum = block_sums(make_double2(first, second));
    double centre = vertices > 0.0 ? sum.x / vertices : 0.0;
    double spread = vertices > 0.0 ? fmax(sum.y / vertices - centre * centre, 0.0) : 0.0;
    for (u32 member = threadIdx.x; affine && member < slot.z; member += blockDim.x) {
        u32 column = slot.x + member * slot.y;
        affine[column] = affine_of(column < scalars, centre, spread, scale, shift, epsilon);
    }
    if (threadIdx.x == 0) {
        mean[i] = centre;
        variance[i] = spread;
    }
    if (averages) {
        running_mean[i] = average(old_mean, momentum, centre);
        running_variance[i] = average(old_variance, momentum, spread);
    }
}

extern "C" __global__ void update_running(const double *__restrict__ mean, const double *__restrict__ variance,
                                          double momentum, float *__restrict__ running_mean,
                                          float *__restrict__ running_variance, u32 slots) {
    u64 i = item();
    if (i >= slots) return;
    running_mean[i] = average(running_mean[i], momentum, mean[i]);
    running_variance[i] = average(running_variance[i], momentum, variance[i]);
}

// Running averages as statistics.
extern "C" __global__ void widen(const float *__restrict__ from, double *__restrict__ to, u32 count) {
    u64 i = item();
    if (i < count) to[i] = from[i];
}

extern "C" __global__ void make_affine(const double *__restrict__ mean, const double *__restrict__ variance,
                                       const float *__restrict__ gamma, const float *__restrict__ beta,
                                       const u32 *__restrict__ slot_of, u32 scalars, double epsilon, u32 width,
                                       float4 *__restrict__ affine) {
    u64 column = item();
    if (column >= width) return;
    u32 slot = slot_of[column];
    affine[column] = affine_of(column < scalars, mean[slot], variance[slot], gamma[slot], beta[slot], epsilon);
}

extern "C" __global__ void norm_forward(const float *__restrict__ x, float *__restrict__ y,
                                        const float4 *__restrict__ affine, u32 width, u64 count) {
    u64 i = item();
    if (i >= count) return;
    float4 norm = affine[i % width];
    y[i] = x[i] * norm.x + norm.y;
}

// partials[block][column] = sum of dy z; after the `width` columns the sum of dy for each of order 0.
extern "C" __global__ void norm_backward_sums(const float *__restrict__ x, const float *__restrict__ dy,
                                              const float4 *__restrict__ affine, u32 rows, u32 width, u32 scalars,
                                              u32 rows_of_block, double *__restrict__ partials) {
    __shared__ double2 parts[BLOCK];
    u32 column = blockIdx.y * blockDim.x + threadIdx.x;
    u32 first = blockIdx.x * rows_of_block;
    u32 end = min(rows, first + rows_of_block);
    double2 sum = make_double2(0.0, 0.0);
    if (column < width) {
        float4 norm = affine[column];
        for (u32 row = first + threadIdx.y; row < end; row += blockDim.y) {
            float gradient = dy[(u64)row * width + column];
            sum.x += gradient * ((x[(u64)row * width + column] - norm.z) * norm.w);
            sum.y += gradient;
        }
    }
    parts[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < width) {
        for (u32 y = 1; y < blockDim.y; ++y) {
            double2 part = parts[y * blockDim.x + threadIdx.x];
            sum.x += part.x;
            sum.y += part.y;
        }
        double *row = partials + (u64)blockIdx.x * (width + scalars);
        row[column] = sum.x;
        if (column < scalars) row[width + column] = sum.y;
    }
}

// Gradients of gamma and beta of each slot, and what passes through the statistics to each of its columns:
// (C/V in order 0, w A/V), or zeros if `inverse_vertices` is. One block for each slot.
extern "C" __global__ void finish_backward_sums(const double *__restrict__ partials, u32 count, u32 width,
                                                u32 scalars, const uint4 *__restrict__ slots,
                                                double inverse_vertices, float *__restrict__ dgamma,
                                                float *__restrict__ dbeta, float2 *__restrict__ through) {
    uint4 slot = slots[blockIdx.x];
    u32 row = width + scalars;
    bool scalar_slot = slot.x < scalars;
    float old_gamma = threadIdx.x == 0 ? dgamma[blockIdx.x] : 0.0f, old_beta = threadIdx.x == 0 && scalar_slot ? dbeta[blockIdx.x] : 0.0f;
    auto sum_at = [&](u32 part) { return scalar_slot && part < count ? partials[(u64)part * row + width + slot.x] : 0.0; };
    // In flight with the others.
    double early[2] = {sum_at(threadIdx.x), sum_at(threadIdx.x + BLOCK)}, a = 0.0, c = 0.0;
    over_slot(slot, partials, count, row, [&](u32, double part) { a += part; });
    c = early[0] + early[1];
    for (u32 part = threadIdx.x + 2 * BLOCK; part < count; part += BLOCK) c += sum_at(part);
    double2 sum = block_sums(make_double2(a, c));
    if (threadIdx.x == 0) {
        dgamma[blockIdx.x] = old_gamma + (float)sum.x;
        if (scalar_slot) dbeta[blockIdx.x] = old_beta + (float)sum.y;
    }
    for (u32 member = threadIdx.x; member < slot.z; member += blockDim.x) {
        u32 column = slot.x + member * slot.y;
        bool scalar = column < scalars;
        through[column] = make_float2(scalar ? (float)(sum.y * inverse_vertices) : 0.0f,
                                      (float)((scalar ? 1.0 : 0.5) * sum.x * inverse_vertices));
    }
}

extern "C" __global__ void norm_backward(const float *__restrict__ x, const float *__restrict__ dy,
                                         float *__restrict__ dx, const float4 *__restrict__ affine,
                                         const float2 *__restrict__ through, u32 width, u64 count) {
    u64 i = item();
    if (i >= count) return;
    u32 column = i % width;
    float4 norm = affine[column];
    float2 part = through[column];
    dx[i] = norm.x * (dy[i] - part.x - part.y * (x[i] - norm.z) * norm.w);
}
