/* The public attention: the fused op, or simple ops if somebody wants the weights or a mask's gradient. */
#include "graph/ops_attention.h"

#include "base/take.h"
#include "graph/attention.h"
#include "graph/record_util.h"

#include <math.h>

enum { MASK = 3, KEY_MASK };

/* Scores that an engine without a fast joined attention keeps in memory: 8 GiB of f32. */
static const double MOST_SCORES = 2147483648.0;

/* Heads [first, first + count) of an operand as (B, G, count / G, length, D). */
static lk_value *grouped(const lk_attention_attr *attr, lk_value *x, int64_t first, int64_t count,
                         int64_t groups)
{
    static const int to_heads_first[3][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {1, 2, 0, 3}};
    static const int axis_of_heads[3] = {1, 2, 2};
    if (!x) return NULL;
    int axis = axis_of_heads[attr->layout];
    if (count != x->shape.dim[axis]) x = lk_op_slice(x, axis, first, first + count, 1);
    if (attr->layout != LK_ATTENTION_HEADS_FIRST) x = lk_op_permute(x, to_heads_first[attr->layout]);
    if (!x) return NULL;
    return lki_reshaped(x,
                        LK_SHAPE(x->shape.dim[0], groups, count / groups, x->shape.dim[2], x->shape.dim[3]));
}

static lk_value *ungrouped(const lk_attention_attr *attr, lk_value *y)
{
    static const int from_heads_first[3][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {2, 0, 1, 3}};
    if (!y) return NULL;
    lk_shape s = y->shape;
    y = lki_reshaped(y, LK_SHAPE(s.dim[0], attr->heads, s.dim[3], s.dim[4]));
    return attr->layout == LK_ATTENTION_HEADS_FIRST ? y : lk_op_permute(y, from_heads_first[attr->layout]);
}

/* scores + mask, where a mask of bool stands for 0 and minus infinity. `mask` broadcasts to the scores. */
static lk_value *masked(const lk_attention_attr *attr, lk_value *scores, lk_value *mask)
{
    if (!scores || !mask) return NULL;
    if (mask->dtype != LK_BOOL) {
        if (mask->dtype != scores->dtype) mask = lk_op_cast(mask, scores->dtype);
        return lk_op_add(scores, mask);
    }
    lk_value *gone = lki_scalar_like(scores, -INFINITY), *zero = lki_scalar_like(scores, 0);
    return lk_op_add(scores,
                     attr->mask_forbids ? lk_op_where(mask, gone, zero) : lk_op_where(mask, zero, gone));
}

static lk_value *count_up(lk_graph *graph, int64_t count, lk_shape shape)
{
    return lk_op_reshape(lk_op_arange(graph, 0, (double)count, 1, LK_I64), shape);
}

static lk_value *causal(lk_value *scores)
{
    if (!scores) return NULL;
    int64_t rows = scores->shape.dim[3], columns = scores->shape.dim[4];
    lk_value *sees = lk_op_greater_equal(count_up(scores->graph, rows, LK_SHAPE(rows, 1)),
                                         count_up(scores->graph, columns, LK_SHAPE(1, columns)));
    return lk_op_where(sees, scores, lki_scalar_like(scores, -INFINITY));
}

/* The scores (B, G, H / G, L, S) with all masks. */
static lk_value *add_masks(const lk_attention_attr *attr, lk_value *scores, lk_value *const in[5])
{
    int64_t groups = attr->kv_heads;
    if (!scores) return NULL;
    if (in[MASK]) {
        lk_shape s = in[MASK]->shape;
        bool per_head = s.dim[1] > 1;
        lk_shape wide = LK_SHAPE(s.dim[0], per_head ? groups : 1, per_head ? attr->heads / groups : 1,
                                 s.dim[2], s.dim[3]);
        scores = masked(attr, scores, lki_reshaped(in[MASK], wide));
    }
    if (in[KEY_MASK]) {
        lk_shape s = in[KEY_MASK]->shape;
        scores = masked(attr, scores, lki_reshaped(in[KEY_MASK], LK_SHAPE(s.dim[0], 1, 1, 1, s.dim[1])));
    }
    return attr->is_causal ? causal(scores) : scores;
}

