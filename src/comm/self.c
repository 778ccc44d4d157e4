/* The comm of a job of one rank: every collective is a copy to itself. */
#include "comm/comm.h"
#include "comm/comm_own.h"

#include "base/memory.h"
#include "base/status.h"

#include <pthread.h>
#include <stdio.h>
#include <stdatomic.h>
#include <string.h>

typedef struct self_comm {
    lk_comm base;
    lki_comm own;
    atomic_bool aborted;
    char reason[256];
} self_comm;

static lk_status self_start(lk_comm *comm, lk_comm_request *request)
{
    const lk_comm_op *op = &request->op;
    self_comm *self = (self_comm *)comm;
    if (atomic_load(&self->aborted)) return lki_fail(LK_ERR_PEER, "rank 0 gave up: %s", self->reason);
    if (op->count > 0 && op->send != op->recv)
        memcpy(op->recv, op->send, (size_t)op->count * lk_dtype_nbytes(op->dtype));
    return LK_OK;
}

static lk_status self_test(lk_comm *comm, lk_comm_request *request, bool *done)
{
    (void)comm, (void)request;
    *done = true;
    return LK_OK;
}

static void self_abort(lk_comm *comm, const char *reason)
{
    self_comm *self = (self_comm *)comm;
    if (atomic_load(&self->aborted)) return;
    snprintf(self->reason, sizeof self->reason, "%s", reason);
    atomic_store(&self->aborted, true);
}

static void self_free(lk_comm *comm)
{
    lki_free(comm);
}

static const lk_comm_ops self_ops = {
    LK_SIZE(lk_comm_ops), .name = "self",      .start = self_start,
    .test = self_test,    .abort = self_abort, .free = self_free,
};

static void keep(lk_comm *comm)
{
    (void)comm;
}

/* One for the whole process, which nobody frees. */
static const lk_comm_ops alone_ops = {
    LK_SIZE(lk_comm_ops), .name = "self",      .start = self_start,
    .test = self_test,    .abort = self_abort, .free = keep,
};

static self_comm alone;

static void init_alone(void)
{
    lki_comm_init(&alone.base, &alone.own, &alone_ops, 0, 1);
}

lk_comm *lk_comm_alone(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_alone);
    return &alone.base;
}

lk_status lki_comm_self_create(lk_comm **out)
{
    self_comm *self = LKI_NEW(self_comm);
    *out = self ? &self->base : NULL;
    if (!self) return LK_ERR_NOMEM;
    lki_comm_init(&self->base, &self->own, &self_ops, 0, 1);
    return LK_OK;
}
