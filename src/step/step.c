#include "step/step.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "base/trace.h"
#include "nn/module.h"
#include "step/current_ranks.h"
#include "step/divided_update.h"
#include "step/same_training.h"
#include "tensor/layout.h"

#include <lockstep/scheduler.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static void set_default_keys(lk_step_options *options)
{
    if (!options->input_key) options->input_key = "features";
    if (!options->output_key) options->output_key = "logits";
    if (!options->target_key) options->target_key = "targets";
    if (!options->loss_key) options->loss_key = "loss";
}

static lk_status make_update(lk_step *step)
{
    const lk_step_options *options = &step->options;
    lki_update_options update = {.accumulation_steps = options->accumulation_steps,
                                 .clip_norm = options->clip_norm,
                                 .clip_value = options->clip_value,
                                 .scaler = &step->scaler};
    if (step->flat.common_states) {
        update.part = options->comm->rank;
        update.part_count = options->comm->size;
    }
    return lki_update_init(&step->update, step->backend, &step->flat, options->optimizer, update);
}

/* A group of no parameters has numbers that nothing goes by. */
static lk_status check_groups(const lk_optimizer *optimizer, const lk_param_list *params)
{
    for (int group = 0; group < optimizer->group_count - 1; group++) {
        bool is_used = false;
        for (int i = 0; i < params->count && !is_used; i++)
            is_used =
                lki_optimizer_group_of(optimizer, params->items[i].path, params->items[i].param) == group;
        if (is_used) continue;
        const char *prefix = optimizer->groups[group].prefix;
        return lki_fail(LK_ERR_NOT_FOUND, "%s: parameter group %d%s%s%s has none of the model's parameters",
                        lk_optimizer_name(optimizer), group, prefix ? " (prefix \"" : "",
                        prefix ? prefix : "", prefix ? "\")" : "");
    }
    return LK_OK;
}

static lk_status place_params(lk_step *step)
{
    return step->backend->ops->place_params ? step->backend->ops->place_params(step) : LK_OK;
}

static lk_status prepare_training(lk_step *step)
{
    const lk_step_options *options = &step->options;
    bool has_peers = options->comm && options->comm->size > 1;
    lk_step_options told = *options;
    told.engine = step->engine;
    if (has_peers) LKI_TRY(lki_check_same_training(&told, &step->params));
    LKI_TRY(check_groups(options->optimizer, &step->params));
    if (options->scheduler) LKI_TRY(lk_scheduler_attach(options->scheduler, options->optimizer));
    int state_count = lki_optimizer_state_count(options->optimizer);
    options->optimizer->has_step = true;
    lki_flat_options flat = {.state_count = state_count,
                             .with_sums = options->accumulation_steps > 1,
                             .comm = options->comm,
                             .on_host = step->backend->ops->on_host,
                             .common_states = lki_step_may_divide(step)};
    LKI_TRY(lki_flat_init(&step->flat, &step->params, flat));
    if (options->precision == LK_F16)
        LKI_TRY(lki_scaler_init(&step->scaler, step->flat.dtype, options->scaler));
    LKI_TRY(place_params(step));
    LKI_TRY(make_update(step));
    if (!has_peers) return LK_OK;
    if (options->compress_gradients && step->scaler.numbers)
        return lki_fail(LK_ERR_UNSUPPORTED,
                        "gradients of f16 are not compressed: what one step leaves out has another scale "
                        "than the next; use bf16");
    lki_replicas_options replicas = {.bucket_nbytes = options->bucket_nbytes,
                                     .compress = options->compress_gradients,
                                     .at_once = options->uneven_batches,
                                     .check_replicas = options->check_replicas};
    return lki_replicas_init(&step->replicas, options->comm, step->backend, &step->flat, &step->params,
                             replicas);
}

