// Products of rows in shared memory on tensor cores, with TENSOR 1 and THREADS threads in a block. This text stands
// before the kernels that use it.

// A factor of a product: tensor cores use 10 bits of mantissa.
__device__ inline float factor(float value) {
#if TENSOR && __CUDA_ARCH__ >= 800
    u32 rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
    return __uint_as_float(rounded);
#else
    return value;
#endif
}

#if TENSOR

// sums += a b, 16x8 times 8x8; lane 4 g + t holds a[g, g + 8][t, t + 4], b[t, t + 4][g], sums[g, g + 8][2 t, 2 t + 1].
__device__ inline void multiply(float (&sums)[4], const float (&a)[4], float b0, float b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
#endif
}

// 16 columns of the result, of one order.
struct Columns {
    u32 start;   // where its terms start in a row
    u32 steps;   // of 16 terms each
    u32 weights; // where its weights start, in runs of 4
    u32 first;   // where its numbers start in a result vector
    u32 count;   // how many of them are wanted
    u32 unused[3];
};

// Products of rows in shared memory with stride STRIDE and stacked weights: calls `store(row, number of the result,
// value)` for `groups` times 16 rows. stacked: for each of the columns, step, half of the columns and lane, the 4
// weights that the lane multiplies with.
template <u32 STRIDE, typename Store>
__device__ inline void multiply_rows(const float *tile, u32 groups, const float4 *__restrict__ stacked,
                                     const Columns *__restrict__ columns, u32 column_count, Store store) {
    u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (u32 part = threadIdx.x / 32; part < column_count * groups; part += THREADS / 32) {
        Columns of = columns[part % column_count];
        u32 top = part / column_count * 16 + g;
        const float *a = tile + top * STRIDE + of.start + t;
        const float4 *b = stacked + of.weights + lane;
        float sums[2][4] = {};
#pragma unroll 4
        for (u32 step = 0; step < of.steps; ++step, a += 16, b += 64) {
            float4 left = b[0], right = b[32];
            float low[4] = {a[0], a[8 * STRIDE], a[4], a[8 * STRIDE + 4]};
            float high[4] = {a[8], a[8 * STRIDE + 8], a[12], a[8 * STRIDE + 12]};
            multiply(sums[0], low, factor(left.x), factor(left.y));
            multiply(sums[1], low, factor(right.x), factor(right.y));
            multiply(sums[0], high, factor(left.z), factor(left.w));
            multiply(sums[1], high, factor(right.z), factor(right.w));
        }
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            u32 row = top + i % 4 / 2 * 8, column = i / 4 * 8 + 2 * t + i % 2;
            if (column < of.count) store(row, of.first + column, sums[i / 4][i % 4]);
        }
    }
}

#endif
