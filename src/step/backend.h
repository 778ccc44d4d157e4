/* The backend of a step: how its batches are replayed, and where its numbers live.
 *
 * There are two. On the host (on_host.c) a plan is replayed call by call, and the numbers are the flat
 * buffers themselves. On a device (device/) the engine has copies of those buffers in memory of its own, and
 * a whole step is one recorded program. The engine decides which of them a step gets, once, in backend.c. The
 * other files of this folder and the folders above use the functions below and never ask the engine.
 *
 * A slot that only a device needs is NULL on the host, and the function that calls it does nothing there. One
 * thread. */
#ifndef LKI_STEP_BACKEND_H
#define LKI_STEP_BACKEND_H

#include <lockstep/step.h>

#include "base/memory.h"
#include "graph/home.h"

typedef struct lki_backend lki_backend;
typedef struct lki_announced lki_announced; /* announced_rows.h */

typedef struct lki_backend_ops {
    /* Kernels compute on the host's memory: C functions may do so too, and ranks of one host may share it.
     * Losses of single samples have the same bits whatever batch they are in. */
    bool on_host;
    /* What an engine with this backend can do. Optional: it cannot. */
    bool (*runs_ahead)(const lk_engine *engine); /* a batch can be launched while another is in flight */
    bool (*keeps_rows)(const lk_engine *engine); /* it gathers batches from its own copy of a dataset */

    lk_status (*create)(lki_backend **out, lk_engine *engine);
    void (*free)(lki_backend *backend);

    /* Blocks of host memory that the engine has a copy of. Optional, all or none: it needs no copy.
     * add: makes the copy; the block outlives the backend. Scratch blocks travel only when they are named.
     * address: the copy's address for a host address inside a block; that address itself if no block has it.
     * pull, push: bring the host's side, or the engine's, of all blocks up to date; with a block, copy that
     * one in any case. changed: the host's side of all blocks is the newer one from now on. */
    lk_status (*add)(lki_backend *backend, void *host, size_t nbytes, bool scratch, const char *what);
    void *(*address)(const lki_backend *backend, void *host);
    lk_status (*pull)(lki_backend *backend, void *block);
    lk_status (*push)(lki_backend *backend, void *block);
    void (*changed)(lki_backend *backend);

    /* The step's parameters. Optional, all or none: they are the flat buffers on the host.
     * place: gives each of them a place where the engine reaches it, when the step is made and when another
     * step has moved them. refresh: before a batch, the engine sees what others have made of them since.
     * params_changed: the step has trained. release: the step goes. */
    lk_status (*place_params)(lk_step *step);
    lk_status (*refresh_params)(lk_step *step);
    lk_status (*params_changed)(lk_step *step);
    void (*release_params)(lk_step *step);

    /* One batch, in this order. Optional, but for bind_rows: calls are done when they return.
     * may_begin: fails if a batch cannot begin now. settle: collects the errors of batches in flight if this
     * one would wait for them anyhow. enter: makes the current plan ready for its inputs. bind_rows: gives an
     * input its values, which are rows of something larger. begin_calls: hands the engine the numbers of the
     * update and, if the batch `draws`, new random numbers. read_loss: waits for the criterion half and sets
     * step->loss if the plan has one. */
    lk_status (*may_begin)(lk_step *step);
    lk_status (*settle)(lk_step *step, const lk_input *fields, int count, bool training);
    lk_status (*enter)(lk_step *step);
    lk_status (*bind_rows)(lk_step *step, int index, const lk_input *field, const lki_announced *announced);
    lk_status (*begin_calls)(lk_step *step, bool draws);
    lk_status (*read_loss)(lk_step *step);

    /* Optional: the whole step at once. records: whether it can be one program. replay: starts the batch that
     * has begun as that program, and waits for it unless the step is asynchronous. finish: waits for batches
     * in flight and reports their errors. forget_programs: the calls of the update are about to change. */
    bool (*records)(const lk_step *step);
    lk_status (*replay)(lk_step *step, bool training);
    lk_status (*finish)(lk_step *step);
    void (*forget_programs)(lk_step *step);

    /* Optional: one batch ahead; see lki_step_launch in step.h. */
    bool (*may_launch)(lk_step *step, const lk_input *fields, int count, bool training);
    lk_status (*launch)(lk_step *step, const lk_input *fields, int count, bool training);
    lk_status (*land)(lk_step *step, bool *lost);

    /* Optional: gives back memory that only makes steps faster; false if there is none left to give.
     * forget_rows: gives back the copies of datasets. */
    bool (*give_way)(lk_step *step);
    void (*forget_rows)(lk_step *step);
} lki_backend_ops;

/* The first member of what implements it. */
struct lki_backend {
    const lki_backend_ops *ops;
    lk_engine *engine;
    lki_home *home; /* what plans and parameters see of it; NULL: they are on the host */
};

extern const lki_backend_ops lki_on_host, lki_on_device;

const lki_backend_ops *lki_backend_ops_for(const lk_engine *engine);
lk_status lki_backend_create(lki_backend **out, lk_engine *engine);
void lki_backend_free(lki_backend *backend);

/* Of an engine; NULL: there is none. */
bool lki_engine_runs_ahead(const lk_engine *engine);
bool lki_engine_keeps_rows(const lk_engine *engine);

/* Memory for kernels, zeroed and aligned to 64 bytes. */
static inline void *lki_backend_alloc(lki_backend *backend, size_t nbytes, const char *what)
{
    lki_home *home = backend->home;
    return home ? home->ops->alloc(home, nbytes, what) : lki_alloc_aligned(nbytes, what);
}

static inline void lki_backend_release(lki_backend *backend, void *data)
{
    if (backend->home)
        backend->home->ops->release(backend->home, data);
    else
        lki_free(data);
}

static inline lk_status lki_backend_add(lki_backend *backend, void *host, size_t nbytes, bool scratch,
                                        const char *what)
{
    return backend->ops->add ? backend->ops->add(backend, host, nbytes, scratch, what) : LK_OK;
}

static inline void *lki_backend_address(const lki_backend *backend, void *host)
{
    return backend->ops->address ? backend->ops->address(backend, host) : host;
}

/* All blocks but scratch. */
static inline lk_status lki_backend_pull(lki_backend *backend)
{
    return backend->ops->pull ? backend->ops->pull(backend, NULL) : LK_OK;
}

static inline lk_status lki_backend_push(lki_backend *backend)
{
    return backend->ops->push ? backend->ops->push(backend, NULL) : LK_OK;
}

static inline lk_status lki_backend_pull_block(lki_backend *backend, void *host)
{
    return backend->ops->pull ? backend->ops->pull(backend, host) : LK_OK;
}

static inline lk_status lki_backend_push_block(lki_backend *backend, void *host)
{
    return backend->ops->push ? backend->ops->push(backend, host) : LK_OK;
}

static inline void lki_backend_changed(lki_backend *backend)
{
    if (backend->ops->changed) backend->ops->changed(backend);
}

#endif
