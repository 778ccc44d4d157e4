/* Attention without its scores in memory: tiles of 64 queries by 512 keys, whose maxima and sums are carried
 * from tile to tile (Milakov and Gimelshein, 2018; Dao et al., 2022). */
#include "engine/cpu/attention.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

enum { PANEL = LKI_GEMM_PANEL, ROWS = LK_ATTENTION_ROWS, KEYS = LKI_ATTENTION_KEYS };

/* Multiply-adds that make a second thread worth waking. */
static const int64_t THREAD_WORK = 400000;

lki_attention_job lki_attention_job_of(const lk_call *call)
{
    bool is_forward = call->op == LK_OP_ATTENTION;
    int first = is_forward ? 0 : 2;
    lki_attention_job j = {.kernels = lki_cpu_of(call)->kernels,
                           .attr = &call->attr->attention,
                           .a = lki_attention_of_call(call)};
    j.q = lki_cpu_in(call, first + j.a.q_in), j.k = lki_cpu_in(call, first + j.a.k_in);
    j.v = lki_cpu_in(call, first + j.a.v_in);
    j.mask = lki_cpu_in(call, first + 3), j.key_mask = lki_cpu_in(call, first + 4);
    j.mask_is_bool = call->input_count > first + 3 && call->in[first + 3].dtype == LK_BOOL;
    j.key_mask_is_bool = call->input_count > first + 4 && call->in[first + 4].dtype == LK_BOOL;
    j.drops = lki_attention_drops(j.attr);
    return j;
}

static int64_t round_up(int64_t count)
{
    return (count + PANEL - 1) / PANEL * PANEL;
}

int64_t lki_attention_lay_out(const lki_attention_job *j, lki_attention_room *room, float *scratch)
{
    const lki_attention *a = &j->a;
    bool back = !j->chunks;
    int64_t depth = a->width > a->value_width ? a->width : a->value_width;
    int64_t turned = a->width * round_up(a->keys), v = a->value_width * round_up(a->keys);
    if (!back) v = a->keys * round_up(a->value_width);
    float **parts[] = {&room->k_turned,  &room->v_panels, &room->k_panels, &room->scores,
                       &room->gradients, &room->key_row,  &room->mask_row, &room->kept_row,
                       &room->largest,   &room->sums,     &room->products};
    const int64_t counts[] = {
        turned,
        v,
        back ? a->keys * round_up(a->width) : 0,
        ROWS * KEYS,
        back ? ROWS * KEYS : 0,
        j->key_mask_is_bool ? a->keys : 0,
        j->mask_is_bool ? KEYS : 0,
        j->drops ? KEYS : 0,
        ROWS,
        ROWS,
        lki_gemm_scratch_count(depth > PANEL ? depth : PANEL, depth > KEYS ? depth : KEYS)};
    int64_t used = 0;
    for (int i = 0; i < 11; i++) {
        if (scratch) *parts[i] = scratch + used;
        used += (counts[i] + 15) / 16 * 16;
    }
    if (scratch) room->kept = (uint8_t *)(scratch + used);
    return used + (j->drops ? (ROWS * a->keys + 63) / 64 * 16 : 0);
}

bool lki_attention_fits(const lk_call *call)
{
    int first = call->op == LK_OP_ATTENTION ? 0 : 2;
    for (int i = 0; i < call->input_count; i++) {
        lk_dtype dtype = call->in[i].dtype;
        bool may_be_bool = i == first + 3 || i == first + 4, is_draws = i == 8;
        if (dtype != LK_F32 && !(may_be_bool && dtype == LK_BOOL) && !is_draws) return false;
    }
    return call->out[0].dtype == LK_F32;
}

static void to_floats(float *out, const uint8_t *mask, bool forbids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = (mask[i] != 0) == forbids ? -INFINITY : 0;
}

const float *lki_attention_key_row(const lki_attention_job *j, const lki_attention_room *room, int64_t b)
{
    int64_t at = b * j->a.keys;
    if (!j->key_mask) return NULL;
    if (!j->key_mask_is_bool) return (const float *)j->key_mask + at;
    to_floats(room->key_row, (const uint8_t *)j->key_mask + at, j->attr->mask_forbids, j->a.keys);
    return room->key_row;
}

const float *lki_attention_mask_row(const lki_attention_job *j, const lki_attention_room *room, int64_t b,
                                    int64_t h, int64_t i, int64_t first, int64_t n)
{
    int64_t at = b * j->a.mask_batch + h * j->a.mask_head + i * j->a.mask_row + first;
    if (!j->mask) return NULL;
    if (!j->mask_is_bool) return (const float *)j->mask + at;
    to_floats(room->mask_row, (const uint8_t *)j->mask + at, j->attr->mask_forbids, n);
    return room->mask_row;
}

