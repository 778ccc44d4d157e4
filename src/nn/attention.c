/* Multi-head attention, with PyTorch's parameters and its order of operations:
 *
 *     softmax(q k^T / sqrt(d) + masks) v     for each head, then out_proj
 *
 * Inside, everything is (batch N, heads H, sequence, d). */
#include "nn/init.h"
#include "nn/nodes.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/ops_attention.h"

#include <math.h>

typedef struct attention_context {
    int64_t embed_dim, heads, kdim, vdim;
    double dropout;
    bool batch_first, is_causal;
    bool packed; /* one in_proj_weight (3E, E); else q_, k_ and v_proj_weight */
} attention_context;

static lk_module *out_projection(const lk_module *module)
{
    return module->children[0].module;
}

/* Rows [part * E, (part + 1) * E) of in_proj_weight or in_proj_bias. */
static lk_value *packed_part(const lk_module *module, lk_value *x, const char *name, int64_t part)
{
    const attention_context *own = module->context;
    lk_value *whole = lki_module_value(module, x, name);
    return whole ? lk_op_slice(whole, 0, part * own->embed_dim, (part + 1) * own->embed_dim, 1) : NULL;
}

/* One of query, key and value: x (N, S, dim) -> (N, S, E). */
static lk_value *project(const lk_module *module, lk_value *x, int part)
{
    static const char *const separate[3] = {"q_proj_weight", "k_proj_weight", "v_proj_weight"};
    const attention_context *own = module->context;
    if (!x) return NULL;
    lk_value *weight = own->packed ? packed_part(module, x, "in_proj_weight", part)
                                   : lki_module_value(module, x, separate[part]);
    return lk_op_linear(x, weight, packed_part(module, x, "in_proj_bias", part));
}

/* The same with its heads: (N, H, S, d). */
static lk_value *project_heads(const lk_module *module, lk_value *x, int part)
{
    const attention_context *own = module->context;
    lk_value *projected = project(module, x, part);
    if (!projected) return NULL;
    lk_shape shape = lk_value_shape(x);
    lk_value *split = lk_op_reshape(
        projected, LK_SHAPE(shape.dim[0], shape.dim[1], own->heads, own->embed_dim / own->heads));
    return lk_op_transpose(split, 1, 2);
}

/* Query, key and value of the same x in one product: x (N, S, E) -> three of (N, H, S, d). */
static void project_together(const lk_module *module, lk_value *x, lk_value *parts[3])
{
    const attention_context *own = module->context;
    lk_shape shape = lk_value_shape(x);
    int64_t d = own->embed_dim / own->heads;
    lk_value *all = lk_op_linear(x, lki_module_value(module, x, "in_proj_weight"),
                                 lki_module_value(module, x, "in_proj_bias"));
    all = lk_op_reshape(all, LK_SHAPE(shape.dim[0], shape.dim[1], 3, own->heads, d));
    all = lk_op_permute(all, (const int[]){2, 0, 3, 1, 4});
    for (int i = 0; i < 3; i++)
        parts[i] = lk_op_reshape(lk_op_slice(all, 0, i, i + 1, 1),
                                 LK_SHAPE(shape.dim[0], own->heads, shape.dim[1], d));
}

/* A mask as floats of the scores' dtype that are added to them: a true becomes minus infinity. */
static lk_value *additive(lk_value *mask, lk_dtype dtype)
{
    if (!mask || lk_value_dtype(mask) != LK_BOOL) return mask;
    lk_graph *graph = lk_value_graph(mask);
    lk_tensor *numbers[2] = {lk_tensor_full(dtype, LK_SHAPE(1), -INFINITY),
                             lk_tensor_full(dtype, LK_SHAPE(1), 0)};
    lk_value *result = NULL;
    if (numbers[0] && numbers[1])
        result =
            lk_op_where(mask, lk_graph_constant(graph, numbers[0]), lk_graph_constant(graph, numbers[1]));
    else
        lki_graph_fail(graph, LK_ERR_NOMEM, "%s", lk_error());
    lk_tensor_free(numbers[0]);
    lk_tensor_free(numbers[1]);
    return result;
}

