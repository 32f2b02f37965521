// Columns of a basis at points inside the cells of the vertices; see `points.rs`.

struct CellPoint {
    float own;
    u32 vertices[2];
    float weights[2];
    float transport[2];
};

// One thread for each column of a row: a scalar, or above order 0 a complex number, real parts first.
extern "C" __global__ void basis_at_points(const float *__restrict__ from, const CellPoint *__restrict__ points,
                                           u32 rows, u32 columns, u32 order, float factor, float *__restrict__ to) {
    u64 i = item();
    if (i >= (u64)rows * columns) return;
    u32 p = (u32)i / columns, column = (u32)i % columns;
    CellPoint point = points[p];
    u64 stride = (u64)columns * (order == 0 ? 1 : 2);
    const float *row = from + p * stride + column;
    float real = point.own * row[0], imaginary = order == 0 ? 0.0f : point.own * row[columns];
#pragma unroll
    for (u32 n = 0; n < 2; ++n) {
        const float *there = from + point.vertices[n] * stride + column;
        float weight = point.weights[n];
        if (order == 0) {
            real += weight * there[0];
        } else {
            float s, c;
            sincosf((float)order * point.transport[n], &s, &c);
            float x = weight * there[0], y = weight * there[columns];
            real += c * x - s * y;
            imaginary += s * x + c * y;
        }
    }
    to[p * stride + column] = factor * real;
    if (order > 0) to[p * stride + columns + column] = factor * imaginary;
}
