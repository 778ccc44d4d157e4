/* Transforms of transforms: all of them, by chance, one of them, in a random order. */
#include "data/transform.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/scratch.h"

#include <math.h>
#include <string.h>

/* ---- One after the other ---- */

/* The field after the children; `nbytes` is raised to the largest sample on the way. */
static lk_status plan_chain(const lk_transform *self, const lk_field *in, lk_field *out, size_t *nbytes)
{
    lk_field field = *in;
    for (int i = 0; i < self->child_count; i++) {
        lk_field next = field;
        LKI_TRY(self->children[i]->plan(self->children[i], &field, &next));
        field = next;
        size_t own = (size_t)lk_shape_count(field.shape) * lk_dtype_nbytes(field.dtype);
        if (own > *nbytes) *nbytes = own;
    }
    *out = field;
    return LK_OK;
}

static lk_status run_chain(const lk_transform *self, const lki_sample *in, lki_sample *out, const int *order,
                           lki_keyed *random, char *blocks, size_t nbytes)
{
    lki_sample current = *in;
    for (int i = 0; i < self->child_count; i++) {
        const lk_transform *child = self->children[order ? order[i] : i];
        lk_field field = {self->key, current.dtype, current.shape}, after = field;
        LKI_TRY(child->plan(child, &field, &after));
        lki_sample next = {after.dtype, after.shape, current.data == blocks ? blocks + nbytes : blocks};
        if (i + 1 == self->child_count) next.data = out->data;
        LKI_TRY(child->apply(child, &current, &next, random));
        current = next;
    }
    return LK_OK;
}

static lk_status apply_chain(const lk_transform *self, const lki_sample *in, lki_sample *out,
                             const int *order, lki_keyed *random)
{
    lk_field before = {self->key, in->dtype, in->shape}, after;
    size_t nbytes = 0;
    LKI_TRY(plan_chain(self, &before, &after, &nbytes));
    nbytes = (nbytes + 63) / 64 * 64;
    char *blocks = lki_scratch_take(2 * nbytes);
    if (!blocks) return lki_last_status();
    lk_status status = run_chain(self, in, out, order, random, blocks, nbytes);
    lki_scratch_give();
    return status;
}

static void copy_sample(const lki_sample *in, lki_sample *out)
{
    memcpy(out->data, in->data, (size_t)lk_shape_count(in->shape) * lk_dtype_nbytes(in->dtype));
}

static bool same_field(const lk_field *a, const lk_field *b)
{
    return a->dtype == b->dtype && lk_shape_equal(a->shape, b->shape);
}

static lk_status fail_shapes(const lk_transform *self, const char *why, const lk_field *a, const lk_field *b)
{
    char from[160], to[160];
    return lki_fail(LK_ERR_SHAPE, "%s: %s: %s %s and %s %s", self->kind, why, lk_dtype_name(a->dtype),
                    lk_shape_format(from, sizeof from, a->shape), lk_dtype_name(b->dtype),
                    lk_shape_format(to, sizeof to, b->shape));
}

/* ---- The four kinds ---- */

static lk_status plan_compose(const lk_transform *self, const lk_field *in, lk_field *out)
{
    size_t nbytes = 0;
    return plan_chain(self, in, out, &nbytes);
}

static lk_status apply_compose(const lk_transform *self, const lki_sample *in, lki_sample *out,
                               lki_keyed *random)
{
    return apply_chain(self, in, out, NULL, random);
}

static lk_status plan_apply(const lk_transform *self, const lk_field *in, lk_field *out)
{
    LKI_TRY(plan_compose(self, in, out));
    if (same_field(in, out)) return LK_OK;
    return fail_shapes(self, "a sample must have the same shape with and without its transforms, found", in,
                       out);
}

static lk_status apply_apply(const lk_transform *self, const lki_sample *in, lki_sample *out,
                             lki_keyed *random)
{
    if (lki_keyed_chance(random, self->options.several.p)) return apply_chain(self, in, out, NULL, random);
    copy_sample(in, out);
    return LK_OK;
}

static lk_status plan_choice(const lk_transform *self, const lk_field *in, lk_field *out)
{
    for (int i = 0; i < self->child_count; i++) {
        lk_field one = *in;
        LKI_TRY(self->children[i]->plan(self->children[i], in, &one));
        if (i > 0 && !same_field(&one, out))
            return fail_shapes(self, "all of its transforms must lead to the same shape, found", out, &one);
        *out = one;
    }
    return LK_OK;
}

static int choose(const lk_transform *self, lki_keyed *random)
{
    if (!self->weights) return (int)lki_keyed_below(random, self->child_count);
    double sum = 0, at;
    for (int i = 0; i < self->child_count; i++) sum += self->weights[i];
    at = lki_keyed_between(random, 0, sum);
    int last = 0; /* the last one that has a weight, should rounding go past it */
    for (int i = 0; i < self->child_count; i++) {
        if (self->weights[i] > 0) last = i;
        at -= self->weights[i];
        if (at < 0) return i;
    }
    return last;
}

static lk_status apply_choice(const lk_transform *self, const lki_sample *in, lki_sample *out,
                              lki_keyed *random)
{
    const lk_transform *child = self->children[choose(self, random)];
    return child->apply(child, in, out, random);
}

