/* Usual small steps on rows of bytes, pictures mostly, with classes that are bytes too. */
#include "engine/cuda/small/small_kernel.cuh"

lki_cuda_small_function *lki_cuda_small_of_bytes(const lki_cuda_small_facts *facts)
{
    return find_rule<LKI_CUDA_BYTES_TO_F32, LKI_CUDA_BYTES_TO_I64>(*facts);
}
