/* Recurrent layers. Sequences do not meet, so each thread takes some of them through all steps: per step one
 * product of the hidden states with the packed weights, then one fused kernel per sequence. */
#include "engine/cpu/cpu.h"

#include "base/status.h"
#include "engine/ref/ref.h"

#include <string.h>

enum { PANEL = LKI_GEMM_PANEL, LEAST_ROWS = 4 };

/* Multiply-adds that make a second thread worth waking. */
static const int64_t THREAD_WORK = 400000;

/* A call of one of the three ops; see LK_OP_LIST. Absent operands are NULL. */
typedef struct layer {
    const lki_cpu_kernels *kernels;
    lk_recurrent kind;
    bool reverse;
    int64_t steps, batch, hidden, width, rows, saved, state; /* T, N, H, R, G H, S, R [+ H] */
    const float *bias, *h0, *c0, *w_hr;
    const int64_t *lengths;
    float *panels, *panels_hr;              /* packed weights */
    float *h, *c, *shares, *raw, *dgates_h; /* (N, R), (N, H), (N, G H), (N, H), (N, G H) of scratch */
    float *products;                        /* the gemm's scratch, product_count floats for each thread */
    int64_t product_count;
    int thread_count;
    /* forward */
    const float *x;
    float *y_out, *last, *saved_out;
    /* backward */
    const float *y, *kept, *dy, *dlast;
    float *dgates, *dfirst, *dh_out;
} layer;

static layer describe(const lk_call *call, int64_t steps, int64_t batch, int64_t rows, int64_t width)
{
    lk_recurrent kind = call->attr->recurrent.kind;
    int64_t gates = kind == LK_RECURRENT_LSTM ? 4 : kind == LK_RECURRENT_GRU ? 3 : 1;
    layer l = {.kernels = lki_cpu_of(call)->kernels,
               .thread_count = lki_cpu_of(call)->thread_count,
               .kind = kind,
               .reverse = call->attr->recurrent.reverse,
               .steps = steps,
               .batch = batch,
               .hidden = rows / gates,
               .width = width,
               .rows = rows};
    l.saved = gates > 1 ? (gates + 1) * l.hidden : 0;
    l.state = width + (kind == LK_RECURRENT_LSTM ? l.hidden : 0);
    l.product_count = lki_gemm_scratch_count(PANEL, rows > width ? rows : width);
    return l;
}

static int64_t length_of(const layer *l, int64_t n)
{
    return l->lengths ? l->lengths[n] : l->steps;
}

static int64_t round_up(int64_t count)
{
    return (count + PANEL - 1) / PANEL * PANEL;
}

/* Floats that the panels of (k, n) take. */
static int64_t panel_count(int64_t k, int64_t n)
{
    return k * round_up(n);
}

/* B (k, n), whose element (p, j) lies at b[p * row + j * column], as panels (k, 32): the gemm kernel takes
 * each as it is, step after step. */
static void pack(float *panels, const float *b, int64_t k, int64_t n, int64_t row, int64_t column)
{
    for (int64_t j0 = 0; j0 < n; j0 += PANEL, panels += k * PANEL)
        for (int64_t j = 0; j < PANEL; j++)
            for (int64_t p = 0; p < k; p++)
                panels[p * PANEL + j] = j0 + j < n ? b[p * row + (j0 + j) * column] : 0;
}

/* C (m, n) = A (m, k) B, or C += A B. Where vectors are narrow, the kernel packs a panel anew. */
static void multiply(const layer *l, int thread, float *c, int64_t c_row, const float *a, int64_t a_row,
                     const float *panels, int64_t m, int64_t n, int64_t k, const float *bias, bool accumulate)
{
    for (int64_t j = 0; j < n; j += PANEL) {
        lki_gemm g = {.m = m,
                      .n = n - j < PANEL ? n - j : PANEL,
                      .k = k,
                      .a = a,
                      .a_row = a_row,
                      .a_col = 1,
                      .b = panels + j * k,
                      .b_row = PANEL,
                      .b_col = 1,
                      .c = c + j,
                      .c_row = c_row,
                      .bias = bias ? bias + j : NULL,
                      .accumulate = accumulate};
        l->kernels->gemm(&g, 0, m, 0, g.n, l->products + thread * l->product_count);
    }
}

static void copy_or_zero(float *to, const float *from, int64_t n)
{
    if (from)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        memset(to, 0, (size_t)n * sizeof *to);
}

/* ---- forward ---- */

