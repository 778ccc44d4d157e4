#include "step/update.h"

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "graph/trace_calls.h"

/* Operands of an update; a scaler is the last of them. */
enum { SCALER = 2 + LKI_MAX_STATES, MAX_OPERANDS, EXTRA_CALLS = 4 };
enum { LINE_NBYTES = 64, PIECE_COUNT = 1 << 15 }; /* elements a thread */

static void set_operand(lki_update *update, lk_tensor *operand, lk_buffer *buffer, int64_t offset,
                        int64_t count)
{
    lk_dtype dtype = update->flat->dtype;
    *operand = (lk_tensor){.dtype = dtype, .shape = LK_SHAPE(count), .stride = {1}};
    char *data = lki_backend_address(update->backend, lki_buffer_data(buffer));
    operand->data = data + offset * (int64_t)lk_dtype_nbytes(dtype);
}

static lk_call *add_call(lki_update *update, lk_op op, lk_hyper *hyper, int input_count)
{
    int index = update->call_count++;
    lk_call *call = &update->calls[index];
    update->attrs[index] = (lk_attr){.update = {.rule = update->optimizer->rule, .hyper = hyper}};
    call->op = op;
    call->attr = &update->attrs[index];
    call->engine = update->engine;
    call->input_count = input_count;
    call->in = update->operands + (int64_t)index * MAX_OPERANDS;
    call->in_layout = update->layouts + (int64_t)index * MAX_OPERANDS;
    return call;
}

static lk_buffer *gradients(const lki_update *update)
{
    return update->flat->sums ? update->flat->sums : update->flat->grads;
}

/* Whether there is anything to update is known beside the gradients alone. */
static void add_scaler(lki_update *update, lk_call *call, int place)
{
    const lki_scaler *scaler = update->scaler;
    if (!scaler->numbers) return;
    call->in[place] = (lk_tensor){.dtype = scaler->dtype, .shape = LK_SHAPE(LK_SCALER_COUNT), .stride = {1}};
    call->in[place].data = lki_backend_address(update->backend, lki_buffer_data(scaler->numbers));
    call->input_count = place + 1;
}

static void add_rule_call(lki_update *update, lk_hyper *hyper, int64_t offset, int64_t count)
{
    lki_flat *flat = update->flat;
    lk_call *call = add_call(update, LK_OP_UPDATE, hyper, 2 + flat->state_count);
    set_operand(update, &call->in[0], flat->values, offset, count);
    set_operand(update, &call->in[1], gradients(update), offset, count);
    for (int i = 0; i < flat->state_count; i++)
        set_operand(update, &call->in[2 + i], flat->states[i], offset, count);
    add_scaler(update, call, SCALER);
}

bool lki_update_divides(const lk_optimizer *optimizer)
{
    return optimizer->rule != LK_UPDATE_LAMB && !optimizer->update;
}

/* This rank's part of [offset, offset + count), whole cache lines, and in pieces that are still in the caches
 * when they are handed on. */
static void add_part_calls(lki_update *update, lk_hyper *hyper, int64_t offset, int64_t count)
{
    int64_t line = (int64_t)(LINE_NBYTES / lk_dtype_nbytes(update->flat->dtype));
    int64_t lines = (count + line - 1) / line;
    int64_t begin = lines * update->part / update->part_count * line,
            end = lines * (update->part + 1) / update->part_count * line;
    int64_t piece = (int64_t)PIECE_COUNT * lki_core_count();
    if (end > count) end = count;
    for (; begin < end; begin += piece)
        add_rule_call(update, hyper, offset + begin, end - begin < piece ? end - begin : piece);
}

static bool counts_alike(const lki_late *late, const lki_slice *slice, int group)
{
    return late->group == group && late->since == slice->since && late->unreached_by == slice->unreached_by;
}

/* The entry of `late` for a slice, made where there is none yet; -1: it goes by the group's own numbers. */
static int late_of(lki_update *update, const lki_slice *slice)
{
    int group = lki_optimizer_group_of(update->optimizer, slice->path, slice->param), i = 0;
    if (slice->since == 0 && !slice->unreached_by) return -1;
    while (i < update->late_count && !counts_alike(&update->late[i], slice, group)) i++;
    if (i == update->late_count)
        update->late[update->late_count++] =
            (lki_late){.group = group, .since = slice->since, .unreached_by = slice->unreached_by};
    return i;
}

static lk_hyper *hyper_of(lki_update *update, const lki_slice *slice)
{
    int late = late_of(update, slice);
    if (late >= 0) return &update->late[late].hyper;
    return &update->optimizer->groups[lki_optimizer_group_of(update->optimizer, slice->path, slice->param)]
                .hyper;
}

