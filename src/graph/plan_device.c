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
    void *device;
    char *staging; /* slot_count pieces of nbytes */
    size_t nbytes;
    int slot_count, slot; /* the next to use; all are in use where it is slot_count */
} input_place;

typedef struct output_place {
    lk_tensor host;       /* over pinned memory, made when it is first asked for */
    bool wanted, fetched; /* fetched: on its way, or there */
} output_place;

struct lki_plan_device {
    lk_engine *engine;
    constant_copy *constants;
    int constant_count;
    input_place *inputs;
    int input_count;
    output_place *outputs;
    int output_count;
    bool finished; /* nothing is under way */
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
        input->device = engine->ops->alloc(engine, input->nbytes, "the batch");
        if (!input->device) return LK_ERR_NOMEM;
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
        ops->release(device->engine, device->inputs[i].device);
        ops->release_host(device->engine, device->inputs[i].staging);
    }
    for (int i = 0; device->outputs && i < device->output_count; i++)
        ops->release_host(device->engine, device->outputs[i].host.data);
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
    return device->inputs[index].device;
}

static lk_status wait(lki_plan_device *device)
{
    LKI_TRY(device->engine->ops->synchronize(device->engine, NULL));
    lki_plan_device_finished(device);
    return LK_OK;
}

lk_status lki_plan_device_feed(lki_plan_device *device, int index, const void *host)
{
    lk_engine *engine = device->engine;
    input_place *input = &device->inputs[index];
    if (!input->staging) {
        input->staging =
            engine->ops->alloc_host(engine, input->nbytes * (size_t)input->slot_count, "batches");
        if (!input->staging) return LK_ERR_NOMEM;
    }
    if (input->slot == input->slot_count) LKI_TRY(wait(device));
    char *slot = input->staging + input->nbytes * (size_t)input->slot++;
    memcpy(slot, host, input->nbytes);
    device->finished = false;
    return engine->ops->feed(engine, input->device, slot, input->nbytes);
}

static lk_status want(lki_plan_device *device, output_place *output, const lk_tensor *on_device)
{
    lk_engine *engine = device->engine;
    output->host = *on_device;
    output->host.data = NULL;
    output->host.buffer = NULL;
    output->host.data =
        engine->ops->alloc_host(engine, lk_tensor_nbytes(on_device), "the outputs of the step");
    if (!output->host.data) return LK_ERR_NOMEM;
    output->wanted = true;
    device->version++;
    return LK_OK;
}

const lk_tensor *lki_plan_device_output(lki_plan_device *device, int index, const lk_tensor *on_device)
{
    output_place *output = &device->outputs[index];
    if (!output->wanted && want(device, output, on_device)) return NULL;
    size_t nbytes = lk_tensor_nbytes(on_device);
    if (!output->fetched &&
        device->engine->ops->download(device->engine, output->host.data, on_device->data, nbytes))
        return NULL;
    if (output->fetched && !device->finished && wait(device)) return NULL;
    output->fetched = true;
    return &output->host;
}

lk_status lki_plan_device_fetch(lki_plan_device *device, int index, const lk_tensor *on_device)
{
    output_place *output = &device->outputs[index];
    if (!output->wanted) return LK_OK;
    output->fetched = true;
    return device->engine->ops->fetch(device->engine, output->host.data, on_device->data,
                                      lk_tensor_nbytes(on_device));
}

void lki_plan_device_started(lki_plan_device *device, bool fetches)
{
    if (!device) return;
    device->finished = false;
    for (int i = 0; i < device->output_count; i++)
        device->outputs[i].fetched = fetches && device->outputs[i].wanted;
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
