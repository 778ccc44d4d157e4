#include "nn/lookup.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

lk_status lki_lookup_read(lki_lookup *lookup, const char *type, double padding_idx, int64_t count)
{
    bool has_padding = lki_number_given(padding_idx);
    int64_t wanted, padding;
    LKI_TRY(lki_whole_or(padding_idx, 0, type, "padding_idx", &wanted));
    padding = wanted < 0 ? wanted + count : wanted;
    if (has_padding && (padding < 0 || padding >= count))
        return lki_fail(LK_ERR_INVALID, "%s: padding_idx: %lld is not one of %lld rows", type,
                        (long long)wanted, (long long)count);
    lookup->padding_index = has_padding ? padding : -1;
    return LK_OK;
}

void lki_lookup_add_table(lk_module *module, const lki_lookup *lookup, int64_t count, int64_t dim)
{
    lk_param *weight = lki_module_new_param(module, "weight", LK_SHAPE(count, dim));
    if (weight) lki_module_note(module, lk_init_normal(weight, 0, 1));
    for (int64_t i = 0; weight && lookup->padding_index >= 0 && i < dim; i++)
        lk_tensor_set(weight->value, lookup->padding_index * dim + i, 0);
}

/* (..., 1): 1 / how often each row is looked up. */
static lk_value *rarity(lk_value *index, int64_t count, lk_dtype dtype)
{
    lk_graph *graph = lk_value_graph(index);
    lk_value *flat = lk_op_reshape(index, LK_SHAPE(lk_shape_count(lk_value_shape(index))));
    lk_value *ones = lk_op_ones(graph, lk_value_shape(flat), dtype);
    lk_value *counts = lk_op_scatter_add(lk_op_zeros(graph, LK_SHAPE(count), dtype), 0, flat, ones);
    lk_value *of_each = lk_op_reshape(lk_op_gather(counts, 0, flat), lk_value_shape(index));
    return lk_op_unsqueeze(lk_op_pow_scalar(of_each, -1), -1);
}

/* r - r adds 0 to the rows and a scaled gradient to the table. */
lk_value *lki_lookup_rows(lk_module *module, const lki_lookup *lookup, lk_value *index)
{
    lk_value *weight = lki_module_value(module, index, "weight");
    lk_value *rows = lk_op_embedding(weight, index, lookup->padding_index);
    if (!rows || !lookup->by_frequency) return rows;
    lk_value *fixed = lk_op_detach(rows);
    lk_value *share = rarity(index, lk_value_shape(weight).dim[0], lk_value_dtype(rows));
    return lk_op_add(fixed, lk_op_mul(lk_op_sub(rows, fixed), share));
}

static lk_value *embedding_forward(lk_module *module, lk_value *x)
{
    return lki_lookup_rows(module, module->context, x);
}

lk_module *lk_embedding_with(int64_t count, int64_t dim, const lk_embedding_options *given)
{
    LKI_TAKE(lk_embedding_options, options, given, NULL);
    lki_lookup own = {.by_frequency = options.scale_grad_by_freq};
    if (count < 1 || dim < 1)
        return lki_fail_null(LK_ERR_INVALID,
                             "Embedding: expected at least 1 row and 1 column, found %lld and %lld",
                             (long long)count, (long long)dim);
    if (lki_lookup_read(&own, "Embedding", options.padding_idx, count)) return NULL;
    lk_module *module = lki_module_create("Embedding", embedding_forward, &own, sizeof own);
    lki_lookup_add_table(module, &own, count, dim);
    return lki_module_checked(module);
}
