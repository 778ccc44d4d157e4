#include "far_engine.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/engines.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_ITEMS = 4096, MAX_HYPERS = 64 };

typedef enum item_kind { CALL, COPY, WATCH, GATHER, STEP, REPLAY } item_kind;

/* Something to do, as it was when it was asked for. */
typedef struct item {
    item_kind kind;
    lk_call call; /* its operands are a copy */
    const lk_call *original;
    void *to;
    const void *from;
    size_t nbytes;
    lk_tensor loss;
    lk_watched *watched;
    bool guard;
    lk_rows rows;
    lk_dtype dtype;
    int64_t *indices, count;
    lk_hyper *hypers; /* of a step's beginning */
    int hyper_count;
    bool starts, clears;
    uint64_t draw;
    const struct program *program;
    struct item *next;
} item;

typedef struct program {
    item *items;
    int count;
} program;

typedef struct live_hyper {
    lk_hyper *host; /* NULL: no call goes by it any more */
    int uses;
    lk_hyper now; /* what the step that runs began with; the thread's */
} live_hyper;

typedef struct far {
    lk_engine_ops ops;
    lkt_far_options options;
    char *range;                     /* all of its memory, so that an operand elsewhere is noticed */
    size_t range_nbytes, used, live; /* live: what was not released */
    program *recording;
    live_hyper hypers[MAX_HYPERS];
    int hyper_count, dropout_count;
    bool settled; /* nothing under way can be lost: the next step begins anew */
    int records, replays, aheads;
    int64_t marks[LK_ENGINE_MARKS];

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    item *first, *last;
    int64_t asked, wanted, finished; /* items; the thread goes as far as `wanted` */
    bool stopping;

    /* The thread's; the host looks when it has waited for everything. */
    lk_generator generator;
    bool skip;
    const lk_call *failed;
    lk_status status;
    char sentence[256];
} far;

/* What the plan prepared, behind what the reference engine did. */
typedef struct call_state {
    far *f;
    lk_kernel inner;
    int hyper; /* -1: none */
} call_state;

static far *far_of(const lk_engine *engine)
{
    return engine->state;
}

/* ---- The thread ---- */

static bool is_far(const far *f, const void *data)
{
    return !data || ((const char *)data >= f->range && (const char *)data < f->range + f->range_nbytes);
}

static bool is_update(lk_op op)
{
    return lk_op_family_of(op) == LK_FAMILY_UPDATE || op == LK_OP_UNSCALE;
}

static lk_status check_operands(const far *f, const lk_call *call)
{
    for (int i = 0; i < call->input_count; i++)
        if (!is_far(f, call->in[i].data))
            return lki_fail(LK_ERR_INVALID, "operand %d of %s is not on the device", i, lk_op_name(call->op));
    for (int i = 0; i < call->output_count; i++)
        if (!is_far(f, call->out[i].data))
            return lki_fail(LK_ERR_INVALID, "output %d of %s is not on the device", i, lk_op_name(call->op));
    return LK_OK;
}

static lk_status run_kernel(far *f, const lk_call *call)
{
    const call_state *state = call->state;
    lk_call copy = *call;
    lk_attr attr = *call->attr;
    if (state->hyper >= 0) attr.update.hyper = &f->hypers[state->hyper].now;
    copy.attr = &attr;
    copy.generator = &f->generator;
    return state->inner(&copy);
}

/* A device finds out later. */
static void run_call_now(far *f, const item *it)
{
    lk_status status = check_operands(f, &it->call);
    if (status == LK_OK && is_update(it->call.op) && f->skip) return;
    if (status == LK_OK) status = run_kernel(f, &it->call);
    if (status == LK_OK) return;
    if (!f->failed) {
        snprintf(f->sentence, sizeof f->sentence, "%s", lk_error());
        f->failed = it->original;
        f->status = status;
    }
    f->skip = true;
}

/* Bytes become f32, all else is copied. */
static void gather_now(const item *it)
{
    size_t size = lk_dtype_nbytes(it->dtype);
    const lk_rows *rows = &it->rows;
    for (int64_t i = 0; i < it->count * rows->width; i++) {
        int64_t from = it->indices[i / rows->width] * rows->width + i % rows->width;
        if (rows->stored == it->dtype)
            memcpy((char *)it->to + (size_t)i * size, (const char *)it->from + (size_t)from * size, size);
        else
            ((float *)it->to)[i] =
                (((const uint8_t *)it->from)[from] / rows->divisor - rows->mean) / rows->std;
    }
}

