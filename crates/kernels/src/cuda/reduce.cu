// Sums of columns, in one or two stages that always add in the same order.

// partials[block][column] = sum over the block's rows. Block (columns, rows); each block takes a run of
// rows, its threads every blockDim.y-th of them.
extern "C" __global__ void column_partials(const float *__restrict__ x, u32 stride, u32 rows, u32 columns,
                                           u32 rows_of_block, double *__restrict__ partials) {
    __shared__ double parts[BLOCK];
    u32 column = blockIdx.y * blockDim.x + threadIdx.x;
    u32 first = blockIdx.x * rows_of_block;
    u32 end = min(rows, first + rows_of_block);
    double sum = 0.0;
    if (column < columns) {
        in_batches<8>(
            first + threadIdx.y, end, blockDim.y, [&](u32 row) { return x[(u64)row * stride + column]; },
            [&](u32, float value) { sum += value; });
    }
    parts[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < columns) {
        for (u32 y = 1; y < blockDim.y; ++y) sum += parts[y * blockDim.x + threadIdx.x];
        partials[(u64)blockIdx.x * columns + column] = sum;
    }
}

// result[column] += sum of the partials, or of the `x` if there are no partials, by a block. Both have `count` rows of
// `stride` numbers.
__device__ inline void add_column(const double *__restrict__ partials, const float *__restrict__ x, u32 count, u32 stride, u32 column,
                                  float *__restrict__ result) {
    u32 thread = threadIdx.y * blockDim.x + threadIdx.x;
    float before = thread == 0 ? result[column] : 0.0f;
    double sum = 0.0;
    auto add = [&](u32, double value) { sum += value; };
    if (partials)
        in_batches<8>(thread, count, BLOCK, [&](u32 part) { return partials[(u64)part * stride + column]; }, add);
    else
        in_batches<32>(thread, count, BLOCK, [&](u32 row) { return x[(u64)row * stride + column]; }, add);
    sum = block_sum(sum);
    if (thread == 0) result[column] = before + (float)sum;
}

// One block for each column.
extern "C" __global__ void add_column_sums(const double *__restrict__ partials, const float *__restrict__ x, u32 count, u32 stride,
                                           float *__restrict__ result) {
    add_column(partials, x, count, stride, blockIdx.x, result);
}

// y[row][i] = bias[i] for the first `count` numbers of each row. Block (columns, rows), a run of rows for each block.
extern "C" __global__ void fill_rows(float *__restrict__ y, u32 width, u32 rows, const float *__restrict__ bias, u32 count,
                                     u32 rows_of_block) {
    u32 column = blockIdx.y * blockDim.x + threadIdx.x, first = blockIdx.x * rows_of_block;
    if (column >= count) return;
    float value = bias[column];
    u32 end = min(rows, first + rows_of_block);
    for (u32 row = first + threadIdx.y; row < end; row += blockDim.y) y[(u64)row * width + column] = value;
}

// result[i] = the sum of terms +-from[place] (or result[i] += it). An entry of the table is place + 1, negative for a
// minus, 0 for nothing. Places from `split_from` on are those of the second source, results from `split_to` on those
// of the second result. One thread for each result.
extern "C" __global__ void signed_terms(const int *__restrict__ table, u32 terms, u32 count,
                                        const float *__restrict__ from, const float *__restrict__ from_second,
                                        u32 split_from, float *__restrict__ result,
                                        float *__restrict__ result_second, u32 split_to, u32 add) {
    u64 i = item();
    if (i >= count) return;
    float sum = 0.0f;
    for (u32 term = 0; term < terms; ++term) {
        int entry = table[i * terms + term];
        if (entry == 0) continue;
        u32 place = (entry > 0 ? entry : -entry) - 1;
        float value = place < split_from ? from[place] : from_second[place - split_from];
        sum += entry > 0 ? value : -value;
    }
    float *to = i < split_to ? result + i : result_second + (i - split_to);
    *to = add ? *to + sum : sum;
}

// Partial sums of a thread in flight: an eighth of one for each multiprocessor.
constexpr u32 PARTS = 18;

