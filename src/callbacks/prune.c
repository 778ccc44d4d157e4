#include "callbacks/prune.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* LK_ZERO is a number, 0 is none. */
static bool is_given(double argument)
{
    return !isnan(lki_number_or(argument, NAN));
}

lk_status lki_prune_read(lki_prune *out, const char *pruning_fn, double dim, double l_norm)
{
    static const char *const names[] = {"l1_unstructured", "random_unstructured", "ln_structured",
                                        "random_structured"};
    int which = 0;
    while (which < 4 && (!pruning_fn || strcmp(pruning_fn, names[which]) != 0)) which++;
    if (which == 4)
        return lki_fail(
            LK_ERR_INVALID,
            "PruningCallback: pruning_fn is l1_unstructured, random_unstructured, ln_structured or "
            "random_structured, not \"%s\"",
            pruning_fn ? pruning_fn : "");
    *out = (lki_prune){.structured = which >= 2, .random = which % 2 == 1};
    if (out->structured != is_given(dim))
        return lki_fail(LK_ERR_INVALID, "PruningCallback: dim: %s %s it", names[which],
                        out->structured ? "needs" : "does not take");
    if ((which == 2) != is_given(l_norm))
        return lki_fail(LK_ERR_INVALID, "PruningCallback: l_norm: %s %s it", names[which],
                        which == 2 ? "needs" : "does not take");
    int64_t axis = 0;
    if (out->structured) LKI_TRY(lki_whole_or(dim, 0, "PruningCallback", "dim", &axis));
    out->dim = (int)axis;
    out->l_norm = which == 2 ? lki_number_or(l_norm, 0) : 1;
    return LK_OK;
}

static int axis_of(const lki_prune *how, lk_shape shape)
{
    return how->dim < 0 ? how->dim + shape.rank : how->dim;
}

lk_status lki_prune_check(const lki_prune *how, lk_shape shape, double amount)
{
    int axis = axis_of(how, shape);
    if (how->structured && (axis < 0 || axis >= shape.rank))
        return lki_fail(LK_ERR_SHAPE, "dim: %d is no axis of a tensor with %d dimensions", how->dim,
                        shape.rank);
    int64_t count = how->structured ? shape.dim[axis] : lk_shape_count(shape);
    if (amount < 1 || amount <= (double)count) return LK_OK;
    return lki_fail(LK_ERR_RANGE, "amount: it has %lld to prune, not %g", (long long)count, amount);
}

/* ---- Slices ---- */

/* A weight of an unstructured method is a slice of its own. */
typedef struct slices {
    int64_t count, inner; /* slice of element i: i / inner % count */
} slices;

static slices slices_of(const lki_prune *how, lk_shape shape)
{
    slices s = {lk_shape_count(shape), 1};
    if (!how->structured) return s;
    int axis = axis_of(how, shape);
    s.count = shape.dim[axis];
    for (int i = axis + 1; i < shape.rank; i++) s.inner *= shape.dim[i];
    return s;
}

typedef struct candidate {
    double importance;
    int64_t slice;
} candidate;

/* Of equal ones the first goes first. */
static int by_importance(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->importance != y->importance) return x->importance < y->importance ? -1 : 1;
    return x->slice < y->slice ? -1 : x->slice > y->slice;
}

/* The norm of each slice; the size of each weight, which is its norm. */
static void measure(const lki_prune *how, const lk_tensor *weights, slices s, candidate *all)
{
    double p = how->l_norm;
    for (int64_t i = 0; i < lk_tensor_count(weights); i++) {
        double size = fabs(lk_tensor_get(weights, i)), *sum = &all[i / s.inner % s.count].importance;
        if (isinf(p))
            *sum = p > 0 && size < *sum ? *sum : size;
        else
            *sum += p == 0 ? size != 0 : p == 1 ? size : p == 2 ? size * size : pow(size, p);
    }
}

lk_status lki_prune_mask(const lki_prune *how, double amount, const lk_tensor *weights, lk_tensor *mask,
                         lki_keyed *random)
{
    slices s = slices_of(how, weights->shape);
    int64_t left = 0, total = lk_tensor_count(weights);
    uint8_t *kept = mask->data;
    LKI_SCOPED candidate *all = LKI_NEW_ARRAY(candidate, s.count + 1);
    LKI_SCOPED uint8_t *alive = LKI_NEW_ARRAY(uint8_t, s.count + 1);
    if (!all || !alive) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < total; i++) alive[i / s.inner % s.count] |= kept[i];
    if (!how->random) measure(how, weights, s, all);
    for (int64_t k = 0; k < s.count; k++) {
        double importance = how->random ? lki_keyed_f64(random) : all[k].importance;
        if (alive[k]) all[left++] = (candidate){importance, k};
    }
    /* rint: halves go to the even neighbour, as in Python. */
    int64_t gone = amount < 1 ? (int64_t)rint(amount * (double)left) : (int64_t)amount;
    if (gone > left) gone = left;
    qsort(all, (size_t)left, sizeof *all, by_importance);
    for (int64_t k = 0; k < gone; k++) alive[all[k].slice] = 0;
    for (int64_t i = 0; i < total; i++) kept[i] = kept[i] && alive[i / s.inner % s.count];
    return LK_OK;
}
