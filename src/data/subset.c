/* Datasets made of others: some of the samples, or several one after the other. */
#include <lockstep/data.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/dataset.h"

#include <string.h>

/* ---- Subset ---- */

typedef struct subset {
    lk_dataset *inner;
    int64_t count;
    int64_t indices[];
} subset;

static int64_t subset_length(void *context)
{
    return ((subset *)context)->count;
}

/* Indices are mapped in blocks on the stack: a gather allocates nothing. */
enum { BLOCK = 256 };

static lk_status subset_gather(void *context, const lk_pass *pass, const int64_t *indices, int64_t count,
                               void *const *destinations)
{
    const subset *self = context;
    int64_t mapped[BLOCK];
    void *slots[LK_MAX_FIELDS];
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        int64_t some = count - begin < BLOCK ? count - begin : BLOCK;
        for (int64_t i = 0; i < some; i++) mapped[i] = self->indices[indices[begin + i]];
        for (int f = 0; f < lk_dataset_field_count(self->inner); f++)
            slots[f] =
                (char *)destinations[f] + (size_t)begin * lki_field_nbytes(lk_dataset_field(self->inner, f));
        LKI_TRY(lki_dataset_gather(self->inner, pass, mapped, some, slots));
    }
    return LK_OK;
}

static void subset_free(void *context)
{
    lk_dataset_free(((subset *)context)->inner);
    lki_free(context);
}

static lk_dataset *subset_cast(void *context, const lk_field *fields, int field, lk_dtype dtype)
{
    const subset *self = context;
    (void)fields;
    return lk_subset(lki_dataset_cast(self->inner, field, dtype), self->indices, self->count);
}

static lk_status subset_read(void *context, int64_t index, lki_image *out, void *const *slots)
{
    const subset *self = context;
    const lki_own_sizes *inner = lki_dataset_own_sizes(self->inner);
    return inner->read(inner->context, self->indices[index], out, slots);
}

static const char *subset_name(void *context, int64_t index)
{
    const subset *self = context;
    const lki_own_sizes *inner = lki_dataset_own_sizes(self->inner);
    return inner->name(inner->context, self->indices[index]);
}

static const lk_dataset_ops subset_ops = {LK_SIZE(lk_dataset_ops), .length = subset_length,
                                          .gather = subset_gather, .free = subset_free, .cast = subset_cast};

static lk_dataset *wrap(const lk_dataset_ops *ops, const lk_dataset *like, void *context)
{
    return lki_dataset_inherit(
        lk_dataset_create(ops, lk_dataset_field(like, 0), lk_dataset_field_count(like), context), like);
}

lk_dataset *lk_subset(lk_dataset *dataset, const int64_t *indices, int64_t count)
{
    if (!dataset) return NULL;
    subset *self = NULL;
    if (count < 0 || (count && !indices))
        lki_fail(LK_ERR_INVALID, "subset: expected at least 0 indices, found %lld", (long long)count);
    else if (lki_dataset_check_length(dataset, "subset") != LK_OK)
        self = NULL;
    else if (lki_check_indices(indices, count, lk_dataset_length(dataset)) != LK_OK)
        lki_fail_prefix(LK_ERR_RANGE, "subset");
    else
        self = lki_calloc(sizeof *self + (size_t)count * sizeof *indices, "the indices of a subset");
    if (!self) {
        lk_dataset_free(dataset);
        return NULL;
    }
    self->inner = dataset;
    self->count = count;
    if (count) memcpy(self->indices, indices, (size_t)count * sizeof *indices);
    lk_dataset *made = wrap(&subset_ops, dataset, self);
    if (made && lki_dataset_own_sizes(dataset))
        lki_dataset_set_own_sizes(made, &(lki_own_sizes){subset_read, subset_name, self});
    return made;
}

/* ---- Concatenation ---- */

typedef struct concat {
    int count;
    int64_t *ends; /* (count): the sum of the lengths up to and including each */
    lk_dataset *inner[];
} concat;

static int64_t concat_length(void *context)
{
    const concat *self = context;
    return self->ends[self->count - 1];
}

/* Which dataset has a sample; *index becomes its index there. */
static int find_inner(const concat *self, int64_t *index)
{
    int which = 0;
    while (*index >= self->ends[which]) which++;
    *index -= which ? self->ends[which - 1] : 0;
    return which;
}

static lk_status concat_get(void *context, const lk_pass *pass, int64_t index, void *const *slots)
{
    const concat *self = context;
    int which = find_inner(self, &index);
    return lki_dataset_gather(self->inner[which], pass, &index, 1, slots);
}

