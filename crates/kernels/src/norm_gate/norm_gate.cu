// Norm and gated nonlinearities, one thread for each irrep of each vertex; see the documentation of `norm_gate`.
// irreps: (place of a, place of b, order); those of order 0 come first, `scalars` of them.

extern "C" __global__ void norm_forward(const float *__restrict__ x, const float *__restrict__ bias,
                                        float *__restrict__ y, const uint4 *__restrict__ irreps, u32 irrep_count,
                                        u32 scalars, u32 width, float epsilon, u32 vertices) {
    u64 i = item();
    if (i >= (u64)vertices * irrep_count) return;
    u32 unit = i % irrep_count;
    uint4 irrep = irreps[unit];
    u64 row = i / irrep_count * width;
    float a = x[row + irrep.x];
    if (irrep.z == 0) {
        y[row + irrep.x] = activation(a);
        return;
    }
    float b = x[row + irrep.y];
    float r = sqrtf(a * a + b * b + epsilon);
    float factor = activation(r + bias[unit - scalars]) / r;
    y[row + irrep.x] = a * factor;
    y[row + irrep.y] = b * factor;
}

// of_bias[vertex][irrep of order above 0]: the gradient of the bias before the sum over vertices.
extern "C" __global__ void norm_backward(const float *__restrict__ x, const float *__restrict__ bias,
                                         const float *__restrict__ dy, float *__restrict__ dx,
                                         float *__restrict__ of_bias, const uint4 *__restrict__ irreps,
                                         u32 irrep_count, u32 scalars, u32 width, float epsilon, u32 vertices) {
    u64 i = item();
    if (i >= (u64)vertices * irrep_count) return;
    u32 unit = i % irrep_count;
    u64 vertex = i / irrep_count, row = vertex * width;
    uint4 irrep = irreps[unit];
    float a = x[row + irrep.x], da = dy[row + irrep.x];
    if (irrep.z == 0) {
        dx[row + irrep.x] = activation_slope(a) * da;
        return;
    }
    float b = x[row + irrep.y], db = dy[row + irrep.y];
    float r = sqrtf(a * a + b * b + epsilon);
    float shifted = r + bias[unit - scalars];
    float value = activation(shifted) / r, slope = activation_slope(shifted);
    float along = (a * da + b * db) / r;
    float radial = (slope - value) / r * along;
    dx[row + irrep.x] = value * da + radial * a;
    dx[row + irrep.y] = value * db + radial * b;
    of_bias[vertex * (irrep_count - scalars) + unit - scalars] = slope * along;
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Places are those of the output; the input has `gates` more scalars after the first `scalars`.
extern "C" __global__ void gated_forward(const float *__restrict__ x, float *__restrict__ y,
                                         const uint4 *__restrict__ irreps, u32 irrep_count, u32 scalars, u32 width,
                                         u32 vertices) {
    u64 i = item();
    if (i >= (u64)vertices * irrep_count) return;
    u32 unit = i % irrep_count, gates = irrep_count - scalars;
    uint4 irrep = irreps[unit];
    u64 vertex = i / irrep_count;
    const float *from = x + vertex * (width + gates);
    float *to = y + vertex * width;
    if (irrep.z == 0) {
        to[irrep.x] = activation(from[irrep.x]);
        return;
    }
    float gate = sigmoid(from[unit]);
    to[irrep.x] = gate * from[irrep.x + gates];
    to[irrep.y] = gate * from[irrep.y + gates];
}

extern "C" __global__ void gated_backward(const float *__restrict__ x, const float *__restrict__ dy,
                                          float *__restrict__ dx, const uint4 *__restrict__ irreps, u32 irrep_count,
                                          u32 scalars, u32 width, u32 vertices) {
    u64 i = item();
    if (i >= (u64)vertices * irrep_count) return;
    u32 unit = i % irrep_count, gates = irrep_count - scalars;
    uint4 irrep = irreps[unit];
    u64 vertex = i / irrep_count;
    const float *from = x + vertex * (width + gates), *dto = dy + vertex * width;
    float *dfrom = dx + vertex * (width + gates);
    if (irrep.z == 0) {
        dfrom[irrep.x] = activation_slope(from[irrep.x]) * dto[irrep.x];
        return;
    }
    float gate = sigmoid(from[unit]), da = dto[irrep.x], db = dto[irrep.y];
    dfrom[irrep.x + gates] = gate * da;
    dfrom[irrep.y + gates] = gate * db;
    float along = from[irrep.x + gates] * da + from[irrep.y + gates] * db;
    dfrom[unit] = gate * (1.0f - gate) * along;
}
