// Scales of numbers in fp16, whose range is smaller than that of tf32; see the page of `diffusion_net`. With bf16 all
// are 1, and nothing is measured.
//
// A scale is a power of two that takes a bound on all numbers of a matrix to between 2^14 and 2^15, so nothing
// overflows. Bounds follow from what is measured: the largest numbers of x, g, A g, and the gradients of y and of the
// spectra, and norms of eigenvectors and weights. A bound may be far above the largest number: fp16 keeps all bits of
// numbers down to 2^-29 of it.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// What is measured of eigenvectors: the largest norm of a row, of both components of a row of gradients, of a row times
// its mass, and the last one times the number of vertices.
constexpr u32 PHI = 0, GRADIENT = 1, WEIGHTED = 2, PROJECTED = 3;
// What is measured of a block. Norms are those of a, b, W1x, W1d, W1p, W2 and W3: the largest sum of a row or column.
constexpr u32 LARGEST_X = 0, NORMS = 1, BANDS = 8, FIRST_BIAS = 9, HIDDEN_BIAS = 10, LARGEST_G = 11, LARGEST_MAPPED = 12, LARGEST_DY = 13,
              LARGEST_SPECTRUM = 14;
// The scale of p, which is at most 1.
constexpr float P_SCALE = FP16 ? 1024.0f : 1.0f;

// The scale for a bound. Exponents are limited, so that products of some scales are finite.
__device__ inline float scale_for(float bound) {
    if (!FP16 || !(bound > 0.0f && bound < __int_as_float(0x7f800000))) return 1.0f;
    int exponent = 14 - ((int)(__float_as_uint(bound) >> 23) - 127);
    return __int_as_float((min(max(exponent, -40), 40) + 127) << 23);
}

// A factor that is 1 with bf16, which the compiler has to know.
__device__ inline float scale_or_one(float factor) { return FP16 ? factor : 1.0f; }

// Makes an entry at least as large as the numbers of all threads of the warp.
__device__ inline void measure(float *entry, float number) {
    u32 largest = __reduce_max_sync(0xffffffffu, __float_as_uint(number));
    if (threadIdx.x % 32 == 0) atomicMax((u32 *)entry, largest);
}

// The same for all threads of a block: many of them would wait for each other.
__device__ inline void measure_block(float *entry, float number) {
    __shared__ u32 largest[32];
    u32 of_warp = __reduce_max_sync(0xffffffffu, __float_as_uint(number));
    if (threadIdx.x < 32) largest[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = of_warp;
    __syncthreads();
    if (threadIdx.x < 32) measure(entry, __uint_as_float(largest[threadIdx.x]));
}

// What was measured of a batch and of a block. drop: the factor of what dropout keeps.
struct Measured {
    const float *bases, *block;
    float drop;

    __device__ inline float of_basis(u32 i) const { return FP16 ? bases[i] : 1.0f; }
    __device__ inline float of(u32 i) const { return FP16 ? block[i] : 1.0f; }
    __device__ inline float norm(u32 i) const { return of(NORMS + i); }

    // Bounds on the spectrum and its columns, h1, h2, and the gradients before both activations and of p.
    __device__ inline float spectrum() const { return of(LARGEST_X) * of_basis(PROJECTED) * (1.0f + of(BANDS)); }
    __device__ inline float first() const {
        return (of(FIRST_BIAS) + of(LARGEST_X) * norm(2) + norm(4) + of_basis(PHI) * spectrum() * norm(3)) * drop;
    }
    __device__ inline float second() const { return (of(HIDDEN_BIAS) + first() * norm(5)) * drop; }
    __device__ inline float dsecond() const { return of(LARGEST_DY) * norm(6) * drop; }
    __device__ inline float dfirst() const { return dsecond() * norm(5) * drop; }
    __device__ inline float dinvariants() const { return dfirst() * norm(4); }
};

// Scales of packed matrices. `first`: of the sums for h1, which have three terms.
struct Scales {
    const Measured &m;
    __device__ inline float phi() const { return scale_for(m.of_basis(PHI)); }
    __device__ inline float gradient() const { return scale_for(m.of_basis(GRADIENT)); }
    __device__ inline float weighted() const { return scale_for(m.of_basis(WEIGHTED)); }
    __device__ inline float x() const { return scale_for(m.of(LARGEST_X)); }
    __device__ inline float spectrum() const { return scale_for(m.spectrum()); }
    // Of S a^T and S b^T.
    __device__ inline float maps() const { return scale_for(m.spectrum() * fmaxf(m.norm(0), m.norm(1))); }
    __device__ inline float first_sums() const {
        float own = x() * scale_for(m.norm(2)), diffused = phi() * scale_for(m.spectrum() * m.norm(3)), p = P_SCALE * scale_for(m.norm(4));
        return fminf(own, fminf(diffused, p));
    }
    __device__ inline float first() const { return scale_for(m.first()); }
    __device__ inline float second() const { return scale_for(m.second()); }
    // Of W1x, W1p, W2 and W3, from 2, 4, 5 and 6 on.
    __device__ inline float weight(u32 i) const { return scale_for(m.norm(i)); }
    __device__ inline float dy() const { return scale_for(m.of(LARGEST_DY)); }
    __device__ inline float dsecond() const { return scale_for(m.dsecond()); }
    __device__ inline float dfirst() const { return scale_for(m.dfirst()); }
    // What the gradients of p times g and A g, as they are scaled then, are multiplied with.
    __device__ inline float by_vectors() const {
        float p = dfirst() * weight(4), by_mapped = scale_for(m.dinvariants() * m.of(LARGEST_MAPPED)), by_g = scale_for(m.dinvariants() * m.of(LARGEST_G));
        return fminf(by_mapped / (p * gradient() * maps()), by_g / (p * gradient() * spectrum()));
    }
    // Of the gradients of g, and of A g.
    __device__ inline float dg() const { return by_vectors() * dfirst() * weight(4) * gradient() * maps(); }
    __device__ inline float dmapped() const { return by_vectors() * dfirst() * weight(4) * gradient() * spectrum(); }
    __device__ inline float dspectrum() const { return scale_for(m.of(LARGEST_SPECTRUM)); }
};

#endif
