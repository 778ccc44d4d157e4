/* Fields from HDF5 files: the template names them, each array is read once, checked, sampled, cut, and put
 * where its channels belong. */
#include "data/fields_plan.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "tensor/buffer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A float is not finite where all bits of its exponent are set: adding one to the exponent then runs over
 * into the sign. Looking at bits lets the compiler look at many floats at once. */
static bool all_finite(const float *values, int64_t count)
{
    uint32_t overrun = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        overrun |= (bits & 0x7f800000u) + 0x00800000u;
    }
    return !(overrun & 0x80000000u);
}

static lk_status check_finite(const float *values, int64_t count, const char *path, const char *label)
{
    char text[200];
    int64_t at = 0;
    if (all_finite(values, count)) return LK_OK;
    while (isfinite(values[at])) at++;
    return lki_fail(LK_ERR_NAN, "%s: array \"%s\" holds %f at element %lld of %lld", path,
                    lki_fields_label_text(path, label, text, sizeof text), (double)values[at], (long long)at,
                    (long long)count);
}

/* ---- One array ---- */

static int64_t points_of(const lki_box *box)
{
    return box->size[0] * box->size[1] * box->size[2];
}

/* A tensor whose memory has not been written to: all of it will be. */
static lk_tensor *new_tensor(const lki_hdf5_place *place)
{
    void *data = lki_alloc_aligned((size_t)place->nbytes, "a field");
    lk_buffer *buffer = data ? lki_buffer_adopt(data, (size_t)place->nbytes, NULL, NULL) : NULL;
    lk_tensor *tensor = buffer ? lki_tensor_over(buffer, 0, place->dtype, place->shape) : NULL;
    if (buffer)
        lki_buffer_release(buffer);
    else
        lki_free(data);
    return tensor;
}

/* Where a plain array lies: HDF5 is asked that alone, so that several threads can read numbers at once. False
 * where it is not plain, or anything is wrong with it. */
static bool find_plain(const lki_fields_name *name, const char *path, lki_hdf5_place *place)
{
    return name->first.place.offset >= 0 && lki_hdf5_find_place(path, name->label, place) == LK_OK &&
           place->offset >= 0;
}

/* The array of a file: the short way where the file is like the name's first one, else from where HDF5 says
 * that it lies, else, and for whatever is wrong with it, through HDF5. */
static lk_tensor *read_array(const lki_fields_name *name, const char *path)
{
    lki_hdf5_place place;
    lk_tensor *tensor = name->first.around ? new_tensor(&name->first.place) : NULL;
    if (tensor && lki_twin_read(&name->first, path, tensor->data)) return tensor;
    lk_tensor_free(tensor);
    tensor = find_plain(name, path, &place) ? new_tensor(&place) : NULL;
    if (tensor && lki_place_read(&place, path, tensor->data)) return tensor;
    lk_tensor_free(tensor);
    return lk_hdf5_read(path, name->label);
}

static lk_status check_channels(const lki_fields_plan *plan, const lki_fields_block *block,
                                const lk_shape *shape)
{
    const lki_fields_name *name = &plan->names[block->name];
    int64_t channels = shape->rank > plan->dims ? shape->dim[0] : 1;
    LKI_TRY(lki_fields_check_shape(plan, block->path, name->label, shape));
    if (channels == name->channels) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "%s: checkpoint %g has %lld channels, the first one %lld", block->path,
                    block->checkpoint, (long long)channels, (long long)name->channels);
}

/* (channels, size...) f32, checked and sampled. */
static lk_tensor *read_values(const lki_fields_plan *plan, const lki_fields_block *block)
{
    const lki_fields_name *name = &plan->names[block->name];
    lk_tensor *raw = read_array(name, block->path), *sampled = NULL;
    if (!raw) return NULL;
    lk_tensor *values = raw->dtype == LK_F32 ? lk_tensor_view(raw) : lk_tensor_cast(raw, LK_F32);
    if (values && check_channels(plan, block, &values->shape) == LK_OK &&
        check_finite(values->data, lk_tensor_count(values), block->path, name->label) == LK_OK) {
        bool samples = plan->options->sample_to[0] > 0;
        sampled = samples ? lk_sample_equidistant(values, plan->dims, plan->options->sample_to)
                          : lk_tensor_view(values);
    }
    lk_tensor_free(values);
    lk_tensor_free(raw);
    return sampled;
}