/* One call for each run of neighbouring slices that go by the same numbers. */
static void add_rule_calls(lki_update *update)
{
    const lki_flat *flat = update->flat;
    bool one_each = update->optimizer->rule == LK_UPDATE_LAMB;
    for (int i = 0, next; i < flat->slice_count; i = next) {
        lk_hyper *hyper = hyper_of(update, &flat->slices[i]);
        next = i + 1;
        while (next < flat->slice_count && !one_each && hyper_of(update, &flat->slices[next]) == hyper)
            next++;
        const lki_slice *last = &flat->slices[next - 1];
        int64_t offset = flat->slices[i].offset, count = last->offset + last->count - offset;
        int first_call = update->call_count;
        if (update->part_count)
            add_part_calls(update, hyper, offset, count);
        else
            add_rule_call(update, hyper, offset, count);
        for (int k = first_call; k < update->call_count; k++)
            update->call_late[k] = late_of(update, &flat->slices[i]);
    }
}

static void add_gradient_call(lki_update *update, int *place, lk_op op, lk_hyper *hyper)
{
    *place = update->call_count;
    lk_call *call = add_call(update, op, hyper, 1);
    set_operand(update, &call->in[0], gradients(update), 0, update->flat->count);
    add_scaler(update, call, 1);
}

static void add_unscale_call(lki_update *update)
{
    const lk_scaler_options *options = &update->scaler->options;
    add_gradient_call(update, &update->unscale, LK_OP_UNSCALE, NULL);
    update->attrs[update->unscale] = (lk_attr){.unscale = {.growth_factor = options->growth_factor,
                                                           .backoff_factor = options->backoff_factor,
                                                           .growth_interval = options->growth_interval}};
}

static void add_accumulate_call(lki_update *update)
{
    update->accumulate = update->call_count;
    lk_call *call = add_call(update, LK_OP_ACCUMULATE, &update->accumulate_hyper, 2);
    set_operand(update, &call->in[0], update->flat->sums, 0, update->flat->count);
    set_operand(update, &call->in[1], update->flat->grads, 0, update->flat->count);
}

/* A rule of the user's own; the gradients are nobody's after it. */
static lk_status run_custom(const lk_call *call)
{
    const lk_optimizer *optimizer = call->state;
    const lk_hyper *hyper = call->attr->update.hyper;
    const float *scaler = call->input_count > SCALER ? call->in[SCALER].data : NULL;
    lk_update own = {.values = call->in[0].data,
                     .grads = call->in[1].data,
                     .count = lk_tensor_count(&call->in[0]),
                     .lr = hyper->lr,
                     .momentum = hyper->momentum,
                     .weight_decay = hyper->weight_decay,
                     .beta1 = hyper->beta1,
                     .beta2 = hyper->beta2,
                     .eps = hyper->eps,
                     .step = hyper->step - (scaler ? (int64_t)scaler[LK_SCALER_SKIPPED] : 0),
                     .context = optimizer->context};
    if (scaler && scaler[LK_SCALER_FOUND] != 0) return LK_OK;
    for (int i = 0; i < optimizer->state_count; i++) own.states[i] = call->in[2 + i].data;
    optimizer->update(&own);
    return LK_OK;
}

static lk_status prepare_custom(lki_update *update)
{
    const char *name = lk_optimizer_name(update->optimizer);
    if (!update->backend->ops->on_host)
        return lki_fail(LK_ERR_UNSUPPORTED,
                        "%s: your own update rule is C and runs on the CPU: choose device cpu", name);
    if (update->flat->dtype != LK_F32)
        return lki_fail(LK_ERR_DTYPE, "%s: your own update rule needs parameters of f32", name);
    for (int i = update->first_rule; i < update->call_count; i++) {
        update->calls[i].run = run_custom;
        update->calls[i].state = update->optimizer;
    }
    return LK_OK;
}

static lk_status prepare_calls(lki_update *update)
{
    size_t scratch_nbytes = 0;
    bool custom = update->optimizer->update != NULL;
    if (custom) LKI_TRY(prepare_custom(update));
    for (int i = 0; i < (custom ? update->first_rule : update->call_count); i++) {
        LKI_TRY(update->engine->ops->prepare(update->engine, &update->calls[i]));
        if (update->calls[i].scratch_nbytes > scratch_nbytes)
            scratch_nbytes = update->calls[i].scratch_nbytes;
    }
    update->scratch = lki_backend_alloc(update->backend, scratch_nbytes, "the update's scratch memory");
    if (!update->scratch) return LK_ERR_NOMEM;
    for (int i = 0; i < update->call_count; i++) update->calls[i].scratch = update->scratch;
    return LK_OK;
}