lk_value *lki_composed_attention(const lk_attention_attr *attr, lk_value *const in[5], lk_value **weights)
{
    int64_t heads = attr->heads, groups = attr->kv_heads;
    lk_value *k_from = in[1] ? in[1] : in[0], *v_from = in[2] ? in[2] : k_from;
    int64_t k_first = in[1] ? 0 : heads, v_first = in[2] ? 0 : k_first + groups;
    lk_value *q = grouped(attr, in[0], 0, heads, groups);
    lk_value *k = grouped(attr, k_from, k_first, groups, groups);
    lk_value *v = grouped(attr, v_from, v_first, groups, groups);
    lk_value *scores = lk_op_matmul(lki_scaled(q, attr->scale), lk_op_transpose(k, 3, 4));
    lk_value *shares = lk_op_softmax(add_masks(attr, scores, in), -1);
    if (attr->p > 0) shares = lk_op_dropout(shares, attr->p);
    if (weights && shares) {
        lk_shape s = shares->shape;
        *weights = lki_reshaped(shares, LK_SHAPE(s.dim[0], heads, s.dim[3], s.dim[4]));
    }
    return ungrouped(attr, lk_op_matmul(shares, v));
}

/* An operand of three dimensions as one of four: with `heads`, its last one holds them all; else there is one
 * head. NULL stays NULL. */
static lk_value *four_dimensional(const lk_attention_options *o, lk_value *x, int64_t heads)
{
    if (!x || x->shape.rank != 3) return x;
    lk_shape s = x->shape;
    if (!o->heads) return lki_reshaped(x, LK_SHAPE(s.dim[0], 1, s.dim[1], s.dim[2]));
    if (s.dim[2] % heads)
        return lki_graph_fail(x->graph, LK_ERR_SHAPE, "attention: %s does not hold %lld heads", LKI_SHOW(s),
                              (long long)heads);
    return lki_reshaped(x, LK_SHAPE(s.dim[0], s.dim[1], heads, s.dim[2] / heads));
}

/* With leading dimensions of 1, and one column per key. */
static lk_value *wide_mask(lk_value *mask, int64_t keys)
{
    if (!mask) return NULL;
    lk_shape wide = {.rank = 4, .dim = {1, 1, 1, 1}};
    if (mask->shape.rank > 4)
        return lki_graph_fail(mask->graph, LK_ERR_SHAPE, "attention: mask %s has more than 4 dimensions",
                              LKI_SHOW(mask->shape));
    for (int i = 0; i < mask->shape.rank; i++) wide.dim[4 - mask->shape.rank + i] = mask->shape.dim[i];
    mask = lki_reshaped(mask, wide);
    if (wide.dim[3] != 1 || keys == 1) return mask;
    wide.dim[3] = keys;
    return lk_op_expand(mask, wide);
}

/* The number of heads that an operand shows; 0 if it shows none. */
static int64_t shown_heads(const lk_attention_options *o, const lk_value *x)
{
    return x->shape.rank == 4 ? lki_attention_dim(o->layout, x->shape, 'H') : x->shape.rank == 3;
}

static lk_attention_attr attributes(const lk_attention_options *o, lk_value *const in[5])
{
    lk_attention_attr attr = {.layout = o->layout,
                              .heads = o->heads,
                              .kv_heads = o->kv_heads,
                              .scale = o->scale,
                              .is_causal = o->is_causal,
                              .mask_forbids = o->mask_forbids};
    int64_t shown = shown_heads(o, in[0]);
    if (!attr.heads) attr.heads = in[1] ? shown : shown / 3;
    if (!attr.kv_heads && in[1] && in[1]->shape.rank == 4)
        attr.kv_heads = shown_heads(o, in[1]) / (in[2] ? 1 : 2);
    if (!attr.kv_heads) attr.kv_heads = attr.heads;
    return attr;
}

bool lki_joins_attention(const lk_graph *graph, double score_count, bool is_written)
{
    switch (graph->attention) {
    case LKI_ATTENTION_JOINED: return true;
    case LKI_ATTENTION_SPLIT: return score_count > MOST_SCORES;
    default: return is_written;
    }
}

