/* Memory of the device and of the host, and copies between them: beside the computation where nobody waits.
 */
#include "engine/cuda/core.cuh"

#include <string.h>

/* One byte more than asked for where nothing was: an address must be there. Zeroed when it returns: whoever
 * writes there next may do so beside the computation. */
void *lki_cuda_alloc(lk_engine *engine, size_t nbytes, const char *what)
{
    lki_cuda *cuda = lki_cuda_enter(engine);
    void *data;
    if (nbytes == 0) nbytes = 1;
    if (lki_cuda_malloc(&data, nbytes, what) != LK_OK) return NULL;
    cudaError_t error = cudaMemsetAsync(data, 0, nbytes, cuda->compute);
    if (error == cudaSuccess) error = cudaStreamSynchronize(cuda->compute);
    if (error == cudaSuccess) return data;
    cudaFree(data);
    lki_cuda_error(error, what);
    return NULL;
}

/* Work under way may still use the memory, and so may what was only asked for. */
static void wait_for_streams(lki_cuda *cuda)
{
    lki_cuda_flush_gathers(cuda);
    cudaStreamSynchronize(cuda->compute);
    cudaStreamSynchronize(cuda->side);
    cudaStreamSynchronize(cuda->copy);
}

void lki_cuda_release(lk_engine *engine, void *data)
{
    if (!data) return;
    wait_for_streams(lki_cuda_enter(engine));
    cudaFree(data);
}

void *lki_cuda_alloc_host(lk_engine *engine, size_t nbytes, const char *what)
{
    lki_cuda_enter(engine);
    void *data;
    if (lki_cuda_malloc_host(&data, nbytes ? nbytes : 1, cudaHostAllocMapped, what) != LK_OK) return NULL;
    memset(data, 0, nbytes);
    return data;
}

void lki_cuda_release_host(lk_engine *engine, void *data)
{
    if (!data) return;
    wait_for_streams(lki_cuda_enter(engine));
    cudaFreeHost(data);
}

lk_status lki_cuda_upload(lk_engine *engine, void *device, const void *host, size_t nbytes)
{
    if (nbytes == 0) return LK_OK;
    lki_cuda *cuda = lki_cuda_enter(engine);
    LKI_CUDA(cudaMemcpyAsync(device, host, nbytes, cudaMemcpyHostToDevice, cuda->compute));
    LKI_CUDA(cudaStreamSynchronize(cuda->compute)); /* the host's memory has been read */
    return LK_OK;
}

lk_status lki_cuda_download(lk_engine *engine, void *host, const void *device, size_t nbytes)
{
    if (nbytes == 0) return LK_OK;
    lki_cuda *cuda = lki_cuda_enter(engine);
    LKI_CUDA(cudaMemcpyAsync(host, device, nbytes, cudaMemcpyDeviceToHost, cuda->compute));
    LKI_CUDA(cudaStreamSynchronize(cuda->compute));
    return LK_OK;
}

lk_status lki_cuda_feed(lk_engine *engine, void *device, const void *host, size_t nbytes)
{
    bool met;
    if (nbytes == 0) return LK_OK;
    lki_cuda *cuda = lki_cuda_enter(engine);
    LKI_TRY(lki_cuda_write_after_gathers(cuda, device, nbytes, &met));
    LKI_CUDA(cudaMemcpyAsync(device, host, nbytes, cudaMemcpyHostToDevice, cuda->compute));
    return LK_OK;
}

/* On a stream of its own, which the next step waits for (lki_cuda_take_fed); little with the step's first
 * launch, which costs neither a copy nor a wait. What a batch that never began left to be done comes first.
 */
lk_status lki_cuda_feed_ahead(lk_engine *engine, void *device, const void *host, size_t nbytes)
{
    lki_cuda *cuda = lki_cuda_enter(engine);
    bool met;
    if (nbytes == 0) return LK_OK;
    LKI_TRY(lki_cuda_write_after_gathers(cuda, device, nbytes, &met));
    if (met) return lki_cuda_feed(engine, device, host, nbytes);
    if (lki_cuda_gather_bytes(cuda, device, host, nbytes)) return LK_OK;
    LKI_CUDA(cudaMemcpyAsync(device, host, nbytes, cudaMemcpyHostToDevice, cuda->copy));
    cuda->is_fed_ahead = true;
    return LK_OK;
}

lk_status lki_cuda_take_fed(lki_cuda *cuda)
{
    if (!cuda->is_fed_ahead) return LK_OK;
    LKI_CUDA(cudaEventRecord(cuda->fed, cuda->copy));
    LKI_CUDA(cudaStreamWaitEvent(cuda->compute, cuda->fed, 0));
    cuda->is_fed_ahead = false;
    return LK_OK;
}

enum { MOST_FETCHED = 1 << 20 };

static lk_status note_fetch(lki_cuda *cuda, void *host, const void *device, size_t nbytes)
{
    if (!cuda->recording || nbytes > MOST_FETCHED) return LK_OK;
    lki_cuda_note *note = lki_cuda_take_note(cuda, LKI_CUDA_SMALL_COPY, 1, (int64_t)(nbytes + 4095) / 4096);
    if (!note) return LK_OK;
    note->op.copy.from = (const unsigned char *)device;
    note->op.copy.nbytes = (int)nbytes;
    lki_cuda_reads(note, device, nbytes, 0);
    LKI_CUDA(cudaHostGetDevicePointer((void **)&note->op.copy.to, host, 0));
    return LK_OK;
}

/* Beside the computation: what comes after does not wait for the copy. */
lk_status lki_cuda_fetch(lk_engine *engine, void *host, const void *device, size_t nbytes)
{
    if (nbytes == 0) return LK_OK;
    lki_cuda *cuda = lki_cuda_enter(engine);
    LKI_TRY(note_fetch(cuda, host, device, nbytes));
    LKI_TRY(lki_cuda_fork(cuda));
    LKI_CUDA(cudaMemcpyAsync(host, device, nbytes, cudaMemcpyDeviceToHost, cuda->side));
    return LK_OK;
}
