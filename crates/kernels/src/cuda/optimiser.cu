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

// Stores a new value, and moves the average towards it.
__device__ inline void store(const Tensor &tensor, const Rule &rule, u64 i, float w) {
    tensor.value[i] = w;
    if (tensor.average) tensor.average[i] += rule.average_rate * (w - tensor.average[i]);
}

constexpr u32 PIECE = 1024;

// pieces: (tensor, piece of it).
extern "C" __global__ void adam(const Tensor *__restrict__ tensors, const uint2 *__restrict__ pieces,
                                const Rule *__restrict__ rule_at) {
    Rule rule = *rule_at;
    uint2 piece = pieces[blockIdx.x];
    Tensor tensor = tensors[piece.x];
    float decay = tensor.decays ? rule.decay : 0.0f, shrink = tensor.decays ? rule.shrink : 1.0f;
    u64 first = (u64)piece.y * PIECE, end = min(tensor.length, first + PIECE);
    for (u64 i = first + threadIdx.x; i < end; i += blockDim.x) {
        float w = tensor.value[i];
        float g = tensor.gradient[i] + decay * w;
        float m = rule.beta1 * tensor.first[i] + rule.rest1 * g;
        float v = rule.beta2 * tensor.second[i] + rule.rest2 * g * g;
        tensor.first[i] = m;
        tensor.second[i] = v;
        float size = sqrtf(v * rule.second_scale) + rule.epsilon;
        store(tensor, rule, i, w * shrink - rule.rate * m / size);
    }
}

// beta1 is the momentum.
extern "C" __global__ void sgd(const Tensor *__restrict__ tensors, const uint2 *__restrict__ pieces,
                               const Rule *__restrict__ rule_at) {
    Rule rule = *rule_at;
    uint2 piece = pieces[blockIdx.x];
    Tensor tensor = tensors[piece.x];
    float decay = tensor.decays ? rule.decay : 0.0f;
    u64 first = (u64)piece.y * PIECE, end = min(tensor.length, first + PIECE);
    for (u64 i = first + threadIdx.x; i < end; i += blockDim.x) {
        float w = tensor.value[i];
        float m = rule.beta1 * tensor.first[i] + (tensor.gradient[i] + decay * w);
        tensor.first[i] = m;
        store(tensor, rule, i, w - rule.rate * m);
    }
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
