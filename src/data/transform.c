#include "data/transform.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/dataset.h"
#include "data/image.h"
#include "data/scratch.h"

#include <string.h>

/* ---- Life ---- */

lk_transform *lki_transform_create(const char *kind, const char *key, const char *default_key)
{
    lk_transform *transform = LKI_NEW(lk_transform);
    if (!transform) return NULL;
    transform->kind = kind;
    if (!default_key) return transform;
    transform->key = lki_strdup(key ? key : default_key);
    if (transform->key) return transform;
    lki_free(transform);
    return NULL;
}

void lk_transform_free(lk_transform *transform)
{
    if (!transform) return;
    if (transform->apply_batch && !transform->reshapes)
        for (int i = 0; i < LK_MAX_FIELDS; i++) lki_free((char *)transform->options.mix.keys[i]);
    for (int i = 0; i < transform->child_count; i++) lk_transform_free(transform->children[i]);
    lki_free(transform->children);
    lki_free(transform->weights);
    for (int i = 0; i < LK_MAX_FIELDS; i++) {
        if (transform->reshapes) lki_free((char *)transform->options.collate.keys[i]);
        lki_free(transform->masks[i]);
        lki_free(transform->lengths[i]);
    }
    lki_free(transform->key);
    lki_free(transform);
}

/* ---- On batches ---- */

lk_status lki_transform_check_batch(const lk_transform *transform, const lk_dataset *dataset)
{
    if (!transform->apply_batch)
        return lki_fail(LK_ERR_INVALID,
                        "%s acts on samples: it belongs to a dataset (lk_transformed, in a config "
                        "transform), not to batch_transforms",
                        transform->kind);
    return transform->check_batch(transform, dataset);
}

int lki_transform_added_fields(const lk_transform *transform, const lk_dataset *dataset, lk_field *out,
                               int capacity)
{
    return transform->added_fields ? transform->added_fields(transform, dataset, out, capacity) : 0;
}

lk_status lki_transform_apply_batch(const lk_transform *transform, const lk_pass *pass, lk_batch *batch)
{
    lki_keyed random =
        lki_keyed_make(pass->seed, (uint64_t)pass->epoch, (uint64_t)batch->indices[0], UINT64_MAX);
    return transform->apply_batch(transform, batch, &random);
}

/* ---- On samples: a dataset around another ---- */

typedef struct step {
    lk_transform *transform;
    int field;       /* of the dataset */
    lk_field out;    /* what the field is after this step */
    size_t position; /* in the user's list: keys the step's random numbers */
} step;

typedef struct transformed {
    lk_dataset *inner;
    int step_count;
    step *steps;
    size_t scratch_nbytes;              /* of the largest sample of any step */
    bool is_transformed[LK_MAX_FIELDS]; /* a field that no step touches is gathered into its place */
    lk_field fields[LK_MAX_FIELDS];     /* after all steps */
} transformed;

static int64_t transformed_length(void *context)
{
    return lk_dataset_length(((transformed *)context)->inner);
}

/* Runs field f of one sample through its steps; `current` and `other` are two scratch blocks, the sample in
 * the first. */
static lk_status run_steps(const transformed *self, int f, const lk_pass *pass, int64_t index, char *current,
                           char *other, void *slot)
{
    const lk_field *inner = lk_dataset_field(self->inner, f);
    lki_sample in = {inner->dtype, inner->shape, current};
    for (int s = 0; s < self->step_count; s++) {
        const step *one = &self->steps[s];
        if (one->field != f) continue;
        lki_sample out = {one->out.dtype, one->out.shape, in.data == current ? other : current};
        lki_keyed random = lki_keyed_make(pass->seed, (uint64_t)pass->epoch, (uint64_t)index, one->position);
        LKI_TRY(one->transform->apply(one->transform, &in, &out, &random));
        in = out;
    }
    memcpy(slot, in.data, lki_field_nbytes(&self->fields[f]));
    return LK_OK;
}

