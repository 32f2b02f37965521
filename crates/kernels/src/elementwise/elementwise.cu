// Sums, multiples and selections of columns.

extern "C" __global__ void add(const float *a, const float *b, float *y, u64 count) {
    in_fours(count, [&](u64 i) { return a[i] + b[i]; }, [&](u64 i, float value) { y[i] = value; });
}

extern "C" __global__ void scale(float factor, const float *x, float *y, u64 count) {
    in_fours(count, [&](u64 i) { return factor * x[i]; }, [&](u64 i, float value) { y[i] = value; });
}

// One thread for each row.
extern "C" __global__ void softmax(const float *__restrict__ x, float *__restrict__ y, u32 width, u64 rows) {
    u64 row = item();
    if (row >= rows) return;
    x += row * width;
    y += row * width;
    float largest = x[0], sum = 0.0f;
    for (u32 at = 1; at < width; at++) largest = fmaxf(largest, x[at]);
    for (u32 at = 0; at < width; at++) sum += expf(x[at] - largest);
    for (u32 at = 0; at < width; at++) y[at] = expf(x[at] - largest) / sum;
}

extern "C" __global__ void softmax_backward(const float *__restrict__ y, const float *__restrict__ dy,
                                            float *__restrict__ dx, u32 width, u64 rows) {
    u64 row = item();
    if (row >= rows) return;
    y += row * width;
    dy += row * width;
    dx += row * width;
    float mean = 0.0f;
    for (u32 at = 0; at < width; at++) mean += y[at] * dy[at];
    for (u32 at = 0; at < width; at++) dx[at] = y[at] * (dy[at] - mean);
}

// One thread for each number of the result.
extern "C" __global__ void block_maximum(const float *__restrict__ x, float *__restrict__ y, u32 blocks, u32 width,
                                         u64 count) {
    u64 i = item();
    if (i >= count) return;
    x += i / width * blocks * width + i % width;
    float largest = x[0];
    for (u64 block = 1; block < blocks; ++block) {
        float value = x[block * width];
        if (value > largest) largest = value;
    }
    y[i] = largest;
}

extern "C" __global__ void block_maximum_backward(const float *__restrict__ x, const float *__restrict__ y,
                                                  const float *__restrict__ dy, float *__restrict__ dx, u32 blocks,
                                                  u32 width, u64 count) {
    u64 i = item();
    if (i >= count) return;
    u64 place = i / width * blocks * width + i % width;
    float rest = dy[i], largest = y[i];
    for (u32 block = 0; block < blocks; ++block, place += width) {
        bool found = x[place] == largest;
        dx[place] = found ? rest : 0.0f;
        if (found) rest = 0.0f;
    }
}

// y[row][column] = the number of a (or of b, where the top bit is set) that the table names, 0 for none. Block
// (columns, rows); each thread takes 4 rows.
extern "C" __global__ void select_columns(const float *__restrict__ a, u32 a_width, const float *__restrict__ b,
                                          u32 b_width, const u32 *__restrict__ table, float *__restrict__ y,
                                          u32 width, u32 rows) {
    u32 to = blockIdx.y * blockDim.x + threadIdx.x, first = blockIdx.x * 4 * blockDim.y + threadIdx.y;
    if (to >= width) return;
    u32 entry = table[to], column = entry & 0x7fffffffu;
    const float *from = entry >> 31 ? b : a;
    u64 stride = entry >> 31 ? b_width : a_width;
    float values[4] = {};
    if (entry != 0xffffffffu) {
#pragma unroll
        for (u32 k = 0; k < 4; ++k)
            if (first + k * blockDim.y < rows) values[k] = from[(first + k * blockDim.y) * stride + column];
    }
#pragma unroll
    for (u32 k = 0; k < 4; ++k)
        if (first + k * blockDim.y < rows) y[(u64)(first + k * blockDim.y) * width + to] = values[k];
}
