#include "step/device/plan_home.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/graph.h"
#include "step/device/device.h"

#include <string.h>

enum { MANY_SLOTS = 8, FEW_SLOTS = 2, LARGE_NBYTES = 4 << 20 };

typedef struct constant_copy {
    const lk_tensor *host;
    void *device;
} constant_copy;

typedef struct input_place {
    void *device[LKI_LANES]; /* NULL before a lane is first used */
    void *stored[LKI_LANES]; /* rows as they are stored, on their way into the batch; NULL before there are
                                any */
    char *staging;           /* slot_count pieces of nbytes */
    size_t nbytes;
    int slot_count, slot; /* the next to use; all are in use where it is slot_count */
} input_place;

typedef struct output_place {
    lk_tensor host[LKI_LANES]; /* over pinned memory, made when it is first asked for */
    bool wanted;
    bool fetched[LKI_LANES]; /* on its way, or there */
} output_place;

struct lki_plan_home {
    lki_home *home;
    lki_plan *plan;
    lk_engine *engine;
    lki_programs programs;
    constant_copy *constants;
    int constant_count;
    input_place *inputs;
    int input_count;
    output_place *outputs;
    int output_count;
    int64_t *counting; /* 0, 1, 2 ... */
    int64_t counting_count;
    int lane;
    bool ahead;     /* that lane's batch is fed beside what is under way */
    bool finished;  /* nothing is under way, or nothing of this lane */
    bool overtaken; /* what the step left on the device is another's by now */
    uint64_t version;
};

static lk_status copy_constants(lki_plan_home *held, lk_graph *graph)
{
    lk_engine *engine = held->engine;
    int count = 0;
    for (lki_node *node = graph->first; node; node = node->next) count += node->op == LK_OP_CONSTANT;
    held->constants = LKI_NEW_ARRAY(constant_copy, count + 1);
    if (!held->constants) return LK_ERR_NOMEM;
    for (lki_node *node = graph->first; node; node = node->next) {
        if (node->op != LK_OP_CONSTANT || node->dead) continue;
        const lk_tensor *host = node->out[0]->constant;
        size_t nbytes = lk_tensor_nbytes(host);
        void *copy = engine->ops->alloc(engine, nbytes, "a constant of the step");
        if (!copy) return LK_ERR_NOMEM;
        held->constants[held->constant_count++] = (constant_copy){host, copy};
        LKI_TRY(engine->ops->upload(engine, copy, host->data, nbytes));
    }
    return LK_OK;
}

static lk_status make_inputs(lki_plan_home *held, const lk_graph *graph)
{
    lk_engine *engine = held->engine;
    held->inputs = LKI_NEW_ARRAY(input_place, graph->input_count + 1);
    if (!held->inputs) return LK_ERR_NOMEM;
    for (int i = 0; i < graph->input_count; i++) {
        input_place *input = &held->inputs[held->input_count++];
        input->nbytes = lki_value_nbytes(graph->inputs[i]);
        input->slot_count = input->nbytes > LARGE_NBYTES ? FEW_SLOTS : MANY_SLOTS;
        input->device[0] = engine->ops->alloc(engine, input->nbytes, "the batch");
        if (!input->device[0]) return LK_ERR_NOMEM;
    }
    return LK_OK;
}

lk_status lki_plan_home_create(lki_plan_home **out, lki_home *home, lki_plan *plan, lk_graph *graph)
{
    *out = NULL;
    lki_plan_home *held = LKI_NEW(lki_plan_home);
    if (!held) return LK_ERR_NOMEM;
    held->home = home;
    held->plan = plan;
    held->engine = home->engine;
    held->outputs = LKI_NEW_ARRAY(output_place, graph->output_count + 1);
    held->output_count = graph->output_count;
    lk_status status = held->outputs ? LK_OK : LK_ERR_NOMEM;
    if (status == LK_OK) status = copy_constants(held, graph);
    if (status == LK_OK) status = make_inputs(held, graph);
    if (status != LK_OK) {
        lki_plan_home_free(held);
        return status;
    }
    *out = held;
    return LK_OK;
}

void lki_plan_home_free(lki_plan_home *held)
{
    const lk_engine_ops *ops = held->engine->ops;
    for (int lane = 0; lane < LKI_LANES; lane++) lki_plan_home_free_programs(held, lane);
    for (int i = 0; i < held->constant_count; i++) ops->release(held->engine, held->constants[i].device);
    for (int i = 0; i < held->input_count; i++) {
        for (int k = 0; k < LKI_LANES; k++) {
            ops->release(held->engine, held->inputs[i].device[k]);
            ops->release(held->engine, held->inputs[i].stored[k]);
        }
        ops->release_host(held->engine, held->inputs[i].staging);
    }
    for (int i = 0; held->outputs && i < held->output_count; i++)
        for (int k = 0; k < LKI_LANES; k++) ops->release_host(held->engine, held->outputs[i].host[k].data);
    lki_free(held->counting);
    lki_free(held->constants);
    lki_free(held->inputs);
    lki_free(held->outputs);
    lki_free(held);
}

