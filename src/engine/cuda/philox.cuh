/* Random numbers that are drawn where they are used.
 *
 * Philox4x32-10 (Salmon et al., 2011) makes four numbers of a key and a counter: the key is this step's draw
 * from the generator, which begin_step puts on the device, and the counter is the place of the element and
 * the number of the call. So a program that is replayed draws anew, and the order of the threads means
 * nothing. */
#ifndef LKI_CUDA_PHILOX_CUH
#define LKI_CUDA_PHILOX_CUH

#include <cuda_runtime.h>

struct lki_cuda_quad {
    unsigned at[4];
};

static __device__ inline lki_cuda_quad lki_cuda_philox(uint2 key, lki_cuda_quad counter)
{
#pragma unroll
    for (int round = 0; round < 10; round++) {
        unsigned low0 = counter.at[0] * 0xD2511F53u, high0 = __umulhi(counter.at[0], 0xD2511F53u);
        unsigned low1 = counter.at[2] * 0xCD9E8D57u, high1 = __umulhi(counter.at[2], 0xCD9E8D57u);
        counter = {{high1 ^ counter.at[1] ^ key.x, low1, high0 ^ counter.at[3] ^ key.y, low0}};
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}

#endif
