/* Small steps that are in no way usual, and the launch of all. */
#include "engine/cuda/small_kernel.cuh"

/* It may start while the kernel before it ends (wait_for_earlier_work), where GPUs can do that and that
 * kernel does not write the rows that this one reads before it waits. Its blocks are never more than fit at
 * once, and those of a later kernel come only when all of them are there: they can wait for one another as in
 * a cooperative launch, which cannot start early. */
lk_status lki_cuda_small_launch(lki_cuda *cuda, const lki_cuda_small_facts *known,
                                const lki_cuda_small_args *args, int blocks, size_t shared_nbytes)
{
    lki_cuda_small_function *kernel = lki_cuda_small_of_floats(known);
    if (!kernel) kernel = lki_cuda_small_of_bytes(known);
    if (!kernel) kernel = small_kernel<facts<-1, -1, -1, -1>>;
    cudaLaunchAttribute how = {};
    if (cuda->major >= 9) {
        how.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        how.val.programmaticStreamSerializationAllowed = !cuda->has_fresh_rows;
    } else {
        how.id = cudaLaunchAttributeCooperative;
        how.val.cooperative = args->waits;
    }
    cudaLaunchConfig_t config = {dim3((unsigned)blocks), dim3(BLOCK), shared_nbytes, cuda->compute, &how, 1};
    cuda->has_fresh_rows = false;
    LKI_CUDA(cudaLaunchKernelEx(&config, kernel, *args));
    return LK_OK;
}
