/* The Lovasz extension of the Jaccard loss (Berman and others, 2018): errors in descending order, each times
 * how much the Jaccard loss grows when that sample becomes wrong, too. */
#include <lockstep/contrib.h>

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "nn/embeddings.h"

#include <math.h>

typedef struct lovasz_loss {
    bool per_image, has_ignore;
    int64_t ignore;
} lovasz_loss;

/* How the Jaccard loss grows along each row of the truth, (rows, n) of 1 and 0. */
static lk_value *jaccard_growth(lk_value *truth)
{
    if (!truth) return NULL;
    int64_t n = lk_value_shape(truth).dim[1];
    lk_value *sum = lk_op_sum(truth, LK_AXES(1), true);
    lk_value *common = lk_op_sub(sum, lk_op_cumsum(truth, 1));
    lk_value *others = lk_op_sub(lk_op_ones_like(truth), truth);
    lk_value *both = lk_op_add(sum, lk_op_cumsum(others, 1));
    lk_value *loss = lk_op_sub(lk_op_ones_like(truth), lk_op_div(common, both));
    if (n < 2) return loss;
    lk_value *before[] = {lk_op_zeros_like(lk_op_slice(loss, 1, 0, 1, 1)), lk_op_slice(loss, 1, 0, n - 1, 1)};
    return lk_op_sub(loss, lk_op_concat(before, 2, 1));
}

/* (rows, n) to (rows). Errors below 0 count as 0. */
static lk_value *lovasz_rows(lk_value *errors, lk_value *truth)
{
    lk_value *places = NULL;
    lk_value *sorted = lk_op_sort(errors, 1, true, &places);
    lk_value *growth = jaccard_growth(lk_op_gather(truth, 1, places));
    return lk_op_sum(lk_op_mul(lk_op_relu(sorted), lk_op_detach(growth)), LK_AXES(1), false);
}

static lk_value *ignored_places(const lovasz_loss *own, lk_value *target)
{
    return own->has_ignore ? lk_op_equal(target, lki_scalar_like(target, (double)own->ignore)) : NULL;
}

/* 1 - x (2 t - 1). What is ignored comes last in the order, and is no truth. */
static lk_value *hinge(const lovasz_loss *own, lk_value *x, lk_value *target, int64_t rows)
{
    lk_value *t = lki_target_like(x, target);
    if (!t) return NULL;
    lk_value *ignored = ignored_places(own, target);
    if (ignored) t = lk_op_masked_fill(t, ignored, 0);
    lk_value *signs = lk_op_add_scalar(lk_op_mul_scalar(t, 2), -1);
    lk_value *errors = lk_op_add_scalar(lk_op_neg(lk_op_mul(x, signs)), 1);
    if (ignored) errors = lk_op_masked_fill(errors, ignored, -INFINITY);
    lk_shape lines = LK_SHAPE(rows, -1);
    lk_value *each = lovasz_rows(lk_op_reshape(errors, lines), lk_op_reshape(t, lines));
    return lk_op_mean(each, LK_ALL_AXES, false);
}

static lk_value *binary_forward(lk_value *x, lk_value *target, void *context)
{
    const lovasz_loss *own = context;
    if (own->per_image && lk_value_shape(x).rank == 0)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "per_image: a single number has no samples");
    return hinge(own, x, target, own->per_image ? lk_value_shape(x).dim[0] : 1);
}

static lk_value *multi_label_forward(lk_value *x, lk_value *target, void *context)
{
    const lovasz_loss *own = context;
    lk_shape shape = lk_value_shape(x);
    if (shape.rank < 2)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected logits (samples, labels, ...), found %s", LKI_SHOW(shape));
    if (!lki_target_like(x, target)) return NULL;
    if (own->per_image) return hinge(own, x, target, shape.dim[0] * shape.dim[1]);
    return hinge(own, lk_op_transpose(x, 0, 1), lk_op_transpose(target, 0, 1), shape.dim[1]);
}

