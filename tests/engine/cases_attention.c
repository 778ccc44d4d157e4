/* Cases of attention: every layout and packing, masks of each kind, dropout, shared heads; lengths on both
 * sides of a block of queries and of a tile of keys, widths on both sides of a vector and of a panel. */
#include "case.h"

#include "graph/attention.h"

#include <math.h>

typedef enum mask { NO_MASK, BOOL_MASK, ADDED_MASK, FORBIDDING_MASK } mask;
typedef enum packing { SEPARATE, KEY_VALUE, ALL } packing;

typedef struct attention {
    int64_t batch, heads, kv_heads, queries, keys, width, value_width; /* value_width 0: width */
    lk_attention_layout layout;
    packing packing;
    mask mask, key_mask;
    bool is_causal, masks_a_row; /* one query sees no key */
    int mask_dims;               /* bits: the mask has a batch, heads, queries; or 1 instead */
    double p;
} attention;

static lkt_case *add(lkt_case_list *list, lk_op op, const attention *a)
{
    lkt_case *c = lkt_case_add(list, op, "B %lld H %lld/%lld L %lld S %lld D %lld %lld %d%d%d%d%d%d%d p %g",
                               (long long)a->batch, (long long)a->heads, (long long)a->kv_heads,
                               (long long)a->queries, (long long)a->keys, (long long)a->width,
                               (long long)a->value_width, (int)a->layout, (int)a->packing, (int)a->mask,
                               (int)a->key_mask, a->is_causal, a->masks_a_row, a->mask_dims, a->p);
    c->attr.attention =
        (lk_attention_attr){.layout = a->layout,
                            .heads = a->heads,
                            .kv_heads = a->kv_heads,
                            .scale = a->width ? 1 / sqrt((double)a->width) : 1,
                            .p = a->p,
                            .is_causal = a->is_causal,
                            .mask_forbids = a->mask == FORBIDDING_MASK || a->key_mask == FORBIDDING_MASK};
    c->tolerance = 3e-5;
    return c;
}

static lk_shape shape_of(const attention *a, int64_t heads, int64_t length, int64_t width)
{
    return lki_attention_shape(a->layout, a->batch, heads, length, width);
}

static void add_mask(lkt_case *c, mask kind, lk_shape shape, bool forbids)
{
    if (kind == NO_MASK) {
        lkt_in_absent(c);
        return;
    }
    lk_tensor *tensor =
        lkt_in(c, kind == ADDED_MASK ? LK_F32 : LK_BOOL, shape, kind == ADDED_MASK ? LKT_NORMAL : LKT_MASK);
    c->keeps_f32[c->input_count - 1] = true;
    /* The first key is there for all. */
    int64_t keys = shape.dim[shape.rank - 1], count = lk_tensor_count(tensor);
    for (int64_t i = 0; kind != ADDED_MASK && i < count; i += keys) lk_tensor_set(tensor, i, !forbids);
}

/* No query sees anything: of the first sample, the first head, the second row. */
static void hide_row(lkt_case *c, lk_tensor *tensor)
{
    lk_shape shape = tensor->shape;
    int64_t row = shape.dim[2] > 1 ? 1 : 0, keys = shape.dim[3];
    for (int64_t j = 0; j < keys; j++)
        lk_tensor_set(tensor, row * keys + j,
                      tensor->dtype == LK_BOOL ? c->attr.attention.mask_forbids : -INFINITY);
}

static void add_operands(lkt_case *c, const attention *a)
{
    int64_t value_width = a->value_width ? a->value_width : a->width, kv = a->kv_heads;
    lkt_in_f32(c, shape_of(a, a->heads + (a->packing == ALL ? 2 * kv : 0), a->queries, a->width), LKT_NORMAL);
    if (a->packing == ALL)
        lkt_in_absent(c);
    else
        lkt_in_f32(c, shape_of(a, a->packing == KEY_VALUE ? 2 * kv : kv, a->keys, a->width), LKT_NORMAL);
    if (a->packing == SEPARATE)
        lkt_in_f32(c, shape_of(a, kv, a->keys, value_width), LKT_NORMAL);
    else
        lkt_in_absent(c);
    bool forbids = c->attr.attention.mask_forbids;
    lk_shape wide = LK_SHAPE(a->mask_dims & 1 ? a->batch : 1, a->mask_dims & 2 ? a->heads : 1,
                             a->mask_dims & 4 ? a->queries : 1, a->keys);
    add_mask(c, a->mask, wide, forbids);
    if (a->masks_a_row) hide_row(c, c->in[3]);
    add_mask(c, a->key_mask, LK_SHAPE(a->batch, a->keys), forbids);
}