/* Step t of sequence n, whose shares of the gates are there. A projected h waits in raw. */
static void step_sequence(const layer *l, int64_t t, int64_t n)
{
    int64_t at = t * l->batch + n;
    float *saved = l->saved_out && l->saved ? l->saved_out + at * l->saved : NULL;
    if (t >= length_of(l, n)) {
        if (saved) copy_or_zero(saved, NULL, l->saved);
        if (l->y_out) copy_or_zero(l->y_out + at * l->width, NULL, l->width);
        return;
    }
    lki_recurrent_row row = {
        .kind = l->kind,
        .size = l->hidden,
        .x = l->x + at * l->rows,
        .h_gates = l->shares + n * l->rows,
        .h = l->w_hr ? l->raw + n * l->hidden : l->h + n * l->width,
        .c = l->c + n * l->hidden,
        .gates = saved,
        .extra = saved ? saved + l->rows : NULL,
    };
    l->kernels->recurrent_step(&row);
    if (l->y_out && !l->w_hr) copy_or_zero(l->y_out + at * l->width, row.h, l->width);
}

/* h = raw w_hr^T, by way of the shares: sequences that have ended keep their h. */
static void project(const layer *l, int thread, int64_t t, int64_t begin, int64_t end)
{
    float *fresh = l->shares + begin * l->rows; /* which have been used */
    multiply(l, thread, fresh, l->width, l->raw + begin * l->hidden, l->hidden, l->panels_hr, end - begin,
             l->width, l->hidden, NULL, false);
    for (int64_t n = begin; n < end; n++, fresh += l->width) {
        if (t >= length_of(l, n)) continue;
        copy_or_zero(l->h + n * l->width, fresh, l->width);
        if (l->y_out) copy_or_zero(l->y_out + (t * l->batch + n) * l->width, fresh, l->width);
    }
}

static void run_sequences(int64_t begin, int64_t end, int thread, void *context)
{
    const layer *l = context;
    int64_t count = end - begin;
    copy_or_zero(l->h + begin * l->width, l->h0 ? l->h0 + begin * l->width : NULL, count * l->width);
    copy_or_zero(l->c + begin * l->hidden, l->c0 ? l->c0 + begin * l->hidden : NULL, count * l->hidden);
    copy_or_zero(l->raw + begin * l->hidden, NULL, count * l->hidden);
    for (int64_t i = 0; i < l->steps; i++) {
        int64_t t = l->reverse ? l->steps - 1 - i : i;
        multiply(l, thread, l->shares + begin * l->rows, l->rows, l->h + begin * l->width, l->width,
                 l->panels, count, l->rows, l->width, l->bias, false);
        for (int64_t n = begin; n < end; n++) step_sequence(l, t, n);
        if (l->w_hr) project(l, thread, t, begin, end);
    }
    for (int64_t n = begin; l->last && n < end; n++) {
        float *last = l->last + n * l->state;
        copy_or_zero(last, l->h + n * l->width, l->width);
        if (l->state > l->width) copy_or_zero(last + l->width, l->c + n * l->hidden, l->hidden);
    }
}

/* Divides the scratch; returns how many floats it takes. */
static int64_t lay_out(layer *l, float *scratch)
{
    float **parts[] = {&l->h,        &l->c,      &l->raw,       &l->shares,
                       &l->dgates_h, &l->panels, &l->panels_hr, &l->products};
    int64_t counts[] = {l->batch * l->width,
                        l->batch * l->hidden,
                        l->batch * l->hidden,
                        l->batch * l->rows,
                        l->batch * l->rows,
                        panel_count(l->width, l->rows) + panel_count(l->rows, l->width),
                        panel_count(l->width, l->hidden) + panel_count(l->hidden, l->width),
                        l->product_count * l->thread_count};
    int64_t used = 0;
    for (int i = 0; i < 8; i++) {
        if (scratch) *parts[i] = scratch + used;
        used += (counts[i] + 15) / 16 * 16;
    }
    return used;
}

static void run_over_sequences(const lk_call *call, layer *l, lki_loop_body body)
{
    int64_t work = l->steps * l->rows * l->width, grain = THREAD_WORK / (work + 1) + 1;
    lki_parallel_for(lki_cpu_of(call)->pool, l->batch, grain < LEAST_ROWS ? LEAST_ROWS : grain, body, l);
}

