#include "step/shards.h"

#include "base/memory.h"
#include "base/status.h"
#include "nn/module.h"
#include "step/step.h"
#include "tensor/element.h"

#include <math.h>
#include <string.h>

enum { ALIGNMENT = 64 };

static size_t buffers_nbytes(const lk_param_list *params)
{
    size_t nbytes = 0;
    for (int i = 0; i < params->count; i++)
        if (params->items[i].param->is_buffer) nbytes += lk_tensor_nbytes(params->items[i].param->value);
    return nbytes;
}

lk_status lki_shards_init(lk_step *step, int total, int world_size)
{
    lki_shards *shards = &step->shards;
    *shards = (lki_shards){0};
    if (total <= 1) return LK_OK;
    if (step->options.uneven_batches)
        return lki_fail(LK_ERR_INVALID, "shards and uneven_batches do not go together: shards are alike");
    shards->total = total;
    shards->own = total / world_size;
    shards->places = LKI_NEW_ARRAY(lki_batch_share, shards->own);
    shards->losses = LKI_NEW_ARRAY(double, shards->own);
    shards->all_losses = LKI_NEW_ARRAY(double, shards->total);
    shards->fields = LKI_NEW_ARRAY(lk_input, LKI_MAX_STEP_FIELDS);
    shards->views = LKI_NEW_ARRAY(lk_tensor, LKI_MAX_STEP_FIELDS);
    shards->copies = LKI_NEW_ARRAY(void *, LKI_MAX_STEP_FIELDS);
    shards->copy_room = LKI_NEW_ARRAY(size_t, LKI_MAX_STEP_FIELDS);
    shards->buffers_nbytes = buffers_nbytes(&step->params);
    shards->buffers = lki_calloc(2 * shards->buffers_nbytes + 1, "the model's buffers");
    bool has_room = shards->places && shards->losses && shards->all_losses && shards->fields &&
                    shards->views && shards->copies && shards->copy_room && shards->buffers;
    return has_room ? LK_OK : LK_ERR_NOMEM;
}

static void forget_outputs(lki_shards *shards)
{
    for (int i = 0; i < shards->output_count; i++) {
        lk_tensor_free(shards->outputs[i].tensor);
        lki_free(shards->outputs[i].values);
    }
    lki_free(shards->outputs);
    shards->outputs = NULL;
    shards->output_count = 0;
}

void lki_shards_fini(lki_shards *shards)
{
    for (int i = 0; shards->copies && i < LKI_MAX_STEP_FIELDS; i++) lki_free(shards->copies[i]);
    for (int i = 0; i < LKI_SHARD_LEVELS; i++) lki_free(shards->sums[i]);
    forget_outputs(shards);
    lki_free(shards->places);
    lki_free(shards->losses);
    lki_free(shards->all_losses);
    lki_free(shards->fields);
    lki_free(shards->views);
    lki_free(shards->copies);
    lki_free(shards->copy_room);
    lki_free(shards->gathered);
    lki_free(shards->buffers);
    *shards = (lki_shards){0};
}

void lki_shards_place(lk_step *step, const lki_batch_share *places)
{
    lki_shards *shards = &step->shards;
    memcpy(shards->places, places, sizeof *places * (size_t)shards->own);
    shards->is_placed = true;
}

/* ---- The inputs of a shard ---- */

static size_t row_nbytes(const lk_tensor *tensor)
{
    int64_t rows = tensor->shape.rank ? tensor->shape.dim[0] : 0;
    return rows ? lk_tensor_nbytes(tensor) / (size_t)rows : 0;
}

/* The shard's rows of a field, where kernels may read them. */
static lk_status view_rows(lki_shards *shards, int field, const lki_batch_share *place)
{
    const lk_tensor *whole = shards->fields[field].tensor;
    lk_tensor *view = &shards->views[field];
    size_t row = row_nbytes(whole), nbytes = row * (size_t)lki_share_rows(place);
    *view = *whole;
    view->shape.dim[0] = lki_share_rows(place);
    view->data = (char *)whole->data + (size_t)lki_share_begin(place) * row;
    if (lki_share_is_whole(place) && (uintptr_t)view->data % ALIGNMENT == 0) return LK_OK;
    if (nbytes > shards->copy_room[field]) {
        lki_free(shards->copies[field]);
        shards->copies[field] = lki_alloc_aligned(nbytes, "the samples of a shard");
        shards->copy_room[field] = shards->copies[field] ? nbytes : 0;
        if (!shards->copies[field]) return LK_ERR_NOMEM;
    }
    lki_share_gather(place, whole->data, row, shards->copies[field]);
    view->data = shards->copies[field];
    return LK_OK;
}

