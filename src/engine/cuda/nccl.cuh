/* NCCL, opened when it is first asked for: the plugin works where it is not installed. And the comm over it,
 * as its files share it. */
#ifndef LKI_CUDA_NCCL_CUH
#define LKI_CUDA_NCCL_CUH

#include "engine/cuda/cuda.cuh"

#include <nccl.h>
#include <pthread.h>
#include <signal.h>

/* X(function), without NCCL's prefix */
#define LKI_NCCL_FUNCTION_LIST(X)                                                                            \
    X(GetVersion)                                                                                            \
    X(GetUniqueId)                                                                                           \
    X(CommInitRankConfig)                                                                                    \
    X(CommFinalize)                                                                                          \
    X(CommDestroy)                                                                                           \
    X(CommAbort)                                                                                             \
    X(CommGetAsyncError)                                                                                     \
    X(GetErrorString)                                                                                        \
    X(GetLastError)                                                                                          \
    X(AllReduce)                                                                                             \
    X(Broadcast)                                                                                             \
    X(AllGather)                                                                                             \
    X(ReduceScatter)

typedef struct lki_nccl {
#define X(name) decltype(&nccl##name) name;
    LKI_NCCL_FUNCTION_LIST(X)
#undef X
} lki_nccl;

/* LK_ERR_UNSUPPORTED where it is not there. Any thread. */
lk_status lki_nccl_open(const lki_nccl **out);

/* ---- The comm; nccl.cu carries collectives, nccl_join.cu begins and ends ---- */

typedef struct lki_nccl_staging {
    char *host, *device;
    size_t nbytes;
} lki_nccl_staging;

/* NCCL's abort, under way in a thread of its own. */
typedef struct lki_nccl_aborter {
    const lki_nccl *library;
    ncclComm_t nccl;
    bool done; /* atomic */
} lki_nccl_aborter;

typedef struct lki_nccl_comm {
    lk_comm *comm; /* whose context this is */
    const lki_nccl *library;
    lki_nccl_options options;
    pthread_mutex_t lock; /* over the next four */
    ncclComm_t nccl;      /* NULL once given up */
    bool failed;
    char sentence[512];        /* of what failed */
    lki_nccl_aborter *aborter; /* NULL while it has not failed */
    cudaStream_t stream;
    cudaEvent_t events[LK_COMM_MAX_REQUESTS];
    lki_nccl_staging staging[LK_COMM_MAX_REQUESTS]; /* grown, never given back before free */
    char *keys;                                     /* of maxima and minima that need room of their own */
    size_t keys_nbytes;
    char *token; /* what a barrier sends around */
    int idle;    /* tests in a row that found nothing done */
} lki_nccl_comm;

extern const lk_comm_ops lki_nccl_ops;
void lki_nccl_free(lk_comm *comm);
/* Starts NCCL's abort: the device's part ends at once, the rest when no recorded program uses the
 * communicator any more, which may need the calling thread. The caller holds the lock, or is alone. */
void lki_nccl_start_abort(lki_nccl_comm *self, ncclComm_t nccl);
/* NCCL's own state: ncclInProgress while it still works on the last call. Fails where the comm has. */
lk_status lki_nccl_look(lki_nccl_comm *self, ncclResult_t *state);

int64_t lki_nccl_now_ms(void);
void lki_nccl_sleep_us(int us);
/* Keeps signals from the threads that NCCL starts meanwhile: they are the program's. */
void lki_nccl_signals_off(sigset_t *before);
void lki_nccl_signals_on(const sigset_t *before);

/* ---- Maxima and minima ---- */

/* NCCL's maximum and minimum of floats drop a NaN; those of integers do not know any. So floats travel as
 * integers that are ordered as they are, with NaN beyond either end: i32 for 16 and 32 bits, i64 for f64. */
static inline size_t lki_nccl_key_nbytes(lk_dtype dtype)
{
    return dtype == LK_F64 ? 8 : 4;
}
/* keys may be where the floats are, where both are as wide. */
lk_status lki_nccl_encode(void *keys, const void *floats, int64_t count, lk_dtype dtype, lk_reduce reduce,
                          cudaStream_t stream);
lk_status lki_nccl_decode(void *floats, const void *keys, int64_t count, lk_dtype dtype, cudaStream_t stream);

#endif