/* ---- The same from pictures of sizes of their own ---- */

/* The fields that a picture becomes, step by step, and the bytes of the largest. */
static lk_status plan_picture(const transformed *self, lk_field *fields, const lki_image *image,
                              size_t *nbytes)
{
    lk_field field = *lk_dataset_field(self->inner, 0);
    field.shape = LK_SHAPE(image->channels, image->height, image->width);
    *nbytes = lki_field_nbytes(&field);
    for (int s = 0; s < self->step_count; s++) {
        if (self->steps[s].field != 0) continue;
        fields[s] = field;
        LKI_TRY(self->steps[s].transform->plan(self->steps[s].transform, &field, &fields[s]));
        field = fields[s];
        if (lki_field_nbytes(&field) > *nbytes) *nbytes = lki_field_nbytes(&field);
    }
    if (lk_shape_equal(field.shape, self->fields[0].shape)) return LK_OK;
    char found[160], expected[160];
    return lki_fail(
        LK_ERR_SHAPE,
        "the picture becomes %s, the first one of its dataset %s: resize to a height and a width, "
        "or end with a crop",
        lk_shape_format(found, sizeof found, field.shape),
        lk_shape_format(expected, sizeof expected, self->fields[0].shape));
}

static lk_status run_picture(const transformed *self, const lk_pass *pass, int64_t index,
                             const lki_image *image, void *slot)
{
    size_t nbytes;
    LKI_SCOPED lk_field *fields = LKI_NEW_ARRAY(lk_field, self->step_count);
    if (!fields) return LK_ERR_NOMEM;
    LKI_TRY(plan_picture(self, fields, image, &nbytes));
    nbytes = (nbytes + 63) / 64 * 64;
    char *blocks = lki_scratch_take(2 * nbytes);
    if (!blocks) return lki_last_status();
    lki_sample in = {LK_F32, LK_SHAPE(image->channels, image->height, image->width), blocks};
    lk_status status = LK_OK;
    lki_image_to_f32(image, in.data, image->height, image->width);
    for (int s = 0; status == LK_OK && s < self->step_count; s++) {
        const step *one = &self->steps[s];
        if (one->field != 0) continue;
        lki_sample out = {fields[s].dtype, fields[s].shape, in.data == blocks ? blocks + nbytes : blocks};
        lki_keyed random = lki_keyed_make(pass->seed, (uint64_t)pass->epoch, (uint64_t)index, one->position);
        status = one->transform->apply(one->transform, &in, &out, &random);
        in = out;
    }
    if (status == LK_OK) memcpy(slot, in.data, lki_field_nbytes(&self->fields[0]));
    lki_scratch_give();
    return status;
}

/* Reads a sample into `places`, except that its picture goes through its steps into `slot` at once. */
static lk_status get_picture(const transformed *self, const lk_pass *pass, int64_t index, void *const *places,
                             void *slot)
{
    const lki_own_sizes *pictures = lki_dataset_own_sizes(self->inner);
    lki_image image = {0};
    LKI_TRY(pictures->read(pictures->context, index, &image, places));
    lk_status status = run_picture(self, pass, index, &image, slot);
    lki_image_fini(&image);
    return status ? lki_fail_prefix(status, "%s", pictures->name(pictures->context, index)) : LK_OK;
}

static lk_status get_through(const transformed *self, const lk_pass *pass, int64_t index, void *const *slots,
                             char *scratch_blocks)
{
    int field_count = lk_dataset_field_count(self->inner);
    void *places[LK_MAX_FIELDS];
    for (int f = 0; f < field_count; f++)
        places[f] =
            self->is_transformed[f] ? scratch_blocks + self->scratch_nbytes * (size_t)(f + 1) : slots[f];
    bool own_sizes = self->is_transformed[0] && lki_dataset_own_sizes(self->inner);
    if (own_sizes)
        LKI_TRY(get_picture(self, pass, index, places, slots[0]));
    else
        LKI_TRY(lki_dataset_gather(self->inner, pass, &index, 1, places));
    for (int f = own_sizes; f < field_count; f++)
        if (self->is_transformed[f])
            LKI_TRY(run_steps(self, f, pass, index, places[f], scratch_blocks, slots[f]));
    return LK_OK;
}

