/* The engine itself: opening the device, the order of work, what goes to and fro between steps, and the table
 * of all of it. */
#include "engine/cuda/core.cuh"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const lki_cuda_host *lki_host;

/* ---- Opening and closing ---- */

/* Nothing is compiled for older ones. */
lk_status lki_cuda_check_capability(int device, const cudaDeviceProp *properties)
{
    if (properties->major >= LKI_CUDA_LEAST_MAJOR) return LK_OK;
    return lki_cuda_fail(
        LK_ERR_DEVICE,
        "GPU %d (%.60s) has compute capability %d.%d, and Lockstep needs %d.0 (Ampere) or newer: "
        "choose device cpu",
        device, properties->name, properties->major, properties->minor, LKI_CUDA_LEAST_MAJOR);
}

static lk_status open_device(lki_cuda *cuda, int device)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver)
        return lki_cuda_fail(LK_ERR_DEVICE, "the NVIDIA driver is too old for CUDA %d.%d",
                             CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (error != cudaSuccess || count == 0)
        return lki_cuda_fail(LK_ERR_DEVICE, "there is no GPU here that CUDA can use (%s)",
                             error == cudaSuccess ? "none is visible" : cudaGetErrorString(error));
    if (device < 0 || device >= count)
        return lki_cuda_fail(LK_ERR_DEVICE, "there is no GPU %d: %d %s visible", device, count,
                             count == 1 ? "is" : "are");
    LKI_CUDA(cudaSetDevice(device));
    cudaDeviceProp properties;
    LKI_CUDA(cudaGetDeviceProperties(&properties, device));
    LKI_TRY(lki_cuda_check_capability(device, &properties));
    cuda->device = device;
    cuda->major = properties.major;
    cuda->minor = properties.minor;
    cuda->processor_count = properties.multiProcessorCount;
    cuda->shared_nbytes = properties.sharedMemPerBlockOptin;
    return LK_OK;
}

static lk_status open_streams(lki_cuda *cuda)
{
    /* Above the default priority: the short work beside the computation must not wait for it. */
    int least = 0, greatest = 0;
    LKI_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    LKI_CUDA(cudaStreamCreateWithFlags(&cuda->compute, cudaStreamNonBlocking));
    LKI_CUDA(cudaStreamCreateWithPriority(&cuda->side, cudaStreamNonBlocking, greatest));
    LKI_CUDA(cudaEventCreateWithFlags(&cuda->fork, cudaEventDisableTiming));
    LKI_CUDA(cudaEventCreateWithFlags(&cuda->join, cudaEventDisableTiming));
    LKI_CUDA(cudaStreamCreateWithFlags(&cuda->copy, cudaStreamNonBlocking));
    LKI_CUDA(cudaEventCreateWithFlags(&cuda->fed, cudaEventDisableTiming));
    for (int i = 0; i < LK_ENGINE_MARKS; i++)
        LKI_CUDA(cudaEventCreateWithFlags(&cuda->marks[i], cudaEventDisableTiming));
    return LK_OK;
}

static lk_status open_shared_words(lki_cuda *cuda)
{
    LKI_TRY(lki_cuda_malloc((void **)&cuda->live, sizeof *cuda->live, "the numbers of a step"));
    LKI_CUDA(cudaMemset(cuda->live, 0, sizeof *cuda->live));
    LKI_TRY(lki_cuda_malloc((void **)&cuda->fault.first, sizeof *cuda->fault.first, "wrong indices"));
    LKI_CUDA(cudaMemset(cuda->fault.first, 0xff, sizeof *cuda->fault.first));
    LKI_TRY(lki_cuda_malloc((void **)&cuda->arrivals, sizeof *cuda->arrivals, "barriers"));
    LKI_CUDA(cudaMemset(cuda->arrivals, 0, sizeof *cuda->arrivals));
    LKI_TRY(lki_cuda_malloc_host((void **)&cuda->norms, sizeof *cuda->norms * LKI_CUDA_MAX_HYPERS,
                                 cudaHostAllocMapped, "norms of gradients"));
    LKI_CUDA(cudaHostGetDevicePointer((void **)&cuda->norms_on_device, cuda->norms, 0));
    memset(cuda->norms, 0, sizeof *cuda->norms * LKI_CUDA_MAX_HYPERS);
    LKI_TRY(
        lki_cuda_malloc_host((void **)&cuda->fault.found, sizeof(int), cudaHostAllocMapped, "wrong indices"));
    LKI_CUDA(cudaHostGetDevicePointer((void **)&cuda->fault.found_on_device, (void *)cuda->fault.found, 0));
    *cuda->fault.found = 0;
    cuda->settled = true;
    return LK_OK;
}