static void watch_now(far *f, const item *it)
{
    double value = lk_tensor_get(&it->loss, 0);
    bool lost = f->failed || f->skip || (it->guard && !isfinite(value));
    *it->watched = (lk_watched){.loss = value, .lost = lost ? it->watched->lost + 1 : 0};
    if (it->guard && lost) f->skip = true;
}

static void begin_step_now(far *f, const item *it)
{
    if (it->clears) f->skip = false;
    if (it->starts && it->draw) lk_generator_seed(&f->generator, it->draw);
    for (int i = 0; i < it->hyper_count; i++) f->hypers[i].now = it->hypers[i];
}

static void run_now(far *f, const item *it)
{
    switch (it->kind) {
    case CALL: run_call_now(f, it); break;
    case COPY: memcpy(it->to, it->from, it->nbytes); break;
    case WATCH: watch_now(f, it); break;
    case GATHER: gather_now(it); break;
    case STEP: begin_step_now(f, it); break;
    case REPLAY:
        for (int i = 0; i < it->program->count; i++) run_now(f, &it->program->items[i]);
        break;
    }
}

static void free_parts(item *it)
{
    free(it->call.in);
    free(it->indices);
    free(it->hypers);
}

static void *thread_main(void *argument)
{
    far *f = argument;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        bool has_work = f->first && (f->options.eager || f->finished < f->wanted);
        if (!has_work && f->stopping) break;
        if (!has_work) {
            pthread_cond_wait(&f->work, &f->lock);
            continue;
        }
        item *it = f->first;
        f->first = it->next;
        if (!f->first) f->last = NULL;
        pthread_mutex_unlock(&f->lock);
        run_now(f, it);
        free_parts(it);
        free(it);
        pthread_mutex_lock(&f->lock);
        f->finished++;
        pthread_cond_broadcast(&f->done);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- What the host asks for ---- */

static void wait_until(far *f, int64_t count)
{
    pthread_mutex_lock(&f->lock);
    if (f->wanted < count) f->wanted = count;
    pthread_cond_signal(&f->work);
    while (f->finished < count) pthread_cond_wait(&f->done, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

static void wait_for_all(far *f)
{
    wait_until(f, f->asked);
}

/* Into the recording, where there is one. */
static lk_status ask(far *f, item asked)
{
    if (f->recording) {
        if (f->recording->count == MAX_ITEMS) return lki_fail(LK_ERR_UNSUPPORTED, "the program is too long");
        f->recording->items[f->recording->count++] = asked;
        return LK_OK;
    }
    item *it = malloc(sizeof *it);
    if (!it) abort();
    *it = asked;
    pthread_mutex_lock(&f->lock);
    if (f->last)
        f->last->next = it;
    else
        f->first = it;
    f->last = it;
    f->asked++;
    pthread_cond_signal(&f->work);
    pthread_mutex_unlock(&f->lock);
    return LK_OK;
}

static lk_status run_call(const lk_call *call)
{
    item asked = {.kind = CALL, .call = *call, .original = call};
    asked.call.in = malloc(sizeof *call->in * (size_t)(call->input_count + 1));
    if (!asked.call.in) abort();
    memcpy(asked.call.in, call->in, sizeof *call->in * (size_t)call->input_count);
    return ask(far_of(call->engine), asked);
}

static int hyper_of(far *f, lk_hyper *hyper)
{
    int i = 0;
    if (!hyper) return -1;
    while (i < f->hyper_count && f->hypers[i].host != hyper) i++;
    if (i == f->hyper_count) {
        for (i = 0; i < f->hyper_count && f->hypers[i].host;) i++;
        if (i == MAX_HYPERS) abort();
        if (i == f->hyper_count) f->hyper_count++;
        f->hypers[i].host = hyper;
    }
    f->hypers[i].uses++;
    return i;
}

/* Work under way may still use it. */
static void free_state(void *state)
{
    const call_state *freed = state;
    far *f = freed->f;
    wait_for_all(f);
    if (freed->hyper >= 0 && --f->hypers[freed->hyper].uses == 0) f->hypers[freed->hyper].host = NULL;
    lki_free(state);
}

static lk_status prepare(lk_engine *engine, lk_call *call)
{
    far *f = far_of(engine);
    LKI_TRY(lki_ref_engine_ops.prepare(engine, call));
    call_state *state = LKI_NEW(call_state);
    if (!state) return LK_ERR_NOMEM;
    bool has_hyper = lk_op_family_of(call->op) == LK_FAMILY_UPDATE;
    *state = (call_state){f, call->run, has_hyper ? hyper_of(f, call->attr->update.hyper) : -1};
    f->dropout_count += (lk_op_flags(call->op) & LK_OP_IS_RANDOM) != 0;
    call->run = run_call;
    call->state = state;
    call->free_state = free_state;
    return LK_OK;
}

enum { HEADER_NBYTES = 64 };

/* Nothing is used twice: its size stands before it. */
static void *alloc(lk_engine *engine, size_t nbytes, const char *what)
{
    far *f = far_of(engine);
    size_t padded = HEADER_NBYTES + (nbytes + 127) / 64 * 64;
    size_t limit = f->options.memory_nbytes ? f->options.memory_nbytes : f->range_nbytes;
    if (nbytes > limit - f->live || padded > f->range_nbytes - f->used)
        return lki_fail_null(LK_ERR_NOMEM, "out of memory on the far device: %zu bytes for %s", nbytes, what);
    char *data = f->range + f->used + HEADER_NBYTES;
    memcpy(data - HEADER_NBYTES, &nbytes, sizeof nbytes);
    f->used += padded;
    f->live += nbytes;
    return data;
}

/* What was freed must not be used again. */
static void release(lk_engine *engine, void *data)
{
    far *f = far_of(engine);
    size_t nbytes;
    wait_for_all(f);
    if (!data) return;
    memcpy(&nbytes, (char *)data - HEADER_NBYTES, sizeof nbytes);
    memset(data, 0xff, nbytes);
    f->live -= nbytes;
}

static lk_status copy_later(lk_engine *engine, void *to, const void *from, size_t nbytes)
{
    return ask(far_of(engine), (item){.kind = COPY, .to = to, .from = from, .nbytes = nbytes});
}

static lk_status feed(lk_engine *engine, void *device, const void *host, size_t nbytes)
{
    return copy_later(engine, device, host, nbytes);
}

static lk_status fetch(lk_engine *engine, void *host, const void *device, size_t nbytes)
{
    return copy_later(engine, host, device, nbytes);
}

static lk_status copy_and_wait(lk_engine *engine, void *to, const void *from, size_t nbytes)
{
    LKI_TRY(copy_later(engine, to, from, nbytes));
    wait_for_all(far_of(engine));
    return LK_OK;
}

static void *alloc_host(lk_engine *engine, size_t nbytes, const char *what)
{
    (void)engine;
    return lki_calloc(nbytes, what);
}

static void release_host(lk_engine *engine, void *data)
{
    wait_for_all(far_of(engine));
    lki_free(data);
}

static lk_status gather_rows(lk_engine *engine, void *out, lk_dtype dtype, const lk_rows *rows,
                             const void *stored, const int64_t *indices, int64_t count)
{
    item asked = {.kind = GATHER, .to = out, .from = stored, .rows = *rows, .dtype = dtype, .count = count};
    asked.indices = malloc(sizeof *indices * (size_t)(count + 1));
    if (!asked.indices) abort();
    memcpy(asked.indices, indices, sizeof *indices * (size_t)count);
    return ask(far_of(engine), asked);
}

static lk_status watch(lk_engine *engine, const lk_tensor *loss, lk_watched *host, bool guard)
{
    return ask(far_of(engine), (item){.kind = WATCH, .loss = *loss, .watched = host, .guard = guard});
}

static lk_status synchronize(lk_engine *engine, const lk_call **failed)
{
    far *f = far_of(engine);
    wait_for_all(f);
    f->settled = true;
    for (int i = 0; i < f->hyper_count; i++)
        if (f->hypers[i].host) f->hypers[i].host->grad_norm = f->hypers[i].now.grad_norm;
    if (!f->failed) return LK_OK;
    if (failed) *failed = f->failed;
    f->failed = NULL;
    return lki_fail(f->status, "%s", f->sentence);
}

static lk_status mark(lk_engine *engine, int number)
{
    far_of(engine)->marks[number] = far_of(engine)->asked;
    return LK_OK;
}

static lk_status wait_for(lk_engine *engine, int number)
{
    far *f = far_of(engine);
    f->aheads += f->asked > f->marks[number];
    wait_until(f, f->marks[number]);
    return LK_OK;
}

/* A copy that nobody orders behind the work under way may happen at once, and as late as the step that needs
 * it: here it does both. */
static lk_status feed_ahead(lk_engine *engine, void *device, const void *host, size_t nbytes)
{
    memcpy(device, host, nbytes);
    return feed(engine, device, host, nbytes);
}

static lk_status begin_step(lk_engine *engine, lk_generator *generator)
{
    far *f = far_of(engine);
    item asked = {.kind = STEP, .starts = generator != NULL, .hyper_count = f->hyper_count};
    if (generator && f->dropout_count) asked.draw = 1 + (uint64_t)lk_randint(1 << 30, generator);
    if (generator) asked.clears = f->settled;
    if (generator) f->settled = false;
    asked.hypers = malloc(sizeof *asked.hypers * (size_t)(f->hyper_count + 1));
    if (!asked.hypers) abort();
    for (int i = 0; i < f->hyper_count; i++)
        asked.hypers[i] = f->hypers[i].host ? *f->hypers[i].host : (lk_hyper){0};
    return ask(f, asked);
}

static lk_status record_begin(lk_engine *engine)
{
    far *f = far_of(engine);
    f->recording = calloc(1, sizeof *f->recording);
    if (!f->recording) abort();
    f->recording->items = calloc(MAX_ITEMS, sizeof(item));
    if (!f->recording->items) abort();
    f->records++;
    return LK_OK;
}

static void program_free(lk_engine *engine, void *recorded)
{
    program *p = recorded;
    wait_for_all(far_of(engine));
    for (int i = 0; i < p->count; i++) free_parts(&p->items[i]);
    free(p->items);
    free(p);
}

static lk_status record_end(lk_engine *engine, void **out)
{
    far *f = far_of(engine);
    *out = f->recording;
    f->recording = NULL;
    if (f->records > f->options.full_records) return LK_OK;
    program_free(engine, *out);
    *out = NULL;
    return lki_fail(LK_ERR_NOMEM, "out of memory on the far device: no room for a program");
}

static lk_status replay(lk_engine *engine, void *recorded, lk_generator *generator)
{
    lk_status status = begin_step(engine, generator);
    if (status != LK_OK) return status;
    far_of(engine)->replays++;
    return ask(far_of(engine), (item){.kind = REPLAY, .program = recorded});
}

/* ---- Life ---- */

static lk_status open_far(void **state, const lk_engine_options *options)
{
    (void)options;
    far *f = LKI_NEW(far);
    if (!f) return LK_ERR_NOMEM;
    f->settled = true;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->work, NULL);
    pthread_cond_init(&f->done, NULL);
    *state = f;
    return LK_OK;
}

static void close_far(void *state)
{
    far *f = state;
    wait_for_all(f);
    pthread_mutex_lock(&f->lock);
    f->stopping = true;
    pthread_cond_signal(&f->work);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    pthread_cond_destroy(&f->done);
    pthread_cond_destroy(&f->work);
    pthread_mutex_destroy(&f->lock);
    munmap(f->range, f->range_nbytes);
    lki_free(f);
}

static const lk_engine_ops far_ops = {
    LK_SIZE(lk_engine_ops),
    .name = "far",
    .open = open_far,
    .close = close_far,
    .prepare = prepare,
    .keeps_low = true,
    .alloc = alloc,
    .release = release,
    .upload = copy_and_wait,
    .download = copy_and_wait,
    .alloc_host = alloc_host,
    .release_host = release_host,
    .feed = feed,
    .fetch = fetch,
    .gather_rows = gather_rows,
    .synchronize = synchronize,
    .mark = mark,
    .wait_for = wait_for,
    .feed_ahead = feed_ahead,
    .begin_step = begin_step,
    .record_begin = record_begin,
    .record_end = record_end,
    .replay = replay,
    .program_free = program_free,
    .watch = watch,
};

lk_engine *lkt_far_engine_create(lkt_far_options options)
{
    lk_engine *engine = LKI_NEW(lk_engine);
    if (!engine) return NULL;
    far_ops.open(&engine->state, LK_OPTIONS(lk_engine_options));
    far *f = engine->state;
    f->options = options;
    f->range_nbytes = (size_t)1 << 32;
    f->range = mmap(NULL, f->range_nbytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->range == MAP_FAILED || pthread_create(&f->thread, NULL, thread_main, f)) abort();
    f->ops = far_ops;
    if (options.waits_always) f->ops.mark = NULL;
    engine->ops = &f->ops;
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

int lkt_far_ahead_count(const lk_engine *engine)
{
    return far_of(engine)->aheads;
}