/* Numbers that are used as they are, in one place, are read to there. False where these are not. */
static bool read_in_place(const lki_fields_plan *plan, const lki_fields_block *block, char *memory)
{
    const lki_fields_name *name = &plan->names[block->name];
    const lki_fields_goal *goal = &plan->goals[block->goal];
    const lki_hdf5_place *first = &name->first.place;
    lki_hdf5_place place;
    bool as_is = first->dtype == LK_F32 && goal->next < 0 &&
                 memcmp(plan->input.size, plan->cube.size, sizeof plan->cube.size) == 0;
    if (!as_is) return false;
    if (lki_twin_read(&name->first, block->path, memory + goal->offset)) return true;
    return find_plain(name, block->path, &place) && place.dtype == LK_F32 &&
           lk_shape_equal(place.shape, first->shape) &&
           lki_place_read(&place, block->path, memory + goal->offset);
}

static lk_status read_block(const lki_fields_plan *plan, const lki_fields_block *block, char *memory)
{
    const lki_fields_name *name = &plan->names[block->name];
    if (read_in_place(plan, block, memory))
        return check_finite((const float *)(memory + plan->goals[block->goal].offset),
                            name->channels * points_of(&plan->input), block->path, name->label);
    lk_tensor *values = read_values(plan, block);
    if (!values) return lki_last_status();
    for (int i = block->goal; i >= 0; i = plan->goals[i].next)
        lki_cut_channels((float *)(memory + plan->goals[i].offset), values->data, name->channels,
                         plan->goals[i].all_channels, &plan->size, &plan->cube);
    lk_tensor_free(values);
    return LK_OK;
}

/* ---- As a source ---- */

static lk_status plan_source(void *context, lki_fields_layout *out)
{
    lki_fields_plan *plan = context;
    if (!plan->names) LKI_TRY(lki_fields_plan_init(plan));
    *out = plan->layout;
    return LK_OK;
}

static lk_status read_source(void *context, int64_t index, void *memory)
{
    const lki_fields_plan *plan = context;
    const lki_fields_block *block = &plan->blocks[index];
    lk_status status = read_block(plan, block, memory);
    if (!status) return LK_OK;
    return lki_fields_fail_with(status, &plan->names[block->name], block->checkpoint);
}

/* ---- The call ---- */

static lk_status check_labels(const char *what, lk_name_list names, lk_name_list labels)
{
    if (labels.count == 0 || labels.count == 1 || labels.count == names.count) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: %d labels for %d names: give none, one for all or one each", what,
                    labels.count, names.count);
}

static lk_status check_options(const lk_fields_options *options, int *dims)
{
    LKI_TRY(lki_count_dims(options->input_size, "input_size", dims));
    if (*dims == 0)
        return lki_fail(LK_ERR_INVALID, "input_size: the points of a field along each axis are needed");
    LKI_TRY(lki_check_field_options(options, *dims));
    if (options->features.count < 1) return lki_fail(LK_ERR_INVALID, "features: there are none");
    LKI_TRY(check_labels("feature_labels", options->features, options->feature_labels));
    return check_labels("target_labels", options->targets, options->target_labels);
}

void lki_fields_fail_at(const char *path_template, const lk_fields_options *options)
{
    lki_error first = {0};
    char text[200] = "";
    lk_status status = lki_error_keep(&first, lki_last_status());
    char *path = lk_field_path(path_template, options->features.items[0],
                               options->checkpoints.count ? options->checkpoints.items[0] : 0);
    const char *label = lki_fields_label(options->feature_labels, 0);
    if (path) label = lki_fields_label_text(path, label, text, sizeof text);
    lki_fail(status, "%s: array \"%s\": %s", path ? path : path_template,
             label && *label ? label : options->features.items[0], first.sentence);
    lki_free(path);
}

lk_fields *lk_hdf5_fields_with(const char *path, const lk_fields_options *given)
{
    LKI_TAKE(lk_fields_options, options, given, NULL);
    lki_fields_plan plan = {.path_template = path, .options = &options};
    lki_fields_source source = {plan_source, read_source, &plan};
    if (check_options(&options, &plan.dims)) return NULL;
    lk_fields *fields = lki_fields_of_host(path, &options, &source);
    lki_fields_plan_fini(&plan);
    return fields;
}