static lk_status begin_shard(lk_step *step, int index)
{
    lki_shards *shards = &step->shards;
    lk_input inputs[LKI_MAX_STEP_FIELDS];
    for (int i = 0; i < shards->field_count; i++) {
        LKI_TRY(view_rows(shards, i, &shards->places[index]));
        inputs[i] = (lk_input){shards->fields[i].name, &shards->views[i]};
    }
    LKI_TRY(lki_step_begin(step, inputs, shards->field_count, shards->training));
    shards->has_batch = true;
    return LK_OK;
}

static int64_t rows_of_batch(const lki_shards *shards)
{
    int64_t rows = 0;
    for (int i = 0; i < shards->own; i++) rows += lki_share_rows(&shards->places[i]);
    return rows;
}

lk_status lki_shards_begin(lk_step *step, const lk_input *fields, int count, bool training)
{
    lki_shards *shards = &step->shards;
    int first = 0;
    shards->is_placed = false;
    LKI_TRY(lki_step_check_fields(step, fields, count));
    for (int i = 0; i < count; i++)
        if (fields[i].tensor->shape.rank < 1 || fields[i].tensor->shape.dim[0] != rows_of_batch(shards))
            return lki_fail(LK_ERR_SHAPE, "shards: field \"%s\" of the batch has no row per sample",
                            fields[i].name);
    memcpy(shards->fields, fields, sizeof *fields * (size_t)count);
    shards->field_count = count;
    shards->training = training;
    while (first < shards->own - 1 && lki_share_rows(&shards->places[first]) == 0) first++;
    return begin_shard(step, first);
}

/* ---- Outputs ---- */

static lk_status prepare_outputs(lki_shards *shards, int count)
{
    if (shards->output_count == count) return LK_OK;
    forget_outputs(shards);
    shards->outputs = LKI_NEW_ARRAY(lki_shard_output, count + 1);
    if (!shards->outputs) return LK_ERR_NOMEM;
    shards->output_count = count;
    return LK_OK;
}

/* Room for all shards' rows of what one of them looks like, or for one number. */
static lk_status make_room(const lki_shards *shards, lki_shard_output *output, const lk_tensor *one)
{
    lk_shape shape = one->shape;
    if (!output->is_number) shape.dim[0] = rows_of_batch(shards);
    if (!output->values && !(output->values = LKI_NEW_ARRAY(double, shards->own))) return LK_ERR_NOMEM;
    if (output->tensor && output->tensor->dtype == one->dtype && lk_shape_equal(output->tensor->shape, shape))
        return LK_OK;
    lk_tensor_free(output->tensor);
    output->tensor = lk_tensor_create(one->dtype, shape);
    return output->tensor ? LK_OK : LK_ERR_NOMEM;
}

static lk_status keep_output(lk_step *step, int number, int index)
{
    lki_shards *shards = &step->shards;
    lki_shard_output *output = &shards->outputs[number];
    const lki_batch_share *place = &shards->places[index];
    const lk_tensor *one = lki_plan_output_there(step->current->plan, number);
    bool has_rows = one->shape.rank > 0 && one->shape.dim[0] == lki_share_rows(place);
    output->is_number = !has_rows && lk_tensor_count(one) == 1;
    if (!has_rows && !output->is_number)
        return lki_fail(LK_ERR_SHAPE,
                        "shards: an output of the model (number %d) has neither a row per sample nor is it "
                        "one number",
                        number);
    LKI_TRY(make_room(shards, output, one));
    output->values[index] = output->is_number ? lki_load(one->dtype, one->data, 0) : NAN;
    if (has_rows) lki_share_scatter(place, one->data, row_nbytes(one), output->tensor->data);
    return LK_OK;
}

/* The next shard's take their place in the workspace. */
static lk_status keep_outputs(lk_step *step, int index)
{
    int count = lki_plan_output_count(step->current->plan);
    if (step->shards.own == 1) return LK_OK;
    LKI_TRY(prepare_outputs(&step->shards, count));
    for (int i = 0; i < count; i++) LKI_TRY(keep_output(step, i, index));
    return LK_OK;
}

/* By the samples of each, in the order of the shards. */
static double mean_of(const lki_shards *shards, const double *values)
{
    double sum = 0, weight = 0;
    for (int i = 0; i < shards->own; i++) {
        int64_t rows = lki_share_rows(&shards->places[i]);
        if (rows) sum += values[i] * (double)rows;
        weight += (double)rows;
    }
    return sum / weight;
}

static void join_numbers(lki_shards *shards)
{
    for (int i = 0; i < shards->output_count && shards->own > 1; i++) {
        lki_shard_output *output = &shards->outputs[i];
        if (output->is_number)
            lki_store(output->tensor->dtype, output->tensor->data, 0, mean_of(shards, output->values));
    }
}

