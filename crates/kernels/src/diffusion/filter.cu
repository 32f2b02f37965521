// The filter of an eigenvalue, and its derivatives.

struct Filter {
    float f, by_time, by_band;
};

__device__ inline Filter filter_of(float eigenvalue, float log_time, float band) {
    float u = eigenvalue * expf(log_time), decay = expf(-u);
    return {decay * (1.0f + band * u), u * decay * (band - 1.0f - band * u), u * decay};
}
