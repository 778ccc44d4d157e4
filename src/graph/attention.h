/* Where the heads of an attention lie in its operands (see LK_OP_LIST), for the rules and for all engines (C
 * and CUDA C++).
 *
 * Element j of row i of head h of sample b lies at base + b * batch + h * head + i * row + j. Offsets and
 * strides count elements. */
#ifndef LKI_GRAPH_ATTENTION_H
#define LKI_GRAPH_ATTENTION_H

#include <lockstep/sys/engine.h>

typedef struct lki_heads {
    int64_t base, batch, head, row;
} lki_heads;

typedef struct lki_attention {
    int64_t batch, heads, kv_heads, queries, keys, width, value_width; /* B, H, G, L, S, D, E */
    int q_in, k_in, v_in;                                              /* which operand, counted from q's */
    lki_heads q, k, v, y;
    int64_t mask_batch, mask_head, mask_row; /* strides of the mask; its columns are neighbours */
} lki_attention;

/* One of batch, heads, length and width of a rank-4 operand. */
static inline int64_t lki_attention_dim(lk_attention_layout layout, lk_shape shape, char which)
{
    if (which == 'D') return shape.dim[3];
    if (layout == LK_ATTENTION_HEADS_FIRST) return shape.dim[which == 'B' ? 0 : which == 'H' ? 1 : 2];
    if (layout == LK_ATTENTION_BATCH_FIRST) return shape.dim[which == 'B' ? 0 : which == 'H' ? 2 : 1];
    return shape.dim[which == 'B' ? 1 : which == 'H' ? 2 : 0];
}

static inline lk_shape lki_attention_shape(lk_attention_layout layout, int64_t batch, int64_t heads,
                                           int64_t length, int64_t width)
{
    lk_shape shape = {4, {batch, heads, length, width}};
    if (layout == LK_ATTENTION_BATCH_FIRST) shape.dim[1] = length, shape.dim[2] = heads;
    if (layout == LK_ATTENTION_SEQUENCE_FIRST)
        shape.dim[0] = length, shape.dim[1] = batch, shape.dim[2] = heads;
    return shape;
}

/* The heads from `first` on of an operand that has `heads` of them. */
static inline lki_heads lki_attention_heads(lk_attention_layout layout, int64_t batch, int64_t heads,
                                            int64_t length, int64_t width, int64_t first)
{
    lki_heads h = {0, heads * length * width, length * width, width};
    if (layout != LK_ATTENTION_HEADS_FIRST) h.head = width, h.row = heads * width;
    if (layout == LK_ATTENTION_SEQUENCE_FIRST) h.batch = heads * width, h.row = batch * heads * width;
    h.base = first * h.head;
    return h;
}

/* Of operands q, k, v, mask and key_mask; an absent one is NULL. */
static inline lki_attention lki_attention_of(const lk_attention_attr *attr, const lk_shape *const in[5])
{
    lki_attention a;
    lk_attention_layout layout = attr->layout;
    const lk_shape *k = in[1] ? in[1] : in[0], *v = in[2] ? in[2] : k;
    int64_t q_heads = attr->heads + (in[1] ? 0 : 2 * attr->kv_heads);
    int64_t k_heads = in[2] ? attr->kv_heads : in[1] ? 2 * attr->kv_heads : q_heads;
    int64_t v_heads = in[2] ? attr->kv_heads : k_heads;
    a.batch = lki_attention_dim(layout, *in[0], 'B'), a.heads = attr->heads, a.kv_heads = attr->kv_heads;
    a.queries = lki_attention_dim(layout, *in[0], 'L'), a.keys = lki_attention_dim(layout, *k, 'L');
    a.width = in[0]->dim[3], a.value_width = v->dim[3];
    a.q_in = 0, a.k_in = in[1] ? 1 : 0, a.v_in = in[2] ? 2 : a.k_in;
    a.q = lki_attention_heads(layout, a.batch, q_heads, a.queries, a.width, 0);
    a.k = lki_attention_heads(layout, a.batch, k_heads, a.keys, a.width, in[1] ? 0 : attr->heads);
    a.v = lki_attention_heads(layout, a.batch, v_heads, a.keys, a.value_width,
                              in[2]   ? 0
                              : in[1] ? attr->kv_heads
                                      : attr->heads + attr->kv_heads);
    a.y = lki_attention_heads(layout, a.batch, a.heads, a.queries, a.value_width, 0);
    a.mask_batch = a.mask_head = a.mask_row = 0;
    if (in[3]) {
        int64_t row = in[3]->dim[3], head = row * in[3]->dim[2];
        a.mask_row = in[3]->dim[2] > 1 ? row : 0, a.mask_head = in[3]->dim[1] > 1 ? head : 0;
        a.mask_batch = in[3]->dim[0] > 1 ? head * in[3]->dim[1] : 0;
    }
    return a;
}

/* Of a call of attention, or of its gradient, whose operands follow dy and y. An absent operand of a call
 * that is being prepared has rank 0. */
static inline lki_attention lki_attention_of_call(const lk_call *call)
{
    int first = call->op == LK_OP_ATTENTION ? 0 : 2;
    const lk_shape *in[5];
    for (int i = 0; i < 5; i++) {
        bool is_there = first + i < call->input_count && call->in[first + i].shape.rank > 0;
        in[i] = is_there ? &call->in[first + i].shape : 0;
    }
    return lki_attention_of(&call->attr->attention, in);
}

/* How many keys query i sees. */
static inline int64_t lki_attention_reach(const lki_attention *a, bool is_causal, int64_t i)
{
    return is_causal && i + 1 < a->keys ? i + 1 : a->keys;
}

static inline bool lki_attention_drops(const lk_attention_attr *attr)
{
    return attr->p > 0 && attr->p < 1;
}

#endif
