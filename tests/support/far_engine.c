#include "far_engine.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/engines.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_ITEMS = 4096, MAX_HYPERS = 64 };
/* All of its memory lies in one reserved range, so that an operand elsewhere is noticed. */
static const size_t range_nbytes = (size_t)1 << 32;

typedef struct item {
    enum { CALL, FETCH, WATCH } kind;
    lk_call call; /* as it was when it was recorded */
    void *host;
    const void *device;
    size_t nbytes;
    lk_tensor loss;
    bool guard;
} item;

typedef struct program {
    item *items;
    int count;
} program;

typedef struct live_hyper {
    lk_hyper *host;
    lk_hyper now; /* what begin_step saw */
} live_hyper;

typedef struct far {
    char *range;
    size_t used;
    program *recording;
    live_hyper hypers[MAX_HYPERS];
    int hyper_count;
    bool skip;
    const lk_call *failed;
    lk_status status;
    char sentence[256];
    int records, replays;
} far;

/* What the plan prepared, behind what the reference engine did. */
typedef struct call_state {
    lk_kernel inner;
    int hyper; /* -1: none */
} call_state;

static far *far_of(const lk_engine *engine)
{
    return engine->state;
}

static bool is_far(const far *f, const void *data)
{
    return !data || ((const char *)data >= f->range && (const char *)data < f->range + range_nbytes);
}

static bool is_update(lk_op op)
{
    return op == LK_OP_UPDATE || op == LK_OP_ACCUMULATE || op == LK_OP_CLIP_NORM || op == LK_OP_CLIP_VALUE ||
           op == LK_OP_UNSCALE;
}

static lk_status run_now(far *f, const lk_call *call, const lk_call *original)
{
    const call_state *state = call->state;
    for (int i = 0; i < call->input_count; i++)
        if (!is_far(f, call->in[i].data))
            return lki_fail(LK_ERR_INVALID, "operand %d of %s is not on the device", i, lk_op_name(call->op));
    for (int i = 0; i < call->output_count; i++)
        if (!is_far(f, call->out[i].data))
            return lki_fail(LK_ERR_INVALID, "output %d of %s is not on the device", i, lk_op_name(call->op));
    if (is_update(call->op) && f->skip) return LK_OK;
    lk_call copy = *call;
    lk_attr attr = *call->attr;
    if (state->hyper >= 0) attr.hyper = &f->hypers[state->hyper].now;
    copy.attr = &attr;
    lk_status status = state->inner(&copy);
    if (status != LK_ERR_RANGE) return status;
    /* A device finds out later. */
    if (!f->failed) snprintf(f->sentence, sizeof f->sentence, "%s", lk_error());
    if (!f->failed) f->failed = original;
    f->status = status;
    f->skip = true;
    return LK_OK;
}

static item *add_item(far *f)
{
    program *p = f->recording;
    return p->count < MAX_ITEMS ? &p->items[p->count++] : NULL;
}

static lk_status run_call(const lk_call *call)
{
    far *f = far_of(call->engine);
    if (!f->recording) return run_now(f, call, call);
    item *added = add_item(f);
    if (!added) return lki_fail(LK_ERR_UNSUPPORTED, "the program is too long");
    added->kind = CALL;
    added->call = *call;
    added->call.in = malloc(sizeof *call->in * (size_t)(call->input_count + 1));
    memcpy(added->call.in, call->in, sizeof *call->in * (size_t)call->input_count);
    added->host = (void *)call;
    return LK_OK;
}

static lk_status open_far(void **state, const lk_engine_options *options)
{
    (void)options;
    far *f = LKI_NEW(far);
    if (!f) return LK_ERR_NOMEM;
    f->range =
        mmap(NULL, range_nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->range == MAP_FAILED) abort();
    *state = f;
    return LK_OK;
}

static void close_far(void *state)
{
    far *f = state;
    munmap(f->range, range_nbytes);
    lki_free(f);
}

static int hyper_of(far *f, lk_hyper *hyper)
{
    if (!hyper) return -1;
    for (int i = 0; i < f->hyper_count; i++)
        if (f->hypers[i].host == hyper) return i;
    if (f->hyper_count == MAX_HYPERS) abort();
    f->hypers[f->hyper_count].host = hyper;
    return f->hyper_count++;
}

static lk_status prepare(lk_engine *engine, lk_call *call)
{
    far *f = far_of(engine);
    LKI_TRY(lki_ref_engine_ops.prepare(engine, call));
    call_state *state = LKI_NEW(call_state);
    if (!state) return LK_ERR_NOMEM;
    *state = (call_state){call->run, is_update(call->op) ? hyper_of(f, call->attr->hyper) : -1};
    call->run = run_call;
    call->state = state;
    call->free_state = lki_free;
    return LK_OK;
}

static void *alloc(lk_engine *engine, size_t nbytes, const char *what)
{
    (void)what;
    far *f = far_of(engine);
    void *data = f->range + f->used;
    f->used += (nbytes + 127) / 64 * 64;
    return f->used <= range_nbytes ? data : NULL;
}

/* What was freed must not be used again. */
static void release(lk_engine *engine, void *data)
{
    (void)engine;
    if (data) memset(data, 0xff, 16);
}

