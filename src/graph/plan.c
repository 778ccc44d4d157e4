#include "graph/plan.h"

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"
#include "comm/rank_ops.h"
#include "graph/custom.h"
#include "graph/trace_calls.h"
#include "graph/workspace.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCRATCH_ALIGNMENT = 64 };

/* An operand whose address is that of a bound input. */
typedef struct input_use {
    lk_tensor *operand;
    int input;
} input_use;

struct lki_plan {
    lk_graph *graph;
    lki_plan_options options;
    lk_call *calls;
    lki_node **nodes; /* nodes[i] became calls[i] */
    int call_count;
    int section_begin[LKI_SECTION_COUNT + 1];
    lk_tensor *operands; /* the inputs of all calls, one after another */
    int *operand_layouts;
    void **input_data; /* what each graph input is bound to */
    input_use *input_uses;
    int input_use_count;
    lk_tensor *outputs;                                /* views of the graph's outputs */
    lki_home *home;                                    /* the workspace's; NULL: the host */
    lki_plan_home *held;                               /* what it holds for this plan */
    size_t arena_nbytes, scratch_nbytes, aside_nbytes; /* aside: scratch of calls that stand aside */
    void **param_data;     /* where each parameter and its gradient lay then, two a parameter */
    uint64_t seen_version; /* of the workspace, when addresses were last looked up */
    bool all_bound, draws;
    bool has_custom;    /* an op of the program's own, which may allocate */
    uint64_t traced_by; /* the trace that knows the calls, by its number */
    int first_site;     /* calls[0] there; the others follow */
};

static bool has_kernel(const lki_node *node)
{
    return !node->dead && !(lk_op_flags(node->op) & (LK_OP_IS_LEAF | LK_OP_IS_VIEW));
}

static int input_index(const lk_graph *graph, const lk_value *value)
{
    for (int i = 0; i < graph->input_count; i++)
        if (graph->inputs[i] == value) return i;
    return -1;
}

/* Where the engine finds a parameter's value or gradient. */
static void *param_address(const lki_plan *plan, const lk_param *param, const lk_tensor *tensor)
{
    return plan->home ? plan->home->ops->param_address(plan->held, param, tensor) : tensor->data;
}

static void *constant_address(const lki_plan *plan, const lk_tensor *constant)
{
    return plan->home ? plan->home->ops->constant_address(plan->held, constant) : constant->data;
}

static void *address_of(const lki_plan *plan, lk_value *value)
{
    lk_value *root = lki_value_root(value);
    switch (root->storage) {
    case LKI_STORAGE_ARENA: return plan->options.workspace->arena + root->offset;
    case LKI_STORAGE_INPUT: return plan->input_data[input_index(plan->graph, root)];
    case LKI_STORAGE_PARAM: return param_address(plan, root->param, root->param->value);
    case LKI_STORAGE_GRAD: return param_address(plan, root->param, root->param->grad);
    case LKI_STORAGE_CONSTANT: return constant_address(plan, root->constant);
    case LKI_STORAGE_VIEW:
    case LKI_STORAGE_NONE: break;
    }
    return NULL;
}

static void look_up_addresses(lki_plan *plan)
{
    for (int c = 0; c < plan->call_count; c++) {
        lk_call *call = &plan->calls[c];
        lki_node *node = plan->nodes[c];
        for (int i = 0; i < node->input_count; i++)
            call->in[i].data = node->in[i] ? address_of(plan, node->in[i]) : NULL;
        for (int i = 0; i < node->output_count; i++) call->out[i].data = address_of(plan, node->out[i]);
        char *scratch = plan->options.workspace->scratch;
        call->scratch = scratch && call->aside ? scratch + plan->scratch_nbytes : scratch;
    }
    for (int i = 0; i < plan->graph->output_count; i++)
        plan->outputs[i].data = address_of(plan, plan->graph->outputs[i]);
    for (int i = 0; i < plan->graph->param_count; i++) {
        const lk_param *param = plan->graph->params[i]->param;
        plan->param_data[2 * i] = param_address(plan, param, param->value);
        plan->param_data[2 * i + 1] = param->grad ? param_address(plan, param, param->grad) : NULL;
    }
    plan->seen_version = plan->options.workspace->version;
}

/* The workspace has grown, or a parameter has moved into the flat buffer of an optimizer. In another home a
 * parameter's place never changes while a plan lives: lk_step compiles anew when one has moved. */