static void close_engine(void *state)
{
    lki_cuda *cuda = (lki_cuda *)state;
    if (!cuda) return;
    cudaSetDevice(cuda->device);
    if (cuda->compute) cudaStreamSynchronize(cuda->compute);
    if (cuda->side) cudaStreamSynchronize(cuda->side);
    if (cuda->copy) cudaStreamSynchronize(cuda->copy);
    lki_cuda_free_conv_plans(cuda);
    if (cuda->cudnn) cudnnDestroy(cuda->cudnn);
    if (cuda->cublas) cublasLtDestroy(cuda->cublas);
    cudaFree(cuda->live);
    cudaFree(cuda->fault.first);
    cudaFree(cuda->arrivals);
    cudaFreeHost(cuda->norms);
    cudaFreeHost((void *)cuda->fault.found);
    lki_host->free(cuda->checked);
    if (cuda->fork) cudaEventDestroy(cuda->fork);
    if (cuda->join) cudaEventDestroy(cuda->join);
    if (cuda->fed) cudaEventDestroy(cuda->fed);
    for (int i = 0; i < LK_ENGINE_MARKS; i++)
        if (cuda->marks[i]) cudaEventDestroy(cuda->marks[i]);
    if (cuda->copy) cudaStreamDestroy(cuda->copy);
    if (cuda->side) cudaStreamDestroy(cuda->side);
    if (cuda->compute) cudaStreamDestroy(cuda->compute);
    lki_host->free(cuda);
}

static void name_paths(lki_cuda *cuda)
{
#define X(symbol, path) cuda->paths[LKI_CUDA_PATH_##symbol] = {path, true, 0};
    LKI_CUDA_PATH_LIST(X)
#undef X
}

static const lk_engine_path *list_paths(const lk_engine *engine, int *count)
{
    *count = LKI_CUDA_PATH_COUNT;
    return ((const lki_cuda *)engine->state)->paths;
}

static lk_status open_engine(void **state, const lk_engine_options *options)
{
    lki_cuda *cuda = (lki_cuda *)lki_host->alloc(sizeof *cuda, "the cuda engine");
    if (!cuda) return LK_ERR_NOMEM;
    lki_switch one_kernel;
    name_paths(cuda);
    cuda->tf32 = options->allow_tf32;
    cuda->benchmark = options->benchmark;
    lk_status status = lki_host->setting_switch(LKI_SETTING_ONE_KERNEL, &one_kernel);
    cuda->never_small = one_kernel == LKI_SWITCH_OFF;
    cuda->only_small = one_kernel == LKI_SWITCH_ON;
    if (status == LK_OK) status = open_device(cuda, options->device);
    if (status == LK_OK) status = open_streams(cuda);
    if (status == LK_OK) status = open_shared_words(cuda);
    if (status != LK_OK) {
        close_engine(cuda);
        return status;
    }
    *state = cuda;
    return LK_OK;
}

/* ---- The order of work ---- */

lk_status lki_cuda_fork(lki_cuda *cuda)
{
    LKI_CUDA(cudaEventRecord(cuda->fork, cuda->compute));
    LKI_CUDA(cudaStreamWaitEvent(cuda->side, cuda->fork, 0));
    cuda->side_is_busy = true;
    return LK_OK;
}

lk_status lki_cuda_join(lki_cuda *cuda)
{
    if (!cuda->side_is_busy) return LK_OK;
    LKI_CUDA(cudaEventRecord(cuda->join, cuda->side));
    LKI_CUDA(cudaStreamWaitEvent(cuda->compute, cuda->join, 0));
    cuda->side_is_busy = false;
    return LK_OK;
}

/* Only a recording is sure to be joined before anything else is asked for. */
lk_status lki_cuda_begin_aside(lki_cuda *cuda, const lk_call *call, cudaStream_t *before)
{
    *before = NULL;
    if (!call->aside || !cuda->recording) return LK_OK;
    LKI_TRY(lki_cuda_fork(cuda));
    *before = cuda->compute;
    cuda->compute = cuda->side;
    return LK_OK;
}