void *lki_plan_home_constant(const lki_plan_home *held, const lk_tensor *constant)
{
    for (int i = 0; i < held->constant_count; i++)
        if (held->constants[i].host == constant) return held->constants[i].device;
    return constant->data;
}

void *lki_plan_home_param(const lki_plan_home *held, const lk_param *param, const lk_tensor *tensor)
{
    return lki_device_param_address(held->home, param, tensor);
}

void *lki_plan_home_input(lki_plan_home *held, int index)
{
    void *input = held->inputs[index].device[held->lane];
    lki_plan_set_input(held->plan, index, input);
    return input;
}

/* Memory on the host for what the device says of it. */
static lk_status make_host(lki_plan_home *held, lk_tensor *host, const lk_tensor *shaped_as)
{
    lk_engine *engine = held->engine;
    if (host->data) return LK_OK;
    *host = *shaped_as;
    host->buffer = NULL;
    host->data = engine->ops->alloc_host(engine, lk_tensor_nbytes(shaped_as), "the outputs of the step");
    return host->data ? LK_OK : LK_ERR_NOMEM;
}

static const lk_tensor *any_host(const output_place *output)
{
    int lane = 0;
    while (lane < LKI_LANES - 1 && !output->host[lane].data) lane++;
    return &output->host[lane];
}

lk_status lki_plan_home_enter(lki_plan_home *held, int lane, bool ahead)
{
    lk_engine *engine = held->engine;
    LKI_TRY(lki_plan_settle(held->plan)); /* a device allocates nothing while a program is recorded */
    for (int i = 0; i < held->input_count; i++) {
        input_place *input = &held->inputs[i];
        if (!input->device[lane])
            input->device[lane] = engine->ops->alloc(engine, input->nbytes, "the batch after this one");
        if (!input->device[lane]) return LK_ERR_NOMEM;
    }
    for (int i = 0; i < held->output_count; i++)
        if (held->outputs[i].wanted)
            LKI_TRY(make_host(held, &held->outputs[i].host[lane], any_host(&held->outputs[i])));
    held->lane = lane;
    held->ahead = ahead;
    return LK_OK;
}

void lki_plan_home_leave(lki_plan_home *held)
{
    for (int i = 0; i < held->input_count; i++)
        for (int k = 1; k < LKI_LANES; k++) {
            held->engine->ops->release(held->engine, held->inputs[i].device[k]);
            held->engine->ops->release(held->engine, held->inputs[i].stored[k]);
            held->inputs[i].device[k] = held->inputs[i].stored[k] = NULL;
        }
}

void lki_plan_home_arrived(lki_plan_home *held, int lane, bool overtaken)
{
    held->lane = lane;
    held->finished = true;
    held->overtaken = overtaken;
}

static void set_finished(lki_plan_home *held)
{
    held->finished = true;
    for (int i = 0; i < held->input_count; i++) held->inputs[i].slot = 0;
}

static lk_status wait(lki_plan_home *held)
{
    LKI_TRY(held->engine->ops->synchronize(held->engine, NULL));
    set_finished(held);
    return LK_OK;
}

bool lki_plan_home_is_full(const lki_plan_home *held)
{
    for (int i = 0; i < held->input_count; i++)
        if (held->inputs[i].slot == held->inputs[i].slot_count) return true;
    return false;
}

/* A lane that is fed ahead has a slot of its own, free since its last batch has arrived. */
static lk_status choose_slot(lki_plan_home *held, input_place *input, char **out)
{
    lk_engine *engine = held->engine;
    if (!input->staging)
        input->staging =
            engine->ops->alloc_host(engine, input->nbytes * (size_t)input->slot_count, "batches");
    if (!input->staging) return LK_ERR_NOMEM;
    if (!held->ahead && input->slot == input->slot_count) LKI_TRY(wait(held));
    *out = input->staging + input->nbytes * (size_t)(held->ahead ? held->lane : input->slot++);
    return LK_OK;
}

lk_status lki_plan_home_stage(lki_plan_home *held, int index, void **out)
{
    char *slot = NULL;
    LKI_TRY(choose_slot(held, &held->inputs[index], &slot));
    *out = slot;
    return LK_OK;
}

static lk_status send(lki_plan_home *held, void *to, const void *slot, size_t nbytes)
{
    lk_engine *engine = held->engine;
    held->finished = false;
    return (held->ahead ? engine->ops->feed_ahead : engine->ops->feed)(engine, to, slot, nbytes);
}

lk_status lki_plan_home_feed_staged(lki_plan_home *held, int index, const void *slot)
{
    const input_place *input = &held->inputs[index];
    return send(held, input->device[held->lane], slot, input->nbytes);
}

lk_status lki_plan_home_bind(lki_plan_home *held, int index, const void *host)
{
    void *slot;
    lki_plan_home_input(held, index);
    LKI_TRY(lki_plan_home_stage(held, index, &slot));
    memcpy(slot, host, held->inputs[index].nbytes);
    return lki_plan_home_feed_staged(held, index, slot);
}