static bool addresses_changed(const lki_plan *plan)
{
    if (plan->seen_version != plan->options.workspace->version) return true;
    if (plan->home) return false;
    for (int i = 0; i < plan->graph->param_count; i++) {
        const lk_param *param = plan->graph->params[i]->param;
        if (plan->param_data[2 * i] != param->value->data) return true;
        if (plan->param_data[2 * i + 1] != (param->grad ? param->grad->data : NULL)) return true;
    }
    return false;
}

/* Before a replay. A workspace that could not grow for another plan may be smaller than this one needs. */
lk_status lki_plan_settle(lki_plan *plan)
{
    if (!addresses_changed(plan)) return LK_OK;
    LKI_TRY(lki_workspace_reserve(plan->options.workspace, plan->arena_nbytes,
                                  plan->scratch_nbytes + plan->aside_nbytes));
    look_up_addresses(plan);
    return LK_OK;
}

/* What a replay has left in the workspace is gone once that has moved. */
lk_status lki_plan_check_outputs(lki_plan *plan)
{
    if (plan->options.workspace->arena_nbytes < plan->arena_nbytes)
        return lki_fail(LK_ERR_INVALID, "the outputs of the last batch are gone: a larger one did not fit "
                                        "into memory");
    if (addresses_changed(plan)) look_up_addresses(plan);
    return LK_OK;
}

static void collect_input_uses(lki_plan *plan)
{
    for (int c = 0; c < plan->call_count; c++) {
        lki_node *node = plan->nodes[c];
        for (int i = 0; i < node->input_count; i++) {
            lk_value *root = node->in[i] ? lki_value_root(node->in[i]) : NULL;
            if (root && root->storage == LKI_STORAGE_INPUT)
                plan->input_uses[plan->input_use_count++] =
                    (input_use){&plan->calls[c].in[i], input_index(plan->graph, root)};
        }
    }
}

static void describe_operand(lk_tensor *tensor, const lk_value *value)
{
    if (!value) {
        *tensor = (lk_tensor){0};
        return;
    }
    *tensor = (lk_tensor){.dtype = value->dtype, .shape = value->shape};
    int64_t stride = 1;
    for (int i = value->shape.rank - 1; i >= 0; i--) {
        tensor->stride[i] = stride;
        stride *= value->shape.dim[i];
    }
}

static lk_status count_and_allocate(lki_plan *plan)
{
    int operand_count = 0;
    for (lki_node *node = plan->graph->first; node; node = node->next) {
        if (!has_kernel(node)) continue;
        plan->call_count++;
        operand_count += node->input_count;
    }
    plan->calls = LKI_NEW_ARRAY(lk_call, plan->call_count + 1);
    plan->nodes = LKI_NEW_ARRAY(lki_node *, plan->call_count + 1);
    plan->operands = LKI_NEW_ARRAY(lk_tensor, operand_count + 1);
    plan->operand_layouts = LKI_NEW_ARRAY(int, operand_count + 1);
    plan->input_data = LKI_NEW_ARRAY(void *, plan->graph->input_count + 1);
    plan->input_uses = LKI_NEW_ARRAY(input_use, operand_count + 1);
    plan->outputs = LKI_NEW_ARRAY(lk_tensor, plan->graph->output_count + 1);
    plan->param_data = LKI_NEW_ARRAY(void *, 2 * plan->graph->param_count + 1);
    bool complete = plan->param_data && plan->calls && plan->nodes && plan->operands &&
                    plan->operand_layouts && plan->input_data && plan->input_uses && plan->outputs;
    return complete ? LK_OK : LK_ERR_NOMEM;
}

static void fill_call(lki_plan *plan, lk_call *call, lki_node *node, int first_operand)
{
    call->op = node->op;
    call->attr = &node->attr;
    call->engine = plan->options.engine;
    call->generator = plan->options.generator;
    call->aside = node->aside;
    call->input_count = node->input_count;
    call->output_count = node->output_count;
    call->in = plan->operands + first_operand;
    call->in_layout = plan->operand_layouts + first_operand;
    for (int i = 0; i < node->input_count; i++) {
        describe_operand(&call->in[i], node->in[i]);
        call->in_layout[i] = node->in[i] ? node->in[i]->layout : 0;
    }
    for (int i = 0; i < node->output_count; i++) {
        describe_operand(&call->out[i], node->out[i]);
        call->out_layout[i] = node->out[i]->layout;
    }
}

