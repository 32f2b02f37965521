// Conjugate gradients for K y = b with K = node + t (stiffness - coupling) and the diagonal as preconditioner; see the
// page of `implicit`. The product with the coupling is `incidence_sum`. Sums have a fixed number of blocks and one
// order.

// y (+)= mass m x: mass of the vertex and factor of the irrep, null for ones.
extern "C" __global__ void weigh(const float *mass, const float *mix, const u32 *irrep_of, const float *x, float *y,
                                 u32 width, u64 count, u32 add) {
    u64 i = item();
    if (i >= count) return;
    float value = (mass ? mass[i / width] : 1.0f) * (mix ? mix[irrep_of[i % width]] : 1.0f) * x[i];
    y[i] = add ? y[i] + value : value;
}

// y = b / node.
extern "C" __global__ void start(const float *node, const float *b, float *y, u32 width, u64 count) {
    u64 i = item();
    if (i < count) y[i] = b[i] / node[i / width];
}

// Adds up `value(i)` for all numbers; one partial sum for each block.
template <typename Value> __device__ inline void partial_sum(u64 count, double *partials, Value value) {
    double sum = 0.0;
    for (u64 i = item(); i < count; i += (u64)gridDim.x * BLOCK) sum += value(i);
    sum = block_sum(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// scalars[slot] = sum of the partial sums. One block.
extern "C" __global__ void total(const double *__restrict__ partials, u32 count, double *scalars, u32 slot) {
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < count; i += BLOCK) sum += partials[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) scalars[slot] = sum;
}

// <b, b / diagonal>.
extern "C" __global__ void size(const float *__restrict__ node, const float *__restrict__ stiffness, float t,
                                const float *__restrict__ b, u32 width, u64 count, double *partials) {
    partial_sum(count, partials, [&](u64 i) {
        u32 vertex = i / width;
        return (double)b[i] * b[i] / (node[vertex] + t * stiffness[vertex]);
    });
}

// q = diagonal p - t q, with <p, q>.
extern "C" __global__ void product(const float *__restrict__ node, const float *__restrict__ stiffness, float t,
                                   const float *__restrict__ p, float *__restrict__ q, u32 width, u64 count,
                                   double *partials) {
    partial_sum(count, partials, [&](u64 i) {
        u32 vertex = i / width;
        float value = (node[vertex] + t * stiffness[vertex]) * p[i] - t * q[i];
        q[i] = value;
        return (double)p[i] * value;
    });
}

// r = b - q, p = r / diagonal, with <r, p>.
extern "C" __global__ void residual(const float *__restrict__ node, const float *__restrict__ stiffness, float t,
                                    const float *__restrict__ b, const float *__restrict__ q, float *__restrict__ r,
                                    float *__restrict__ p, u32 width, u64 count, double *partials) {
    partial_sum(count, partials, [&](u64 i) {
        u32 vertex = i / width;
        float rest = b[i] - q[i];
        r[i] = rest;
        p[i] = rest / (node[vertex] + t * stiffness[vertex]);
        return (double)rest * p[i];
    });
}

// y += a p, r -= a q with a = scalars[before] / scalars[curvature], with <r, r / diagonal>.
extern "C" __global__ void advance(const float *__restrict__ node, const float *__restrict__ stiffness, float t,
                                   const double *__restrict__ scalars, u32 before, u32 curvature,
                                   const float *__restrict__ p, const float *__restrict__ q, float *__restrict__ y,
                                   float *__restrict__ r, u32 width, u64 count, double *partials) {
    double bend = scalars[curvature];
    float step = bend > 0.0 ? (float)(scalars[before] / bend) : 0.0f;
    partial_sum(count, partials, [&](u64 i) {
        u32 vertex = i / width;
        y[i] += step * p[i];
        float rest = r[i] - step * q[i];
        r[i] = rest;
        return (double)rest * rest / (node[vertex] + t * stiffness[vertex]);
    });
}

// p = r / diagonal + b p with b = scalars[after] / scalars[before].
extern "C" __global__ void direction(const float *__restrict__ node, const float *__restrict__ stiffness, float t,
                                     const double *__restrict__ scalars, u32 before, u32 after,
                                     const float *__restrict__ r, float *__restrict__ p, u32 width, u64 count) {
    u64 i = item();
    if (i >= count) return;
    u32 vertex = i / width;
    float keep = scalars[before] > 0.0 ? (float)(scalars[after] / scalars[before]) : 0.0f;
    p[i] = r[i] / (node[vertex] + t * stiffness[vertex]) + keep * p[i];
}

// z = x y.
extern "C" __global__ void times_rows(const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ z,
                                      u64 count) {
    u64 i = item();
    if (i < count) z[i] = x[i] * y[i];
}

// dmix += sums over the components of each irrep.
extern "C" __global__ void fold(const float *__restrict__ sums, const u32 *__restrict__ irrep_of, u32 width,
                                float *__restrict__ dmix, u32 irreps) {
    u64 irrep = item();
    if (irrep >= irreps) return;
    float sum = 0.0f;
    for (u32 j = 0; j < width; ++j)
        if (irrep_of[j] == irrep) sum += sums[j];
    dmix[irrep] += sum;
}
