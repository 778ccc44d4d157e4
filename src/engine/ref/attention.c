/* Attention, query by query. The scratch holds the scores of one query, and for the gradient the sums of one
 * head of k and v. */
#include "engine/ref/ref.h"

#include "base/status.h"
#include "graph/attention.h"

#include <math.h>
#include <string.h>

/* A call, its operands after dy and y. */
typedef struct attention {
    lki_attention a;
    const lk_attention_attr *attr;
    const lk_tensor *q, *k, *v, *mask, *key_mask;
    lk_generator generator; /* stands at the query that is looked at */
} attention;

static attention describe(const lk_call *call)
{
    int first = call->op == LK_OP_ATTENTION ? 0 : 2;
    attention self = {.a = lki_attention_of_call(call), .attr = &call->attr->attention};
    self.q = &call->in[first], self.k = &call->in[first + self.a.k_in];
    self.v = &call->in[first + self.a.v_in];
    self.mask = lki_ref_in(call, first + 3), self.key_mask = lki_ref_in(call, first + 4);
    return self;
}

size_t lki_ref_attention_scratch(const lk_call *call)
{
    lki_attention a = lki_attention_of_call(call);
    int64_t sums = call->op == LK_OP_ATTENTION ? 0 : a.keys * (a.width + a.value_width + 2) + a.width;
    return (size_t)(2 * a.keys + a.value_width + sums + 1) * sizeof(double);
}

static int64_t place(const lki_heads *h, int64_t b, int64_t head, int64_t i)
{
    return h->base + b * h->batch + head * h->head + i * h->row;
}

static double masked(const attention *self, const lk_tensor *mask, int64_t at)
{
    if (!mask) return 0;
    double value = lki_ref_get(mask, at);
    if (mask->dtype != LK_BOOL) return value;
    return (value != 0) == self->attr->mask_forbids ? -INFINITY : 0;
}

/* The scores of query i with the first `reach` keys. */
static void score(const attention *self, double *scores, int64_t reach, int64_t b, int64_t h, int64_t i)
{
    const lki_attention *a = &self->a;
    int64_t q = place(&a->q, b, h, i), g = h / (a->heads / a->kv_heads);
    for (int64_t j = 0; j < reach; j++) {
        int64_t k = place(&a->k, b, g, j);
        double sum = 0;
        for (int64_t d = 0; d < a->width; d++)
            sum += lki_ref_get(self->q, q + d) * lki_ref_get(self->k, k + d);
        sum *= self->attr->scale;
        sum += masked(self, self->mask, b * a->mask_batch + h * a->mask_head + i * a->mask_row + j);
        scores[j] = sum + masked(self, self->key_mask, b * a->keys + j);
    }
}

/* What a weight is multiplied with by dropout: one for each key, seen or not, as PyTorch draws them. */
static void draw(attention *self, double *kept)
{
    double p = self->attr->p;
    bool drops = lki_attention_drops(self->attr);
    for (int64_t j = 0; j < self->a.keys; j++)
        kept[j] = !drops ? 1 : lk_generator_f64(&self->generator) < 1 - p ? 1 / (1 - p) : 0;
}

/* Where query i of a head keeps its draws; NULL if it goes on with those of the query before it. */
static char *draws_at(const attention *self, const lk_tensor *draws, int64_t b, int64_t h, int64_t i)
{
    if (!draws || !lki_attention_drops(self->attr) || i % LK_ATTENTION_ROWS) return NULL;
    int64_t blocks = (self->a.queries + LK_ATTENTION_ROWS - 1) / LK_ATTENTION_ROWS;
    int64_t block = (b * self->a.heads + h) * blocks + i / LK_ATTENTION_ROWS;
    return (char *)draws->data + (size_t)block * sizeof(lk_generator);
}

/* log sum exp of the scores; NaN if all are minus infinity. */
static double log_sum(const double *scores, int64_t reach)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < reach; j++) largest = scores[j] > largest ? scores[j] : largest;
    for (int64_t j = 0; j < reach; j++) sum += exp(scores[j] - largest);
    return largest + log(sum);
}