/* Sections are contiguous: recording goes forward, criterion, backward, and passes insert into the section
 * they find. */
static void make_calls(lki_plan *plan)
{
    int c = 0, first_operand = 0;
    for (int section = 0; section < LKI_SECTION_COUNT; section++) {
        plan->section_begin[section] = c;
        for (lki_node *node = plan->graph->first; node; node = node->next) {
            if (!has_kernel(node) || (int)node->section != section) continue;
            plan->nodes[c] = node;
            if (c > plan->section_begin[section]) plan->calls[c].previous = &plan->calls[c - 1];
            fill_call(plan, &plan->calls[c++], node, first_operand);
            first_operand += node->input_count;
        }
    }
    plan->section_begin[LKI_SECTION_COUNT] = c;
    for (int i = 0; i < plan->graph->output_count; i++)
        describe_operand(&plan->outputs[i], plan->graph->outputs[i]);
}

/* Of one dtype, in one section. */
static void lead_casts(lki_plan *plan)
{
    lk_call *leader = NULL;
    for (int c = 0; c < plan->call_count; c++) {
        lk_call *call = &plan->calls[c];
        if (!lki_is_param_cast(plan->nodes[c])) {
            leader = NULL;
        } else if (leader && plan->nodes[c - 1]->section == plan->nodes[c]->section &&
                   leader->out[0].dtype == call->out[0].dtype) {
            leader->followers++;
            call->is_led = true;
        } else {
            leader = call;
        }
    }
}

static lk_status fail_in_layer(lk_status status, const lki_node *node)
{
    return node->scope ? lki_fail_prefix(status, "%s", node->scope) : status;
}

static lk_status prepare_call(lk_call *call, lk_engine *engine, bool on_host)
{
    if (lk_op_family_of(call->op) != LK_FAMILY_CUSTOM)
        return on_host ? lki_host_prepare(call) : engine->ops->prepare(engine, call);
    if (!on_host)
        return lki_fail(LK_ERR_UNSUPPORTED, "%s: an op of your own needs an engine on the host, such as cpu",
                        call->attr->custom.op->name);
    lki_custom_prepare(call);
    return LK_OK;
}

/* Kernels are chosen for the shapes and addresses of the operands; bound inputs have none yet, so they stand
 * in for memory that is aligned no better than one element. */