static void cases_of(lkt_case_list *list, attention a)
{
    int64_t value_width = a.value_width ? a.value_width : a.width;
    lkt_case *forward = add(list, LK_OP_ATTENTION, &a), *backward = add(list, LK_OP_ATTENTION_GRAD, &a);
    lk_shape y = shape_of(&a, a.heads, a.queries, value_width);
    add_operands(forward, &a);
    lkt_out_f32(forward, y);
    lkt_out_f32(forward, LK_SHAPE(a.batch, a.heads, a.queries));
    int64_t blocks = (a.queries + LK_ATTENTION_ROWS - 1) / LK_ATTENTION_ROWS;
    lkt_out(forward, LK_U8,
            a.p > 0 ? LK_SHAPE(a.batch, a.heads, blocks, (int64_t)sizeof(lk_generator)) : LK_SHAPE(0));
    lkt_in_f32(backward, y, LKT_NORMAL);
    lkt_in_result(backward, forward, 0);
    for (int i = 0; i < 5; i++) {
        lkt_in_operand(backward, forward, i);
        backward->keeps_f32[2 + i] = forward->keeps_f32[i];
    }
    lkt_in_result(backward, forward, 1);
    backward->keeps_f32[7] = true;
    lkt_in_result(backward, forward, 2);
    for (int i = 0; i < 3; i++) lkt_out_f32(backward, forward->in[i] ? forward->in[i]->shape : LK_SHAPE(0));
}

static void cases_of_masks(lkt_case_list *list)
{
    static const mask kinds[] = {BOOL_MASK, ADDED_MASK, FORBIDDING_MASK};
    for (int i = 0; i < 3; i++) {
        attention a = {2, 3, 3, 7, 9, 5, .mask = kinds[i], .mask_dims = 7};
        cases_of(list, a);
        a.is_causal = true, a.layout = LK_ATTENTION_BATCH_FIRST, a.mask_dims = 4;
        cases_of(list, a);
        a.key_mask = kinds[i], a.mask_dims = 1, a.layout = LK_ATTENTION_SEQUENCE_FIRST;
        cases_of(list, a);
        a.mask = NO_MASK, a.is_causal = false;
        cases_of(list, a);
        cases_of(list, (attention){1, 2, 1, 3, 4, 2, .mask = kinds[i], .mask_dims = 6, .masks_a_row = true});
    }
}

void lkt_cases_attention(lkt_case_list *list)
{
    for (int layout = 0; layout < 3; layout++)
        for (int p = SEPARATE; p <= ALL; p++) {
            lk_attention_layout l = (lk_attention_layout)layout;
            cases_of(list, (attention){2, 4, 4, 5, 5, 3, .layout = l, .packing = (packing)p});
            cases_of(list,
                     (attention){2, 4, 2, 9, 9, 8, .layout = l, .packing = (packing)p, .is_causal = true});
            cases_of(list, (attention){1, 3, 1, 4, p == ALL ? 4 : 7, 1, .layout = l, .packing = (packing)p});
        }
    cases_of_masks(list);
    /* Another width of v; more queries than keys, and fewer. */
    cases_of(list, (attention){2, 2, 1, 6, 11, 4, 7, .is_causal = true});
    cases_of(list,
             (attention){1, 2, 2, 12, 5, 17, 33, .is_causal = true, .layout = LK_ATTENTION_BATCH_FIRST});
    cases_of(list, (attention){1, 1, 1, 1, 1, 1, 1, .p = 0});
    /* Blocks of 64 queries, tiles of 512 keys, vectors and panels. */
    cases_of(list, (attention){1, 2, 2, 64, 64, 16, .packing = ALL, .layout = LK_ATTENTION_BATCH_FIRST});
    cases_of(list, (attention){1, 2, 1, 65, 33, 32, .is_causal = true});
    cases_of(list, (attention){1, 1, 1, 3, 512, 8, 8, .p = 0});
    cases_of(list, (attention){1, 1, 1, 3, 513, 8, .key_mask = BOOL_MASK});
    cases_of(list, (attention){1, 1, 1, 70, 530, 5, .mask = FORBIDDING_MASK, .mask_dims = 4});
    /* Dropout; draws of two blocks. */
    cases_of(list, (attention){2, 2, 2, 6, 5, 4, .p = 0.5});
    cases_of(list, (attention){1, 2, 1, 67, 7, 4, .p = 0.1, .is_causal = true, .packing = KEY_VALUE});
    cases_of(list, (attention){1, 2, 2, 2, 600, 3, .p = 0.3, .mask = ADDED_MASK, .mask_dims = 0});
    /* Nothing: no samples, no queries, no keys. */
    cases_of(list, (attention){0, 2, 2, 3, 3, 4, 4, .p = 0});
    cases_of(list, (attention){1, 2, 2, 0, 3, 4, 4, .p = 0});
    cases_of(list, (attention){1, 2, 2, 3, 0, 4, 4, .p = 0});
}
