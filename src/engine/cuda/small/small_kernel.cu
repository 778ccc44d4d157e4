/* Small steps that are in no way usual, and the launch of all. */
#include "engine/cuda/small/small_kernel.cuh"

/* It may start while the kernel before it ends (wait_for_earlier_work), where GPUs can do that and that
 * kernel does not write the rows that this one reads before it waits. Its blocks are asked to be no more than
 * fit at once, and those of a later kernel come only when all of them are there: they can wait for one
 * another as in a cooperative launch, which cannot start early. If they do not fit, the launch is a
 * cooperative one: that fails with a sentence, where blocks that wait for blocks which never come would hang.
 */
static lk_status fits_at_once(lki_cuda *cuda, lki_cuda_small_function *kernel, int blocks,
                              size_t shared_nbytes, bool *fits)
{
    *fits = (const void *)kernel == cuda->fitting.kernel && shared_nbytes <= cuda->fitting.shared_nbytes &&
            blocks <= cuda->fitting.blocks;
    if (*fits) return LK_OK;
    int each = 0;
    LKI_CUDA(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, (const void *)kernel, BLOCK, shared_nbytes));
    *fits = blocks <= each * cuda->processor_count;
    if (*fits) cuda->fitting = {(const void *)kernel, shared_nbytes, each * cuda->processor_count};
    return LK_OK;
}

lk_status lki_cuda_small_launch(lki_cuda *cuda, const lki_cuda_small_facts *known,
                                const lki_cuda_small_args *args, int blocks, size_t shared_nbytes)
{
    lki_cuda_small_function *kernel = lki_cuda_small_of_floats(known);
    if (!kernel) kernel = lki_cuda_small_of_bytes(known);
    if (!kernel) kernel = small_kernel<facts<-1, -1, -1, -1>>;
    cudaLaunchAttribute how = {};
    bool fits;
    LKI_TRY(fits_at_once(cuda, kernel, blocks, shared_nbytes, &fits));
    if (cuda->major >= 9 && fits) {
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