/* A mask must have one of two shapes; `b` of rank 0 stands for none. */
static lk_value *checked_mask(lk_value *mask, const char *name, lk_shape a, lk_shape b)
{
    char expected[128], or_else[128], found[128];
    lk_shape shape = lk_value_shape(mask);
    if (lk_shape_equal(shape, a) || (b.rank && lk_shape_equal(shape, b))) return mask;
    return lki_graph_fail(lk_value_graph(mask), LK_ERR_SHAPE, "%s: expected %s%s%s, found %s", name,
                          lk_shape_format(expected, sizeof expected, a), b.rank ? " or " : "",
                          b.rank ? lk_shape_format(or_else, sizeof or_else, b) : "",
                          lk_shape_format(found, sizeof found, shape));
}

/* scores (N, H, L, S) with the masks added. */
static lk_value *add_masks(const attention_context *own, lk_value *scores,
                           const lk_multihead_attention_forward_options *options)
{
    if (!scores) return NULL;
    lk_shape shape = lk_value_shape(scores);
    int64_t n = shape.dim[0], heads = shape.dim[1], rows = shape.dim[2], columns = shape.dim[3];
    if (options->attn_mask) {
        lk_value *mask = checked_mask(options->attn_mask, "attn_mask", LK_SHAPE(rows, columns),
                                      LK_SHAPE(n * heads, rows, columns));
        if (!mask) return NULL;
        lk_shape wide = lk_value_shape(mask).rank == 3 ? shape : LK_SHAPE(1, 1, rows, columns);
        scores = lk_op_add(scores, lk_op_reshape(additive(mask, lk_value_dtype(scores)), wide));
    }
    if (own->is_causal || options->is_causal) scores = lki_add_causal_mask(scores);
    if (options->key_padding_mask) {
        lk_value *mask = checked_mask(options->key_padding_mask, "key_padding_mask", LK_SHAPE(n, columns),
                                      (lk_shape){.rank = 0});
        mask = additive(mask, lk_value_dtype(scores));
        scores = lk_op_add(scores, lk_op_reshape(mask, LK_SHAPE(n, 1, 1, columns)));
    }
    return scores;
}

/* parts of (N, H, L or S, d) -> (N, L, E), projected. */
static lk_value *attend(lk_module *module, lk_value *const parts[3],
                        const lk_multihead_attention_forward_options *options)
{
    const attention_context *own = module->context;
    lk_value *query = lk_op_mul_scalar(parts[0], 1 / sqrt((double)(own->embed_dim / own->heads)));
    lk_value *scores = add_masks(own, lk_op_matmul(query, lk_op_transpose(parts[1], 2, 3)), options);
    lk_value *weights = lk_op_softmax(scores, -1);
    if (own->dropout > 0) weights = lk_op_dropout(weights, own->dropout);
    if (options->weights) *options->weights = lk_op_mean(weights, LK_AXES(1), false);
    lk_value *mixed = lk_op_transpose(lk_op_matmul(weights, parts[2]), 1, 2);
    if (!mixed) return NULL;
    lk_shape shape = lk_value_shape(mixed); /* (N, L, H, d) */
    mixed = lk_op_reshape(mixed, LK_SHAPE(shape.dim[0], shape.dim[1], own->embed_dim));
    return lk_module_forward(out_projection(module), mixed);
}

/* (S, N, E) -> (N, S, E) unless the module's inputs come so; checks what the projections cannot say clearly.
 */
static lk_value *to_batch_first(const attention_context *own, lk_value *x, const char *what, int64_t dim)
{
    if (!x) return NULL;
    lk_shape shape = lk_value_shape(x);
    if (shape.rank != 3 || shape.dim[2] != dim) {
        char text[128];
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "%s: expected 3 dimensions, the last of %lld, found %s", what, (long long)dim,
                              lk_shape_format(text, sizeof text, shape));
    }
    return own->batch_first ? x : lk_op_transpose(x, 0, 1);
}

/* Whether this is recorded as one op. Inputs that do not fit are left to who refuses them. */
static bool joins(const attention_context *own, const lk_value *query, const lk_value *key,
                  const lk_multihead_attention_forward_options *options)
{
    lk_shape q = lk_value_shape(query), k = lk_value_shape(key);
    if (options->weights || q.rank != 3 || k.rank != 3 || q.dim[2] != own->embed_dim || k.dim[2] != own->kdim)
        return false;
    int length = own->batch_first ? 1 : 0;
    double scores =
        (double)q.dim[1 - length] * (double)own->heads * (double)q.dim[length] * (double)k.dim[length];
    return lki_joins_attention(lk_value_graph(query), scores, false);
}