void lki_cuda_end_aside(lki_cuda *cuda, cudaStream_t before)
{
    if (before) cuda->compute = before;
}

static lk_status synchronize(lk_engine *engine, const lk_call **failed)
{
    lki_cuda *cuda = lki_cuda_enter(engine);
    LKI_TRY(lki_cuda_take_fed(cuda));
    LKI_TRY(lki_cuda_join(cuda));
    LKI_TRY(lki_cuda_wait(cuda));
    cuda->settled = true;
    for (int i = 0; i < cuda->hyper_count; i++)
        if (cuda->norm_hypers[i]) cuda->norm_hypers[i]->grad_norm = cuda->norms[i];
    return lki_cuda_take_fault(cuda, failed);
}

static lk_status mark(lk_engine *engine, int number)
{
    lki_cuda *cuda = lki_cuda_enter(engine);
    LKI_TRY(lki_cuda_join(cuda));
    LKI_CUDA(cudaEventRecord(cuda->marks[number], cuda->compute));
    return LK_OK;
}

static lk_status wait_for(lk_engine *engine, int number)
{
    LKI_CUDA(cudaEventSynchronize(lki_cuda_enter(engine)->marks[number]));
    return LK_OK;
}

unsigned *lki_cuda_take_tickets(lki_cuda *cuda, int count)
{
    if (cuda->ticket_count + count > LKI_CUDA_TICKETS) cuda->ticket_count = 0;
    unsigned *tickets = cuda->live->tickets + cuda->ticket_count;
    cuda->ticket_count += count;
    return tickets;
}

/* ---- What changes from step to step ---- */

/* One that nobody has; hyper_count where there is none. */
static int vacant_slot(const lki_cuda *cuda)
{
    int slot = 0;
    while (slot < cuda->hyper_count && cuda->hypers[slot]) slot++;
    return slot;
}

static int shared_slot(const lki_cuda *cuda, const lk_hyper *hyper)
{
    for (int slot = 0; slot < cuda->hyper_count; slot++)
        if (cuda->hypers[slot] == hyper && !cuda->norm_hypers[slot]) return slot;
    return -1;
}

int lki_cuda_hyper_slot(lki_cuda *cuda, lk_hyper *hyper, bool with_norm)
{
    int slot = with_norm ? -1 : shared_slot(cuda, hyper);
    if (slot >= 0) {
        cuda->hyper_users[slot]++;
        return slot;
    }
    slot = vacant_slot(cuda);
    if (slot == LKI_CUDA_MAX_HYPERS) {
        lki_cuda_fail(LK_ERR_UNSUPPORTED,
                      "the optimizers on a GPU may have at most %d groups of parameters together: put those "
                      "with the same numbers into one group",
                      LKI_CUDA_MAX_HYPERS);
        return -1;
    }
    if (slot == cuda->hyper_count) cuda->hyper_count++;
    cuda->hypers[slot] = hyper;
    cuda->hyper_users[slot] = 1;
    cuda->norm_hypers[slot] = with_norm ? hyper : NULL;
    if (with_norm) cuda->norms[slot] = hyper->grad_norm; /* a step that is skipped measures none */
    cuda->sent.hyper[slot].step = -1;                    /* not yet on the device */
    return slot;
}

void lki_cuda_hyper_release(lki_cuda *cuda, int slot)
{
    if (slot < 0 || --cuda->hyper_users[slot]) return;
    cuda->hypers[slot] = NULL;
    cuda->norm_hypers[slot] = NULL;
}

template <typename T>
static __global__ void publish_loss(const T *loss, lk_watched *host, lki_cuda_live *live,
                                    const unsigned long long *fault, bool guard)
{
    double value = (double)(typename lki_cuda_wide<T>::type) * loss;
    bool lost = *fault != ~0ull || live->skip || (guard && !isfinite(value));
    host->loss = value;
    host->lost = lost ? host->lost + 1 : 0;
    if (guard && lost) live->skip = 1;
}

static void note_watch(lki_cuda *cuda, const lk_tensor *loss, lk_watched *host, bool guard)
{
    lki_cuda_note *note = lki_cuda_take_note(cuda, LKI_CUDA_SMALL_WATCH, 1, 1);
    if (!note) return;
    note->op.loss.out = (float *)loss->data;
    note->op.loss.host = host;
    note->op.loss.guard = guard;
}