static lk_status check_numbers(const lk_step_options *options)
{
    if (options->accumulation_steps < 0 || options->check_replicas < 0 || options->bucket_nbytes < 0)
        return lki_fail(LK_ERR_INVALID, "a step's %s must not be negative",
                        options->accumulation_steps < 0 ? "accumulation_steps"
                        : options->check_replicas < 0   ? "check_replicas"
                                                        : "bucket_nbytes");
    if (!(options->clip_norm >= 0) || !(options->clip_value >= 0))
        return lki_fail(LK_ERR_INVALID, "a step's clip_norm and clip_value must not be negative");
    if (options->precision != LK_F32 && options->precision != LK_BF16 && options->precision != LK_F16)
        return lki_fail(LK_ERR_INVALID, "a step's precision is f32, bf16 or f16, not %s",
                        lk_dtype_name(options->precision));
    if (options->scheduler && !options->optimizer)
        return lki_fail(LK_ERR_INVALID, "a step with a scheduler needs an optimizer");
    if (options->scheduler && lk_scheduler_needs_metric(options->scheduler))
        return lki_fail(LK_ERR_INVALID,
                        "%s watches a metric: leave .scheduler out and call lk_scheduler_step_metric",
                        lk_scheduler_name(options->scheduler));
    return lki_uneven_check(options);
}

lk_step *lk_step_with(const lk_step_options *given)
{
    LKI_TAKE(lk_step_options, options, given, NULL);
    if (!options.model) /* the constructor of the model has said why */
        return lk_error()[0] ? NULL : lki_fail_null(LK_ERR_INVALID, "a step needs a model");
    if (check_numbers(&options)) return NULL;
    lk_step *step = LKI_NEW(lk_step);
    if (!step) return NULL;
    set_default_keys(&options);
    step->options = options;
    if (!options.comm && lki_ranks_comm_for_step(&options, &step->options.comm, &step->run_number)) goto fail;
    step->engine = options.engine;
    if (!step->engine) step->engine = step->own_engine = lk_engine_open("auto", NULL);
    if (!step->engine || lki_backend_create(&step->backend, step->engine)) goto fail;
    step->workspace = lki_workspace_create(step->backend->home);
    if (!step->workspace || lki_module_params(options.model, &step->params)) goto fail;
    if (options.optimizer && prepare_training(step)) goto fail;
    return step;
fail:
    step->options.owned = false; /* a failed constructor leaves its parts to the caller */
    lk_step_free(step);
    return NULL;
}

static void forget_plans(lk_step *step)
{
    for (int i = 0; i < step->plan_count; i++) lki_plan_free(step->plans[i].plan);
    lki_free(step->plans);
    step->plans = NULL;
    step->plan_count = 0;
    step->current = NULL;
}

lk_status lki_step_remake_update(lk_step *step)
{
    LKI_TRY(lki_step_finish(step));
    forget_plans(step); /* their programs hold the old update */
    lki_update_fini(&step->update);
    return make_update(step);
}

void lk_step_free(lk_step *step)
{
    if (!step) return;
    forget_plans(step);
    lki_replicas_fini(&step->replicas);
    lki_shards_fini(&step->shards);
    lki_update_fini(&step->update);
    if (step->backend && step->backend->ops->release_params) step->backend->ops->release_params(step);
    lki_scaler_fini(&step->scaler);
    lki_flat_fini(&step->flat);
    lk_param_list_free(&step->params);
    lki_workspace_free(step->workspace);
    lki_backend_free(step->backend);
    lki_sample_losses_fini(&step->sample_losses);
    lki_packed_fields_fini(&step->packed);
    lk_engine_close(step->own_engine);
    if (step->options.owned) {
        lk_module_free(step->options.model);
        lk_criterion_free(step->options.criterion);
        lk_optimizer_free(step->options.optimizer);
        lk_scheduler_free(step->options.scheduler);
    }
    lki_free(step);
}