static void start_state(const lki_update *update)
{
    if (update->optimizer->initial_state == 0) return;
    for (int i = 0; i < update->flat->slice_count; i++) {
        lk_tensor slice;
        lk_dtype dtype = update->flat->dtype;
        slice = (lk_tensor){.dtype = dtype, .shape = LK_SHAPE(update->flat->slices[i].count), .stride = {1}};
        slice.data = (char *)lki_buffer_data(update->flat->states[0]) +
                     update->flat->slices[i].offset * (int64_t)lk_dtype_nbytes(dtype);
        for (int64_t k = 0; k < update->flat->slices[i].count; k++)
            lk_tensor_set(&slice, k, update->optimizer->initial_state);
    }
}

/* All calls, ready to run. Leaves what was allocated to lki_update_fini where it fails. */
static lk_status make_calls(lki_update *update)
{
    const lki_flat *flat = update->flat;
    const lki_update_options *options = &update->options;
    int capacity = EXTRA_CALLS + flat->slice_count;
    if (options->part_count) capacity += flat->slice_count + (int)(flat->count / PIECE_COUNT);
    update->calls = LKI_NEW_ARRAY(lk_call, capacity);
    update->attrs = LKI_NEW_ARRAY(lk_attr, capacity);
    update->operands = LKI_NEW_ARRAY(lk_tensor, capacity * MAX_OPERANDS);
    update->layouts = LKI_NEW_ARRAY(int, capacity *MAX_OPERANDS);
    update->call_late = LKI_NEW_ARRAY(int, capacity);
    update->late = LKI_NEW_ARRAY(lki_late, flat->slice_count + 1);
    if (!update->calls || !update->attrs || !update->operands || !update->layouts || !update->call_late ||
        !update->late)
        return LK_ERR_NOMEM;
    if (flat->sums) add_accumulate_call(update);
    if (update->scaler->numbers) add_unscale_call(update);
    if (options->clip_norm > 0)
        add_gradient_call(update, &update->clip_norm, LK_OP_CLIP_NORM, &update->norm_hyper);
    if (options->clip_value > 0)
        add_gradient_call(update, &update->clip_value, LK_OP_CLIP_VALUE, &update->value_hyper);
    update->first_rule = update->call_count;
    add_rule_calls(update);
    return prepare_calls(update);
}

static void forget_calls(lki_update *update)
{
    update->calls = NULL;
    update->attrs = NULL;
    update->operands = NULL;
    update->layouts = update->call_late = NULL;
    update->late = NULL;
    update->scratch = NULL;
    update->call_count = update->late_count = 0;
}

static void free_calls(lki_update *update)
{
    for (int i = 0; i < update->call_count; i++)
        if (update->calls[i].free_state) update->calls[i].free_state(update->calls[i].state);
    lki_free(update->calls);
    lki_free(update->attrs);
    lki_free(update->operands);
    lki_free(update->layouts);
    lki_free(update->call_late);
    lki_free(update->late);
    if (update->scratch) lki_backend_release(update->backend, update->scratch);
    forget_calls(update);
}

lk_status lki_update_init(lki_update *update, lki_backend *backend, lki_flat *flat, lk_optimizer *optimizer,
                          lki_update_options options)
{
    *update = (lki_update){.engine = backend->engine,
                           .backend = backend,
                           .flat = flat,
                           .optimizer = optimizer,
                           .scaler = options.scaler,
                           .options = options,
                           .part = options.part,
                           .part_count = options.part_count,
                           .accumulate = -1,
                           .unscale = -1,
                           .clip_norm = -1,
                           .clip_value = -1};
    update->accumulation_steps = options.accumulation_steps > 0 ? options.accumulation_steps : 1;
    update->norm_hyper.clip = options.clip_norm;
    update->value_hyper.clip = options.clip_value;
    start_state(update);
    lk_status status = make_calls(update);
    if (status) lki_update_fini(update);
    return status;
}

static void set_step(lki_update *update)
{
    for (int i = 0; i < update->optimizer->group_count; i++)
        update->optimizer->groups[i].hyper.step = update->step_count;
    for (int i = 0; i < update->late_count; i++) {
        lki_late *late = &update->late[i];
        late->hyper = update->optimizer->groups[late->group].hyper;
        late->hyper.step -= late->since;
    }
}

lk_status lki_update_regroup(lki_update *update)
{
    lki_update old = *update; /* whose calls stay if there is no room for others */
    forget_calls(update);
    lk_status status = make_calls(update);
    free_calls(status ? update : &old);
    if (status)
        *update = old;
    else
        set_step(update);
    return status;
}

void lki_update_fini(lki_update *update)
{
    free_calls(update);
    *update = (lki_update){0};
}

/* The engine's kernels flush denormals. A rule of the user's own runs in the mode that the user's program
 * has.
 */