/* The mask of one op: (L, S), or (N H, L, S) as (N, H, L, S). */
static lk_value *joined_mask(const attention_context *own, lk_value *mask)
{
    if (!mask || lk_value_shape(mask).rank != 3) return mask;
    lk_shape shape = lk_value_shape(mask);
    return lk_op_reshape(mask, LK_SHAPE(shape.dim[0] / own->heads, own->heads, shape.dim[1], shape.dim[2]));
}

static bool masks_fit(const attention_context *own, const lk_value *query, const lk_value *key,
                      const lk_multihead_attention_forward_options *options)
{
    int length = own->batch_first ? 1 : 0;
    int64_t n = lk_value_shape(query).dim[1 - length], rows = lk_value_shape(query).dim[length],
            columns = lk_value_shape(key).dim[length];
    lk_value *mask = options->attn_mask, *key_mask = options->key_padding_mask;
    return (!mask || checked_mask(mask, "attn_mask", LK_SHAPE(rows, columns),
                                  LK_SHAPE(n * own->heads, rows, columns))) &&
           (!key_mask ||
            checked_mask(key_mask, "key_padding_mask", LK_SHAPE(n, columns), (lk_shape){.rank = 0}));
}

/* Query, key and value as they come from their layers: nothing is turned or copied. */
static lk_value *attend_joined(lk_module *module, lk_value *query, lk_value *key, lk_value *value,
                               const lk_multihead_attention_forward_options *options)
{
    const attention_context *own = module->context;
    lk_value *parts[3] = {NULL};
    if (!masks_fit(own, query, key, options)) return NULL;
    if (query == key && key == value && own->packed) {
        parts[0] = lk_op_linear(query, lki_module_value(module, query, "in_proj_weight"),
                                lki_module_value(module, query, "in_proj_bias"));
    } else {
        lk_value *const inputs[3] = {query, key, value};
        for (int i = 0; i < 3; i++)
            if (!(parts[i] = project(module, inputs[i], i))) return NULL;
    }
    lk_value *mixed = lk_op_scaled_dot_product_attention(
        parts[0], parts[1], parts[2], .attn_mask = joined_mask(own, options->attn_mask),
        .key_padding_mask = options->key_padding_mask, .mask_forbids = true,
        .is_causal = own->is_causal || options->is_causal, .dropout_p = own->dropout, .heads = own->heads,
        .layout = own->batch_first ? LK_ATTENTION_BATCH_FIRST : LK_ATTENTION_SEQUENCE_FIRST);
    return mixed ? lk_module_forward(out_projection(module), mixed) : NULL;
}

/* Inside the module's scope. */
static lk_value *attention_body(lk_module *module, lk_value *query, lk_value *key, lk_value *value,
                                const lk_multihead_attention_forward_options *options)
{
    const attention_context *own = module->context;
    if (joins(own, query, key, options)) return attend_joined(module, query, key, value, options);
    lk_value *parts[3] = {NULL}, *q = to_batch_first(own, query, "query", own->embed_dim);
    if (!q) return NULL;
    if (query == key && key == value && own->packed) {
        project_together(module, q, parts);
    } else {
        parts[0] = project_heads(module, q, 0);
        parts[1] = project_heads(module, to_batch_first(own, key, "key", own->kdim), 1);
        parts[2] = project_heads(module, to_batch_first(own, value, "value", own->vdim), 2);
    }
    lk_value *output = attend(module, parts, options);
    return own->batch_first ? output : lk_op_transpose(output, 0, 1);
}

lk_value *lk_multihead_attention_forward_with(lk_module *module, lk_value *query, lk_value *key,
                                              lk_value *value,
                                              const lk_multihead_attention_forward_options *given)
{
    LKI_TAKE(lk_multihead_attention_forward_options, options, given, NULL);
    if (!query || !key || !value) return NULL;
    lk_graph *graph = lk_value_graph(query);
    if (!module) return lki_graph_fail(graph, LK_ERR_INVALID, "the module is NULL: %s", lk_error());
    lki_module_enter(module, graph);
    return lki_module_leave(module, graph, attention_body(module, query, key, value, &options));
}

