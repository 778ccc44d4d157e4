/* torch.einsum of one or two operands: permutations, sums, and one product. */
#include "graph/record_util.h"

#include <string.h>

enum { MAX_LETTERS = LK_MAX_DIMS };

/* The letters of one operand or of the result. */
typedef struct term {
    char letter[2 * MAX_LETTERS + 1];
    int count;
} term;

static int place_of(const term *t, char letter)
{
    for (int i = 0; i < t->count; i++)
        if (t->letter[i] == letter) return i;
    return -1;
}

/* Reads letters up to a comma, an arrow or the end; NULL where they are no term. */
static const char *read_term(term *t, const char *text)
{
    t->count = 0;
    for (; *text && *text != ',' && *text != '-'; text++) {
        if (*text == ' ') continue;
        bool letter = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');
        if (!letter || t->count == MAX_LETTERS || place_of(t, *text) >= 0) return NULL;
        t->letter[t->count++] = *text;
    }
    return text;
}

/* Without an arrow: the letters that only one operand has, in the order of the alphabet. */
static void imply_result(term *result, const term *in, int count)
{
    result->count = 0;
    for (int letter = 'A'; letter <= 'z'; letter++) {
        int uses = 0;
        for (int i = 0; i < count; i++) uses += place_of(&in[i], (char)letter) >= 0;
        if (uses == 1) result->letter[result->count++] = (char)letter;
    }
}

static bool parse(term *in, int count, term *result, const char *equation)
{
    const char *at = equation;
    for (int i = 0; i < count; i++) {
        at = read_term(&in[i], at);
        if (!at || (i + 1 < count && *at++ != ',')) return false;
    }
    if (!*at) {
        imply_result(result, in, count);
        return result->count <= MAX_LETTERS;
    }
    if (at[0] != '-' || at[1] != '>') return false;
    at = read_term(result, at + 2);
    if (!at || *at) return false;
    for (int i = 0; i < result->count; i++) {
        bool known = false;
        for (int k = 0; k < count; k++) known = known || place_of(&in[k], result->letter[i]) >= 0;
        if (!known) return false;
    }
    return true;
}

/* Sums over the letters that neither the result nor the other operand has. */
static lk_value *sum_lonely(lk_value *x, term *t, const term *result, const term *other)
{
    lk_attr attr = {.reduce.keep_dims = false};
    term kept = {.count = 0};
    for (int i = 0; i < t->count; i++) {
        bool lonely = place_of(result, t->letter[i]) < 0 && (!other || place_of(other, t->letter[i]) < 0);
        if (lonely)
            attr.reduce.axes |= 1u << i;
        else
            kept.letter[kept.count++] = t->letter[i];
    }
    *t = kept;
    return attr.reduce.axes ? LKI_EMIT(LK_OP_SUM, &attr, x) : x;
}

static lk_value *in_order(lk_value *x, const term *from, const term *to)
{
    int order[LK_MAX_DIMS];
    bool same = true;
    for (int i = 0; i < to->count; i++) {
        order[i] = place_of(from, to->letter[i]);
        same = same && order[i] == i;
    }
    return same ? x : lk_op_permute(x, order);
}

static void append(term *t, char letter)
{
    t->letter[t->count++] = letter;
}

/* The product of the sizes of letters [begin, end) of a term, which are those of x. */
static int64_t size_of(const lk_value *x, int begin, int end)
{
    int64_t size = 1;
    for (int i = begin; i < end; i++) size *= x->shape.dim[i];
    return size;
}

/* a as (shared, own, summed), b as (shared, summed, own): a product of matrices, batched over the letters
 * that both operands and the result have. */
static lk_value *multiply(lk_value *a, const term *ta, lk_value *b, const term *tb, const term *result)
{
    term left = {.count = 0}, right = {.count = 0}, out = {.count = 0};
    for (int i = 0; i < ta->count; i++)
        if (place_of(tb, ta->letter[i]) >= 0 && place_of(result, ta->letter[i]) >= 0)
            append(&left, ta->letter[i]);
    int shared = left.count;
    right = out = left;
    for (int i = 0; i < ta->count; i++)
        if (place_of(tb, ta->letter[i]) < 0) append(&left, ta->letter[i]);
    int own = left.count;
    for (int i = shared; i < own; i++) append(&out, left.letter[i]);
    for (int i = 0; i < ta->count; i++)
        if (place_of(tb, ta->letter[i]) >= 0 && place_of(result, ta->letter[i]) < 0) {
            append(&left, ta->letter[i]);
            append(&right, ta->letter[i]);
        }
    int summed = right.count;
    for (int i = 0; i < tb->count; i++)
        if (place_of(ta, tb->letter[i]) < 0) {
            append(&right, tb->letter[i]);
            append(&out, tb->letter[i]);
        }
    a = in_order(a, ta, &left);
    b = in_order(b, tb, &right);
    if (!a || !b) return NULL;
    lk_shape shape = {.rank = out.count};
    for (int i = 0; i < own; i++) shape.dim[i] = a->shape.dim[i];
    for (int i = own; i < out.count; i++) shape.dim[i] = b->shape.dim[summed + i - own];
    int64_t batch = size_of(a, 0, shared), inner = size_of(a, own, left.count);
    lk_value *product =
        lk_op_matmul(lk_op_reshape(a, LK_SHAPE(batch, size_of(a, shared, own), inner)),
                     lk_op_reshape(b, LK_SHAPE(batch, inner, size_of(b, summed, right.count))));
    return in_order(lk_op_reshape(product, shape), &out, result);
}

static bool sizes_agree(lk_value *const *values, const term *in, int count)
{
    for (int i = 0; i < in[0].count && count == 2; i++) {
        int other = place_of(&in[1], in[0].letter[i]);
        if (other >= 0 && values[0]->shape.dim[i] != values[1]->shape.dim[other]) return false;
    }
    return true;
}

lk_value *lk_op_einsum(const char *equation, lk_value *const *values, int count)
{
    term in[2], result;
    for (int i = 0; i < count; i++)
        if (!values[i]) return NULL;
    if (count < 1) return NULL;
    lk_graph *graph = values[0]->graph;
    if (count > 2 || !parse(in, count, &result, equation))
        return lki_graph_fail(graph, LK_ERR_INVALID,
                              "einsum: \"%s\" with %d operands: expected one or two terms of different "
                              "letters, such as \"bij,bjk->bik\"",
                              equation, count);
    for (int i = 0; i < count; i++)
        if (in[i].count != values[i]->shape.rank)
            return lki_graph_fail(graph, LK_ERR_SHAPE, "einsum: \"%s\": operand %d has shape %s", equation, i,
                                  LKI_SHOW(values[i]->shape));
    if (!sizes_agree(values, in, count))
        return lki_graph_fail(graph, LK_ERR_SHAPE, "einsum: \"%s\": shapes %s and %s do not fit", equation,
                              LKI_SHOW(values[0]->shape), LKI_SHOW(values[1]->shape));
    lk_value *a = sum_lonely(values[0], &in[0], &result, count == 2 ? &in[1] : NULL);
    if (count == 1) return in_order(a, &in[0], &result);
    return multiply(a, &in[0], sum_lonely(values[1], &in[1], &result, &in[0]), &in[1], &result);
}
