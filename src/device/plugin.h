/* Where liblockstep and liblockstep_cuda.so meet.
 *
 * All that needs CUDA lies in a library of its own, opened when a GPU is first asked for: a run on the CPU
 * neither loads half a gigabyte of GPU libraries nor needs them to be there. The plugin reports failures and
 * allocates through the host's table, so it links against nothing of liblockstep. */
#ifndef LKI_DEVICE_PLUGIN_H
#define LKI_DEVICE_PLUGIN_H

#include <lockstep/sys/comm.h>
#include <lockstep/sys/engine.h>
#include <lockstep/version.h>

#include "base/settings.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of Lockstep, and one more with each change of this file or of the headers it includes. */
enum { LKI_CUDA_PLUGIN_VERSION = LK_VERSION_NUMBER * 1000 + 13 };

/* What liblockstep does for the plugin. */
typedef struct lki_cuda_host {
    lk_status (*fail)(lk_status status, const char *sentence); /* as lki_fail; returns status */
    void (*warn)(const char *sentence);
    void *(*alloc)(size_t nbytes, const char *what); /* as lki_calloc */
    void (*free)(void *block);
    uint64_t (*draw)(lk_generator *generator); /* as lk_generator_u64 */
    lk_status (*setting_switch)(lki_setting setting, lki_switch *out);
    /* For comms (<lockstep/sys/comm.h>). */
    lk_comm *(*comm_create)(const lk_comm_ops *ops, int rank, int size, void *context);
    bool (*comm_is_idle)(const lk_comm *comm);
    lk_status (*comm_start)(lk_comm *comm, const lk_comm_op *op, lk_comm_request **out);
    lk_status (*comm_wait)(lk_comm *comm, lk_comm_request *request);
    lk_status (*comm_check)(lk_comm *comm);
    void (*comm_abort)(lk_comm *comm, const char *reason);
    void (*comm_free)(lk_comm *comm);
} lki_cuda_host;

/* One GPU, for the doctor and for run headers. */
typedef struct lki_cuda_device {
    char name[128];
    int major, minor; /* compute capability */
    int processor_count;
    size_t memory_nbytes, free_nbytes;
    char bus[24]; /* where it sits in its host: equal for two processes that see the same GPU */
} lki_cuda_device;

typedef struct lki_cuda_versions {
    int driver, runtime, cublas, cudnn, nccl; /* as each library numbers itself; 0: not there */
} lki_cuda_versions;

enum { LKI_NCCL_ID_NBYTES = 128 };

typedef struct lki_nccl_options {
    int rank, size;
    int device;                  /* a GPU by its number among the visible ones */
    char id[LKI_NCCL_ID_NBYTES]; /* rank 0's, on every rank */
    bool shares_gpu;             /* other ranks have the same GPU */
    int64_t join_timeout_ms, timeout_ms;
    /* Who looks after the ranks' lives; each may be NULL. failure: what the job has failed of, where that is
     * known within wait_ms. tell: to all ranks, that this one gives up. progress: how far a rank is. ending:
     * the comm is about to be freed; nobody may look at it once this returns. */
    bool (*failure)(void *context, int wait_ms, char *text, size_t capacity);
    void (*tell)(void *context, const char *sentence);
    void (*progress)(void *context, int rank, lk_comm_progress *out);
    void (*ending)(void *context);
    void *context;
} lki_nccl_options;

typedef struct lki_cuda_plugin {
    int version;
    const lk_engine_ops *engine_ops;
    /* How many GPUs are visible (CUDA_VISIBLE_DEVICES counts) and new enough. Fails with the driver's reason,
     * or with that of a GPU that is too old. */
    lk_status (*device_count)(int *count);
    lk_status (*describe)(int device, lki_cuda_device *out);
    void (*versions)(lki_cuda_versions *out);
    /* NCCL: the id that rank 0 makes and shares, and the comm that all make of it together. */
    lk_status (*nccl_id)(char id[LKI_NCCL_ID_NBYTES]);
    lk_status (*nccl_create)(lk_comm **out, const lki_nccl_options *options);
    /* Ends this rank's part of such a comm with that sentence, and tells nobody. Any thread. */
    void (*nccl_fail)(lk_comm *comm, const char *sentence);
} lki_cuda_plugin;

/* The plugin's one symbol. */
#define LKI_CUDA_PLUGIN_SYMBOL "lki_cuda_plugin_open"
typedef const lki_cuda_plugin *(*lki_cuda_plugin_opener)(const lki_cuda_host *host);
const lki_cuda_plugin *lki_cuda_plugin_open(const lki_cuda_host *host);

#ifdef __cplusplus
}
#endif
#endif