static layer describe_forward(const lk_call *call)
{
    lk_shape x = call->in[0].shape, w = call->in[1].shape;
    layer l = describe(call, x.dim[0], x.dim[1], w.dim[0], w.dim[1]);
    l.x = lki_cpu_in(call, 0), l.bias = lki_cpu_in(call, 2), l.h0 = lki_cpu_in(call, 3);
    l.c0 = lki_cpu_in(call, 4), l.w_hr = lki_cpu_in(call, 5);
    l.lengths = lki_cpu_has(call, 6) ? call->in[6].data : NULL;
    l.y_out = lki_cpu_out(call, 0), l.last = lki_cpu_out(call, 1), l.saved_out = lki_cpu_out(call, 2);
    return l;
}

static lk_status run_forward(const lk_call *call)
{
    layer l = describe_forward(call);
    if (l.lengths) LKI_TRY(lki_ref_check_lengths(&call->in[6], l.steps));
    lay_out(&l, call->scratch);
    pack(l.panels, lki_cpu_in(call, 1), l.width, l.rows, 1, l.width);
    if (l.w_hr) pack(l.panels_hr, l.w_hr, l.hidden, l.width, 1, l.hidden);
    run_over_sequences(call, &l, run_sequences);
    return LK_OK;
}

lk_status lki_cpu_prepare_recurrent(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (!lki_cpu_all_f32(call, 1u << 6)) return LK_OK;
    layer l = describe_forward(call);
    call->scratch_nbytes = (size_t)lay_out(&l, NULL) * sizeof(float);
    call->run = run_forward;
    return LK_OK;
}

/* ---- back through the steps ---- */

/* Row (t, n) of the gradient of the gates: of the inputs' shares, which are those of h too but in a GRU. */
static float *gates_row(const layer *l, int64_t t, int64_t n)
{
    return l->dgates ? l->dgates + (t * l->batch + n) * l->rows : l->shares + n * l->rows;
}

static void step_sequence_back(const layer *l, int64_t t, int64_t n)
{
    int64_t at = t * l->batch + n, length = length_of(l, n);
    float *dgates = gates_row(l, t, n), *dgates_h = l->dgates_h + n * l->rows;
    if (t >= length) {
        copy_or_zero(dgates, NULL, l->rows);
        copy_or_zero(dgates_h, NULL, l->rows);
        return;
    }
    bool is_first = t == (l->reverse ? length - 1 : 0);
    int64_t before = at + (l->reverse ? l->batch : -l->batch);
    const float *kept = l->kept + at * l->saved;
    lki_recurrent_row row = {
        .kind = l->kind,
        .size = l->hidden,
        .gates = (float *)kept,
        .extra = (float *)kept + l->rows,
        .y = l->y + at * l->width,
        .dh = l->w_hr ? l->raw + n * l->hidden : l->h + n * l->width,
        .dc = l->c + n * l->hidden,
        .dgates = dgates,
        .dgates_h = dgates_h,
    };
    if (is_first) {
        row.h_old = l->h0 ? l->h0 + n * l->width : NULL;
        row.c_old = l->c0 ? l->c0 + n * l->hidden : NULL;
    } else {
        row.h_old = l->y + before * l->width;
        row.c_old = l->kept + before * l->saved + l->rows;
    }
    l->kernels->recurrent_step_back(&row);
}

/* dh of h before its projection: raw = dh w_hr. What flows to the step before begins at zero. */
static void project_back(const layer *l, int thread, int64_t t, int64_t begin, int64_t end)
{
    multiply(l, thread, l->raw + begin * l->hidden, l->hidden, l->h + begin * l->width, l->width,
             l->panels_hr, end - begin, l->hidden, l->width, NULL, false);
    for (int64_t n = begin; n < end; n++) {
        bool is_over = t >= length_of(l, n);
        float *dh = l->h + n * l->width;
        if (l->dh_out) copy_or_zero(l->dh_out + (t * l->batch + n) * l->width, is_over ? NULL : dh, l->width);
        if (!is_over) copy_or_zero(dh, NULL, l->width);
    }
}

