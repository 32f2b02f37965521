// The filters between the two products of a diffusion; see the page of `diffusion`. `filter.cu` stands before this
// text.

// The coefficient of a row and a channel from the raw spectrum of a mesh, as a complex number. The raw spectrum is the
// sum of `slabs` parts.
__device__ inline float2 coefficient(const float *raw, u32 slabs, u64 slab_size, u32 columns, u32 channels,
                                     u32 is_complex, u32 row, u32 channel) {
    u32 width = is_complex ? 2 * channels : channels;
    const float *real = raw + row * width + channel;
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll 4
    for (u32 slab = 0; slab < slabs; ++slab, real += slab_size) {
        sum.x += real[0];
        if (!is_complex) continue;
        const float *imaginary = real + columns * width;
        sum.x += imaginary[channels];
        sum.y += real[channels] - imaginary[0];
    }
    return sum;
}

// The right factor of an expansion of a coefficient, in place of the first part of the raw spectrum.
__device__ inline void store(float *raw, u32 columns, u32 channels, u32 is_complex, u32 row, u32 channel, float2 s) {
    if (!is_complex) {
        raw[row * channels + channel] = s.x;
        return;
    }
    float *real = raw + row * 2 * channels + channel, *imaginary = real + columns * 2 * channels;
    real[0] = s.x, real[channels] = s.y;
    imaginary[0] = -s.y, imaginary[channels] = s.x;
}

// y = m x for each row.
extern "C" __global__ void weigh(const float *mass, const float *x, float *y, u32 width, u64 count) {
    in_fours(count, [&](u64 i) { return mass[i / width] * x[i]; }, [&](u64 i, float value) { y[i] = value; });
}

// One thread for each coefficient of an order. `raw` and `saved` begin at the order; a mesh has `slabs` parts of
// `slab_size` raw numbers.
extern "C" __global__ void filter(float *__restrict__ raw, u32 slabs, u64 slab_size, float *__restrict__ saved,
                                  u64 saved_stride, const float *__restrict__ eigenvalues,
                                  const float *__restrict__ log_times, const float *__restrict__ bands, u32 meshes,
                                  u32 columns, u32 channels, u32 is_complex) {
    u64 i = item();
    if (i >= (u64)meshes * columns * channels) return;
    u32 channel = (u32)(i % channels), at = (u32)(i / channels), mesh = at / columns, row = at % columns;
    raw += mesh * slabs * slab_size;
    float2 s = coefficient(raw, slabs, slab_size, columns, channels, is_complex, row, channel);
    float *kept = saved + mesh * saved_stride + (u64)row * channels * (is_complex ? 2 : 1) + channel;
    kept[0] = s.x;
    if (is_complex) kept[channels] = s.y;
    float f = filter_of(eigenvalues[at], log_times[channel], bands[channel]).f;
    store(raw, columns, channels, is_complex, row, channel, make_float2(f * s.x, f * s.y));
}

// Blocks of 32 channels and 8 rows at a time. Those of one grid row share out the rows of all meshes. Each leaves its
// sums of the gradients by the times, then by the bands: partials[grid row][2][channels].
extern "C" __global__ void filter_backward(float *__restrict__ raw, u32 slabs, u64 slab_size,
                                           const float *__restrict__ saved, u64 saved_stride,
                                           const float *__restrict__ eigenvalues, const float *__restrict__ log_times,
                                           const float *__restrict__ bands, float *__restrict__ partials, u32 meshes,
                                           u32 columns, u32 channels, u32 is_complex) {
    __shared__ float sums[2][8][32];
    u32 channel = blockIdx.x * 32 + threadIdx.x;
    float by_time = 0.0f, by_band = 0.0f;
    if (channel < channels) {
        for (u32 at = blockIdx.y * 8 + threadIdx.y; at < meshes * columns; at += gridDim.y * 8) {
            u32 mesh = at / columns, row = at % columns;
            float *spectrum = raw + mesh * slabs * slab_size;
            float2 ds = coefficient(spectrum, slabs, slab_size, columns, channels, is_complex, row, channel);
            const float *kept = saved + mesh * saved_stride + (u64)row * channels * (is_complex ? 2 : 1) + channel;
            float product = ds.x * kept[0] + (is_complex ? ds.y * kept[channels] : 0.0f);
            Filter one = filter_of(eigenvalues[at], log_times[channel], bands[channel]);
            by_time += one.by_time * product;
            by_band += one.by_band * product;
            store(spectrum, columns, channels, is_complex, row, channel, make_float2(one.f * ds.x, one.f * ds.y));
        }
    }
    sums[0][threadIdx.y][threadIdx.x] = by_time;
    sums[1][threadIdx.y][threadIdx.x] = by_band;
    __syncthreads();
    if (threadIdx.y > 0 || channel >= channels) return;
    for (u32 row = 1; row < 8; ++row) by_time += sums[0][row][threadIdx.x], by_band += sums[1][row][threadIdx.x];
    partials += (u64)blockIdx.y * 2 * channels + channel;
    partials[0] = by_time;
    partials[channels] = by_band;
}

// Adds the partial sums of all grid rows to the gradients, one thread for each channel.
extern "C" __global__ void add_filter_sums(const float *__restrict__ partials, u32 count, u32 channels,
                                           float *__restrict__ dlog_times, float *__restrict__ dbands) {
    u64 channel = item();
    if (channel >= channels) return;
    float by_time = 0.0f, by_band = 0.0f;
#pragma unroll 8
    for (u32 part = 0; part < count; ++part) {
        by_time += partials[part * 2 * channels + channel];
        by_band += partials[(part * 2 + 1) * channels + channel];
    }
    dlog_times[channel] += by_time;
    dbands[channel] += by_band;
}
