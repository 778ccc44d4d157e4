/* Attention. */
#include "graph/rules.h"

#include "base/status.h"
#include "graph/attention.h"
#include "graph/autodiff.h"
#include "graph/ops_attention.h"
#include "graph/record_util.h"

enum { MASK = 3, KEY_MASK };

/* The operands q, k, v, mask and key_mask begin at input `first`. */
static lki_attention measure(const lki_node *node, int first)
{
    const lk_shape *in[5];
    for (int i = 0; i < 5; i++) in[i] = lki_has_input(node, first + i) ? &node->in[first + i]->shape : NULL;
    return lki_attention_of(&node->attr.attention, in);
}

static lk_status check_attributes(lk_attention_attr *attr)
{
    if (attr->layout < LK_ATTENTION_HEADS_FIRST || attr->layout > LK_ATTENTION_SEQUENCE_FIRST)
        return lki_fail(LK_ERR_INVALID, "attention: there is no layout %d", (int)attr->layout);
    if (attr->heads < 1 || attr->kv_heads < 1 || attr->heads % attr->kv_heads)
        return lki_fail(LK_ERR_INVALID,
                        "attention: %lld heads are not a multiple of %lld key and value heads",
                        (long long)attr->heads, (long long)attr->kv_heads);
    if (!(attr->p >= 0 && attr->p < 1))
        return lki_fail(LK_ERR_INVALID, "attention: dropout: expected a probability below 1, found %g",
                        attr->p);
    return LK_OK;
}

static lk_status check_rank(const lki_node *node, int index, const char *what)
{
    if (!lki_has_input(node, index)) return LK_OK;
    LKI_TRY(lki_expect_float(node, index));
    LKI_TRY(lki_expect_same_dtype(node, 0, index));
    if (node->in[index]->shape.rank == 4) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "attention: %s %s: expected 4 dimensions", what,
                    LKI_SHOW(node->in[index]->shape));
}

static lk_status check_mask_dtype(const lki_node *node, int index, const char *what)
{
    lk_dtype dtype = node->in[index]->dtype;
    if (dtype == LK_BOOL || dtype == LK_F32 || dtype == node->in[0]->dtype) return LK_OK;
    return lki_fail(LK_ERR_DTYPE, "attention: %s of %s: expected bool, f32 or %s", what, lk_dtype_name(dtype),
                    lk_dtype_name(node->in[0]->dtype));
}

static lk_status check_masks(const lki_node *node, const lki_attention *a)
{
    if (lki_has_input(node, MASK)) {
        lk_shape mask = node->in[MASK]->shape;
        LKI_TRY(check_mask_dtype(node, MASK, "mask"));
        LKI_TRY(lki_expect_no_grad(node, MASK, "mask"));
        int64_t wide[4] = {a->batch, a->heads, a->queries, a->keys};
        bool fits = mask.rank == 4 && mask.dim[3] == a->keys;
        for (int i = 0; fits && i < 3; i++) fits = mask.dim[i] == 1 || mask.dim[i] == wide[i];
        if (!fits)
            return lki_fail(LK_ERR_SHAPE, "attention: mask %s does not fit scores %s", LKI_SHOW(mask),
                            LKI_SHOW(LK_SHAPE(a->batch, a->heads, a->queries, a->keys)));
    }
    if (!lki_has_input(node, KEY_MASK)) return LK_OK;
    LKI_TRY(check_mask_dtype(node, KEY_MASK, "key mask"));
    LKI_TRY(lki_expect_no_grad(node, KEY_MASK, "key mask"));
    if (lk_shape_equal(node->in[KEY_MASK]->shape, LK_SHAPE(a->batch, a->keys))) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "attention: key mask %s: expected one per key of each sample, %s",
                    LKI_SHOW(node->in[KEY_MASK]->shape), LKI_SHOW(LK_SHAPE(a->batch, a->keys)));
}

/* Operand `index` holds what its layout says: `heads` heads of `length` rows. */
static lk_status check_operand(const lki_node *node, int index, const char *what, int64_t batch,
                               int64_t heads, int64_t length, int64_t width)
{
    if (!lki_has_input(node, index)) return LK_OK;
    lk_shape wanted = lki_attention_shape(node->attr.attention.layout, batch, heads, length, width);
    if (lk_shape_equal(node->in[index]->shape, wanted)) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "attention: %s %s does not fit: expected %s", what,
                    LKI_SHOW(node->in[index]->shape), LKI_SHOW(wanted));
}