/* query, key, value, key_padding_mask, attn_mask: PyTorch's order. */
static lk_status attention_call(lk_module *module, lk_value *const *inputs, int count, lk_value **outputs,
                                int output_count)
{
    const attention_context *own = module->context;
    lk_multihead_attention_forward_options masks = {LK_SIZE(lk_multihead_attention_forward_options),
                                                    .key_padding_mask = count > 3 ? inputs[3] : NULL,
                                                    .attn_mask = count > 4 ? inputs[4] : NULL};
    lk_value *query = inputs[0], *key = count > 1 && inputs[1] ? inputs[1] : query,
             *value = count > 2 && inputs[2] ? inputs[2] : key;
    (void)output_count;
    if (key == query && value == query && !own->packed)
        lki_graph_fail(lk_value_graph(query), LK_ERR_INVALID,
                       "attention to itself needs kdim and vdim of embed_dim");
    else
        outputs[0] = attention_body(module, query, key, value, &masks);
    return lk_value_graph(query)->status;
}

void lki_attention_make_causal(lk_module *module)
{
    ((attention_context *)module->context)->is_causal = true;
}

static lk_status check_attention(const attention_context *own)
{
    if (own->embed_dim < 1 || own->heads < 1 || own->embed_dim % own->heads)
        return lki_fail(LK_ERR_INVALID, "MultiheadAttention: %lld heads do not divide embed_dim %lld",
                        (long long)own->heads, (long long)own->embed_dim);
    if (own->kdim < 1 || own->vdim < 1)
        return lki_fail(LK_ERR_INVALID, "MultiheadAttention: kdim and vdim must be positive");
    if (!(own->dropout >= 0 && own->dropout <= 1))
        return lki_fail(LK_ERR_INVALID, "MultiheadAttention: dropout: expected a probability, found %g",
                        own->dropout);
    return LK_OK;
}

static void add_projections(lk_module *module, const attention_context *own, lk_param *weights[3])
{
    if (own->packed) {
        weights[0] =
            lki_module_new_param(module, "in_proj_weight", LK_SHAPE(3 * own->embed_dim, own->embed_dim));
        return;
    }
    weights[0] = lki_module_new_param(module, "q_proj_weight", LK_SHAPE(own->embed_dim, own->embed_dim));
    weights[1] = lki_module_new_param(module, "k_proj_weight", LK_SHAPE(own->embed_dim, own->kdim));
    weights[2] = lki_module_new_param(module, "v_proj_weight", LK_SHAPE(own->embed_dim, own->vdim));
}

lk_module *lk_multihead_attention_with(int64_t embed_dim, int64_t heads,
                                       const lk_multihead_attention_options *given)
{
    LKI_TAKE(lk_multihead_attention_options, options, given, NULL);
    attention_context own = {.embed_dim = embed_dim,
                             .heads = heads,
                             .kdim = options.kdim ? options.kdim : embed_dim,
                             .vdim = options.vdim ? options.vdim : embed_dim,
                             .dropout = options.dropout,
                             .batch_first = options.batch_first,
                             .is_causal = options.is_causal};
    own.packed = own.kdim == embed_dim && own.vdim == embed_dim;
    if (check_attention(&own) != LK_OK) return NULL;
    lk_module *module =
        lki_module_of_named("MultiheadAttention", attention_call,
                            "query key value key_padding_mask attn_mask", 1, &own, sizeof own);
    if (!module) return NULL;
    lk_param *weights[3] = {NULL};
    add_projections(module, &own, weights);
    if (!options.no_bias) lki_module_new_param(module, "in_proj_bias", LK_SHAPE(3 * embed_dim));
    /* PyTorch draws out_proj first, as the Linear that it is, then the projections into it. */
    lk_module *out = lk_linear(embed_dim, embed_dim, .no_bias = options.no_bias);
    if (lk_module_add_child(module, "out_proj", out) != LK_OK || module->failed)
        return lki_module_checked(module);
    for (int i = 0; i < 3 && weights[i]; i++) lki_module_note(module, lk_init_xavier_uniform(weights[i], 1));
    if (!options.no_bias)
        lki_module_note(module, lk_init_constant(lki_module_param(module, "out_proj.bias"), 0));
    return lki_module_checked(module);
}
