// Random words of Philox4x32-10, as in `random`: word i is word i mod 4 of the block i / 4 of the stream.

__device__ inline uint4 block_of(u64 block, u64 seed, u64 step) {
    uint4 c = make_uint4((u32)block, (u32)(block >> 32), (u32)step, (u32)(step >> 32));
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u32 low0 = 0xD2511F53u * c.x, high0 = __umulhi(0xD2511F53u, c.x);
        u32 low1 = 0xCD9E8D57u * c.z, high1 = __umulhi(0xCD9E8D57u, c.z);
        c = make_uint4(high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