/* (q, k?, v?, mask?, key_mask?) -> y, logarithms (B, H, L), draws */
lk_status lki_infer_attention(lki_node *node)
{
    lk_attention_attr *attr = &node->attr.attention;
    LKI_TRY(check_attributes(attr));
    LKI_TRY(check_rank(node, 0, "query"));
    LKI_TRY(check_rank(node, 1, "key"));
    LKI_TRY(check_rank(node, 2, "value"));
    bool has_k = lki_has_input(node, 1), has_v = lki_has_input(node, 2);
    if (has_v && !has_k) return lki_fail(LK_ERR_INVALID, "attention: a value without a key");
    lki_attention a = measure(node, 0);
    int64_t kv = attr->kv_heads, q_heads = a.heads + (has_k ? 0 : 2 * kv);
    LKI_TRY(check_operand(node, 0, "query", a.batch, q_heads, a.queries, a.width));
    LKI_TRY(check_operand(node, 1, "key", a.batch, has_v ? kv : 2 * kv, a.keys, a.width));
    LKI_TRY(check_operand(node, 2, "value", a.batch, kv, a.keys, a.value_width));
    LKI_TRY(check_masks(node, &a));
    lk_dtype dtype = node->in[0]->dtype, wide = dtype == LK_F64 ? LK_F64 : LK_F32;
    int64_t blocks = (a.queries + LK_ATTENTION_ROWS - 1) / LK_ATTENTION_ROWS;
    lk_shape draws = LK_SHAPE(a.batch, a.heads, blocks, (int64_t)sizeof(lk_generator));
    lki_set_output(node, 0, dtype,
                   lki_attention_shape(attr->layout, a.batch, a.heads, a.queries, a.value_width));
    lki_set_output(node, 1, wide, LK_SHAPE(a.batch, a.heads, a.queries));
    lki_set_output(node, 2, LK_U8, lki_attention_drops(attr) ? draws : LK_SHAPE(0));
    return LK_OK;
}

/* (dy, y, q, k?, v?, mask?, key_mask?, logarithms, draws) -> dq, dk, dv */
lk_status lki_infer_attention_grad(lki_node *node)
{
    for (int i = 0; i < 3; i++) {
        bool is_there = lki_has_input(node, 2 + i);
        lki_set_output(node, i, node->in[0]->dtype, is_there ? node->in[2 + i]->shape : LK_SHAPE(0));
    }
    return LK_OK;
}

lk_status lki_backward_attention(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *in[5];
    for (int i = 0; i < 5; i++) in[i] = lki_has_input(node, i) ? node->in[i] : NULL;
    lk_value *dq = LKI_EMIT(LK_OP_ATTENTION_GRAD, &node->attr, grad_out[0], node->out[0], in[0], in[1], in[2],
                            in[3], in[4], node->out[1], node->out[2]);
    for (int i = 0; i < 3; i++)
        if (in[i] && in[i]->needs_grad) grad_in[i] = lki_output_of(dq, i);
    return lki_recorded(node);
}

/* Recorded once more from simple ops, which keep the scores in memory. */
lk_status lki_backward_attention_grad(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *in[5], *first[3] = {0}, *second[4] = {0};
    if (lki_attention_drops(&node->attr.attention))
        return lki_fail(LK_ERR_UNSUPPORTED, "attention: with dropout it has no second gradient: set dropout "
                                            "to 0, or use lk_op_matmul, lk_op_softmax and lk_op_dropout");
    for (int i = 0; i < 5; i++) in[i] = lki_has_input(node, 2 + i) ? node->in[2 + i] : NULL;
    lk_value *dy = node->in[0], *y = lki_composed_attention(&node->attr.attention, in, NULL);
    if (!y) return lki_recorded(node);
    LKI_TRY(lki_differentiate(dy->graph, &y, &dy, 1, in, 3, first));
    lk_value *grads[3];
    for (int i = 0; i < 3; i++) grads[i] = first[i] ? grad_out[i] : NULL;
    LKI_TRY(
        lki_differentiate(dy->graph, first, grads, 3, (lk_value *[]){dy, in[0], in[1], in[2]}, 4, second));
    grad_in[0] = second[0];
    for (int i = 0; i < 3; i++) grad_in[2 + i] = second[1 + i];
    return lki_recorded(node);
}