static lk_status plan_order(const lk_transform *self, const lk_field *in, lk_field *out)
{
    for (int i = 0; i < self->child_count; i++) {
        lk_field one = *in;
        LKI_TRY(self->children[i]->plan(self->children[i], in, &one));
        if (!same_field(in, &one))
            return fail_shapes(self, "each of its transforms must keep the shape, found", in, &one);
    }
    *out = *in;
    return LK_OK;
}

enum { MAX_CHILDREN = 32 };

static lk_status apply_order(const lk_transform *self, const lki_sample *in, lki_sample *out,
                             lki_keyed *random)
{
    int order[MAX_CHILDREN];
    for (int i = 0; i < self->child_count; i++) order[i] = i;
    for (int i = 0; i + 1 < self->child_count; i++) {
        int j = i + (int)lki_keyed_below(random, self->child_count - i), swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
    return apply_chain(self, in, out, order, random);
}

/* ---- Making them ---- */

static void free_list(lk_transform_list list)
{
    for (int i = 0; i < list.count; i++) lk_transform_free(list.items[i]);
}

static lk_status check_children(const char *kind, lk_transform_list list)
{
    for (int i = 0; i < list.count; i++)
        if (!list.items[i]) return lki_last_status();
    if (list.count < 1 || list.count > MAX_CHILDREN)
        return lki_fail(LK_ERR_INVALID, "%s: transforms: expected 1 to %d, found %d", kind, MAX_CHILDREN,
                        list.count);
    for (int i = 0; i < list.count; i++) {
        if (!list.items[i]->apply)
            return lki_fail(LK_ERR_INVALID,
                            "%s: %s acts on batches: give it to the loader's batch_transforms", kind,
                            list.items[i]->kind);
        if (strcmp(list.items[i]->key, list.items[0]->key) != 0)
            return lki_fail(LK_ERR_INVALID,
                            "%s: %s changes field \"%s\", %s field \"%s\": all must change the same field",
                            kind, list.items[0]->kind, list.items[0]->key, list.items[i]->kind,
                            list.items[i]->key);
    }
    return LK_OK;
}

/* Owns the list. */
static lk_transform *group(const char *kind, lk_transform_list list)
{
    lk_transform *transform = NULL;
    if (check_children(kind, list) == LK_OK) transform = lki_transform_create(kind, list.items[0]->key, "");
    if (transform) transform->children = LKI_NEW_ARRAY(lk_transform *, list.count);
    if (!transform || !transform->children) {
        lk_transform_free(transform);
        free_list(list);
        return NULL;
    }
    memcpy(transform->children, list.items, (size_t)list.count * sizeof *list.items);
    transform->child_count = list.count;
    return transform;
}

lk_transform *lk_compose(lk_transform_list transforms)
{
    lk_transform *transform = group("compose", transforms);
    if (!transform) return NULL;
    transform->plan = plan_compose;
    transform->apply = apply_compose;
    return transform;
}

lk_transform *lk_random_apply_with(lk_transform_list transforms, const lk_random_apply_options *given)
{
    lk_random_apply_options options;
    lk_status status = lki_take(&options, sizeof options, given, "lk_random_apply_options");
    if (status == LK_OK) status = lki_check_chance("random_apply", options.p);
    if (status) {
        free_list(transforms);
        return NULL;
    }
    lk_transform *transform = group("random_apply", transforms);
    if (!transform) return NULL;
    transform->options.several.p = lki_number_or(options.p, 0.5);
    transform->plan = plan_apply;
    transform->apply = apply_apply;
    return transform;
}

static lk_status check_weights(const double *weights, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        if (!(weights[i] >= 0) || isinf(weights[i]))
            return lki_fail(LK_ERR_INVALID, "random_choice: p: expected numbers of at least 0, found %g",
                            weights[i]);
        sum += weights[i];
    }
    return sum > 0 ? LK_OK : lki_fail(LK_ERR_INVALID, "random_choice: p: all weights are 0");
}

lk_transform *lk_random_choice_with(lk_transform_list transforms, const lk_random_choice_options *given)
{
    lk_random_choice_options options;
    lk_status status = lki_take(&options, sizeof options, given, "lk_random_choice_options");
    if (status == LK_OK && options.p) status = check_weights(options.p, transforms.count);
    if (status) {
        free_list(transforms);
        return NULL;
    }
    lk_transform *transform = group("random_choice", transforms);
    if (!transform) return NULL;
    transform->plan = plan_choice;
    transform->apply = apply_choice;
    if (!options.p) return transform;
    transform->weights = LKI_NEW_ARRAY(double, transforms.count);
    if (!transform->weights) {
        lk_transform_free(transform);
        return NULL;
    }
    memcpy(transform->weights, options.p, (size_t)transforms.count * sizeof *options.p);
    return transform;
}

lk_transform *lk_random_order(lk_transform_list transforms)
{
    lk_transform *transform = group("random_order", transforms);
    if (!transform) return NULL;
    transform->plan = plan_order;
    transform->apply = apply_order;
    return transform;
}
