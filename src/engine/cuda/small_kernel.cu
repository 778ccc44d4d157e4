/* Small steps that are in no way usual, and the launch of all. */
#include "engine/cuda/small_kernel.cuh"

/* May start while the kernel before it ends (wait_for_earlier_work). Its blocks are never more than fit at
 * once, and those of a later kernel come only when all of them are there: they can wait for one another as in
 * a cooperative launch, which cannot start early. */
static lk_status launch_early(lki_cuda *cuda, lki_cuda_small_function *kernel, int blocks,
                              size_t shared_nbytes, void **arguments)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {dim3((unsigned)blocks), dim3(BLOCK), shared_nbytes,
                                 cuda->compute,          &early,      1};
    LKI_CUDA(cudaLaunchKernelExC(&config, (const void *)kernel, arguments));
    return LK_OK;
}

lk_status lki_cuda_small_launch(lki_cuda *cuda, const lki_cuda_small_facts *known,
                                const lki_cuda_small_args *args, int begin, int end, int blocks,
                                size_t shared_nbytes, bool waits)
{
    lki_cuda_small_function *kernel = lki_cuda_small_of_floats(known);
    if (!kernel) kernel = lki_cuda_small_of_bytes(known);
    if (!kernel) kernel = small_kernel<facts<-1, -1, -1, -1>>;
    void *arguments[] = {(void *)args, &begin, &end};
    if (!cuda->is_cooperative || (!waits && cuda->major < 9)) {
        kernel<<<blocks, BLOCK, shared_nbytes, cuda->compute>>>(*args, begin, end);
        LKI_LAUNCHED();
        return LK_OK;
    }
    if (cuda->major >= 9) return launch_early(cuda, kernel, blocks, shared_nbytes, arguments);
    LKI_CUDA(cudaLaunchCooperativeKernel((const void *)kernel, dim3((unsigned)blocks), dim3(BLOCK), arguments,
                                         shared_nbytes, cuda->compute));
    return LK_OK;
}
