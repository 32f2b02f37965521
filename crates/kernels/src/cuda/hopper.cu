// What kernels for Hopper (compute capability 9.0) share: barriers, copies to shared memory, and products on tensor
// cores (wgmma).

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ inline void init_barrier(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}

__device__ inline void arrive(u32 barrier, u32 count = 1) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ inline void wait(u32 barrier, u32 parity) {
    u32 done = 0;
    while (!done)
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
}

__device__ inline void expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ inline void load(u32 to, const void *from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
                 "r"(barrier)
                 : "memory");
}

// A matrix in shared memory with swizzles of 128 bytes: panels of 128 bytes of eight rows follow each other, and
// `group` bytes lie from one group of eight rows to the next.
__device__ inline u64 matrix(u32 address, u32 group) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)(1024 >> 4) << 16 | (u64)(group >> 4) << 32 | 1ull << 62;
}

#define P8(a, b, c, d, e, f, g, h) "%" #a ",%" #b ",%" #c ",%" #d ",%" #e ",%" #f ",%" #g ",%" #h
#define P32_0    \
    P8(0, 1, 2, 3, 4, 5, 6, 7) "," P8(8, 9, 10, 11, 12, 13, 14, 15) "," \
    P8(16, 17, 18, 19, 20, 21, 22, 23) "," P8(24, 25, 26, 27, 28, 29, 30, 31)
#define P32_1    \
    P8(32, 33, 34, 35, 36, 37, 38, 39) "," P8(40, 41, 42, 43, 44, 45, 46, 47) "," \
    P8(48, 49, 50, 51, 52, 53, 54, 55) "," P8(56, 57, 58, 59, 60, 61, 62, 63)
#define P32_2    \
    P8(64, 65, 66, 67, 68, 69, 70, 71) "," P8(72, 73, 74, 75, 76, 77, 78, 79) "," \
    P8(80, 81, 82, 83, 84, 85, 86, 87) "," P8(88, 89, 90, 91, 92, 93, 94, 95)
#define P32_3    \
    P8(96, 97, 98, 99, 100, 101, 102, 103) "," P8(104, 105, 106, 107, 108, 109, 110, 111) "," \
    P8(112, 113, 114, 115, 116, 117, 118, 119) "," P8(120, 121, 122, 123, 124, 125, 126, 127)
#define R8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define R32(d, i) R8(d, i), R8(d, i + 8), R8(d, i + 16), R8(d, i + 24)

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <u32 PENDING> __device__ inline void wait_for_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }

// Keeps the compiler from reading registers before the products that write them are done.
template <u32 COUNT> __device__ inline void fence_registers(float (&numbers)[COUNT]) {
#pragma unroll
    for (u32 i = 0; i < COUNT; ++i) asm volatile("" : "+f"(numbers[i])::"memory");
}

#endif