static char *draws_at(const lki_attention_job *j, int64_t b, int64_t h, int64_t i)
{
    int64_t blocks = (j->a.queries + ROWS - 1) / ROWS;
    return j->draws + (size_t)((b * j->a.heads + h) * blocks + i / ROWS) * sizeof(lk_generator);
}

void lki_attention_draw(const lki_attention_job *j, const lki_attention_room *room, int64_t b, int64_t h,
                        int64_t i, int64_t rows)
{
    lk_generator generator;
    if (!j->drops) return;
    memcpy(&generator, draws_at(j, b, h, i), sizeof generator);
    j->kernels->draw_mask(room->kept, &generator, (uint64_t)ceil((1 - j->attr->p) * 0x1p53),
                          rows * j->a.keys);
}

const float *lki_attention_kept_row(const lki_attention_job *j, const lki_attention_room *room, int64_t row,
                                    int64_t first, int64_t n)
{
    if (!j->drops) return NULL;
    j->kernels->tile_load(room->kept_row, room->kept + row * j->a.keys + first, LK_U8, n);
    j->kernels->attention->scale(room->kept_row, (float)(1 / (1 - j->attr->p)), n);
    return room->kept_row;
}

/* Panel by panel: the kernel takes each as it is. Where vectors are narrow, it packs a panel anew. */
void lki_attention_multiply(const lki_attention_job *j, const lki_attention_room *room, float *c,
                            int64_t c_row, const float *a, int64_t a_row, const float *panels, int64_t depth,
                            int64_t first, int64_t m, int64_t n, int64_t k, bool accumulate)
{
    for (int64_t at = 0; at < n; at += PANEL) {
        lki_gemm g = {.m = m,
                      .n = n - at < PANEL ? n - at : PANEL,
                      .k = k,
                      .a = a,
                      .a_row = a_row,
                      .a_col = 1,
                      .b = panels + at * depth + first * PANEL,
                      .b_row = PANEL,
                      .b_col = 1,
                      .c = c + at,
                      .c_row = c_row,
                      .accumulate = accumulate};
        j->kernels->gemm(&g, 0, m, 0, g.n, room->products);
    }
}

/* ---- forward ---- */

/* The scores of a tile become weights: row r sees `reach` keys of it. `carried` is the largest score of the
 * query's tiles so far and its sum of exponentials, in that scale; y is brought to the new one. */