static lk_status run_in_its_mode(const lk_call *call)
{
    if (call->run == run_custom) return call->run(call);
    lki_float_mode mode = lki_float_mode_flush();
    lk_status status = call->run(call);
    lki_float_mode_restore(mode);
    return status;
}

static lk_status run_traced(const lki_update *update, const lk_call *call)
{
    lki_trace *trace = lki_trace_now;
    int site = lki_trace_find_site(trace, LKI_TRACE_UPDATE, lk_op_name(call->op), call);
    if (site < 0)
        site = lki_trace_add_call(trace, LKI_TRACE_UPDATE, call, lk_optimizer_name(update->optimizer));
    int64_t begin_ns = lki_now_ns();
    LKI_TRY(run_in_its_mode(call));
    lki_trace_add(trace, site, begin_ns, lki_now_ns());
    return LK_OK;
}

static lk_status run(lki_update *update, int index)
{
    if (index < 0) return LK_OK;
    const lk_call *call = &update->calls[index];
    bool on_host = update->backend->ops->on_host;
    return lki_trace_now && on_host ? run_traced(update, call) : run_in_its_mode(call);
}

/* Whether an update whose batches missed this leaves the parameters of `late` alone. */
static bool leaves_out(const lki_missed *missed, const lki_late *late)
{
    return !missed->nothing && missed->sets && (late->unreached_by & missed->sets) == missed->sets;
}

static bool is_left_out(const lki_update *update, int call)
{
    int late = update->call_late[call];
    return call >= update->first_rule && late >= 0 && leaves_out(&update->missed, &update->late[late]);
}

uint64_t lki_update_skips(const lki_update *update)
{
    return update->missed.nothing ? 0 : update->missed.sets;
}

/* One more, or one less, update that was made without the parameters that it leaves out. */
static void count_left_out(lki_update *update, const lki_missed *missed, int64_t change)
{
    if (missed->nothing || !missed->sets) return;
    for (int i = 0; i < update->late_count; i++)
        if (leaves_out(missed, &update->late[i])) update->late[i].since += change;
    for (int i = 0; i < update->flat->slice_count; i++) {
        lki_slice *slice = &update->flat->slices[i];
        lki_late alike = {.unreached_by = slice->unreached_by};
        if (leaves_out(missed, &alike)) slice->since += change;
    }
}

bool lki_update_count(lki_update *update, int unreached)
{
    bool first = update->accumulated == 0 && !update->carries;
    if (first) update->missed = (lki_missed){0};
    if (unreached < 0)
        update->missed.nothing = true;
    else
        update->missed.sets |= (uint64_t)1 << unreached;
    update->accumulate_hyper.first = first;
    return ++update->accumulated >= update->accumulation_steps;
}

void lki_update_restart(lki_update *update)
{
    update->carries = update->carries || update->accumulated > 0;
    update->accumulated = 0;
}

void lki_update_advance(lki_update *update)
{
    update->step_count++;
    update->accumulated = 0;
    update->misses[update->step_count % LKI_KEPT_MISSES] = update->missed;
    count_left_out(update, &update->missed, 1);
    update->carried = update->carries;
    update->carries = false;
    set_step(update);
}

void lki_update_retreat(lki_update *update)
{
    if (update->accumulated == 0) {
        update->missed = update->misses[update->step_count % LKI_KEPT_MISSES];
        count_left_out(update, &update->missed, -1);
        update->step_count--;
        update->accumulated = update->accumulation_steps;
        update->carries = update->carried;
        set_step(update);
    }
    update->accumulated--;
}

lk_status lki_update_accumulate(lki_update *update)
{
    return run(update, update->accumulate);
}

bool lki_update_clips_each(const lki_update *update)
{
    return update->accumulate >= 0 && update->unscale < 0 &&
           (update->clip_norm >= 0 || update->clip_value >= 0);
}

lk_status lki_update_clip(lki_update *update)
{
    LKI_TRY(run(update, update->clip_norm));
    return run(update, update->clip_value);
}

lk_status lki_update_prepare(lki_update *update)
{
    LKI_TRY(run(update, update->unscale));
    return lki_update_clip(update);
}

lk_status lki_update_apply_call(lki_update *update, int index, void **data, size_t *nbytes)
{
    const lk_tensor *values = &update->calls[update->first_rule + index].in[0];
    bool left_out = is_left_out(update, update->first_rule + index);
    *data = values->data;
    *nbytes = left_out ? 0 : lk_tensor_nbytes(values);
    return left_out ? LK_OK : run(update, update->first_rule + index);
}

lk_status lki_update_apply(lki_update *update)
{
    LKI_TRY(lki_update_prepare(update));
    for (int i = update->first_rule; i < update->call_count; i++)
        if (!is_left_out(update, i)) LKI_TRY(run(update, i));
    return LK_OK;
}
