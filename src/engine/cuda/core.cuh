/* The slots of the engine's table that have files of their own; what each does says lk_engine_ops. */
#ifndef LKI_CUDA_CORE_CUH
#define LKI_CUDA_CORE_CUH

#include "engine/cuda/small/small.cuh"

/* What every slot begins with: the engine's GPU becomes the thread's, whoever had to do with another one
 * before. To ask is cheaper than to set. Where it fails, so does the slot's own work. */
static inline lki_cuda *lki_cuda_enter(lk_engine *engine)
{
    lki_cuda *cuda = (lki_cuda *)engine->state;
    int current = -1;
    if (cudaGetDevice(&current) != cudaSuccess || current != cuda->device) cudaSetDevice(cuda->device);
    return cuda;
}

/* memory.cu */
void *lki_cuda_alloc(lk_engine *engine, size_t nbytes, const char *what);
void lki_cuda_release(lk_engine *engine, void *data);
void *lki_cuda_alloc_host(lk_engine *engine, size_t nbytes, const char *what);
void lki_cuda_release_host(lk_engine *engine, void *data);
lk_status lki_cuda_upload(lk_engine *engine, void *device, const void *host, size_t nbytes);
lk_status lki_cuda_download(lk_engine *engine, void *host, const void *device, size_t nbytes);
lk_status lki_cuda_feed(lk_engine *engine, void *device, const void *host, size_t nbytes);
lk_status lki_cuda_feed_ahead(lk_engine *engine, void *device, const void *host, size_t nbytes);
lk_status lki_cuda_fetch(lk_engine *engine, void *host, const void *device, size_t nbytes);

/* faults.cu: what synchronize says. Of a wrong index that was found: its sentence, and the call in *failed,
 * which may be NULL. */
lk_status lki_cuda_take_fault(lki_cuda *cuda, const lk_call **failed);

/* program.cu */
lk_status lki_cuda_record_begin(lk_engine *engine);
lk_status lki_cuda_record_end(lk_engine *engine, void **program);
lk_status lki_cuda_replay(lk_engine *engine, void *program, lk_generator *generator);
void lki_cuda_program_free(lk_engine *engine, void *program);

#endif