const lk_tensor *lki_shards_output(lk_step *step, const char *name)
{
    lki_plan *plan = step->current->plan;
    if (step->shards.own == 1) return lki_plan_output(plan, name);
    int index = lki_plan_find_output(plan, name);
    if (index < 0) return lki_fail_null(LK_ERR_NOT_FOUND, "the step has no output named \"%s\"", name);
    if (index >= step->shards.output_count || !step->shards.outputs[index].tensor)
        return lki_fail_null(LK_ERR_INVALID, "the step has not computed \"%s\" of this batch yet", name);
    return step->shards.outputs[index].tensor;
}

bool lki_shards_number(lk_step *step, const char *name, int shard, double *out)
{
    lki_shards *shards = &step->shards;
    if (!shards->has_batch) return false;
    if (strcmp(name, step->options.loss_key) == 0) {
        *out = shards->losses[shard];
        return shards->has_loss;
    }
    int index = lki_plan_find_output(step->current->plan, name);
    if (index < 0) return false;
    if (shards->own > 1) {
        *out = shards->outputs[index].values[shard];
        return shards->outputs[index].is_number;
    }
    const lk_tensor *only = lki_plan_output_there(step->current->plan, index);
    if (lk_tensor_count(only) == 1) *out = lki_load(only->dtype, only->data, 0);
    return lk_tensor_count(only) == 1;
}

/* ---- Running ---- */

static void copy_buffers(const lk_step *step, void *kept, bool back)
{
    char *at = kept;
    for (int i = 0; i < step->params.count; i++) {
        const lk_param *param = step->params.items[i].param;
        size_t nbytes = param->is_buffer ? lk_tensor_nbytes(param->value) : 0;
        if (nbytes) memcpy(back ? param->value->data : at, back ? at : param->value->data, nbytes);
        at += nbytes;
    }
}

static lk_status run_shard(lk_step *step, int index, bool is_first)
{
    lki_shards *shards = &step->shards;
    if (!is_first) LKI_TRY(begin_shard(step, index));
    LKI_TRY(lki_step_run_to_loss(step));
    shards->losses[index] = step->loss;
    shards->has_loss = step->has_loss;
    LKI_TRY(keep_outputs(step, index));
    if (!shards->training) return LK_OK;
    LKI_TRY(lki_step_run_backward(step));
    return lki_shards_add(step, index);
}

/* Each shard begins with the same numbers of the generator and the same buffers, as ranks do. The first one's
 * buffers stay: rank 0's are everybody's in the end. */
static lk_status run_shards(lk_step *step)
{
    lki_shards *shards = &step->shards;
    char *after = (char *)shards->buffers + shards->buffers_nbytes;
    lk_generator *generator = lki_step_generator(step), start = *generator;
    bool is_first = true, keeps_buffers = shards->training && shards->own > 1 && shards->buffers_nbytes > 0;
    if (keeps_buffers) copy_buffers(step, shards->buffers, false);
    for (int i = 0; i < shards->own; i++) {
        if (lki_share_rows(&shards->places[i]) == 0) continue;
        if (!is_first) *generator = start;
        if (!is_first && keeps_buffers) copy_buffers(step, shards->buffers, true);
        LKI_TRY(run_shard(step, i, is_first));
        if (is_first && keeps_buffers) copy_buffers(step, after, false);
        is_first = false;
    }
    if (keeps_buffers) copy_buffers(step, after, true);
    return LK_OK;
}

lk_status lki_shards_run(lk_step *step)
{
    lki_shards *shards = &step->shards;
    shards->has_loss = false;
    LKI_TRY(run_shards(step));
    join_numbers(shards);
    step->has_loss = shards->has_loss;
    step->loss = shards->has_loss ? mean_of(shards, shards->losses) : NAN;
    return LK_OK;
}

/* All shards' losses, so that the batch's is the same on every rank. They have one size in training. */
static lk_status average_losses(lk_step *step)
{
    lki_shards *shards = &step->shards;
    lk_comm *comm = step->replicas.comm;
    double sum = 0, *all = shards->all_losses;
    if (comm)
        LKI_TRY(lk_comm_all_gather(comm, shards->losses, all, shards->own, LK_F64));
    else
        memcpy(all, shards->losses, sizeof *all * (size_t)shards->total);
    for (int i = 0; i < shards->total; i++) sum += all[i];
    step->loss = sum / shards->total;
    return LK_OK;
}

lk_status lki_shards_average(lk_step *step)
{
    if (step->shards.has_loss) LKI_TRY(average_losses(step));
    return lki_shards_reduce(step);
}
