/* Bags of rows of a table, each bag as one row. */
#include "nn/lookup.h"
#include "nn/nodes.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"

#include <math.h>

typedef struct bag {
    lki_lookup lookup;
    lk_bag_mode mode;
    bool include_last;
} bag;

/* What is put into bags: n rows (n, D), the share of each (n), and the bag of each, i64 (n). With `ids` NULL
 * the bags are the rows of (B, n), and there is an axis B before n. */
typedef struct contents {
    lk_value *rows, *counts, *ids;
    int64_t bags;
} contents;

/* Which bag each of n places belongs to: how many bags have begun, less 1. */
static lk_value *bag_of_each(lk_value *offsets, int64_t bags, int64_t places)
{
    lk_graph *graph = lk_value_graph(offsets);
    lk_value *begins = lk_op_slice(offsets, 0, 0, bags, 1);
    /* A bag without rows at the end begins behind the last place. */
    lk_value *marks = lk_op_scatter_add(lk_op_zeros(graph, LK_SHAPE(places + 1), LK_F64), 0, begins,
                                        lk_op_ones(graph, LK_SHAPE(bags), LK_F64));
    lk_value *count = lk_op_slice(lk_op_cumsum(marks, 0), 0, 0, places, 1);
    return lk_op_cast(lk_op_add_scalar(count, -1), LK_I64);
}

/* 1 for each place that counts: not the padding row, and with include_last_offset not behind the end. */
static lk_value *counting(const bag *own, lk_value *index, lk_value *offsets, lk_dtype dtype)
{
    lk_graph *graph = lk_value_graph(index);
    lk_value *counts = lk_op_ones(graph, lk_value_shape(index), dtype);
    if (own->lookup.padding_index >= 0) {
        lk_value *padding = lk_op_full(graph, lk_scalar_shape(), (double)own->lookup.padding_index, LK_I64);
        counts = lk_op_cast(lk_op_not_equal(index, padding), dtype);
    }
    if (offsets && own->include_last) {
        int64_t bags = lk_value_shape(offsets).dim[0] - 1;
        lk_value *place = lk_op_arange(graph, 0, (double)lk_value_shape(index).dim[0], 1, LK_I64);
        lk_value *inside = lk_op_less(place, lk_op_slice(offsets, 0, bags, bags + 1, 1));
        counts = lk_op_mul(counts, lk_op_cast(inside, dtype));
    }
    return counts;
}

static lk_value *sum_of_bags(const contents *c, lk_value *each)
{
    if (!c->ids) return lk_op_sum(each, LK_AXES(1), false);
    lk_shape shape = lk_value_shape(each);
    shape.dim[0] = c->bags;
    lk_value *zeros = lk_op_zeros(lk_value_graph(each), shape, lk_value_dtype(each));
    return lk_op_index_add(zeros, 0, c->ids, each);
}

/* The largest of each column, and 0 for a bag without a row that counts. */
static lk_value *largest_of_bags(const contents *c)
{
    lk_graph *graph = lk_value_graph(c->rows);
    lk_value *rows = c->rows, *member = c->counts;
    if (c->ids) { /* each bag looks at all rows */
        lk_value *bag = lk_op_arange(graph, 0, (double)c->bags, 1, LK_I64);
        lk_value *is_here = lk_op_equal(lk_op_unsqueeze(bag, 1), lk_op_unsqueeze(c->ids, 0));
        member = lk_op_mul(lk_op_cast(is_here, lk_value_dtype(rows)), lk_op_unsqueeze(c->counts, 0));
        rows = lk_op_unsqueeze(rows, 0);
    }
    lk_value *out = lk_op_unsqueeze(lk_op_equal(member, lki_scalar_like(member, 0)), 2);
    lk_value *candidates = lk_op_where(out, lki_scalar_like(rows, -INFINITY), rows);
    lk_value *largest = lk_op_max(candidates, LK_AXES(1), false);
    lk_value *size = lk_op_sum(member, LK_AXES(1), true);
    return lk_op_where(lk_op_equal(size, lki_scalar_like(size, 0)), lki_scalar_like(largest, 0), largest);
}

static lk_status refuse(lk_value *x, const char *what)
{
    lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "%s, found an input of %s", what,
                   LKI_SHOW(lk_value_shape(x)));
    return LK_ERR_SHAPE;
}