static int find_field(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

static lk_status record_samples(lk_step *step, lk_graph *graph, lk_value *loss, lk_shape first_field)
{
    int64_t count = first_field.rank ? first_field.dim[0] : 0;
    return lki_record_sample_losses(graph, loss, count, step->samples, !step->backend->ops->on_host,
                                    &step->recorded_rule);
}

/* model(features) -> logits; criterion(logits, targets) -> loss. */
static lk_value *record_supervised(lk_step *step, lk_graph *graph, const char *const *names,
                                   lk_value *const *inputs, int count)
{
    const lk_step_options *options = &step->options;
    int input = find_field(names, count, options->input_key),
        target = find_field(names, count, options->target_key);
    if (input < 0)
        return lki_graph_fail(graph, LK_ERR_NOT_FOUND, "the batch has no field \"%s\" for the model",
                              options->input_key);
    lk_value *output = lk_module_forward(options->model, inputs[input]);
    if (!output || lk_graph_output(graph, options->output_key, output)) return NULL;
    if (!options->criterion || target < 0) return NULL;
    graph->section = LKI_SECTION_CRITERION;
    lk_value *loss = lk_criterion_forward(options->criterion, output, inputs[target]);
    int weights = options->weight_key ? find_field(names, count, options->weight_key) : -1;
    if (!loss || weights < 0) return loss;
    return lki_weigh_rows(graph, loss, inputs[weights], inputs[0]->shape.dim[0]);
}

static bool is_unused(const lki_autodiff_report *report, const lk_param *param)
{
    for (int i = 0; i < report->unused_count; i++)
        if (report->unused[i] == param) return true;
    return false;
}

static bool is_set(const lk_step *step, const lki_autodiff_report *report, int set)
{
    for (int i = 0; i < step->flat.slice_count; i++) {
        const lki_slice *slice = &step->flat.slices[i];
        if ((slice->unreached_by >> set & 1) != is_unused(report, slice->param)) return false;
    }
    return true;
}

/* The optimizer leaves parameters alone that no gradient reaches, as PyTorch does (their grad is None). Which
 * these are depends on the loss that a plan has recorded. Sets beyond the last bit count as reached. */
static lk_status note_unreached(lk_step *step, const lki_autodiff_report *report, int *set)
{
    *set = -1;
    if (!report->unused_count) return LK_OK;
    for (int i = 0; i < step->set_count; i++)
        if (is_set(step, report, i)) return *set = i, LK_OK;
    for (int i = 0; i < step->flat.slice_count; i++)
        if (is_unused(report, step->flat.slices[i].param))
            lki_log(LKI_LOG_WARNING, "parameter %s is not used by the loss: the optimizer leaves it alone",
                    step->flat.slices[i].path);
    if (step->set_count == LKI_MAX_UNREACHED_SETS) return LK_OK;
    LKI_TRY(lki_step_finish(step));
    if (step->backend->ops->forget_programs) step->backend->ops->forget_programs(step);
    uint64_t bit = (uint64_t)1 << step->set_count;
    for (int i = 0; i < step->flat.slice_count; i++)
        if (is_unused(report, step->flat.slices[i].param)) step->flat.slices[i].unreached_by |= bit;
    lk_status status = lki_update_regroup(&step->update);
    for (int i = 0; i < step->flat.slice_count && status; i++) step->flat.slices[i].unreached_by &= ~bit;
    if (status == LK_OK) *set = step->set_count++;
    return status;
}

static lk_status append_backward(lk_step *step, lk_graph *graph, lk_value *loss, int *unreached)
{
    lk_param **params = LKI_NEW_ARRAY(lk_param *, step->flat.slice_count + 1);
    lki_autodiff_report report;
    if (!params) return LK_ERR_NOMEM;
    for (int i = 0; i < step->flat.slice_count; i++) params[i] = step->flat.slices[i].param;
    lk_status status = lki_scaler_seed(&step->scaler, graph, loss);
    if (status == LK_OK) status = lki_pass_autodiff(graph, loss, params, step->flat.slice_count, &report);
    lki_free(params);
    if (status) return status;
    LKI_TRY(note_unreached(step, &report, unreached));
    /* Gradients that are added up over several batches travel once, as their sum: see average_at_once. */
    if (!lki_replicas_overlap(&step->replicas) || step->flat.sums) return LK_OK;
    if (lki_shards_are_on(&step->shards)) return LK_OK;
    step->replicas.ddp.polls = step->backend->ops->on_host;
    return lki_pass_ddp(graph, &step->replicas.ddp);
}

/* What the graph says; if it is about a dtype, also which ones the batch has and how to change them. */
static lk_status fail_to_record(const lk_graph *graph, const lk_input *fields, int count)
{
    char dtypes[256] = "";
    size_t used = 0;
    if (graph->status != LK_ERR_DTYPE || !graph->error)
        return lki_fail(graph->status, "%s", graph->error ? graph->error : "out of memory");
    for (int i = 0; i < count && used < sizeof dtypes; i++)
        used += (size_t)snprintf(dtypes + used, sizeof dtypes - used, "%s%s is %s", i ? ", " : "",
                                 fields[i].name, lk_dtype_name(fields[i].tensor->dtype));
    return lki_fail(graph->status, "%s (of the batch, %s: lk_cast_fields or lk_tensor_cast converts them)",
                    graph->error, dtypes);
}

static lk_status record_step(lk_step *step, lk_graph *graph, const lk_input *fields, int count, bool training,
                             int *unreached)
{
    const char *names[LKI_MAX_STEP_FIELDS];
    lk_value *inputs[LKI_MAX_STEP_FIELDS];
    for (int i = 0; i < count; i++) {
        names[i] = fields[i].name;
        inputs[i] = lk_graph_input(graph, fields[i].name, fields[i].tensor->dtype, fields[i].tensor->shape);
    }
    step->recorded_rule = (lki_sample_rule){0};
    lk_value *loss = step->options.function
                         ? step->options.function(graph, names, inputs, count, step->options.context)
                         : record_supervised(step, graph, names, inputs, count);
    if (graph->status) return fail_to_record(graph, fields, count);
    if (loss) LKI_TRY(record_samples(step, graph, loss, fields[0].tensor->shape));
    if (loss) LKI_TRY(lk_graph_output(graph, step->options.loss_key, loss));
    if (!training) return LK_OK;
    if (!loss)
        return lki_fail(
            LK_ERR_INVALID,
            "there is no loss to train with: the batch has no field \"%s\", or the step no criterion",
            step->options.target_key);
    return append_backward(step, graph, loss, unreached);
}

static lki_attention_form attention_form(const lk_step *step)
{
    const lk_engine_ops *ops = step->engine->ops;
    bool joins = ops->joins_attention && ops->joins_attention(step->engine, step->options.precision);
    return joins ? LKI_ATTENTION_JOINED : LKI_ATTENTION_SPLIT;
}

static lk_status compile(lk_step *step, const lk_input *fields, int count, bool training, lki_step_plan *out)
{
    lk_graph *graph = lk_graph_create(training);
    if (!graph) return LK_ERR_NOMEM;
    graph->attention = attention_form(step);
    if (training && step->options.sync_batch_norm && step->options.comm && step->options.comm->size > 1)
        graph->sync_comm = step->options.comm;
    int unreached = -1;
    lk_status status = record_step(step, graph, fields, count, training, &unreached);
    if (status) {
        lk_graph_free(graph);
        return status;
    }
    lki_plan_options options = {.engine = step->engine,
                                .workspace = step->workspace,
                                .generator = step->options.generator,
                                .precision = step->options.precision};
    *out = (lki_step_plan){.training = training,
                           .field_count = count,
                           .samples = step->samples,
                           .sample_rule = step->recorded_rule,
                           .unreached = unreached};
    LKI_TRY(lki_plan_compile(&out->plan, graph, options));
    for (int i = 0; i < count; i++) {
        out->names[i] = graph->inputs[i]->name;
        out->dtypes[i] = fields[i].tensor->dtype;
        out->shapes[i] = fields[i].tensor->shape;
    }
    int loss = lki_plan_find_output(out->plan, step->options.loss_key);
    out->loss = loss >= 0 ? lki_plan_output_there(out->plan, loss) : NULL;
    return LK_OK;
}

static bool fits(const lk_step *step, const lki_step_plan *plan, const lk_input *fields, int count,
                 bool training)
{
    if (plan->training != training || plan->field_count != count) return false;
    if (plan->samples != step->samples) return false;
    for (int i = 0; i < count; i++) {
        if (plan->dtypes[i] != fields[i].tensor->dtype ||
            !lki_shape_equal(&plan->shapes[i], &fields[i].tensor->shape))
            return false;
        if (strcmp(plan->names[i], fields[i].name) != 0) return false;
    }
    return true;
}

lki_step_plan *lki_step_find_plan(lk_step *step, const lk_input *fields, int count, bool training)
{
    if (step->current && fits(step, step->current, fields, count, training)) return step->current;
    for (int i = 0; i < step->plan_count; i++)
        if (fits(step, &step->plans[i], fields, count, training)) return &step->plans[i];
    return NULL;
}

/* Once there are LKI_MAX_STEP_PLANS, the one that was not used for longest gives way. */
static lki_step_plan *place_for_plan(lk_step *step)
{
    lki_step_plan *oldest = NULL;
    if (!step->plans) step->plans = LKI_NEW_ARRAY(lki_step_plan, LKI_MAX_STEP_PLANS);
    if (!step->plans) return NULL;
    if (step->plan_count < LKI_MAX_STEP_PLANS) return &step->plans[step->plan_count++];
    for (int i = 0; i < step->plan_count; i++) {
        lki_step_plan *plan = &step->plans[i];
        if (!plan->in_flight && (!oldest || plan->last_used < oldest->last_used)) oldest = plan;
    }
    lki_plan_free(oldest->plan);
    return oldest;
}

static lk_status find_or_compile(lk_step *step, const lk_input *fields, int count, bool training,
                                 lki_step_plan **out)
{
    *out = lki_step_find_plan(step, fields, count, training);
    if (*out) return LK_OK;
    lki_step_plan fresh;
    int64_t begin_ns = lki_trace_begin();
    lk_status status = compile(step, fields, count, training, &fresh);
    /* What only makes steps faster gives way. */
    while (status == LK_ERR_NOMEM && step->backend->ops->give_way && step->backend->ops->give_way(step))
        status = compile(step, fields, count, training, &fresh);
    LKI_TRY(status);
    lki_trace_end(LKI_TRACE_COMPILE, "compile", begin_ns);
    *out = place_for_plan(step);
    if (!*out) {
        lki_plan_free(fresh.plan);
        return LK_ERR_NOMEM;
    }
    step->current = NULL;
    **out = fresh;
    return LK_OK;
}

lk_status lki_step_check_fields(const lk_step *step, const lk_input *fields, int count)
{
    if (count < 1 || count > LKI_MAX_STEP_FIELDS)
        return lki_fail(LK_ERR_INVALID, "a batch has 1 to %d fields, not %d", LKI_MAX_STEP_FIELDS, count);
    for (int i = 0; i < count; i++) {
        if (!fields[i].tensor)
            return lki_fail(LK_ERR_INVALID, "field \"%s\" of the batch has no tensor", fields[i].name);
        bool has_values = fields[i].tensor->data || lk_tensor_count(fields[i].tensor) == 0;
        if (!has_values && !lki_find_announced(&step->rows, fields[i].name))
            return lki_fail(LK_ERR_INVALID, "field \"%s\" of the batch has no values", fields[i].name);
    }
    return LK_OK;
}

/* Steps may share parameters: another one that was made since has moved them. */
static lk_status follow_moved_params(lk_step *step, bool training)
{
    const lki_flat *flat = &step->flat;
    if (step->generation == lki_flat_generation()) return LK_OK;
    LKI_TRY(lki_step_finish(step));
    if (training && flat->slice_count && flat->slices[0].param->value->buffer != flat->values)
        return lki_fail(
            LK_ERR_INVALID,
            "parameter %s is trained by another step that was made later: train a model by one step",
            flat->slices[0].path);
    forget_plans(step);
    LKI_TRY(place_params(step));
    step->generation = lki_flat_generation();
    return LK_OK;
}

/* Calls follow that are no part of a program. */
static lk_status begin_calls(lk_step *step, bool draws)
{
    return step->backend->ops->begin_calls ? step->backend->ops->begin_calls(step, draws) : LK_OK;
}

lk_generator *lki_step_generator(const lk_step *step)
{
    return step->options.generator ? step->options.generator : lk_default_generator();
}

static lk_status bind(lk_step *step, const lk_input *fields, int count)
{
    for (int i = 0; i < count; i++) {
        const lki_announced *announced = lki_find_announced(&step->rows, fields[i].name);
        LKI_TRY(announced ? step->backend->ops->bind_rows(step, i, &fields[i], announced)
                          : lki_plan_bind(step->current->plan, i, fields[i].tensor->data));
    }
    return LK_OK;
}

static lk_status begin(lk_step *step, const lk_input *fields, int count, bool training)
{
    const lki_backend_ops *ops = step->backend->ops;
    lk_input stand_in[LKI_MAX_STEP_FIELDS], packed[LKI_MAX_STEP_FIELDS];
    lk_tensor tensors[LKI_MAX_STEP_FIELDS];
    LKI_TRY(lki_step_check_fields(step, fields, count));
    if (!lki_fields_are_packed(fields, count)) {
        LKI_TRY(lki_step_finish(step)); /* a batch in flight may read the copies of the one before */
        LKI_TRY(lki_pack_fields(&step->packed, &fields, count, packed));
    }
    LKI_TRY(lki_uneven_begin(step, fields, count, training));
    if (step->uneven.is_empty) {
        lki_uneven_stand_in(fields, count, tensors, stand_in);
        fields = stand_in;
    }
    if (ops->settle) LKI_TRY(ops->settle(step, fields, count, training));
    LKI_TRY(follow_moved_params(step, training));
    lki_step_plan *plan;
    LKI_TRY(find_or_compile(step, fields, count, training, &plan));
    step->current = plan; /* until here the last batch's, which may be in flight */
    plan->last_used = ++step->batch_count;
    if (ops->enter) LKI_TRY(ops->enter(step));
    if (!step->uneven.is_empty) LKI_TRY(bind(step, fields, count));
    LKI_TRY(lki_step_refresh_params(step));
    step->has_loss = false;
    step->loss = NAN;
    return LK_OK;
}

/* What was announced is this batch's alone, whether it begins or not. */
lk_status lki_step_begin(lk_step *step, const lk_input *fields, int count, bool training)
{
    lk_status status = begin(step, fields, count, training);
    step->rows.count = 0;
    step->shards.has_batch = false;
    return status;
}

static lk_status may_begin(lk_step *step, bool training)
{
    if (training && !step->options.optimizer)
        return lki_fail(LK_ERR_INVALID, "a step without an optimizer cannot train");
    bool was_given_comm = step->options.comm && !step->run_number; /* so its ranks are no question */
    if (training && !was_given_comm) LKI_TRY(lki_ranks_check_step(step->options.comm, step->run_number));
    return step->backend->ops->may_begin ? step->backend->ops->may_begin(step) : LK_OK;
}

lk_status lk_step_begin(lk_step *step, const lk_input *fields, int count, bool training)
{
    lk_status status = may_begin(step, training);
    if (status == LK_OK)
        return step->shards.is_placed ? lki_shards_begin(step, fields, count, training)
                                      : lki_step_begin(step, fields, count, training);
    step->rows.count = 0;
    return status;
}

/* The forward half, up to the end of a section. */
static lk_status run_forward(lk_step *step, lki_section last)
{
    if (step->uneven.is_empty) return LK_OK;
    LKI_TRY(begin_calls(step, true));
    lk_status status = lki_plan_run_sections(step->current->plan, LKI_SECTION_FORWARD, last);
    if (!step->current->training) return status;
    lk_status told = lki_step_params_changed(step); /* batch norms move their statistics */
    return status ? status : told;
}

lk_status lk_step_forward(lk_step *step)
{
    return step->shards.has_batch ? lki_shards_run(step) : run_forward(step, LKI_SECTION_FORWARD);
}

lk_status lki_step_check_loss(lk_step *step)
{
    step->has_loss = true;
    if (isfinite(step->loss) || step->options.allow_nan || !step->current->training) return LK_OK;
    return lki_plan_explain_nan(step->current->plan);
}

static lk_status take_loss(lk_step *step)
{
    if (!step->uneven.is_empty) LKI_TRY(lki_step_read_loss(step));
    LKI_TRY(lki_uneven_exchange(step));
    return step->current->loss ? lki_step_check_loss(step) : LK_OK;
}

lk_status lki_step_run_to_loss(lk_step *step)
{
    LKI_TRY(run_forward(step, LKI_SECTION_CRITERION));
    return take_loss(step);
}

/* Of a batch that is made of shards, the backward half too. */
static lk_status run_batch(lk_step *step)
{
    return step->shards.has_batch ? lki_shards_run(step) : lki_step_run_to_loss(step);
}

lk_status lk_step_criterion(lk_step *step)
{
    if (step->shards.has_batch) return LK_OK; /* the shards have their losses */
    if (!step->uneven.is_empty)
        LKI_TRY(lki_plan_run_sections(step->current->plan, LKI_SECTION_CRITERION, LKI_SECTION_CRITERION));
    return take_loss(step);
}

/* Sums and compressed gradients travel as a whole, and before anybody looks at what the update will use. What
 * is clipped must be the average: then sums travel after every batch. */
static lk_status average_at_once(lk_step *step)
{
    lki_flat *flat = &step->flat;
    if (!step->replicas.comm || lki_shards_are_on(&step->shards)) return LK_OK;
    if (!step->update_due && !lki_update_clips_each(&step->update)) return LK_OK;
    if (!flat->sums && lki_replicas_overlap(&step->replicas)) return LK_OK;
    return lki_replicas_average(&step->replicas, flat->sums ? flat->sums : flat->grads);
}

lk_status lki_step_run_backward(lk_step *step)
{
    return lki_plan_run_sections(step->current->plan, LKI_SECTION_BACKWARD, LKI_SECTION_BACKWARD);
}

lk_status lk_step_backward(lk_step *step)
{
    if (!step->uneven.is_empty) {
        LKI_TRY(step->shards.has_batch ? lki_shards_average(step) : lki_step_run_backward(step));
        lki_plan_count_batches(step->current->plan, 1);
    }
    LKI_TRY(lki_uneven_scale(step));
    step->update_due = lki_update_count(&step->update, step->current->unreached);
    LKI_TRY(begin_calls(step, false));
    LKI_TRY(lki_update_accumulate(&step->update));
    return average_at_once(step);
}

/* After a batch that no update follows. */
static lk_status clip_sums(lk_step *step)
{
    if (!lki_update_clips_each(&step->update)) return LK_OK;
    LKI_TRY(begin_calls(step, false));
    return lki_update_clip(&step->update);
}

lk_status lki_step_update(lk_step *step)
{
    if (!step->update_due) return clip_sums(step);
    step->update_due = false;
    lki_update_advance(&step->update);
    LKI_TRY(begin_calls(step, false));
    LKI_TRY(step->flat.common_states ? lki_step_divided_update(step) : lki_update_apply(&step->update));
    LKI_TRY(lki_step_params_changed(step));
    return lki_replicas_check_if_due(&step->replicas, step->update.step_count);
}

/* After what may have made an update, of which there were `count` before. */
static lk_status move_schedule(lk_step *step, int64_t count)
{
    bool is_due = step->options.scheduler && step->update.step_count > count;
    return is_due ? lk_scheduler_step(step->options.scheduler) : LK_OK;
}

lk_status lk_step_update(lk_step *step)
{
    int64_t count = step->update.step_count;
    LKI_TRY(lki_step_update(step));
    LKI_TRY(move_schedule(step, count));
    return lki_step_show_params(step);
}

/* As one program. Its kernels cannot be told apart. */
static lk_status replay(lk_step *step, bool training)
{
    int64_t begin_ns = lki_trace_begin();
    LKI_TRY(step->backend->ops->replay(step, training));
    lki_trace_end(LKI_TRACE_PROGRAM, "recorded step", begin_ns);
    return LK_OK;
}

lk_status lki_step_train(lk_step *step, const lk_input *fields, int count)
{
    LKI_TRY(lk_step_begin(step, fields, count, true));
    if (lki_step_records(step)) return replay(step, true);
    LKI_TRY(run_batch(step));
    LKI_TRY(lk_step_backward(step));
    return lki_step_update(step);
}

lk_status lk_step_train(lk_step *step, const lk_input *fields, int count)
{
    int64_t update_count = step->update.step_count;
    LKI_TRY(lki_step_train(step, fields, count));
    LKI_TRY(move_schedule(step, update_count));
    return step->options.asynchronous ? LK_OK : lki_step_show_params(step);
}

lk_status lk_step_evaluate(lk_step *step, const lk_input *fields, int count)
{
    LKI_TRY(lk_step_begin(step, fields, count, false));
    if (lki_step_records(step)) return replay(step, false);
    return run_batch(step);
}

lk_status lk_step_take_rows(lk_step *step, const char *name, const lk_rows *rows, const int64_t *indices)
{
    if (!rows || !rows->data || !indices)
        return lki_fail(LK_ERR_INVALID, "field \"%s\" has no rows, or no indices of them", name);
    lki_announced *place = (lki_announced *)lki_find_announced(&step->rows, name);
    if (!place && step->rows.count == LKI_MAX_ANNOUNCED)
        return lki_fail(LK_ERR_INVALID, "at most %d fields of a batch may be rows", LKI_MAX_ANNOUNCED);
    if (!place) place = &step->rows.items[step->rows.count++];
    *place = (lki_announced){name, rows, indices};
    return LK_OK;
}

void lk_step_forget_rows(lk_step *step)
{
    if (step->backend->ops->forget_rows) step->backend->ops->forget_rows(step);
}

lk_status lk_step_wait(lk_step *step)
{
    return lki_step_finish(step);
}

lk_status lk_step_pull(lk_step *step)
{
    LKI_TRY(lki_step_finish(step));
    LKI_TRY(lki_backend_pull(step->backend));
    for (int i = 0; i < step->params.count; i++) LKI_TRY(lki_param_pull(step->params.items[i].param));
    return step->flat.grads ? lki_backend_pull_block(step->backend, lki_buffer_data(step->flat.grads))
                            : LK_OK;
}

lk_status lki_step_pull_shown(lk_step *step)
{
    bool any_shown = false;
    for (int i = 0; i < step->params.count; i++) {
        const lk_param *param = step->params.items[i].param;
        if (!param->is_shown) continue;
        any_shown = true;
        LKI_TRY(lki_param_pull(param));
    }
    if (!any_shown || !step->flat.grads) return LK_OK;
    return lki_backend_pull_block(step->backend, lki_buffer_data(step->flat.grads));
}

double lk_step_loss(const lk_step *step)
{
    return step->loss;
}

bool lk_step_has_loss(const lk_step *step)
{
    return step->has_loss;
}

const lk_tensor *lk_step_output(lk_step *step, const char *name)
{
    if (!step->current) return lki_fail_null(LK_ERR_INVALID, "the step has not seen a batch yet");
    if (lki_step_finish(step)) return NULL;
    if (step->uneven.is_empty)
        return lki_fail_null(LK_ERR_INVALID, "the last batch of this rank had no rows, so it has no outputs");
    if (step->shards.has_batch) return lki_shards_output(step, name);
    return lki_plan_output(step->current->plan, name);
}

double lk_step_grad_norm(const lk_step *step)
{
    return step->update.norm_hyper.grad_norm;
}

/* The host's copy of the scaler's numbers, up to date; NULL where there are none. */
static const lki_scaler *pulled_scaler(lk_step *step)
{
    bool usable = step->scaler.numbers && !lki_step_finish(step) && !lki_backend_pull(step->backend);
    return usable ? &step->scaler : NULL;
}

double lk_step_loss_scale(lk_step *step)
{
    const lki_scaler *scaler = pulled_scaler(step);
    return scaler ? lki_scaler_get(scaler, LK_SCALER_SCALE) : 1;
}

int64_t lk_step_skipped_updates(lk_step *step)
{
    const lki_scaler *scaler = pulled_scaler(step);
    return scaler ? (int64_t)lki_scaler_get(scaler, LK_SCALER_SKIPPED) : 0;
}

/* NULL where there are none, or where they cannot be had. */
void *lk_step_flat_params(lk_step *step, int64_t *count)
{
    *count = step->flat.count;
    if (!step->flat.values || lki_step_finish(step) || lki_backend_pull(step->backend)) return NULL;
    return lki_buffer_data(step->flat.values);
}

lk_status lk_step_grads_changed(lk_step *step)
{
    if (!step->flat.grads) return lki_fail(LK_ERR_INVALID, "a step without an optimizer has no gradients");
    return lki_backend_push_block(step->backend, lki_buffer_data(step->flat.grads));
}

void *lk_step_flat_grads(lk_step *step, int64_t *count)
{
    void *grads = step->flat.grads ? lki_buffer_data(step->flat.grads) : NULL;
    *count = step->flat.count;
    if (!grads || lki_step_finish(step) || lki_backend_pull_block(step->backend, grads)) return NULL;
    return grads;
}