static lk_status transformed_get(void *context, const lk_pass *pass, int64_t index, void *const *slots)
{
    const transformed *self = context;
    size_t blocks = (size_t)lk_dataset_field_count(self->inner) + 1;
    char *scratch_blocks = lki_scratch_take(self->scratch_nbytes * blocks);
    if (!scratch_blocks) return lki_last_status();
    lk_status status = get_through(self, pass, index, slots, scratch_blocks);
    lki_scratch_give();
    return status;
}

static void transformed_free(void *context)
{
    transformed *self = context;
    for (int s = 0; s < self->step_count; s++) lk_transform_free(self->steps[s].transform);
    lk_dataset_free(self->inner);
    lki_free(self->steps);
    lki_free(self);
}

static const lk_dataset_ops transformed_ops = {LK_SIZE(lk_dataset_ops), .length = transformed_length,
                                               .get = transformed_get, .free = transformed_free};

static void grow_scratch(transformed *self, const lk_field *field)
{
    size_t nbytes = (lki_field_nbytes(field) + 63) / 64 * 64;
    if (nbytes > self->scratch_nbytes) self->scratch_nbytes = nbytes;
}

static lk_status plan_step(transformed *self, step *one)
{
    const lk_transform *transform = one->transform;
    if (!transform->apply)
        return lki_fail(LK_ERR_INVALID, "%s acts on batches: give it to the loader's batch_transforms",
                        transform->kind);
    one->field = lk_dataset_find_field(self->inner, transform->key);
    if (one->field < 0)
        return lki_fail(LK_ERR_NOT_FOUND, "%s: the dataset has no field \"%s\"", transform->kind,
                        transform->key);
    lk_field *field = &self->fields[one->field];
    one->out = *field;
    LKI_TRY(transform->plan(transform, field, &one->out));
    grow_scratch(self, field);
    grow_scratch(self, &one->out);
    *field = one->out;
    self->is_transformed[one->field] = true;
    return LK_OK;
}

static lk_status plan(transformed *self)
{
    for (int f = 0; f < lk_dataset_field_count(self->inner); f++)
        self->fields[f] = *lk_dataset_field(self->inner, f);
    for (int s = 0; s < self->step_count; s++) LKI_TRY(plan_step(self, &self->steps[s]));
    return LK_OK;
}

static lk_dataset *give_up(lk_dataset *dataset, lk_transform_list transforms)
{
    lk_dataset_free(dataset);
    for (int i = 0; i < transforms.count; i++) lk_transform_free(transforms.items[i]);
    return NULL;
}

lk_dataset *lk_transformed(lk_dataset *dataset, lk_transform_list transforms)
{
    if (!dataset) return give_up(dataset, transforms);
    for (int i = 0; i < transforms.count; i++)
        if (!transforms.items[i]) return give_up(dataset, transforms);
    transformed *self = LKI_NEW(transformed);
    step *steps = LKI_NEW_ARRAY(step, transforms.count);
    if (!self || !steps) {
        lki_free(self);
        lki_free(steps);
        return give_up(dataset, transforms);
    }
    *self = (transformed){.inner = dataset, .step_count = transforms.count, .steps = steps};
    for (int i = 0; i < transforms.count; i++)
        steps[i] = (step){.transform = transforms.items[i], .position = (size_t)i};
    if (plan(self) != LK_OK) {
        transformed_free(self);
        return NULL;
    }
    return lki_dataset_inherit(
        lk_dataset_create(&transformed_ops, self->fields, lk_dataset_field_count(dataset), self), dataset);
}