static void weigh_row(const lki_attention_job *j, const lki_attention_room *room, float *s, float *y,
                      const float *mask, const float *key, int64_t reach, int64_t n, int64_t r)
{
    const lki_attention_kernels *kernels = j->kernels->attention;
    float before = room->largest[r], largest = kernels->score(s, mask, key, j->attr->scale, reach), sum = 0;
    largest = largest > before ? largest : before;
    if (largest > -INFINITY || largest != largest)
        sum = kernels->exponentials(s, largest, reach);
    else
        memset(s, 0, (size_t)reach * sizeof *s);
    memset(s + reach, 0, (size_t)(n - reach) * sizeof *s);
    if (before > -INFINITY && largest > before) {
        float shrink = expf(before - largest);
        room->sums[r] *= shrink;
        kernels->scale(y, shrink, j->a.value_width);
    }
    room->sums[r] += sum;
    room->largest[r] = largest;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Queries [i0, i0 + rows) of one head. */
static void attend(const lki_attention_job *j, const lki_attention_room *room, const float *key, int64_t b,
                   int64_t h, int64_t i0, int64_t rows)
{
    const lki_attention *a = &j->a;
    const float *q = j->q + lki_attention_at(&a->q, b, h, i0);
    float *y = j->y_out + lki_attention_at(&a->y, b, h, i0);
    int64_t most = lki_attention_reach(a, j->attr->is_causal, i0 + rows - 1);
    for (int64_t r = 0; r < rows; r++) room->largest[r] = -INFINITY, room->sums[r] = 0;
    lki_attention_draw(j, room, b, h, i0, rows);
    for (int64_t first = 0; first < most; first += KEYS) {
        int64_t n = least(most - first, KEYS);
        lki_attention_multiply(j, room, room->scores, KEYS, q, a->q.row, room->k_turned + first * a->width,
                               a->width, 0, rows, n, a->width, false);
        for (int64_t r = 0; r < rows; r++) {
            int64_t reach = lki_attention_reach(a, j->attr->is_causal, i0 + r) - first;
            float *s = room->scores + r * KEYS;
            reach = reach < 0 ? 0 : least(reach, n);
            const float *mask = lki_attention_mask_row(j, room, b, h, i0 + r, first, reach);
            weigh_row(j, room, s, y + r * a->y.row, mask, key ? key + first : NULL, reach, n, r);
            const float *kept = lki_attention_kept_row(j, room, r, first, n);
            if (kept) j->kernels->attention->multiply(s, kept, n);
        }
        lki_attention_multiply(j, room, y, a->y.row, room->scores, KEYS, room->v_panels, a->keys, first, rows,
                               a->value_width, n, first > 0);
    }
    for (int64_t r = 0; r < rows; r++) {
        if (most)
            j->kernels->attention->scale(y + r * a->y.row, 1 / room->sums[r], a->value_width);
        else
            memset(y + r * a->y.row, 0, (size_t)a->value_width * sizeof *y);
        /* A query whose keys are all masked: NaN. */
        float log_sum = room->sums[r] == 0 && most ? NAN : room->largest[r] + logf(room->sums[r]);
        if (j->log_sums) j->log_sums[(b * a->heads + h) * a->queries + i0 + r] = log_sum;
    }
}

static void attend_items(int64_t begin, int64_t end, int thread, void *context)
{
    const lki_attention_job *j = context;
    const lki_attention *a = &j->a;
    lki_attention_room room;
    lki_attention_lay_out(j, &room, j->scratch + thread * j->scratch_count);
    int64_t blocks = (a->queries + ROWS - 1) / ROWS, share = a->heads / a->kv_heads;
    for (int64_t item = begin; item < end; item++) {
        int64_t chunk = item % j->chunks, g = item / j->chunks % a->kv_heads;
        int64_t b = item / j->chunks / a->kv_heads;
        int64_t from = blocks * chunk / j->chunks * ROWS, to = blocks * (chunk + 1) / j->chunks * ROWS;
        const float *key = lki_attention_key_row(j, &room, b);
        j->kernels->attention->pack(room.k_turned, j->k + lki_attention_at(&a->k, b, g, 0), a->width, a->keys,
                                    1, a->k.row);
        j->kernels->attention->pack(room.v_panels, j->v + lki_attention_at(&a->v, b, g, 0), a->keys,
                                    a->value_width, a->v.row, 1);
        for (int64_t h = g * share; h < (g + 1) * share; h++)
            for (int64_t i = from; i < least(to, a->queries); i += ROWS)
                attend(j, &room, key, b, h, i, least(a->queries - i, ROWS));
    }
}

/* The draws of each block of queries begin where those of the block before it end. */
static void note_draws(const lki_attention_job *j, lk_generator *generator)
{
    const lki_attention *a = &j->a;
    for (int64_t n = 0; n < a->batch * a->heads; n++)
        for (int64_t i = 0; i < a->queries; i += ROWS) {
            memcpy(draws_at(j, n / a->heads, n % a->heads, i), generator, sizeof *generator);
            j->kernels->skip_draws(generator, least(a->queries - i, ROWS) * a->keys);
        }
}

/* Few heads: threads share the queries of one. */
static void cut(lki_attention_job *j, int thread_count)
{
    int64_t heads = j->a.batch * j->a.kv_heads, blocks = (j->a.queries + ROWS - 1) / ROWS;
    j->chunks = heads ? least((thread_count + heads - 1) / heads, blocks) : 1;
    if (j->chunks < 1) j->chunks = 1;
}

static lk_status run_attention(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    lki_attention_job j = lki_attention_job_of(call);
    const lki_attention *a = &j.a;
    cut(&j, cpu->thread_count);
    j.y_out = lki_cpu_out(call, 0), j.log_sums = lki_cpu_out(call, 1);
    j.scratch_count = lki_attention_lay_out(&j, &(lki_attention_room){0}, NULL);
    j.scratch = call->scratch;
    if (j.drops) {
        if (!call->generator) return lki_fail(LK_ERR_INVALID, "attention has no random generator");
        char *own = (char *)(j.scratch + cpu->thread_count * j.scratch_count);
        j.draws = call->out[2].data ? call->out[2].data : own;
        note_draws(&j, call->generator);
    }
    int64_t work = a->queries * a->keys * (a->width + a->value_width) * (a->heads / a->kv_heads) / j.chunks;
    lki_parallel_for(cpu->pool, a->batch * a->kv_heads * j.chunks, THREAD_WORK / (work + 1) + 1, attend_items,
                     &j);
    return LK_OK;
}

lk_status lki_cpu_prepare_attention(lki_cpu *cpu, lk_call *call)
{
    if (!lki_attention_fits(call) || !call->out[0].data) return LK_OK;
    lki_attention_job j = lki_attention_job_of(call);
    cut(&j, cpu->thread_count);
    int64_t count = lki_attention_lay_out(&j, &(lki_attention_room){0}, NULL) * cpu->thread_count;
    lki_cpu_enter(cpu, j.a.keys > KEYS ? LKI_CPU_PATH_ATTENTION_TILES : LKI_CPU_PATH_ATTENTION_ONE_TILE);
    call->scratch_nbytes = (size_t)count * sizeof(float);
    if (j.drops) call->scratch_nbytes += lk_tensor_nbytes(&call->out[2]);
    call->run = run_attention;
    return LK_OK;
}
