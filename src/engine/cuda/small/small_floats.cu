/* Usual small steps on rows of floats with classes of 8 bytes. */
#include "engine/cuda/small/small_kernel.cuh"

lki_cuda_small_function *lki_cuda_small_of_floats(const lki_cuda_small_facts *facts)
{
    return find_rule<LKI_CUDA_COPY_16, LKI_CUDA_COPY_8>(*facts);
}