// result[i] = sum of partials[k][i] (or result[i] += it). Block (32, 8): the partials are shared out over y. The blocks
// after those of the results do the work of `add_column_sums`.
extern "C" __global__ void sum_partials(const float *__restrict__ from, u32 partials, u32 count, float *__restrict__ result, u32 add,
                                        const double *__restrict__ columns, const float *__restrict__ x, u32 column_count,
                                        u32 column_stride, float *__restrict__ column_sums) {
    u32 blocks = (count + 31) / 32;
    if (blockIdx.x >= blocks) return add_column(columns, x, column_count, column_stride, blockIdx.x - blocks, column_sums);
    __shared__ float parts[8][32];
    u32 i = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    if (i < count) {
        in_batches<PARTS>(
            threadIdx.y, partials, 8, [&](u32 k) { return from[(u64)k * count + i]; },
            [&](u32, float part) { sum += part; });
    }
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && i < count) {
        for (u32 y = 1; y < 8; ++y) sum += parts[y][threadIdx.x];
        result[i] = add ? result[i] + sum : sum;
    }
}

// A term of a table, as in `signed_terms`, of a partial sum.
struct Term {
    const float *from;
    float sign;
    __device__ inline Term(const float *partials, int entry) : from(partials + max(abs(entry), 1) - 1), sign(entry > 0 ? 1.0f : entry < 0 ? -1.0f : 0.0f) {}
    __device__ inline float of(float value) const { return sign == 0.0f ? 0.0f : sign * value; }
};

// result[i] += the sum over partials of its terms +-partials[k][place]. Block (32, 8): the partials are shared out over
// y. rows: a result and its terms, as in `signed_terms`, in the order of the first places. Two terms of all partials
// are in flight: latency takes the time of this kernel. The blocks after those of the results do the work of
// `add_column_sums`.
extern "C" __global__ void fold_partials(const int *__restrict__ rows, u32 terms, u32 count, const float *__restrict__ from, u32 partials,
                                         u32 size, float *__restrict__ result, float *__restrict__ result_second, u32 split_to,
                                         const double *__restrict__ columns, const float *__restrict__ x, u32 column_count,
                                         u32 column_stride, float *__restrict__ column_sums) {
    u32 blocks = (count + 31) / 32;
    if (blockIdx.x >= blocks) return add_column(columns, x, column_count, column_stride, blockIdx.x - blocks, column_sums);
    __shared__ float parts[8][32];
    u32 place = blockIdx.x * 32 + threadIdx.x;
    const int *row = rows + (u64)min(place, count - 1) * (1 + terms);
    u32 i = row[0];
    float *to = i < split_to ? result + i : result_second + (i - split_to);
    float before = threadIdx.y == 0 ? *to : 0.0f, sum = 0.0f;
    for (u32 term = 1; term <= terms; term += 2) {
        Term first(from, row[term]), second(from, term < terms ? row[term + 1] : 0);
        in_batches<PARTS>(
            threadIdx.y, partials, 8, [&](u32 k) { return make_float2(first.from[(u64)k * size], second.from[(u64)k * size]); },
            [&](u32, float2 part) { sum += first.of(part.x) + second.of(part.y); });
    }
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && place < count) {
        for (u32 y = 1; y < 8; ++y) sum += parts[y][threadIdx.x];
        *to = before + sum;
    }
}

// packed = [a | b | c | d], or with `add` the parts += those of packed.
extern "C" __global__ void copy_parts(float *packed, float *a, u32 a_count, float *b, u32 b_count, float *c, u32 c_count,
                                      float *d, u32 d_count, u32 add) {
    u64 i = item(), place = i;
    float *parts[4] = {a, b, c, d};
    u32 counts[4] = {a_count, b_count, c_count, d_count};
    for (u32 part = 0; part < 4; ++part) {
        if (place < counts[part]) {
            if (add) parts[part][place] += packed[i];
            else packed[i] = parts[part][place];
            return;
        }
        place -= counts[part];
    }
}
