// One step of an optimiser for all parameters at once: a block for each piece of a parameter.

struct Tensor {
    float *value;
    const float *gradient;
    float *first;
    float *second;
    float *average; // null without averaging
    u64 length;
    u64 decays;
};

// Numbers of the rule; which ones a method reads is said below.
struct Rule {
    float beta1, beta2, rest1, rest2, rate, second_scale, epsilon, decay, shrink, average_rate;
};

constexpr u32 PIECE = 1024, EACH = PIECE / 256;

// A piece of a parameter, EACH numbers of it for each of 256 threads, which are in flight at once.
struct Piece {
    u64 first, end;

    // Calls `run(k, i)` for the numbers of this thread: its k-th one is the i-th of the tensor.
    template <typename Run> __device__ inline void each(Run run) const {
#pragma unroll
        for (u32 k = 0; k < EACH; ++k)
            if (u64 i = first + threadIdx.x + k * 256; i < end) run(k, i);
    }

    __device__ inline void load(const float *from, float (&to)[EACH]) const {
        each([&](u32 k, u64 i) { to[k] = from[i]; });
    }

    __device__ inline void store(const float (&from)[EACH], float *to) const {
        each([&](u32 k, u64 i) { to[i] = from[k]; });
    }
};

// Adam, or SGD with beta1 as the momentum. pieces: (tensor, piece of it).
template <bool ADAM>
__device__ inline void update(const Tensor *tensors, const uint2 *pieces, const Rule *rule_at) {
    Rule rule = *rule_at;
    uint2 which = pieces[blockIdx.x];
    Tensor tensor = tensors[which.x];
    u64 first = (u64)which.y * PIECE;
    Piece piece = {first, min(tensor.length, first + PIECE)};
    float decay = tensor.decays ? rule.decay : 0.0f, shrink = tensor.decays ? rule.shrink : 1.0f;
    float w[EACH], g[EACH], m[EACH], v[EACH], average[EACH];
    piece.load(tensor.value, w), piece.load(tensor.gradient, g), piece.load(tensor.first, m);
    if (ADAM) piece.load(tensor.second, v);
    if (tensor.average) piece.load(tensor.average, average);
#pragma unroll
    for (u32 k = 0; k < EACH; ++k) {
        g[k] += decay * w[k];
        if (ADAM) {
            m[k] = rule.beta1 * m[k] + rule.rest1 * g[k];
            v[k] = rule.beta2 * v[k] + rule.rest2 * g[k] * g[k];
            w[k] = w[k] * shrink - rule.rate * m[k] / (sqrtf(v[k] * rule.second_scale) + rule.epsilon);
        } else {
            m[k] = rule.beta1 * m[k] + g[k];
            w[k] -= rule.rate * m[k];
        }
        average[k] += rule.average_rate * (w[k] - average[k]);
    }
    piece.store(w, tensor.value), piece.store(m, tensor.first);
    if (ADAM) piece.store(v, tensor.second);
    if (tensor.average) piece.store(average, tensor.average);
}

extern "C" __global__ void adam(const Tensor *__restrict__ tensors, const uint2 *__restrict__ pieces,
                                const Rule *__restrict__ rule_at) {
    update<true>(tensors, pieces, rule_at);
}

extern "C" __global__ void sgd(const Tensor *__restrict__ tensors, const uint2 *__restrict__ pieces,
                               const Rule *__restrict__ rule_at) {
    update<false>(tensors, pieces, rule_at);
}

// partials[block] = sum of squares of the block's share of numbers.
extern "C" __global__ void square_partials(const float *__restrict__ values, u64 length, double *__restrict__ partials) {
    double sum = 0.0;
    for (u64 i = item(); i < length; i += (u64)gridDim.x * blockDim.x) sum += (double)values[i] * values[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// Scales numbers so that the root of the sum of the partials is at most `largest`.
extern "C" __global__ void clip(float *__restrict__ values, u64 length, const double *__restrict__ partials, u32 count,
                                double largest) {
    double sum = 0.0;
    for (u32 part = 0; part < count; ++part) sum += partials[part];
    double norm = sqrt(sum);
    if (!(norm > largest) || isinf(norm)) return;
    float factor = (float)(largest / norm);
    for (u64 i = item(); i < length; i += (u64)gridDim.x * blockDim.x) values[i] *= factor;
}