static void run_sequences_back(int64_t begin, int64_t end, int thread, void *context)
{
    const layer *l = context;
    int64_t count = end - begin;
    for (int64_t n = begin; n < end; n++) {
        const float *last = l->dlast ? l->dlast + n * l->state : NULL;
        copy_or_zero(l->h + n * l->width, last, l->width);
        copy_or_zero(l->c + n * l->hidden, last && l->state > l->width ? last + l->width : NULL, l->hidden);
    }
    for (int64_t i = l->steps - 1; i >= 0; i--) {
        int64_t t = l->reverse ? l->steps - 1 - i : i;
        for (int64_t n = begin; l->dy && n < end; n++)
            if (t < length_of(l, n))
                l->kernels->add_to(l->h + n * l->width, l->dy + (t * l->batch + n) * l->width, l->width);
        if (l->w_hr) project_back(l, thread, t, begin, end);
        for (int64_t n = begin; n < end; n++) step_sequence_back(l, t, n);
        const float *dgates =
            l->kind == LK_RECURRENT_GRU ? l->dgates_h + begin * l->rows : gates_row(l, t, begin);
        multiply(l, thread, l->h + begin * l->width, l->width, dgates, l->rows, l->panels, count, l->width,
                 l->rows, NULL, true);
    }
    for (int64_t n = begin; l->dfirst && n < end; n++) {
        copy_or_zero(l->dfirst + n * l->state, l->h + n * l->width, l->width);
        if (l->state > l->width)
            copy_or_zero(l->dfirst + n * l->state + l->width, l->c + n * l->hidden, l->hidden);
    }
}

static layer describe_backward(const lk_call *call)
{
    lk_shape y = call->in[0].shape, w = call->in[2].shape;
    layer l = describe(call, y.dim[0], y.dim[1], w.dim[0], w.dim[1]);
    l.y = lki_cpu_in(call, 0), l.kept = lki_cpu_in(call, 1), l.dy = lki_cpu_in(call, 3);
    l.dlast = lki_cpu_in(call, 4), l.h0 = lki_cpu_in(call, 5), l.c0 = lki_cpu_in(call, 6);
    l.w_hr = lki_cpu_in(call, 7);
    l.lengths = lki_cpu_has(call, 8) ? call->in[8].data : NULL;
    l.dgates = lki_cpu_out(call, 0), l.dfirst = lki_cpu_out(call, 1);
    l.dh_out = l.w_hr ? lki_cpu_out(call, 2) : NULL;
    return l;
}

static lk_status run_backward(const lk_call *call)
{
    layer l = describe_backward(call);
    if (l.lengths) LKI_TRY(lki_ref_check_lengths(&call->in[8], l.steps));
    lay_out(&l, call->scratch);
    pack(l.panels, lki_cpu_in(call, 2), l.rows, l.width, l.width, 1);
    if (l.w_hr) pack(l.panels_hr, l.w_hr, l.width, l.hidden, l.hidden, 1);
    run_over_sequences(call, &l, run_sequences_back);
    return LK_OK;
}

lk_status lki_cpu_prepare_recurrent_grad(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (!lki_cpu_all_f32(call, 1u << 8)) return LK_OK;
    layer l = describe_backward(call);
    call->scratch_nbytes = (size_t)lay_out(&l, NULL) * sizeof(float);
    call->run = run_backward;
    return LK_OK;
}

/* ---- the weights' gradients ---- */

/* One call; its scratch. */
typedef struct weights {
    layer l;
    float *d;        /* (T, N, G H): what h's shares of the gates get; of a GRU in scratch */
    float *firsts;   /* (N, G H): of the steps that begin with h0 */
    float *raw;      /* (T, N, H): h before its projection */
    float *products; /* the gemm's */
} weights;

static layer describe_weights(const lk_call *call)
{
    lk_shape d = call->in[0].shape;
    layer l = describe(call, d.dim[0], d.dim[1], d.dim[2], call->in[1].shape.dim[2]);
    l.y = lki_cpu_in(call, 1), l.kept = lki_cpu_in(call, 2), l.h0 = lki_cpu_in(call, 3);
    l.lengths = lki_cpu_has(call, 5) ? call->in[5].data : NULL;
    return l;
}

static int64_t lay_out_weights(weights *w, const lk_call *call, float *scratch)
{
    const layer *l = &w->l;
    int64_t places = l->steps * l->batch, columns = l->width > l->hidden ? l->width : l->hidden;
    bool is_gru = l->kind == LK_RECURRENT_GRU;
    float **parts[] = {&w->d, &w->firsts, &w->raw, &w->products};
    int64_t counts[] = {is_gru ? places * l->rows : 0, l->batch * l->rows,
                        call->input_count > 4 && call->in[4].shape.rank ? places * l->hidden : 0,
                        (int64_t)(lki_cpu_gemm_scratch(lki_cpu_of(call), columns, places) / sizeof(float))};
    int64_t used = 0;
    for (int i = 0; i < 4; i++) {
        if (scratch) *parts[i] = scratch + used;
        used += (counts[i] + 15) / 16 * 16;
    }
    if (scratch && !is_gru) w->d = call->in[0].data;
    return used;
}