static lk_status resolve_kernels(lki_plan *plan)
{
    lk_engine *engine = plan->options.engine;
    LKI_TRY(lki_workspace_reserve(plan->options.workspace, plan->arena_nbytes, 0));
    if (plan->home) LKI_TRY(plan->home->ops->open_plan(plan->home, plan, plan->graph, &plan->held));
    look_up_addresses(plan);
    for (int c = 0; c < plan->call_count; c++) {
        lk_call *call = &plan->calls[c];
        bool on_host = (lk_op_flags(call->op) & LK_OP_RUNS_ON_HOST) && !plan->home;
        plan->draws = plan->draws || (lk_op_flags(call->op) & LK_OP_IS_RANDOM);
        plan->has_custom = plan->has_custom || lk_op_family_of(call->op) == LK_FAMILY_CUSTOM;
        lk_status status = prepare_call(call, engine, on_host);
        if (status) return fail_in_layer(status, plan->nodes[c]);
        size_t *most = call->aside ? &plan->aside_nbytes : &plan->scratch_nbytes;
        if (call->scratch_nbytes > *most) *most = call->scratch_nbytes;
    }
    plan->scratch_nbytes =
        (plan->scratch_nbytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
    return lki_workspace_reserve(plan->options.workspace, plan->arena_nbytes,
                                 plan->scratch_nbytes + plan->aside_nbytes);
}

static lk_status assign_layouts(lk_graph *graph, lk_engine *engine)
{
    lki_switch wanted;
    LKI_TRY(lki_setting_switch(LKI_SETTING_CHANNELS_LAST, &wanted));
    return wanted == LKI_SWITCH_OFF ? LK_OK : lki_pass_layouts(graph, engine, wanted == LKI_SWITCH_ON);
}

static lk_status assign_precision(lki_plan *plan)
{
    lki_switch low;
    LKI_TRY(lki_setting_switch(LKI_SETTING_LOW_ACTIVATIONS, &low));
    bool keeps_low = low == LKI_SWITCH_UNSET ? plan->options.engine->ops->keeps_low : low == LKI_SWITCH_ON;
    return lki_pass_precision(plan->graph, plan->options.precision, keeps_low);
}

static lk_status run_passes(lki_plan *plan)
{
    lk_graph *graph = plan->graph;
    lk_engine *engine = plan->options.engine;
    if (graph->status) return lki_fail(graph->status, "%s", graph->error ? graph->error : "out of memory");
    lki_graph_count_uses(graph);
    if (plan->options.precision != LK_F32) LKI_TRY(assign_precision(plan));
    if (!plan->options.no_fusion) lki_pass_join_losses(graph, engine);
    if (!plan->options.no_fusion) LKI_TRY(lki_pass_fuse(graph));
    LKI_TRY(assign_layouts(graph, engine));
    if (!plan->options.no_fusion) LKI_TRY(lki_pass_fold_norms(graph, engine));
    LKI_TRY(lki_pass_checkpoint(graph));
    lki_graph_count_uses(graph);
    if (engine->ops->joins_casts) lki_pass_gather_casts(graph);
    return lki_pass_place(graph, plan->home ? plan->home->ops->aside_nbytes : 0, &plan->arena_nbytes);
}

lk_status lki_plan_compile(lki_plan **out, lk_graph *graph, lki_plan_options options)
{
    *out = NULL;
    lki_plan *plan = LKI_NEW(lki_plan);
    if (!plan) {
        lk_graph_free(graph);
        return LK_ERR_NOMEM;
    }
    plan->graph = graph;
    plan->options = options;
    plan->home = options.workspace->home;
    if (!plan->options.generator) plan->options.generator = lk_default_generator();
    lk_status status;
    LKI_TRY_OUT(run_passes(plan));
    LKI_TRY_OUT(count_and_allocate(plan));
    make_calls(plan);
    if (options.engine->ops->joins_casts) lead_casts(plan);
    collect_input_uses(plan);
    LKI_TRY_OUT(resolve_kernels(plan));
    look_up_addresses(plan);
    *out = plan;
    return LK_OK;
out:
    lki_plan_free(plan);
    return status;
}

void lki_plan_free(lki_plan *plan)
{
    if (!plan) return;
    if (plan->held) plan->home->ops->close_plan(plan->held); /* programs know the states of calls */
    for (int c = 0; plan->calls && c < plan->call_count; c++)
        if (plan->calls[c].free_state) plan->calls[c].free_state(plan->calls[c].state);
    lki_free(plan->calls);
    lki_free(plan->nodes);
    lki_free(plan->operands);
    lki_free(plan->operand_layouts);
    lki_free(plan->input_data);
    lki_free(plan->input_uses);
    lki_free(plan->param_data);
    lki_free(plan->outputs);
    lk_graph_free(plan->graph);
    lki_free(plan);
}

int lki_plan_find_input(const lki_plan *plan, const char *name)
{
    for (int i = 0; i < plan->graph->input_count; i++)
        if (strcmp(plan->graph->inputs[i]->name, name) == 0) return i;
    return -1;
}

void lki_plan_set_input(lki_plan *plan, int index, void *address)
{
    if (plan->input_data[index] == address) return;
    plan->input_data[index] = address;
    for (int i = 0; i < plan->input_use_count; i++)
        if (plan->input_uses[i].input == index) plan->input_uses[i].operand->data = address;
}

lk_status lki_plan_bind(lki_plan *plan, int index, void *data)
{
    if (plan->home) return plan->home->ops->bind(plan->held, index, data);
    lki_plan_set_input(plan, index, data);
    return LK_OK;
}

static lk_status check_bound(lki_plan *plan)
{
    if (plan->all_bound) return LK_OK;
    for (int i = 0; i < plan->graph->input_count; i++)
        if (!plan->input_data[i] && lk_shape_count(plan->graph->inputs[i]->shape) > 0)
            return lki_fail(LK_ERR_INVALID, "input \"%s\" is not bound", plan->graph->inputs[i]->name);
    plan->all_bound = true;
    return LK_OK;
}

/* On a device a call's return does not say that its work is done. */
static bool is_traced(const lki_plan *plan)
{
    return lki_trace_now && !plan->home;
}

static lk_status announce_calls(lki_plan *plan)
{
    static const lki_trace_kind kinds[] = {LKI_TRACE_FORWARD, LKI_TRACE_CRITERION, LKI_TRACE_BACKWARD};
    if (plan->traced_by == lki_trace_now->number) return LK_OK;
    for (int c = 0; c < plan->call_count; c++) {
        const lki_node *node = plan->nodes[c];
        int site = lki_trace_add_call(lki_trace_now, kinds[node->section], &plan->calls[c], node->scope);
        if (site < 0) return LK_ERR_NOMEM;
        if (c == 0) plan->first_site = site;
    }
    plan->traced_by = lki_trace_now->number;
    return LK_OK;
}

/* The loop of run_calls with a look at the clock before and after each call. */
static lk_status trace_calls(lki_plan *plan, int *c, int end)
{
    for (; *c < end; ++*c) {
        int64_t begin_ns = lki_now_ns();
        LKI_TRY(plan->calls[*c].run(&plan->calls[*c]));
        lki_trace_add(lki_trace_now, plan->first_site + *c, begin_ns, lki_now_ns());
    }
    return LK_OK;
}

static lk_status run_calls(lki_plan *plan, int begin, int end)
{
    LKI_TRY(check_bound(plan));
    LKI_TRY(lki_plan_settle(plan));
    if (plan->home) plan->home->ops->begin_calls(plan->held);
    lk_engine *engine = plan->options.engine;
    if (engine->ops->enter) LKI_TRY(engine->ops->enter(engine));
    bool traced = is_traced(plan);
    if (traced) LKI_TRY(announce_calls(plan));
#ifndef NDEBUG
    uint64_t allocations = lki_allocation_count();
#endif
    lki_float_mode mode = lki_float_mode_flush();
    lk_status status = LK_OK;
    int c = begin;
    if (traced)
        status = trace_calls(plan, &c, end);
    else
        while (c < end && !(status = plan->calls[c].run(&plan->calls[c]))) c++;
    lki_float_mode_restore(mode);
    if (status) return fail_in_layer(status, plan->nodes[c]);
    assert((plan->has_custom || lki_allocation_count() == allocations) && "a replay must not allocate");
    return LK_OK;
}

lk_status lki_plan_run(lki_plan *plan)
{
    return run_calls(plan, 0, plan->call_count);
}

lk_status lki_plan_run_sections(lki_plan *plan, lki_section first, lki_section last)
{
    return run_calls(plan, plan->section_begin[first], plan->section_begin[last + 1]);
}

int lki_plan_find_output(const lki_plan *plan, const char *name)
{
    for (int i = 0; i < plan->graph->output_count; i++)
        if (strcmp(plan->graph->outputs[i]->name, name) == 0) return i;
    return -1;
}

const lk_tensor *lki_plan_output(lki_plan *plan, const char *name)
{
    int index = lki_plan_find_output(plan, name);
    if (index < 0) return lki_fail_null(LK_ERR_NOT_FOUND, "the step has no output named \"%s\"", name);
    if (lki_plan_check_outputs(plan)) return NULL;
    const lk_tensor *there = &plan->outputs[index];
    return plan->home ? plan->home->ops->output(plan->held, index, there) : there;
}

lki_plan_home *lki_plan_held(const lki_plan *plan)
{
    return plan->held;
}

int lki_plan_output_count(const lki_plan *plan)
{
    return plan->graph->output_count;
}

const lk_tensor *lki_plan_output_there(const lki_plan *plan, int index)
{
    return &plan->outputs[index];
}

lk_status lki_plan_name_layer(const lki_plan *plan, lk_status status, const lk_call *call)
{
    bool is_ours = call >= plan->calls && call < plan->calls + plan->call_count;
    return is_ours ? fail_in_layer(status, plan->nodes[call - plan->calls]) : status;
}

uint64_t lki_plan_version(const lki_plan *plan)
{
    return plan->options.workspace->version;
}

static bool values_are_finite(const lk_tensor *tensor)
{
    int64_t count = lk_tensor_count(tensor);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(lk_tensor_get(tensor, i))) return false;
    return true;
}

