/* Joining the others over NCCL, and leaving them. */
#include "engine/cuda/nccl.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t default_join_ms = 120000, finalize_ms = 5000;

/* ---- Joining ---- */

lk_status lki_nccl_id(char id[LKI_NCCL_ID_NBYTES])
{
    static_assert(sizeof(ncclUniqueId) == LKI_NCCL_ID_NBYTES, "an id is as long as NCCL says");
    const lki_nccl *nccl;
    ncclUniqueId made;
    sigset_t before;
    LKI_TRY(lki_nccl_open(&nccl));
    lki_nccl_signals_off(&before);
    ncclResult_t result = nccl->GetUniqueId(&made);
    lki_nccl_signals_on(&before);
    if (result != ncclSuccess)
        return lki_cuda_fail(LK_ERR_PEER, "rank 0 could not open its meeting point: %s",
                             nccl->GetErrorString(result));
    memcpy(id, &made, sizeof made);
    return LK_OK;
}

static lk_status open_device(lki_nccl_comm *self)
{
    LKI_CUDA(cudaSetDevice(self->options.device));
    LKI_CUDA(cudaStreamCreateWithFlags(&self->stream, cudaStreamNonBlocking));
    for (int i = 0; i < LK_COMM_MAX_REQUESTS; i++)
        LKI_CUDA(cudaEventCreateWithFlags(&self->events[i], cudaEventDisableTiming));
    LKI_TRY(lki_cuda_malloc((void **)&self->token, 16, "barriers over NCCL"));
    LKI_CUDA(cudaMemset(self->token, 0, 16));
    return LK_OK;
}

static lk_status wait_for_all(lki_nccl_comm *self)
{
    const lki_nccl_options *options = &self->options;
    int64_t timeout_ms = options->join_timeout_ms ? options->join_timeout_ms : default_join_ms;
    int64_t deadline_ms = lki_nccl_now_ms() + timeout_ms;
    char text[512];
    for (;;) {
        ncclResult_t state;
        LKI_TRY(lki_nccl_look(self, &state));
        if (state == ncclSuccess) return LK_OK;
        if (options->failure && options->failure(options->context, 0, text, sizeof text))
            return lki_cuda_fail(LK_ERR_PEER, "%s", text);
        if (lki_nccl_now_ms() >= deadline_ms)
            return lki_cuda_fail(LK_ERR_TIMEOUT, "rank %d of %d has waited %.1f s for the others to join",
                                 options->rank, options->size, (double)timeout_ms / 1e3);
        lki_nccl_sleep_us(1000);
    }
}

static lk_status join(lki_nccl_comm *self)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    sigset_t before;
    config.blocking = 0;
    memcpy(&id, self->options.id, sizeof id);
    lki_nccl_signals_off(&before);
    ncclResult_t result =
        self->library->CommInitRankConfig(&self->nccl, self->options.size, id, self->options.rank, &config);
    lki_nccl_signals_on(&before);
    if (result != ncclSuccess && result != ncclInProgress) {
        self->nccl = NULL;
        return lki_cuda_fail(LK_ERR_PEER, "rank %d of %d could not join: %s", self->options.rank,
                             self->options.size, self->library->GetErrorString(result));
    }
    return wait_for_all(self);
}

/* NCCL takes one rank a GPU of a host. Ranks that share one say that they are on hosts of their own, while
 * they join. */
static lk_status join_as_own_host(lki_nccl_comm *self)
{
    const char *now = getenv("NCCL_HOSTID");
    char before[256], own[64];
    snprintf(before, sizeof before, "%s", now ? now : "");
    snprintf(own, sizeof own, "lockstep rank %d", self->options.rank);
    setenv("NCCL_HOSTID", own, 1);
    lk_status status = join(self);
    if (now)
        setenv("NCCL_HOSTID", before, 1);
    else
        unsetenv("NCCL_HOSTID");
    return status;
}

/* ---- Leaving ---- */

static void *abort_communicator(void *argument)
{
    lki_nccl_aborter *aborter = (lki_nccl_aborter *)argument;
    aborter->library->CommAbort(aborter->nccl);
    __atomic_store_n(&aborter->done, true, __ATOMIC_RELEASE);
    return NULL;
}