/* A GRU's n has h's share times r. */
static void scale_fresh(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const weights *w = ((const void *const *)context)[0];
    const float *dgates = ((const void *const *)context)[1];
    int64_t hidden = w->l.hidden, rows = w->l.rows;
    for (int64_t at = begin; at < end; at++) {
        copy_or_zero(w->d + at * rows, dgates + at * rows, 2 * hidden);
        w->l.kernels->tile[LK_OP_MUL](w->d + at * rows + 2 * hidden, dgates + at * rows + 2 * hidden,
                                      w->l.kept + at * w->l.saved, NULL, hidden, &(lki_tile_args){0});
    }
}

/* out (m, n) = A^T B, or out += A^T B, over k rows of A (k, m) and B (k, n). */
static void multiply_rows(const lk_call *call, const weights *w, float *out, const float *a, const float *b,
                          int64_t m, int64_t n, int64_t k, bool accumulate)
{
    lki_gemm g = {.m = m,
                  .n = n,
                  .k = k,
                  .a = a,
                  .a_row = 1,
                  .a_col = m,
                  .b = b,
                  .b_row = n,
                  .b_col = 1,
                  .c = out,
                  .c_row = n,
                  .accumulate = accumulate};
    lki_cpu_gemm(lki_cpu_of(call), &g, w->products);
}

/* dw_hh: each step's d with the h before it, which is the y of its neighbour; the first steps' with h0. A y
 * after a sequence's end is 0, and so is a d. */
static void add_up_weight(const lk_call *call, const weights *w)
{
    const layer *l = &w->l;
    float *out = call->out[0].data;
    int64_t shift = l->batch * l->rows, rest = l->steps > 0 ? l->steps - 1 : 0;
    const float *firsts = w->d;
    multiply_rows(call, w, out, w->d + (l->reverse || !rest ? 0 : shift),
                  l->y + (l->reverse && rest ? l->batch * l->width : 0), l->rows, l->width, rest * l->batch,
                  false);
    if (!l->h0 || !l->steps) return;
    if (l->reverse && l->lengths) {
        for (int64_t n = 0; n < l->batch; n++) {
            int64_t length = length_of(l, n), at = (length - 1) * l->batch + n;
            copy_or_zero(w->firsts + n * l->rows, length ? w->d + at * l->rows : NULL, l->rows);
        }
        firsts = w->firsts;
    } else if (l->reverse) {
        firsts = w->d + rest * shift;
    }
    multiply_rows(call, w, out, firsts, l->h0, l->rows, l->width, l->batch, true);
}

/* raw = o tanh c */
static void unprojected(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const weights *w = context;
    const layer *l = &w->l;
    const lki_tile_args none = {0};
    for (int64_t at = begin; at < end; at++) {
        float *raw = w->raw + at * l->hidden;
        const float *kept = l->kept + at * l->saved;
        l->kernels->tile[LK_OP_TANH](raw, kept + 4 * l->hidden, NULL, NULL, l->hidden, &none);
        l->kernels->tile[LK_OP_MUL](raw, raw, kept + 3 * l->hidden, NULL, l->hidden, &none);
    }
}

static lk_status run_weights(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    weights w = {.l = describe_weights(call)};
    const layer *l = &w.l;
    int64_t places = l->steps * l->batch;
    const float *dh = lki_cpu_in(call, 4);
    if (l->lengths) LKI_TRY(lki_ref_check_lengths(&call->in[5], l->steps));
    lay_out_weights(&w, call, call->scratch);
    if (l->kind == LK_RECURRENT_GRU)
        lki_parallel_for(cpu->pool, places, LKI_CPU_GRAIN / (l->rows + 1) + 1, scale_fresh,
                         (const void *[]){&w, call->in[0].data});
    if (lki_cpu_out(call, 0)) add_up_weight(call, &w);
    if (lki_cpu_out(call, 1)) l->kernels->column_sums(call->out[1].data, w.d, places, l->rows, l->rows);
    if (!dh || !lki_cpu_out(call, 2)) return LK_OK;
    lki_parallel_for(cpu->pool, places, LKI_CPU_GRAIN / (l->hidden + 1) + 1, unprojected, &w);
    multiply_rows(call, &w, call->out[2].data, dh, w.raw, l->width, l->hidden, places, false);
    return LK_OK;
}

lk_status lki_cpu_prepare_recurrent_grad_weight(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (!lki_cpu_all_f32(call, 1u << 5)) return LK_OK;
    weights w = {.l = describe_weights(call)};
    call->scratch_nbytes = (size_t)lay_out_weights(&w, call, NULL) * sizeof(float);
    call->run = run_weights;
    return LK_OK;
}