static lk_status check(const bag *own, lk_value *input, lk_value *offsets, lk_value *weights)
{
    int rank = lk_value_shape(input).rank;
    if (rank != 1 && rank != 2) return refuse(input, "expected i64 (bags, n), or (n) with offsets");
    if (rank == 2 && offsets) return refuse(input, "offsets are for an input of 1 dimension");
    if (rank == 2 && own->include_last)
        return refuse(input, "include_last_offset is for an input of 1 dimension with offsets");
    if (rank == 1 && !offsets) return refuse(input, "expected offsets beside an input of 1 dimension");
    if (offsets && (lk_value_shape(offsets).rank != 1 || lk_value_dtype(offsets) != LK_I64 ||
                    lk_value_shape(offsets).dim[0] < 1 + own->include_last))
        return refuse(input, "offsets: expected i64 (bags), or with include_last_offset one more");
    if (weights && own->mode != LK_BAG_SUM) return refuse(input, "per_sample_weights are for the mode sum");
    if (weights && !lk_shape_equal(lk_value_shape(weights), lk_value_shape(input)))
        return refuse(input, "per_sample_weights: expected one per index");
    return LK_OK;
}

static lk_status bag_call(lk_module *module, lk_value *const *inputs, int count, lk_value **outputs,
                          int output_count)
{
    const bag *own = module->context;
    lk_value *input = inputs[0], *offsets = count > 1 ? inputs[1] : NULL,
             *weights = count > 2 ? inputs[2] : NULL;
    (void)output_count;
    LKI_TRY(check(own, input, offsets, weights));
    contents c = {.rows = lki_lookup_rows(module, &own->lookup, input)};
    if (!c.rows) return lki_last_status();
    lk_shape shape = lk_value_shape(input);
    c.counts = counting(own, input, offsets, lk_value_dtype(c.rows));
    c.bags = offsets ? lk_value_shape(offsets).dim[0] - own->include_last : shape.dim[0];
    if (offsets) c.ids = bag_of_each(offsets, c.bags, shape.dim[0]);
    if (own->mode == LK_BAG_MAX && shape.dim[shape.rank - 1] > 0) {
        outputs[0] = largest_of_bags(&c);
        return LK_OK;
    }
    lk_value *share = weights ? lk_op_mul(c.counts, weights) : c.counts;
    outputs[0] = sum_of_bags(&c, lk_op_mul(c.rows, lk_op_unsqueeze(share, -1)));
    if (own->mode == LK_BAG_MEAN) {
        lk_value *size = lk_op_clamp(sum_of_bags(&c, c.counts), 1, INFINITY);
        outputs[0] = lk_op_div(outputs[0], lk_op_unsqueeze(size, 1));
    }
    return LK_OK;
}

lk_module *lk_embedding_bag_with(int64_t count, int64_t dim, const lk_embedding_bag_options *given)
{
    LKI_TAKE(lk_embedding_bag_options, options, given, NULL);
    bag own = {.mode = options.mode, .include_last = options.include_last_offset};
    own.lookup.by_frequency = options.scale_grad_by_freq;
    if (count < 1 || dim < 1)
        return lki_fail_null(LK_ERR_INVALID,
                             "EmbeddingBag: expected at least 1 row and 1 column, found %lld and %lld",
                             (long long)count, (long long)dim);
    if ((int)options.mode < LK_BAG_MEAN || options.mode > LK_BAG_MAX)
        return lki_fail_null(LK_ERR_INVALID, "EmbeddingBag: there is no mode %d", (int)options.mode);
    if (options.mode == LK_BAG_MAX && options.scale_grad_by_freq)
        return lki_fail_null(LK_ERR_INVALID, "EmbeddingBag: scale_grad_by_freq: not with the mode max");
    if (lki_lookup_read(&own.lookup, "EmbeddingBag", options.padding_idx, count)) return NULL;
    lk_module *module = lki_module_of_named("EmbeddingBag", bag_call, "input offsets per_sample_weights", 1,
                                            &own, sizeof own);
    lki_lookup_add_table(module, &own.lookup, count, dim);
    return lki_module_checked(module);
}