void lki_nccl_start_abort(lki_nccl_comm *self, ncclComm_t nccl)
{
    pthread_t thread;
    sigset_t before;
    lki_nccl_aborter *aborter = (lki_nccl_aborter *)lki_host->alloc(sizeof *aborter, "an end of NCCL's");
    if (!aborter) return; /* the process is about to end anyway */
    *aborter = (lki_nccl_aborter){self->library, nccl, false};
    lki_nccl_signals_off(&before);
    bool started = pthread_create(&thread, NULL, abort_communicator, aborter) == 0;
    lki_nccl_signals_on(&before);
    if (started) {
        pthread_detach(thread);
        self->aborter = aborter;
    } else {
        lki_host->free(aborter);
    }
}

/* Where it does not end in time the thread keeps what it works on. */
static void wait_for_abort(lki_nccl_comm *self)
{
    int64_t deadline_ms = lki_nccl_now_ms() + finalize_ms;
    if (!self->aborter) return;
    while (!__atomic_load_n(&self->aborter->done, __ATOMIC_ACQUIRE)) {
        if (lki_nccl_now_ms() >= deadline_ms) return;
        lki_nccl_sleep_us(200);
    }
    lki_host->free(self->aborter);
    self->aborter = NULL;
}

/* A proper end where nothing is outstanding: what was sent is flushed, for no longer than finalize_ms. */
static void end_communicator(lki_nccl_comm *self)
{
    ncclComm_t nccl = self->nccl;
    ncclResult_t state = ncclInProgress;
    bool clean = !self->failed && self->comm && lki_host->comm_is_idle(self->comm);
    if (!nccl) {
        wait_for_abort(self);
        return;
    }
    self->nccl = NULL;
    if (clean && cudaStreamSynchronize(self->stream) == cudaSuccess) {
        int64_t deadline_ms = lki_nccl_now_ms() + finalize_ms;
        state = self->library->CommFinalize(nccl);
        while (state == ncclInProgress && lki_nccl_now_ms() < deadline_ms) {
            if (self->library->CommGetAsyncError(nccl, &state) != ncclSuccess) state = ncclInternalError;
            if (state == ncclInProgress) lki_nccl_sleep_us(200);
        }
    }
    if (state == ncclSuccess)
        self->library->CommDestroy(nccl);
    else
        lki_nccl_start_abort(self, nccl);
    wait_for_abort(self);
}

void lki_nccl_free(lk_comm *comm)
{
    lki_nccl_comm *self = (lki_nccl_comm *)comm->context;
    if (self->options.ending)
        self->options.ending(self->options.context); /* no other thread comes after it */
    cudaSetDevice(self->options.device);
    end_communicator(self);
    for (int i = 0; i < LK_COMM_MAX_REQUESTS; i++) {
        if (self->events[i]) cudaEventDestroy(self->events[i]);
        cudaFreeHost(self->staging[i].host);
        cudaFree(self->staging[i].device);
    }
    cudaFree(self->keys);
    cudaFree(self->token);
    if (self->stream) cudaStreamDestroy(self->stream);
    cudaGetLastError();
    pthread_mutex_destroy(&self->lock);
    lki_host->free(self);
}

/* ---- Making one ---- */

lk_status lki_nccl_create(lk_comm **out, const lki_nccl_options *options)
{
    const lki_nccl *nccl;
    *out = NULL;
    LKI_TRY(lki_nccl_open(&nccl));
    lki_nccl_comm *self = (lki_nccl_comm *)lki_host->alloc(sizeof *self, "a comm");
    if (!self) return LK_ERR_NOMEM;
    self->library = nccl;
    self->options = *options;
    self->options.ending = NULL; /* until it is made, it is the caller's to end */
    pthread_mutex_init(&self->lock, NULL);
    lk_comm *comm = lki_host->comm_create(&lki_nccl_ops, options->rank, options->size, self);
    if (!comm) return LK_ERR_NOMEM; /* which has freed self, too */
    self->comm = comm;
    if (options->timeout_ms) comm->timeout_ms = options->timeout_ms;
    lk_status status = open_device(self);
    if (status == LK_OK) status = options->shares_gpu ? join_as_own_host(self) : join(self);
    if (status != LK_OK) {
        self->failed = true;
        lki_host->comm_free(self->comm);
        return status;
    }
    self->options.ending = options->ending;
    *out = self->comm;
    return LK_OK;
}