/* Whether simple ops are recorded. */
static bool composes(const lk_attention_options *o, const lk_attention_attr *attr, lk_value *const in[5])
{
    const lk_value *keys = in[1] ? in[1] : in[0];
    if (o->weights || (in[MASK] && in[MASK]->needs_grad) || (in[KEY_MASK] && in[KEY_MASK]->needs_grad))
        return true;
    if (in[0]->shape.rank != 4 || keys->shape.rank != 4) return false; /* refused as one op */
    double rows = (double)lki_attention_dim(attr->layout, in[0]->shape, 'B') * (double)attr->heads *
                  (double)lki_attention_dim(attr->layout, in[0]->shape, 'L');
    return !lki_joins_attention(in[0]->graph,
                                rows * (double)lki_attention_dim(attr->layout, keys->shape, 'L'), true);
}

lk_value *lk_op_scaled_dot_product_attention_with(lk_value *query, lk_value *key, lk_value *value,
                                                  const lk_attention_options *given)
{
    LKI_TAKE(lk_attention_options, options, given, NULL);
    if (!query) return NULL;
    lk_graph *graph = query->graph;
    double p = options.dropout_p;
    if (!(p >= 0 && p <= 1))
        return lki_graph_fail(graph, LK_ERR_INVALID, "attention: dropout_p: expected a probability, found %g",
                              p);
    if (options.layout < LK_ATTENTION_HEADS_FIRST || options.layout > LK_ATTENTION_SEQUENCE_FIRST)
        return lki_graph_fail(graph, LK_ERR_INVALID, "attention: there is no layout %d", (int)options.layout);
    lk_shape from = query->shape;
    bool joins = from.rank == 3 && options.heads;
    if (joins && options.layout == LK_ATTENTION_HEADS_FIRST)
        return lki_graph_fail(graph, LK_ERR_INVALID,
                              "attention: the heads of a query %s come last: give a layout", LKI_SHOW(from));
    int64_t heads = options.heads, kv = options.kv_heads ? options.kv_heads : heads;
    if (heads < 0 || kv < 0)
        return lki_graph_fail(graph, LK_ERR_INVALID, "attention: expected a positive number of heads");
    if (from.rank == 3 && !heads) options.layout = LK_ATTENTION_HEADS_FIRST;
    lk_value *in[5] = {four_dimensional(&options, query, heads + (key ? 0 : 2 * kv)),
                       four_dimensional(&options, key, value ? kv : 2 * kv),
                       four_dimensional(&options, value, kv)};
    if (!in[0] || (key && !in[1]) || (value && !in[2])) return NULL;
    lk_attention_attr attr = attributes(&options, in);
    lk_shape keys = in[1] ? in[1]->shape : in[0]->shape;
    if (keys.rank == 4) in[MASK] = wide_mask(options.attn_mask, lki_attention_dim(attr.layout, keys, 'L'));
    in[KEY_MASK] = options.key_padding_mask;
    if (graph->status) return NULL;
    if (!attr.scale)
        attr.scale = in[0]->shape.dim[in[0]->shape.rank - 1] > 0
                         ? 1 / sqrt((double)in[0]->shape.dim[in[0]->shape.rank - 1])
                         : 1;
    if (graph->training && p < 1) attr.p = p;
    bool is_split = composes(&options, &attr, in);
    /* If simple ops follow, this one has checked the operands and is dropped. */
    lk_value *mask = is_split ? lk_op_detach(in[MASK]) : in[MASK];
    lk_value *key_mask = is_split ? lk_op_detach(in[KEY_MASK]) : in[KEY_MASK];
    lk_value *y = LKI_EMIT(LK_OP_ATTENTION, LKI_ATTR(.attention = attr), in[0], in[1], in[2], mask, key_mask);
    if (is_split && y) y = lki_composed_attention(&attr, in, options.weights);
    if (graph->training && p == 1) y = lki_scaled(y, 0);
    if (!y || from.rank != 3) return y;
    lk_shape s = y->shape;
    return joins ? lki_reshaped(y, LK_SHAPE(s.dim[0], s.dim[1], s.dim[2] * s.dim[3]))
                 : lki_reshaped(y, LK_SHAPE(s.dim[0], s.dim[2], s.dim[3]));
}
