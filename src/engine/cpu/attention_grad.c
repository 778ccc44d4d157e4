/* The gradient of attention. Weights are computed again, tile by tile, from the scores and each query's log
 * of the sum of exponentials; see engine/ref/attention.c for the formulas. */
#include "engine/cpu/attention.h"

#include <string.h>

enum { PANEL = LKI_GEMM_PANEL, ROWS = LK_ATTENTION_ROWS, KEYS = LKI_ATTENTION_KEYS };

static const int64_t THREAD_WORK = 400000;

/* C (m, n) += A^T B: A (k, m) is a tile, B (k, n) rows of an operand. */
static void add_turned(const lki_attention_job *j, const lki_attention_room *room, float *c, int64_t c_row,
                       const float *tile, const float *b, int64_t b_row, int64_t m, int64_t n, int64_t k)
{
    lki_gemm g = {.m = m,
                  .n = n,
                  .k = k,
                  .a = tile,
                  .a_row = 1,
                  .a_col = KEYS,
                  .b = b,
                  .b_row = b_row,
                  .b_col = 1,
                  .c = c,
                  .c_row = c_row,
                  .accumulate = true};
    j->kernels->gemm(&g, 0, m, 0, n, room->products);
}

/* Row r of a tile: the scores become weights, the gradients those of the scores. */
static void turn_back(const lki_attention_job *j, const lki_attention_room *room, const float *key, int64_t b,
                      int64_t h, int64_t i, int64_t r, int64_t first, int64_t n)
{
    const lki_attention *a = &j->a;
    int64_t reach = lki_attention_reach(a, j->attr->is_causal, i) - first;
    reach = reach < 0 ? 0 : reach < n ? reach : n;
    float *s = room->scores + r * KEYS, *d = room->gradients + r * KEYS;
    const float *mask = lki_attention_mask_row(j, room, b, h, i, first, reach);
    const float *kept = lki_attention_kept_row(j, room, r, first, reach);
    j->kernels->attention->back(s, d, mask, key ? key + first : NULL, kept, (float)j->attr->scale,
                                j->kept_log_sums[(b * a->heads + h) * a->queries + i], room->sums[r], reach);
    memset(s + reach, 0, (size_t)(n - reach) * sizeof *s);
    memset(d + reach, 0, (size_t)(n - reach) * sizeof *d);
}

/* Queries [i0, i0 + rows) of head h, which shares head g of k and v. */
static void go_back(const lki_attention_job *j, const lki_attention_room *room, const float *key, int64_t b,
                    int64_t h, int64_t g, int64_t i0, int64_t rows)
{
    const lki_attention *a = &j->a;
    int64_t q_at = lki_attention_at(&a->q, b, h, i0), y_at = lki_attention_at(&a->y, b, h, i0);
    int64_t most = lki_attention_reach(a, j->attr->is_causal, i0 + rows - 1);
    const float *q = j->q + q_at, *dy = j->dy + y_at, *y = j->y + y_at;
    for (int64_t r = 0; r < rows; r++)
        room->sums[r] = (float)j->kernels->sum_products(dy + r * a->y.row, y + r * a->y.row, a->value_width);
    lki_attention_draw(j, room, b, h, i0, rows);
    for (int64_t first = 0; first < most; first += KEYS) {
        int64_t n = most - first < KEYS ? most - first : KEYS;
        lki_attention_multiply(j, room, room->scores, KEYS, q, a->q.row, room->k_turned + first * a->width,
                               a->width, 0, rows, n, a->width, false);
        lki_attention_multiply(j, room, room->gradients, KEYS, dy, a->y.row,
                               room->v_panels + first * a->value_width, a->value_width, 0, rows, n,
                               a->value_width, false);
        for (int64_t r = 0; r < rows; r++) turn_back(j, room, key, b, h, i0 + r, r, first, n);
        if (j->dv)
            add_turned(j, room, j->dv + lki_attention_at(&a->v, b, g, first), a->v.row, room->scores, dy,
                       a->y.row, n, a->value_width, rows);
        if (j->dk)
            add_turned(j, room, j->dk + lki_attention_at(&a->k, b, g, first), a->k.row, room->gradients, q,
                       a->q.row, n, a->width, rows);
        if (j->dq)
            lki_attention_multiply(j, room, j->dq + q_at, a->q.row, room->gradients, KEYS, room->k_panels,
                                   a->keys, first, rows, a->width, n, first > 0);
    }
    for (int64_t r = 0; j->dq && !most && r < rows; r++)
        memset(j->dq + q_at + r * a->q.row, 0, (size_t)a->width * sizeof *q);
}

static void go_back_items(int64_t begin, int64_t end, int thread, void *context)
{
    const lki_attention_job *j = context;
    const lki_attention *a = &j->a;
    lki_attention_room room;
    lki_attention_lay_out(j, &room, j->scratch + thread * j->scratch_count);
    int64_t share = a->heads / a->kv_heads;
    for (int64_t item = begin; item < end; item++) {
        int64_t b = item / a->kv_heads, g = item % a->kv_heads;
        const float *key = lki_attention_key_row(j, &room, b);
        int64_t k = lki_attention_at(&a->k, b, g, 0), v = lki_attention_at(&a->v, b, g, 0);
        j->kernels->attention->pack(room.k_turned, j->k + k, a->width, a->keys, 1, a->k.row);
        j->kernels->attention->pack(room.v_panels, j->v + v, a->value_width, a->keys, 1, a->v.row);
        j->kernels->attention->pack(room.k_panels, j->k + k, a->keys, a->width, a->k.row, 1);
        for (int64_t i = 0; i < a->keys; i++) {
            if (j->dk) memset(j->dk + k + i * a->k.row, 0, (size_t)a->width * sizeof(float));
            if (j->dv) memset(j->dv + v + i * a->v.row, 0, (size_t)a->value_width * sizeof(float));
        }
        for (int64_t h = g * share; h < (g + 1) * share; h++)
            for (int64_t i = 0; i < a->queries; i += ROWS)
                go_back(j, &room, key, b, h, g, i, a->queries - i < ROWS ? a->queries - i : ROWS);
    }
}

static lk_status run_attention_grad(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    lki_attention_job j = lki_attention_job_of(call);
    const lki_attention *a = &j.a;
    j.dy = lki_cpu_in(call, 0), j.y = lki_cpu_in(call, 1), j.kept_log_sums = lki_cpu_in(call, 7);
    if (j.drops) j.draws = call->in[8].data;
    j.dq = lki_cpu_out(call, a->q_in), j.dk = lki_cpu_out(call, a->k_in), j.dv = lki_cpu_out(call, a->v_in);
    j.scratch_count = lki_attention_lay_out(&j, &(lki_attention_room){0}, NULL);
    j.scratch = call->scratch;
    int64_t work = 3 * a->queries * a->keys * (a->width + a->value_width) * (a->heads / a->kv_heads);
    lki_parallel_for(cpu->pool, a->batch * a->kv_heads, THREAD_WORK / (work + 1) + 1, go_back_items, &j);
    return LK_OK;
}

lk_status lki_cpu_prepare_attention_grad(lki_cpu *cpu, lk_call *call)
{
    if (!lki_attention_fits(call)) return LK_OK;
    lki_attention_job j = lki_attention_job_of(call);
    int64_t count = lki_attention_lay_out(&j, &(lki_attention_room){0}, NULL) * cpu->thread_count;
    call->scratch_nbytes = (size_t)count * sizeof(float);
    call->run = run_attention_grad;
    return LK_OK;
}
