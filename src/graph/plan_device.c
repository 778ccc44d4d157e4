#include "graph/plan_device.h"

#include "base/memory.h"
#include "base/status.h"
#include "tensor/buffer.h"

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

struct lki_plan_device {
    lk_engine *engine;
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

static lk_status copy_constants(lki_plan_device *device, lk_graph *graph)
{
    lk_engine *engine = device->engine;
    int count = 0;
    for (lki_node *node = graph->first; node; node = node->next) count += node->op == LK_OP_CONSTANT;
    device->constants = LKI_NEW_ARRAY(constant_copy, count + 1);
    if (!device->constants) return LK_ERR_NOMEM;
    for (lki_node *node = graph->first; node; node = node->next) {
        if (node->op != LK_OP_CONSTANT || node->dead) continue;
        const lk_tensor *host = node->out[0]->constant;
        size_t nbytes = lk_tensor_nbytes(host);
        void *copy = engine->ops->alloc(engine, nbytes, "a constant of the step");
        if (!copy) return LK_ERR_NOMEM;
        device->constants[device->constant_count++] = (constant_copy){host, copy};
        LKI_TRY(engine->ops->upload(engine, copy, host->data, nbytes));
    }
    return LK_OK;
}

static lk_status make_inputs(lki_plan_device *device, const lk_graph *graph)
{
    lk_engine *engine = device->engine;
    device->inputs = LKI_NEW_ARRAY(input_place, graph->input_count + 1);
    if (!device->inputs) return LK_ERR_NOMEM;
    for (int i = 0; i < graph->input_count; i++) {
        input_place *input = &device->inputs[device->input_count++];
        input->nbytes = lki_value_nbytes(graph->inputs[i]);
        input->slot_count = input->nbytes > LARGE_NBYTES ? FEW_SLOTS : MANY_SLOTS;
        input->device[0] = engine->ops->alloc(engine, input->nbytes, "the batch");
        if (!input->device[0]) return LK_ERR_NOMEM;
    }
    return LK_OK;
}

lk_status lki_plan_device_create(lki_plan_device **out, lk_engine *engine, lk_graph *graph)
{
    *out = NULL;
    if (!engine->ops->alloc) return LK_OK;
    lki_plan_device *device = LKI_NEW(lki_plan_device);
    if (!device) return LK_ERR_NOMEM;
    device->engine = engine;
    device->outputs = LKI_NEW_ARRAY(output_place, graph->output_count + 1);
    device->output_count = graph->output_count;
    lk_status status = device->outputs ? LK_OK : LK_ERR_NOMEM;
    if (status == LK_OK) status = copy_constants(device, graph);
    if (status == LK_OK) status = make_inputs(device, graph);
    if (status != LK_OK) {
        lki_plan_device_free(device);
        return status;
    }
    *out = device;
    return LK_OK;
}

void lki_plan_device_free(lki_plan_device *device)
{
    if (!device) return;
    const lk_engine_ops *ops = device->engine->ops;
    for (int i = 0; i < device->constant_count; i++)
        ops->release(device->engine, device->constants[i].device);
    for (int i = 0; i < device->input_count; i++) {
        for (int k = 0; k < LKI_LANES; k++) {
            ops->release(device->engine, device->inputs[i].device[k]);
            ops->release(device->engine, device->inputs[i].stored[k]);
        }
        ops->release_host(device->engine, device->inputs[i].staging);
    }
    for (int i = 0; device->outputs && i < device->output_count; i++)
        for (int k = 0; k < LKI_LANES; k++)
            ops->release_host(device->engine, device->outputs[i].host[k].data);
    lki_free(device->counting);
    lki_free(device->constants);
    lki_free(device->inputs);
    lki_free(device->outputs);
    lki_free(device);
}

void *lki_plan_device_constant(const lki_plan_device *device, const lk_tensor *constant)
{
    for (int i = 0; device && i < device->constant_count; i++)
        if (device->constants[i].host == constant) return device->constants[i].device;
    return constant->data;
}

void *lki_plan_device_input(const lki_plan_device *device, int index)
{
    return device->inputs[index].device[device->lane];
}

/* Memory on the host for what the device says of it. */
static lk_status make_host(lki_plan_device *device, lk_tensor *host, const lk_tensor *shaped_as)
{
    lk_engine *engine = device->engine;
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

lk_status lki_plan_device_enter(lki_plan_device *device, int lane, bool ahead)
{
    lk_engine *engine = device->engine;
    for (int i = 0; i < device->input_count; i++) {
        input_place *input = &device->inputs[i];
        if (!input->device[lane])
            input->device[lane] = engine->ops->alloc(engine, input->nbytes, "the batch after this one");
        if (!input->device[lane]) return LK_ERR_NOMEM;
    }
    for (int i = 0; i < device->output_count; i++)
        if (device->outputs[i].wanted)
            LKI_TRY(make_host(device, &device->outputs[i].host[lane], any_host(&device->outputs[i])));
    device->lane = lane;
    device->ahead = ahead;
    return LK_OK;
}

void lki_plan_device_leave(lki_plan_device *device)
{
    for (int i = 0; i < device->input_count; i++)
        for (int k = 1; k < LKI_LANES; k++) {
            device->engine->ops->release(device->engine, device->inputs[i].device[k]);
            device->engine->ops->release(device->engine, device->inputs[i].stored[k]);
            device->inputs[i].device[k] = device->inputs[i].stored[k] = NULL;
        }
}

void lki_plan_device_arrived(lki_plan_device *device, int lane, bool overtaken)
{
    device->lane = lane;
    device->finished = true;
    device->overtaken = overtaken;
}

static lk_status wait(lki_plan_device *device)
{
    LKI_TRY(device->engine->ops->synchronize(device->engine, NULL));
    lki_plan_device_finished(device);
    return LK_OK;
}

bool lki_plan_device_is_full(const lki_plan_device *device)
{
    for (int i = 0; i < device->input_count; i++)
        if (device->inputs[i].slot == device->inputs[i].slot_count) return true;
    return false;
}

/* A lane that is fed ahead has a slot of its own, free since its last batch has arrived. */
static lk_status choose_slot(lki_plan_device *device, input_place *input, char **out)
{
    lk_engine *engine = device->engine;
    if (!input->staging)
        input->staging =
            engine->ops->alloc_host(engine, input->nbytes * (size_t)input->slot_count, "batches");
    if (!input->staging) return LK_ERR_NOMEM;
    if (!device->ahead && input->slot == input->slot_count) LKI_TRY(wait(device));
    *out = input->staging + input->nbytes * (size_t)(device->ahead ? device->lane : input->slot++);
    return LK_OK;
}

lk_status lki_plan_device_stage(lki_plan_device *device, int index, void **out)
{
    char *slot = NULL;
    LKI_TRY(choose_slot(device, &device->inputs[index], &slot));
    *out = slot;
    return LK_OK;
}

static lk_status send(lki_plan_device *device, void *to, const void *slot, size_t nbytes)
{
    lk_engine *engine = device->engine;
    device->finished = false;
    return (device->ahead ? engine->ops->feed_ahead : engine->ops->feed)(engine, to, slot, nbytes);
}

lk_status lki_plan_device_feed_staged(lki_plan_device *device, int index, const void *slot)
{
    const input_place *input = &device->inputs[index];
    return send(device, input->device[device->lane], slot, input->nbytes);
}

lk_status lki_plan_device_feed(lki_plan_device *device, int index, const void *host)
{
    void *slot;
    LKI_TRY(lki_plan_device_stage(device, index, &slot));
    memcpy(slot, host, device->inputs[index].nbytes);
    return lki_plan_device_feed_staged(device, index, slot);
}

static lk_status count_up_to(lki_plan_device *device, int64_t count)
{
    if (count <= device->counting_count) return LK_OK;
    int64_t *grown = lki_realloc(device->counting, sizeof *grown * (size_t)count, "the numbers of rows");
    if (!grown) return LK_ERR_NOMEM;
    for (int64_t i = device->counting_count; i < count; i++) grown[i] = i;
    device->counting = grown;
    device->counting_count = count;
    return LK_OK;
}

bool lki_plan_device_takes_rows(lki_plan_device *device, int index, size_t nbytes)
{
    lk_engine *engine = device->engine;
    input_place *input = &device->inputs[index];
    void **stored = &input->stored[device->lane];
    if (!engine->ops->gather_rows || nbytes > input->nbytes) return false;
    if (!*stored) *stored = engine->ops->alloc(engine, input->nbytes, "rows of the dataset");
    return *stored != NULL;
}

lk_status lki_plan_device_feed_rows(lki_plan_device *device, int index, const void *slot, const lk_rows *rows,
                                    lk_dtype dtype, int64_t count)
{
    lk_engine *engine = device->engine;
    const input_place *input = &device->inputs[index];
    void *stored = input->stored[device->lane];
    size_t nbytes = (size_t)(count * rows->width) * lk_dtype_nbytes(rows->stored);
    LKI_TRY(count_up_to(device, count));
    LKI_TRY(send(device, stored, slot, nbytes));
    return engine->ops->gather_rows(engine, input->device[device->lane], dtype, rows, stored,
                                    device->counting, count);
}

static lk_status want(lki_plan_device *device, output_place *output, const lk_tensor *on_device)
{
    LKI_TRY(make_host(device, &output->host[device->lane], on_device));
    output->wanted = true;
    device->version++;
    return LK_OK;
}

const lk_tensor *lki_plan_device_output(lki_plan_device *device, int index, const lk_tensor *on_device)
{
    lk_engine *engine = device->engine;
    output_place *output = &device->outputs[index];
    int lane = device->lane;
    if (!output->wanted && want(device, output, on_device)) return NULL;
    if (!output->fetched[lane]) {
        if (device->overtaken)
            return lki_fail_null(LK_ERR_INVALID, "an output that was not asked for when the loader began is "
                                                 "gone: the next batch has been started");
        size_t nbytes = lk_tensor_nbytes(on_device);
        if (engine->ops->download(engine, output->host[lane].data, on_device->data, nbytes)) return NULL;
    } else if (!device->finished && wait(device)) {
        return NULL;
    }
    output->fetched[lane] = true;
    return &output->host[lane];
}

lk_status lki_plan_device_fetch(lki_plan_device *device, int index, const lk_tensor *on_device)
{
    output_place *output = &device->outputs[index];
    if (!output->wanted) return LK_OK;
    output->fetched[device->lane] = true;
    return device->engine->ops->fetch(device->engine, output->host[device->lane].data, on_device->data,
                                      lk_tensor_nbytes(on_device));
}

void lki_plan_device_started(lki_plan_device *device, bool fetches)
{
    if (!device) return;
    device->finished = device->overtaken = false;
    for (int i = 0; i < device->output_count; i++)
        device->outputs[i].fetched[device->lane] = fetches && device->outputs[i].wanted;
}

void lki_plan_device_finished(lki_plan_device *device)
{
    if (!device) return;
    device->finished = true;
    for (int i = 0; i < device->input_count; i++) device->inputs[i].slot = 0;
}

uint64_t lki_plan_device_version(const lki_plan_device *device)
{
    return device->version;
}