/* (samples, classes, pixels) to (samples or 1, classes, pixels) */
static lk_value *by_class(lk_value *x, bool per_image)
{
    if (!x || per_image) return x;
    int64_t classes = lk_value_shape(x).dim[1];
    return lk_op_reshape(lk_op_transpose(x, 0, 1), LK_SHAPE(1, classes, -1));
}

/* The mean over the classes that are present in a row, over the rows. */
static lk_value *mean_of_present(lk_value *each, lk_value *truth, lk_shape rows_and_classes)
{
    lk_value *present = lk_op_max(truth, LK_AXES(1), false);
    each = lk_op_reshape(lk_op_mul(each, present), rows_and_classes);
    present = lk_op_reshape(present, rows_and_classes);
    lk_value *count = lk_op_clamp(lk_op_sum(present, LK_AXES(1), false), 1, INFINITY);
    return lk_op_mean(lk_op_div(lk_op_sum(each, LK_AXES(1), false), count), LK_ALL_AXES, false);
}

static lk_value *multi_class_forward(lk_value *x, lk_value *target, void *context)
{
    const lovasz_loss *own = context;
    lk_shape shape = lk_value_shape(x), of_target = lk_value_shape(target);
    if (shape.rank == 3) { /* the output of a sigmoid: one class */
        x = lk_op_unsqueeze(x, 1);
        shape = LK_SHAPE(shape.dim[0], 1, shape.dim[1], shape.dim[2]);
    }
    lk_shape expected = LK_SHAPE(shape.dim[0], shape.dim[2], shape.dim[3]);
    if (shape.rank != 4 || !lk_shape_equal(of_target, expected))
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected probabilities (samples, classes, height, width) and classes "
                              "(samples, height, width), found %s and %s",
                              LKI_SHOW(lk_value_shape(x)), LKI_SHOW(of_target));
    lk_shape flat = LK_SHAPE(shape.dim[0], shape.dim[1], shape.dim[2] * shape.dim[3]);
    lk_value *labels = lk_op_reshape(target, LK_SHAPE(flat.dim[0], 1, flat.dim[2]));
    lk_value *classes =
        lk_op_reshape(lk_op_arange(lk_value_graph(x), 0, (double)flat.dim[1], 1, lk_value_dtype(target)),
                      LK_SHAPE(1, flat.dim[1], 1));
    lk_value *truth = lk_op_cast(lk_op_equal(labels, classes), lk_value_dtype(x));
    lk_value *ignored = ignored_places(own, labels);
    lk_value *errors = lk_op_abs(lk_op_sub(truth, lk_op_reshape(x, flat)));
    if (ignored) {
        ignored = lk_op_expand(ignored, flat);
        truth = lk_op_masked_fill(truth, ignored, 0);
        errors = lk_op_masked_fill(errors, ignored, -1);
    }
    int64_t rows = own->per_image ? flat.dim[0] : 1;
    lk_shape lines = LK_SHAPE(rows * flat.dim[1], -1);
    truth = lk_op_reshape(by_class(truth, own->per_image), lines);
    lk_value *each = lovasz_rows(lk_op_reshape(by_class(errors, own->per_image), lines), truth);
    return mean_of_present(each, truth, LK_SHAPE(rows, flat.dim[1]));
}

static lk_criterion *create(const char *type, lk_criterion_function forward,
                            const lk_lovasz_loss_options *given)
{
    LKI_TAKE(lk_lovasz_loss_options, options, given, NULL);
    lovasz_loss draft = {options.per_image, options.has_ignore, options.ignore};
    return lki_contrib_criterion(type, forward, &draft, sizeof draft);
}

lk_criterion *lk_lovasz_loss_binary_with(const lk_lovasz_loss_options *options)
{
    return create("LovaszLossBinary", binary_forward, options);
}

lk_criterion *lk_lovasz_loss_multi_class_with(const lk_lovasz_loss_options *options)
{
    return create("LovaszLossMultiClass", multi_class_forward, options);
}

lk_criterion *lk_lovasz_loss_multi_label_with(const lk_lovasz_loss_options *options)
{
    return create("LovaszLossMultiLabel", multi_label_forward, options);
}