lk_status lki_ref_attention(const lk_call *call)
{
    attention self = describe(call);
    const lki_attention *a = &self.a;
    const lk_tensor *y = lki_ref_out(call, 0), *logarithms = lki_ref_out(call, 1),
                    *draws = lki_ref_out(call, 2);
    double *scores = call->scratch, *kept = scores + a->keys, *sums = kept + a->keys;
    bool drops = lki_attention_drops(self.attr);
    if (drops && !call->generator) return lki_fail(LK_ERR_INVALID, "attention has no random generator");
    if (drops) self.generator = *call->generator;
    for (int64_t n = 0; n < a->batch * a->heads * a->queries; n++) {
        int64_t i = n % a->queries, h = n / a->queries % a->heads, b = n / a->queries / a->heads;
        int64_t reach = lki_attention_reach(a, self.attr->is_causal, i), g = h / (a->heads / a->kv_heads);
        char *begin = draws_at(&self, draws, b, h, i);
        if (begin) memcpy(begin, &self.generator, sizeof self.generator);
        draw(&self, kept);
        score(&self, scores, reach, b, h, i);
        double whole = log_sum(scores, reach);
        if (logarithms) lki_ref_set(logarithms, n, whole);
        memset(sums, 0, (size_t)a->value_width * sizeof *sums);
        for (int64_t j = 0; j < reach; j++) {
            double weight = exp(scores[j] - whole) * kept[j];
            for (int64_t d = 0; d < a->value_width; d++)
                sums[d] += weight * lki_ref_get(self.v, place(&a->v, b, g, j) + d);
        }
        for (int64_t d = 0; y && d < a->value_width; d++) lki_ref_set(y, place(&a->y, b, h, i) + d, sums[d]);
    }
    if (drops) *call->generator = self.generator;
    return LK_OK;
}

/* One call of the gradient; dk and dv of one head in doubles. */
typedef struct gradient {
    attention of;
    const lk_tensor *dy, *y, *logarithms, *draws, *out[3]; /* out: where dq, dk and dv go; NULL: nowhere */
    double *scores, *kept, *dk, *dv, *dq;
} gradient;

/* With the weights P, the dropped ones W = P kept, and D = sum(dy y): dv = W^T dy, dS = P ((dy v^T) kept -
 * D), dq = scale dS k, dk = scale dS^T q. */
static void one_query(gradient *self, int64_t b, int64_t h, int64_t i)
{
    attention *of = &self->of;
    const lki_attention *a = &of->a;
    int64_t reach = lki_attention_reach(a, of->attr->is_causal, i), g = h / (a->heads / a->kv_heads);
    int64_t y = place(&a->y, b, h, i), q = place(&a->q, b, h, i);
    double whole = lki_ref_get(self->logarithms, (b * a->heads + h) * a->queries + i), delta = 0;
    const char *begin = draws_at(of, self->draws, b, h, i);
    if (begin) memcpy(&of->generator, begin, sizeof of->generator);
    draw(of, self->kept);
    score(of, self->scores, reach, b, h, i);
    for (int64_t d = 0; d < a->value_width; d++)
        delta += lki_ref_get(self->dy, y + d) * lki_ref_get(self->y, y + d);
    memset(self->dq, 0, (size_t)a->width * sizeof *self->dq);
    for (int64_t j = 0; j < reach; j++) {
        int64_t k = place(&a->k, b, g, j), v = place(&a->v, b, g, j);
        double weight = exp(self->scores[j] - whole), product = 0;
        for (int64_t d = 0; d < a->value_width; d++) {
            double dy = lki_ref_get(self->dy, y + d);
            product += dy * lki_ref_get(of->v, v + d);
            self->dv[j * a->value_width + d] += weight * self->kept[j] * dy;
        }
        double ds = weight * (product * self->kept[j] - delta) * of->attr->scale;
        for (int64_t d = 0; d < a->width; d++) {
            self->dq[d] += ds * lki_ref_get(of->k, k + d);
            self->dk[j * a->width + d] += ds * lki_ref_get(of->q, q + d);
        }
    }
    for (int64_t d = 0; self->out[0] && d < a->width; d++) lki_ref_set(self->out[0], q + d, self->dq[d]);
}

lk_status lki_ref_attention_grad(const lk_call *call)
{
    gradient self = {.of = describe(call), .dy = &call->in[0], .y = &call->in[1]};
    const lki_attention *a = &self.of.a;
    self.logarithms = &call->in[7], self.draws = lki_ref_in(call, 8);
    self.out[0] = lki_ref_out(call, a->q_in), self.out[1] = lki_ref_out(call, a->k_in);
    self.out[2] = lki_ref_out(call, a->v_in);
    self.scores = call->scratch, self.kept = self.scores + a->keys, self.dq = self.kept + a->keys;
    self.dk = self.dq + a->width, self.dv = self.dk + a->keys * a->width;
    int64_t share = a->heads / a->kv_heads;
    for (int64_t n = 0; n < a->batch * a->kv_heads; n++) {
        int64_t b = n / a->kv_heads, g = n % a->kv_heads;
        memset(self.dk, 0, (size_t)(a->keys * (a->width + a->value_width)) * sizeof *self.dk);
        for (int64_t h = g * share; h < (g + 1) * share; h++)
            for (int64_t i = 0; i < a->queries; i++) one_query(&self, b, h, i);
        for (int64_t j = 0; j < a->keys; j++) {
            for (int64_t d = 0; self.out[1] && d < a->width; d++)
                lki_ref_set(self.out[1], place(&a->k, b, g, j) + d, self.dk[j * a->width + d]);
            for (int64_t d = 0; self.out[2] && d < a->value_width; d++)
                lki_ref_set(self.out[2], place(&a->v, b, g, j) + d, self.dv[j * a->value_width + d]);
        }
    }
    return LK_OK;
}