static lk_status count_up_to(lki_plan_home *held, int64_t count)
{
    if (count <= held->counting_count) return LK_OK;
    int64_t *grown = lki_realloc(held->counting, sizeof *grown * (size_t)count, "the numbers of rows");
    if (!grown) return LK_ERR_NOMEM;
    for (int64_t i = held->counting_count; i < count; i++) grown[i] = i;
    held->counting = grown;
    held->counting_count = count;
    return LK_OK;
}

bool lki_plan_home_takes_rows(lki_plan_home *held, int index, size_t nbytes)
{
    lk_engine *engine = held->engine;
    input_place *input = &held->inputs[index];
    void **stored = &input->stored[held->lane];
    if (!engine->ops->gather_rows || nbytes > input->nbytes) return false;
    if (!*stored) *stored = engine->ops->alloc(engine, input->nbytes, "rows of the dataset");
    return *stored != NULL;
}

lk_status lki_plan_home_feed_rows(lki_plan_home *held, int index, const void *slot, const lk_rows *rows,
                                  lk_dtype dtype, int64_t count)
{
    lk_engine *engine = held->engine;
    const input_place *input = &held->inputs[index];
    void *stored = input->stored[held->lane];
    size_t nbytes = (size_t)(count * rows->width) * lk_dtype_nbytes(rows->stored);
    LKI_TRY(count_up_to(held, count));
    LKI_TRY(send(held, stored, slot, nbytes));
    return engine->ops->gather_rows(engine, input->device[held->lane], dtype, rows, stored, held->counting,
                                    count);
}

static lk_status want(lki_plan_home *held, output_place *output, const lk_tensor *on_device)
{
    LKI_TRY(make_host(held, &output->host[held->lane], on_device));
    output->wanted = true;
    held->version++;
    return LK_OK;
}

const lk_tensor *lki_plan_home_output(lki_plan_home *held, int index, const lk_tensor *on_device)
{
    lk_engine *engine = held->engine;
    output_place *output = &held->outputs[index];
    int lane = held->lane;
    if (!output->wanted && want(held, output, on_device)) return NULL;
    if (!output->fetched[lane]) {
        if (held->overtaken)
            return lki_fail_null(LK_ERR_INVALID, "an output that was not asked for when the loader began is "
                                                 "gone: the next batch has been started");
        size_t nbytes = lk_tensor_nbytes(on_device);
        if (engine->ops->download(engine, output->host[lane].data, on_device->data, nbytes)) return NULL;
    } else if (!held->finished && wait(held)) {
        return NULL;
    }
    output->fetched[lane] = true;
    return &output->host[lane];
}

static lk_status fetch(lki_plan_home *held, int index)
{
    lk_engine *engine = held->engine;
    output_place *output = &held->outputs[index];
    const lk_tensor *there = lki_plan_output_there(held->plan, index);
    if (!output->wanted) return LK_OK;
    output->fetched[held->lane] = true;
    return engine->ops->fetch(engine, output->host[held->lane].data, there->data, lk_tensor_nbytes(there));
}

lk_status lki_plan_home_fetch_outputs(lki_plan_home *held)
{
    for (int i = 0; i < held->output_count; i++) LKI_TRY(fetch(held, i));
    return LK_OK;
}

lk_status lki_plan_home_watch(lki_plan_home *held, const lk_tensor *loss, lk_watched *host, bool guard)
{
    LKI_TRY(lki_plan_check_outputs(held->plan));
    return held->engine->ops->watch(held->engine, loss, host, guard);
}

static void set_started(lki_plan_home *held, bool fetches)
{
    held->finished = held->overtaken = false;
    for (int i = 0; i < held->output_count; i++)
        held->outputs[i].fetched[held->lane] = fetches && held->outputs[i].wanted;
}

void lki_plan_home_begin_calls(lki_plan_home *held)
{
    set_started(held, false);
}

void lki_plan_home_replayed(lki_plan_home *held)
{
    set_started(held, true);
}

lk_status lki_plan_home_finish(lki_plan_home *held)
{
    const lk_call *failed = NULL;
    if (!held->engine->ops->synchronize) return LK_OK;
    lk_status status = held->engine->ops->synchronize(held->engine, &failed);
    set_finished(held); /* nothing is in flight, whatever has become of it */
    return lki_plan_name_layer(held->plan, status, failed);
}

/* ---- Programs ---- */

lki_programs *lki_plan_home_programs(lki_plan_home *held)
{
    return &held->programs;
}

void lki_plan_home_free_programs(lki_plan_home *held, int lane)
{
    for (int i = 0; i < LKI_PROGRAM_COUNT; i++) {
        lki_program *program = &held->programs.of[lane][i];
        if (program->recording) held->engine->ops->program_free(held->engine, program->recording);
        program->recording = NULL;
    }
}

uint64_t lki_plan_home_version(const lki_plan_home *held)
{
    return (lki_plan_version(held->plan) << 16) + held->version;
}