/* A copy that cannot be made says nothing: the search goes on. No layout has other elements. */
static bool is_finite(const lki_plan *plan, const lk_tensor *tensor)
{
    lki_home *home = plan->home;
    if (!lk_dtype_is_float(tensor->dtype)) return true;
    if (!home) return values_are_finite(tensor);
    lk_tensor *copy = lk_tensor_create(tensor->dtype, tensor->shape);
    bool finite = !copy || home->ops->download(home, copy->data, tensor->data, lk_tensor_nbytes(copy)) ||
                  values_are_finite(copy);
    lk_tensor_free(copy);
    return finite;
}

/* What else there is to say of a node whose inputs are finite. The mean over no target is 0 / 0. */
static const char *likely_reason(const lki_node *node)
{
    bool counts_targets = (node->op == LK_OP_CROSS_ENTROPY || node->op == LK_OP_NLL) &&
                          node->attr.class_loss.reduction == LK_REDUCTION_MEAN &&
                          node->in[1]->dtype == LK_I64;
    return counts_targets ? ": every target of the batch may be ignored (ignore_index) or of weight 0" : "";
}

static lk_status blame(const lki_node *node, const lk_tensor *output)
{
    char text[160];
    return lki_fail(LK_ERR_NAN, "%s: %s gave a value that is not finite (output shape %s)%s",
                    node->scope ? node->scope : "the model", lk_op_name(node->op),
                    lk_shape_format(text, sizeof text, output->shape), likely_reason(node));
}