/* Beside the backward half: the updates wait for it, nobody else does. */
static lk_status watch(lk_engine *engine, const lk_tensor *loss, lk_watched *host, bool guard)
{
    lki_cuda *cuda = lki_cuda_enter(engine);
    lk_watched *host_on_device = NULL;
    LKI_CUDA(cudaHostGetDevicePointer((void **)&host_on_device, host, 0));
    cuda->may_skip = cuda->may_skip || guard;
    LKI_TRY(lki_cuda_fork(cuda));
    LKI_CUDA_FLOAT_SWITCH(loss->dtype, T, {
        publish_loss<T><<<1, 1, 0, cuda->side>>>((const T *)loss->data, host_on_device, cuda->live,
                                                 cuda->fault.first, guard);
    })
    LKI_LAUNCHED();
    if (loss->dtype == LK_F32) note_watch(cuda, loss, host_on_device, guard);
    return LK_OK;
}

/* ---- Kernels ---- */

void *lki_cuda_new_state(lk_call *call, size_t nbytes)
{
    call->state = lki_host->alloc(nbytes, "a prepared call");
    call->free_state = lki_host->free;
    return call->state;
}

static lk_status prepare(lk_engine *engine, lk_call *call)
{
    lki_cuda *cuda = lki_cuda_enter(engine);
    lki_cuda_prepare family = lki_cuda_family(call->op);
    if (!family)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for %s",
                             lki_cuda_op_name(call->op));
    LKI_TRY((call->followers || call->is_led ? lki_cuda_prepare_casts : family)(cuda, call));
    if (call->run) return LK_OK;
    lk_dtype dtype = call->input_count ? call->in[0].dtype : call->out[0].dtype;
    return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for %s of %s",
                         lki_cuda_op_name(call->op), lki_cuda_dtype_name(dtype));
}

static lk_preference preference(lk_engine *engine, const lk_call *call)
{
    lki_cuda *cuda = lki_cuda_enter(engine);
    switch (lki_cuda_op_family(call->op)) {
    case LK_FAMILY_CONV: return lki_cuda_conv_preference(cuda, call);
    case LK_FAMILY_NORM: return lki_cuda_norm_preference(call);
    case LK_FAMILY_POINTWISE_LOSS: return lki_cuda_loss_preference(call);
    default: return LK_IMPOSSIBLE;
    }
}

/* ---- The table ---- */

static lk_status enter(lk_engine *engine)
{
    lki_cuda_enter(engine);
    return LK_OK;
}

static lk_status gather_rows(lk_engine *engine, void *out, lk_dtype dtype, const lk_rows *rows,
                             const void *stored, const int64_t *indices, int64_t count)
{
    lki_cuda_enter(engine);
    return lki_cuda_gather_rows(engine, out, dtype, rows, stored, indices, count);
}

static lk_status begin_step(lk_engine *engine, lk_generator *generator)
{
    lki_cuda_enter(engine);
    return lki_cuda_begin_step(engine, generator);
}

const lk_engine_ops lki_cuda_ops = {
    LK_SIZE(lk_engine_ops),
    .name = "cuda",
    .open = open_engine,
    .close = close_engine,
    .prepare = prepare,
    .keeps_low = true,
    .joins_casts = true,
    .preference = preference,
    .alloc = lki_cuda_alloc,
    .release = lki_cuda_release,
    .upload = lki_cuda_upload,
    .download = lki_cuda_download,
    .alloc_host = lki_cuda_alloc_host,
    .release_host = lki_cuda_release_host,
    .feed = lki_cuda_feed,
    .fetch = lki_cuda_fetch,
    .gather_rows = gather_rows,
    .synchronize = synchronize,
    .mark = mark,
    .wait_for = wait_for,
    .feed_ahead = lki_cuda_feed_ahead,
    .begin_step = begin_step,
    .record_begin = lki_cuda_record_begin,
    .record_end = lki_cuda_record_end,
    .replay = lki_cuda_replay,
    .program_free = lki_cuda_program_free,
    .watch = watch,
    .enter = enter,
    .kernels = nullptr, /* one set: what differs is the GPU */
    .paths = list_paths,
    .joins_attention = nullptr, /* its products are faster */
};