static void concat_free(void *context)
{
    concat *self = context;
    for (int i = 0; i < self->count; i++) lk_dataset_free(self->inner[i]);
    lki_free(self->ends);
    lki_free(self);
}

static lk_dataset *concat_cast(void *context, const lk_field *fields, int field, lk_dtype dtype)
{
    const concat *self = context;
    LKI_SCOPED lk_dataset **cast = LKI_NEW_ARRAY(lk_dataset *, self->count);
    (void)fields;
    if (!cast) return NULL;
    for (int i = 0; i < self->count; i++) {
        cast[i] = lki_dataset_cast(self->inner[i], field, dtype);
        if (cast[i]) continue;
        while (--i >= 0) lk_dataset_free(cast[i]);
        return NULL;
    }
    return lk_concat_with(cast, self->count);
}

static const lk_dataset_ops concat_ops = {LK_SIZE(lk_dataset_ops), .length = concat_length, .get = concat_get,
                                          .free = concat_free, .cast = concat_cast};

/* Labels of datasets whose classes differ would mean different things in one dataset. */
static lk_status check_same_classes(const lk_dataset *a, const lk_dataset *b, int position)
{
    int count = lk_dataset_class_count(a);
    bool same = count == lk_dataset_class_count(b) || !count || !lk_dataset_class_count(b);
    for (int i = 0; same && i < count && i < lk_dataset_class_count(b); i++)
        same = strcmp(lk_dataset_class_name(a, i), lk_dataset_class_name(b, i)) == 0;
    if (same) return LK_OK;
    return lki_fail(LK_ERR_INVALID,
                    "concat: dataset %d has other classes than the first: set classes_of of its image folder",
                    position);
}

static lk_status check_same_fields(const lk_dataset *a, const lk_dataset *b, int position)
{
    bool same = lk_dataset_field_count(a) == lk_dataset_field_count(b);
    for (int f = 0; same && f < lk_dataset_field_count(a); f++) {
        const lk_field *x = lk_dataset_field(a, f), *y = lk_dataset_field(b, f);
        same = strcmp(x->name, y->name) == 0 && x->dtype == y->dtype && lk_shape_equal(x->shape, y->shape);
    }
    if (same) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "concat: dataset %d has other fields than the first", position);
}

static lk_status concat_read(void *context, int64_t index, lki_image *out, void *const *slots)
{
    const concat *self = context;
    const lki_own_sizes *inner = lki_dataset_own_sizes(self->inner[find_inner(self, &index)]);
    return inner->read(inner->context, index, out, slots);
}

static const char *concat_name(void *context, int64_t index)
{
    const concat *self = context;
    const lki_own_sizes *inner = lki_dataset_own_sizes(self->inner[find_inner(self, &index)]);
    return inner->name(inner->context, index);
}

static bool all_have_own_sizes(const concat *self)
{
    for (int i = 0; i < self->count; i++)
        if (!lki_dataset_own_sizes(self->inner[i])) return false;
    return true;
}

static concat *make_concat(lk_dataset *const *datasets, int count)
{
    if (count < 1) return lki_fail_null(LK_ERR_INVALID, "concat: no datasets");
    for (int i = 0; i < count; i++) {
        if (!datasets[i] || lki_dataset_check_length(datasets[i], "concat")) return NULL;
        if (check_same_fields(datasets[0], datasets[i], i) != LK_OK) return NULL;
        if (check_same_classes(datasets[0], datasets[i], i) != LK_OK) return NULL;
    }
    concat *self = lki_calloc(sizeof *self + (size_t)count * sizeof *datasets, "a concatenation");
    if (!self) return NULL;
    self->ends = LKI_NEW_ARRAY(int64_t, count);
    if (!self->ends) {
        lki_free(self);
        return NULL;
    }
    int64_t end = 0;
    for (int i = 0; i < count; i++) {
        self->inner[i] = datasets[i];
        self->ends[i] = end += lk_dataset_length(datasets[i]);
    }
    self->count = count;
    return self;
}

lk_dataset *lk_concat_with(lk_dataset *const *datasets, int count)
{
    concat *self = make_concat(datasets, count);
    if (!self) {
        for (int i = 0; i < count; i++) lk_dataset_free(datasets[i]);
        return NULL;
    }
    bool own_sizes = all_have_own_sizes(self);
    lk_dataset *made = wrap(&concat_ops, datasets[0], self);
    if (made && own_sizes) lki_dataset_set_own_sizes(made, &(lki_own_sizes){concat_read, concat_name, self});
    return made;
}
