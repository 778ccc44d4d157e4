/* CUB's sort of pairs, as the engine calls it: stable, on a stream. */
#ifndef LKT_GPU_RADIX_SORT_CUH
#define LKT_GPU_RADIX_SORT_CUH

#include "gpu.h"

#include <string.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace cub
{

struct DeviceRadixSort {
    template <typename K, typename V>
    static cudaError_t SortPairs(void *memory, size_t &nbytes, const K *keys, K *sorted_keys, const V *values,
                                 V *sorted_values, int count, int begin_bit = 0, int end_bit = sizeof(K) * 8,
                                 cudaStream_t stream = NULL)
    {
        if (!memory) {
            nbytes = 1000;
            return cudaSuccess;
        }
        return lkt_gpu::enqueue(stream, [=] {
            auto part = [=](K key) { return (K)(key << (sizeof(K) * 8 - end_bit)) >> begin_bit; };
            std::vector<int> order((size_t)count);
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(),
                             [=](int a, int b) { return part(keys[a]) < part(keys[b]); });
            memset(memory, 0xff, 1000);
            for (int i = 0; i < count; i++) {
                sorted_keys[i] = keys[order[(size_t)i]];
                sorted_values[i] = values[order[(size_t)i]];
            }
        });
    }
};

} // namespace cub

#endif