lk_status lki_plan_explain_nan(lki_plan *plan)
{
    for (int i = 0; i < plan->graph->input_count; i++) {
        lk_value *input = plan->graph->inputs[i];
        lk_tensor tensor = {.data = plan->input_data[i]};
        describe_operand(&tensor, input);
        tensor.data = plan->input_data[i];
        if (!is_finite(plan, &tensor))
            return lki_fail(LK_ERR_NAN, "the loss is not finite because the input \"%s\" is not finite",
                            input->name);
    }
    for (int i = 0; i < plan->graph->param_count; i++) {
        lk_value *param = plan->graph->params[i];
        lk_tensor value = *param->param->value;
        value.data = param_address(plan, param->param, &value);
        if (!is_finite(plan, &value))
            return lki_fail(LK_ERR_NAN,
                            "the loss is not finite because parameter \"%s\" is not finite: the learning "
                            "rate may be too high",
                            param->name);
    }
    for (int c = 0; c < plan->section_begin[LKI_SECTION_BACKWARD]; c++) {
        lk_call *call = &plan->calls[c];
        lki_float_mode mode = lki_float_mode_flush();
        lk_status status = call->run(call);
        lki_float_mode_restore(mode);
        LKI_TRY(status);
        for (int i = 0; i < call->output_count; i++)
            if (plan->nodes[c]->out[i]->use_count && !is_finite(plan, &call->out[i]))
                return blame(plan->nodes[c], &call->out[i]);
    }
    return lki_fail(LK_ERR_NAN, "the loss is not finite");
}

void lki_plan_count_batches(const lki_plan *plan, int count)
{
    for (int i = 0; i < plan->graph->counter_count; i++)
        *(int64_t *)plan->graph->counters[i]->value->data += count;
}

bool lki_plan_draws(const lki_plan *plan)
{
    return plan->draws;
}

int lki_plan_call_count(const lki_plan *plan)
{
    return plan->call_count;
}

const lk_call *lki_plan_call(const lki_plan *plan, int index)
{
    return &plan->calls[index];
}

const char *lki_plan_call_layer(const lki_plan *plan, int index)
{
    return plan->nodes[index]->scope;
}

const lk_graph *lki_plan_graph(const lki_plan *plan)
{
    return plan->graph;
}

int lki_plan_section_begin(const lki_plan *plan, lki_section section)
{
    return plan->section_begin[section];
}

size_t lki_plan_arena_nbytes(const lki_plan *plan)
{
    return plan->arena_nbytes;
}

char *lki_plan_describe(const lki_plan *plan)
{
    char *text = NULL, shape[160];
    size_t nbytes = 0;
    FILE *stream = open_memstream(&text, &nbytes);
    if (!stream) return NULL;
    static const char *const sections[] = {"forward", "criterion", "backward"};
    for (int c = 0; c < plan->call_count; c++) {
        const lki_node *node = plan->nodes[c];
        fprintf(stream, "%3d %-9s %-18s", c, sections[node->section], lk_op_name(node->op));
        for (int i = 0; i < node->output_count; i++)
            if (node->out[i]->use_count)
                fprintf(stream, " %s%s%s", lk_dtype_name(node->out[i]->dtype),
                        lk_shape_format(shape, sizeof shape, node->out[i]->shape),
                        node->out[i]->layout ? " channels last" : "");
        fprintf(stream, "  %s\n", node->scope ? node->scope : "");
    }
    fclose(stream);
    return text;
}
