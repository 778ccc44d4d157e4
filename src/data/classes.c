/* Labels by the names of their classes: a dataset whose labels are renumbered as another dataset's. */
#include "base/memory.h"
#include "base/status.h"
#include "data/dataset.h"
#include "tensor/element.h"

typedef struct relabelled {
    lk_dataset *inner;
    int field;
    lk_dtype dtype;
    int64_t width; /* labels per sample */
    int class_count;
    int64_t labels[]; /* (class_count): the new label of each old one */
} relabelled;

static int64_t relabelled_length(void *context)
{
    return lk_dataset_length(((relabelled *)context)->inner);
}

static lk_status relabelled_gather(void *context, const lk_pass *pass, const int64_t *indices, int64_t count,
                                   void *const *destinations)
{
    const relabelled *self = context;
    void *labels = destinations[self->field];
    LKI_TRY(lki_dataset_gather(self->inner, pass, indices, count, destinations));
    for (int64_t i = 0; i < count * self->width; i++) {
        int64_t label = (int64_t)lki_load(self->dtype, labels, i);
        if (label < 0 || label >= self->class_count)
            return lki_fail(LK_ERR_RANGE, "sample %lld: label %lld of %d classes",
                            (long long)indices[i / self->width], (long long)label, self->class_count);
        lki_store(self->dtype, labels, i, (double)self->labels[label]);
    }
    return LK_OK;
}

static void relabelled_free(void *context)
{
    lk_dataset_free(((relabelled *)context)->inner);
    lki_free(context);
}

static const lk_dataset_ops relabelled_ops = {LK_SIZE(lk_dataset_ops), .length = relabelled_length,
                                              .gather = relabelled_gather, .free = relabelled_free};

static lk_status map_labels(relabelled *self, const lk_dataset *dataset, const lk_dataset *like)
{
    for (int i = 0; i < self->class_count; i++) {
        const char *name = lk_dataset_class_name(dataset, i);
        int label = 0;
        while (label < lk_dataset_class_count(like) &&
               !lki_same_text(lk_dataset_class_name(like, label), name))
            label++;
        if (label == lk_dataset_class_count(like))
            return lki_fail(LK_ERR_INVALID, "it has class \"%s\", which the train loader does not have",
                            name);
        self->labels[i] = label;
    }
    return LK_OK;
}

static lk_status name_classes(lk_dataset *dataset, int field, const lk_dataset *like)
{
    int count = lk_dataset_class_count(like);
    LKI_SCOPED const char **names = LKI_NEW_ARRAY(const char *, count);
    if (!names) return LK_ERR_NOMEM;
    for (int i = 0; i < count; i++) names[i] = lk_dataset_class_name(like, i);
    return lk_dataset_set_classes(dataset, lk_dataset_field(dataset, field)->name, names, count);
}

lk_dataset *lki_dataset_relabel(lk_dataset *dataset, const lk_dataset *like)
{
    int count = lk_dataset_class_count(dataset), f = lki_dataset_class_field(dataset);
    const lk_field *field = lk_dataset_field(dataset, f);
    if (lk_dtype_is_float(field->dtype))
        return lki_fail_null(LK_ERR_INVALID,
                             "its classes differ from the train loader's, and field \"%s\" is no longer a "
                             "label: set classes_of of its image folder",
                             field->name);
    relabelled *self = lki_calloc(sizeof *self + (size_t)count * sizeof(int64_t), "the numbers of classes");
    if (!self) return NULL;
    *self = (relabelled){
        .field = f, .dtype = field->dtype, .width = lk_shape_count(field->shape), .class_count = count};
    if (map_labels(self, dataset, like)) {
        lki_free(self);
        return NULL;
    }
    self->inner = lk_dataset_share(dataset);
    lk_dataset *made = lki_dataset_inherit(lk_dataset_create(&relabelled_ops, lk_dataset_field(dataset, 0),
                                                             lk_dataset_field_count(dataset), self),
                                           dataset);
    if (made && name_classes(made, f, like)) {
        lk_dataset_free(made);
        return NULL;
    }
    return made;
}
