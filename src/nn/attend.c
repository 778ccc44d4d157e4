/* Attention without parameters: softmax(q k^T / sqrt(d) + masks) v of each head. */
#include "nn/nodes.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/ops_attention.h"

#include <math.h>

/* (N, S, E) -> (N, H, S, E / H). */
static lk_value *to_heads(int64_t heads, lk_value *x, const char *what)
{
    char text[128];
    if (!x) return NULL;
    lk_shape shape = lk_value_shape(x);
    if (shape.rank != 3 || shape.dim[2] % heads)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "%s: expected 3 dimensions, the last a multiple of %lld heads, found %s", what,
                              (long long)heads, lk_shape_format(text, sizeof text, shape));
    x = lk_op_reshape(x, LK_SHAPE(shape.dim[0], shape.dim[1], heads, shape.dim[2] / heads));
    return lk_op_transpose(x, 1, 2);
}

lk_value *lki_add_causal_mask(lk_value *scores)
{
    if (!scores) return NULL;
    lk_shape shape = lk_value_shape(scores);
    lk_graph *graph = lk_value_graph(scores);
    int64_t rows = shape.dim[shape.rank - 2], columns = shape.dim[shape.rank - 1];
    lk_tensor *mask = lk_tensor_create(lk_value_dtype(scores), LK_SHAPE(rows, columns));
    if (!mask) return lki_graph_fail(graph, LK_ERR_NOMEM, "%s", lk_error());
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i + 1; j < columns; j++) lk_tensor_set(mask, i * columns + j, -INFINITY);
    scores = lk_op_add(scores, lk_graph_constant(graph, mask));
    lk_tensor_free(mask);
    return scores;
}

/* As products and a softmax, which keep the scores in memory. */
static lk_value *attend_split(lk_value *query, lk_value *key, lk_value *value, const lki_attention *how)
{
    lk_value *q = to_heads(how->heads, query, "query"), *k = to_heads(how->heads, key, "key"),
             *v = to_heads(how->heads, value, "value");
    if (!q || !k || !v) return NULL;
    lk_shape shape = lk_value_shape(q); /* (N, H, L, d) */
    q = lk_op_mul_scalar(q, 1 / sqrt((double)shape.dim[3]));
    lk_value *scores = lk_op_matmul(q, lk_op_transpose(k, 2, 3));
    if (!scores) return NULL;
    if (how->is_causal) scores = lki_add_causal_mask(scores);
    if (how->mask) scores = lk_op_add(scores, how->mask);
    lk_value *weights = lk_op_softmax(scores, -1);
    if (how->dropout > 0) weights = lk_op_dropout(weights, how->dropout);
    lk_value *mixed = lk_op_transpose(lk_op_matmul(weights, v), 1, 2);
    if (!mixed) return NULL;
    shape = lk_value_shape(mixed);
    return lk_op_reshape(mixed, LK_SHAPE(shape.dim[0], shape.dim[1], shape.dim[2] * shape.dim[3]));
}

/* What to_heads refuses, and what only products take, is left to them. */
static bool joins(lk_value *query, lk_value *key, lk_value *value, const lki_attention *how)
{
    lk_value *const all[] = {query, key ? key : query, value ? value : query};
    for (int i = 0; i < 3; i++)
        if (lk_value_shape(all[i]).rank != 3 || lk_value_shape(all[i]).dim[2] % how->heads) return false;
    lk_shape q = lk_value_shape(query), k = lk_value_shape(all[1]);
    double scores = (double)q.dim[0] * (double)how->heads * (double)q.dim[1] * (double)k.dim[1];
    return lki_joins_attention(lk_value_graph(query), scores, false);
}

lk_value *lki_attend(lk_value *query, lk_value *key, lk_value *value, const lki_attention *how)
{
    if (!query || (value && !key)) return NULL;
    if (joins(query, key, value, how))
        return lk_op_scaled_dot_product_attention(query, key, value, .attn_mask = how->mask,
                                                  .is_causal = how->is_causal, .dropout_p = how->dropout,
                                                  .layout = LK_ATTENTION_BATCH_FIRST, .heads = how->heads);
    lk_value *parts[3] = {query, key, value};
    if (!key && lk_op_chunk(parts, 3, query, 2) != LK_OK) return NULL;
    return attend_split(parts[0], parts[1], parts[2], how);
}

static lk_status attend_call(lk_module *module, lk_value *const *inputs, int count, lk_value **outputs,
                             int output_count)
{
    (void)count, (void)output_count;
    outputs[0] = lki_attend(inputs[0], inputs[1], inputs[2], module->context);
    return LK_OK;
}

lk_module *lk_attend_with(const lk_attend_options *given)
{
    LKI_TAKE(lk_attend_options, options, given, NULL);
    lki_attention own = {.heads = options.num_heads ? options.num_heads : 1,
                         .is_causal = options.is_causal,
                         .dropout = options.dropout};
    if (own.heads < 1)
        return lki_fail_null(LK_ERR_INVALID, "Attend: num_heads: expected at least 1, found %lld",
                             (long long)own.heads);
    if (!(own.dropout >= 0 && own.dropout <= 1))
        return lki_fail_null(LK_ERR_INVALID, "Attend: dropout: expected a probability, found %g",
                             own.dropout);
    return lki_module_of_several("Attend", attend_call, 3, &own, sizeof own);
}