static lk_status copy(lk_engine *engine, void *to, const void *from, size_t nbytes)
{
    (void)engine;
    memcpy(to, from, nbytes);
    return LK_OK;
}

static void *alloc_host(lk_engine *engine, size_t nbytes, const char *what)
{
    (void)engine;
    return lki_calloc(nbytes, what);
}

static void release_host(lk_engine *engine, void *data)
{
    (void)engine;
    lki_free(data);
}

static lk_status fetch(lk_engine *engine, void *host, const void *device, size_t nbytes)
{
    far *f = far_of(engine);
    if (!f->recording) return copy(engine, host, device, nbytes);
    *add_item(f) = (item){.kind = FETCH, .host = host, .device = device, .nbytes = nbytes};
    return LK_OK;
}

/* Bytes become f32, all else is copied. */
static lk_status gather_rows(lk_engine *engine, void *out, lk_dtype dtype, const lk_rows *rows,
                             const void *stored, const int64_t *indices, int64_t count)
{
    (void)engine;
    size_t size = lk_dtype_nbytes(dtype);
    for (int64_t i = 0; i < count * rows->width; i++) {
        int64_t from = indices[i / rows->width] * rows->width + i % rows->width;
        if (rows->stored == dtype)
            memcpy((char *)out + (size_t)i * size, (const char *)stored + (size_t)from * size, size);
        else
            ((float *)out)[i] = (((const uint8_t *)stored)[from] / rows->divisor - rows->mean) / rows->std;
    }
    return LK_OK;
}

static void watch_now(far *f, const lk_tensor *loss, double *host, bool guard)
{
    *host = lk_tensor_get(loss, 0);
    if (guard && !isfinite(*host)) f->skip = true;
}

static lk_status watch(lk_engine *engine, const lk_tensor *loss, double *host, bool guard)
{
    far *f = far_of(engine);
    if (f->recording)
        *add_item(f) = (item){.kind = WATCH, .host = host, .loss = *loss, .guard = guard};
    else
        watch_now(f, loss, host, guard);
    return LK_OK;
}

static lk_status synchronize(lk_engine *engine, const lk_call **failed)
{
    far *f = far_of(engine);
    for (int i = 0; i < f->hyper_count; i++) f->hypers[i].host->grad_norm = f->hypers[i].now.grad_norm;
    if (!f->failed) return LK_OK;
    if (failed) *failed = f->failed;
    f->failed = NULL;
    return lki_fail(f->status, "%s", f->sentence);
}

static lk_status begin_step(lk_engine *engine, lk_generator *generator)
{
    far *f = far_of(engine);
    if (generator) f->skip = false;
    for (int i = 0; i < f->hyper_count; i++) f->hypers[i].now = *f->hypers[i].host;
    return LK_OK;
}

static lk_status record_begin(lk_engine *engine)
{
    far *f = far_of(engine);
    f->recording = calloc(1, sizeof *f->recording);
    f->recording->items = calloc(MAX_ITEMS, sizeof(item));
    f->records++;
    return LK_OK;
}

static lk_status record_end(lk_engine *engine, void **out)
{
    far *f = far_of(engine);
    *out = f->recording;
    f->recording = NULL;
    return LK_OK;
}

static lk_status replay(lk_engine *engine, void *recorded)
{
    far *f = far_of(engine);
    const program *p = recorded;
    f->replays++;
    for (int i = 0; i < p->count; i++) {
        const item *it = &p->items[i];
        if (it->kind == FETCH) memcpy(it->host, it->device, it->nbytes);
        if (it->kind == WATCH) watch_now(f, &it->loss, it->host, it->guard);
        if (it->kind == CALL) LKI_TRY(run_now(f, &it->call, it->host));
    }
    return LK_OK;
}

static void program_free(lk_engine *engine, void *recorded)
{
    (void)engine;
    program *p = recorded;
    for (int i = 0; i < p->count; i++)
        if (p->items[i].kind == CALL) free(p->items[i].call.in);
    free(p->items);
    free(p);
}

static const lk_engine_ops far_ops = {
    .name = "far",
    .open = open_far,
    .close = close_far,
    .prepare = prepare,
    .alloc = alloc,
    .release = release,
    .upload = copy,
    .download = copy,
    .alloc_host = alloc_host,
    .release_host = release_host,
    .feed = copy,
    .fetch = fetch,
    .gather_rows = gather_rows,
    .synchronize = synchronize,
    .begin_step = begin_step,
    .record_begin = record_begin,
    .record_end = record_end,
    .replay = replay,
    .program_free = program_free,
    .watch = watch,
};

lk_engine *lkt_far_engine_open(void)
{
    lk_engine *engine = LKI_NEW(lk_engine);
    if (!engine) return NULL;
    engine->ops = &far_ops;
    far_ops.open(&engine->state, &(lk_engine_options){0});
    return engine;
}

int lkt_far_record_count(const lk_engine *engine)
{
    return far_of(engine)->records;
}

int lkt_far_replay_count(const lk_engine *engine)
{
    return far_of(engine)->replays;
}
