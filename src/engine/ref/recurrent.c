/* Recurrent layers: one direction of one layer, sequence after sequence, step after step. The scratch holds
 * the numbers of one sequence. */
#include "engine/ref/ref.h"

#include "base/status.h"

#include <math.h>

/* The sizes of a call; see LK_OP_LIST. Element (t, n, j) of a tensor of width w lies at (t N + n) w + j. */
typedef struct layer {
    lk_recurrent kind;
    bool reverse;
    int64_t steps, batch, gates, hidden, width, saved; /* T, N, G, H, R, S */
    const lk_tensor *h0, *c0, *w_hr, *lengths;         /* or NULL */
} layer;

static layer describe(const lk_call *call, int64_t steps, int64_t batch, int64_t rows, int64_t width)
{
    layer l = {.kind = call->attr->recurrent.kind,
               .reverse = call->attr->recurrent.reverse,
               .steps = steps,
               .batch = batch,
               .width = width};
    l.gates = l.kind == LK_RECURRENT_LSTM ? 4 : l.kind == LK_RECURRENT_GRU ? 3 : 1;
    l.hidden = rows / l.gates;
    l.saved = l.gates > 1 ? (l.gates + 1) * l.hidden : 0;
    return l;
}

static int64_t length_of(const layer *l, int64_t n)
{
    return l->lengths ? lki_ref_get_i64(l->lengths, n) : l->steps;
}

/* Step i of a sequence, in the order of its direction. */
static int64_t step_at(const layer *l, int64_t length, int64_t i)
{
    return l->reverse ? length - 1 - i : i;
}

static double at(const lk_tensor *tensor, int64_t row, int64_t width, int64_t j)
{
    return tensor ? lki_ref_get(tensor, row * width + j) : 0;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

lk_status lki_ref_check_lengths(const lk_tensor *lengths, int64_t steps)
{
    int64_t count = lengths ? lk_tensor_count(lengths) : 0;
    for (int64_t n = 0; n < count; n++) {
        int64_t length = ((const int64_t *)lengths->data)[n];
        if (length < 0 || length > steps)
            return lki_fail(LK_ERR_RANGE, "the length %lld of sequence %lld is outside of 0..%lld",
                            (long long)length, (long long)n, (long long)steps);
    }
    return LK_OK;
}

size_t lki_ref_recurrent_scratch(const lk_call *call)
{
    lk_shape rows = call->in[call->op == LK_OP_RECURRENT_GRAD ? 2 : 0].shape, width = call->in[1].shape;
    if (call->op == LK_OP_RECURRENT_GRAD) width = rows;
    int64_t gates = call->op == LK_OP_RECURRENT_GRAD ? rows.dim[0] : rows.dim[2]; /* G H */
    return (size_t)(3 * gates + width.dim[width.rank - 1] + 1) * sizeof(double);
}

/* ---- forward ---- */

/* The scratch of one sequence: the state before a step, the gates' shares of h, and an h to project. */
typedef struct sequence {
    double *h, *c, *shares, *raw;
} sequence;

/* One unit of one step: from x's and h's shares of its gates. Returns h. */
static double step_unit(const lk_call *call, const layer *l, sequence *s, int64_t row, int64_t j)
{
    const lk_tensor *x = &call->in[0], *saved = lki_ref_out(call, 2);
    double gate[4] = {0}, extra = 0, h = 0;
    int64_t hidden = l->hidden;
    for (int64_t g = 0; g < l->gates; g++)
        gate[g] = at(x, row, l->gates * hidden, g * hidden + j) +
                  (l->kind == LK_RECURRENT_GRU && g == 2 ? 0 : s->shares[g * hidden + j]);
    switch (l->kind) {
    case LK_RECURRENT_LSTM:
        for (int g = 0; g < 4; g++) gate[g] = g == 2 ? tanh(gate[g]) : sigmoid(gate[g]);
        extra = s->c[j] = gate[1] * s->c[j] + gate[0] * gate[2];
        h = gate[3] * tanh(s->c[j]);
        break;
    case LK_RECURRENT_GRU:
        extra = s->shares[2 * hidden + j];
        gate[0] = sigmoid(gate[0]), gate[1] = sigmoid(gate[1]);
        gate[2] = tanh(gate[2] + gate[0] * extra);
        h = gate[2] + gate[1] * (s->h[j] - gate[2]);
        break;
    case LK_RECURRENT_RNN_TANH: h = tanh(gate[0]); break;
    case LK_RECURRENT_RNN_RELU: h = gate[0] > 0 || gate[0] != gate[0] ? gate[0] : 0; break;
    }
    if (!saved || !l->saved) return h;
    for (int64_t g = 0; g < l->gates; g++) lki_ref_set(saved, row * l->saved + g * hidden + j, gate[g]);
    lki_ref_set(saved, row * l->saved + l->gates * hidden + j, extra);
    return h;
}

static void step(const lk_call *call, const layer *l, sequence *s, int64_t row)
{
    const lk_tensor *w_hh = &call->in[1], *b_hh = lki_ref_in(call, 2), *y = lki_ref_out(call, 0);
    for (int64_t i = 0; i < l->gates * l->hidden; i++) {
        s->shares[i] = b_hh ? lki_ref_get(b_hh, i) : 0;
        for (int64_t k = 0; k < l->width; k++) s->shares[i] += lki_ref_get(w_hh, i * l->width + k) * s->h[k];
    }
    for (int64_t j = 0; j < l->hidden; j++) s->raw[j] = step_unit(call, l, s, row, j);
    for (int64_t k = 0; k < l->width; k++) {
        if (!l->w_hr) s->h[k] = s->raw[k];
        if (l->w_hr) s->h[k] = 0;
        for (int64_t j = 0; l->w_hr && j < l->hidden; j++)
            s->h[k] += lki_ref_get(l->w_hr, k * l->hidden + j) * s->raw[j];
        if (y) lki_ref_set(y, row * l->width + k, s->h[k]);
    }
}

lk_status lki_ref_recurrent(const lk_call *call)
{
    lk_shape x = call->in[0].shape, w = call->in[1].shape;
    layer l = describe(call, x.dim[0], x.dim[1], w.dim[0], w.dim[1]);
    const lk_tensor *last = lki_ref_out(call, 1);
    l.h0 = lki_ref_in(call, 3), l.c0 = lki_ref_in(call, 4), l.w_hr = lki_ref_in(call, 5);
    l.lengths = lki_ref_in(call, 6);
    LKI_TRY(lki_ref_check_lengths(l.lengths, l.steps));
    for (int i = 0; i < 3; i += 2)
        if (lki_ref_out(call, i)) lki_ref_fill(&call->out[i], 0);
    double *scratch = call->scratch;
    sequence s = {scratch, scratch + l.width, scratch + l.width + l.hidden,
                  scratch + l.width + (1 + l.gates) * l.hidden};
    for (int64_t n = 0; n < l.batch; n++) {
        int64_t length = length_of(&l, n);
        bool has_cell = l.kind == LK_RECURRENT_LSTM;
        for (int64_t k = 0; k < l.width; k++) s.h[k] = at(l.h0, n, l.width, k);
        for (int64_t j = 0; j < l.hidden; j++) s.c[j] = at(l.c0, n, l.hidden, j);
        for (int64_t i = 0; i < length; i++) step(call, &l, &s, step_at(&l, length, i) * l.batch + n);
        int64_t begin = n * (l.width + (has_cell ? l.hidden : 0));
        for (int64_t k = 0; last && k < l.width; k++) lki_ref_set(last, begin + k, s.h[k]);
        for (int64_t j = 0; last && has_cell && j < l.hidden; j++)
            lki_ref_set(last, begin + l.width + j, s.c[j]);
    }
    return LK_OK;
}

/* ---- back through the steps ---- */

/* The scratch of one sequence: gradients of h and c, of h before its projection, of h's shares of the gates.
 */
typedef struct gradients {
    double *dh, *dc, *draw, *dshares;
} gradients;

/* With dh and dc of the new state:
 * LSTM: do = dh tanh(c') o (1 - o); dc += dh o (1 - tanh(c')^2); di = dc g i (1 - i); df = dc c f (1 - f);
 * dg = dc i (1 - g^2); then dc = dc f. GRU: dz = dh (h - n) z (1 - z); dn = dh (1 - z) (1 - n^2); dr = dn hn
 * r (1 - r), where h's share of n gets dn r; then dh = dh z. RNN: dh by the slope. */
static void unit_back(const lk_call *call, const layer *l, gradients *s, int64_t row, double h, double c,
                      int64_t j)
{
    const lk_tensor *y = &call->in[0], *saved = &call->in[1];
    int64_t hidden = l->hidden, begin = row * l->saved + j;
    double gate[4] = {0}, d[4] = {0}, dh = s->draw[j], extra = 0;
    for (int64_t g = 0; l->saved && g < l->gates; g++) gate[g] = lki_ref_get(saved, begin + g * hidden);
    if (l->saved) extra = lki_ref_get(saved, begin + l->gates * hidden);
    switch (l->kind) {
    case LK_RECURRENT_LSTM: {
        double t = tanh(extra);
        s->dc[j] += dh * gate[3] * (1 - t * t);
        d[0] = s->dc[j] * gate[2] * gate[0] * (1 - gate[0]);
        d[1] = s->dc[j] * c * gate[1] * (1 - gate[1]);
        d[2] = s->dc[j] * gate[0] * (1 - gate[2] * gate[2]);
        d[3] = dh * t * gate[3] * (1 - gate[3]);
        s->dc[j] *= gate[1];
        break;
    }
    case LK_RECURRENT_GRU:
        d[1] = dh * (h - gate[2]) * gate[1] * (1 - gate[1]);
        d[2] = dh * (1 - gate[1]) * (1 - gate[2] * gate[2]);
        d[0] = d[2] * extra * gate[0] * (1 - gate[0]);
        s->dh[j] = dh * gate[1];
        break;
    case LK_RECURRENT_RNN_TANH: {
        double value = at(y, row, l->width, j);
        d[0] = dh * (1 - value * value);
        break;
    }
    case LK_RECURRENT_RNN_RELU: d[0] = at(y, row, l->width, j) > 0 ? dh : 0; break;
    }
    for (int64_t g = 0; g < l->gates; g++) {
        s->dshares[g * hidden + j] = l->kind == LK_RECURRENT_GRU && g == 2 ? d[2] * gate[0] : d[g];
        if (lki_ref_out(call, 0)) lki_ref_set(&call->out[0], row * l->gates * hidden + g * hidden + j, d[g]);
    }
}

/* Step i of a sequence, backwards: from the gradient of its result to that of the state before it. */
static void step_back(const lk_call *call, const layer *l, gradients *s, int64_t n, int64_t length, int64_t i)
{
    const lk_tensor *y = &call->in[0], *saved = &call->in[1], *w_hh = &call->in[2], *dy = lki_ref_in(call, 3);
    int64_t row = step_at(l, length, i) * l->batch + n, before = step_at(l, length, i - 1) * l->batch + n;
    for (int64_t k = 0; k < l->width; k++) {
        s->dh[k] += at(dy, row, l->width, k);
        if (l->w_hr && lki_ref_out(call, 2)) lki_ref_set(&call->out[2], row * l->width + k, s->dh[k]);
    }
    for (int64_t j = 0; j < l->hidden; j++) {
        s->draw[j] = l->w_hr ? 0 : s->dh[j];
        for (int64_t k = 0; l->w_hr && k < l->width; k++)
            s->draw[j] += s->dh[k] * lki_ref_get(l->w_hr, k * l->hidden + j);
    }
    for (int64_t k = 0; k < l->width; k++) s->dh[k] = 0;
    for (int64_t j = 0; j < l->hidden; j++) {
        double h = 0, c = 0;
        if (!l->w_hr) h = i ? at(y, before, l->width, j) : at(l->h0, n, l->width, j);
        if (l->kind == LK_RECURRENT_LSTM)
            c = i ? at(saved, before, l->saved, 4 * l->hidden + j) : at(l->c0, n, l->hidden, j);
        unit_back(call, l, s, row, h, c, j);
    }
    for (int64_t g = 0; g < l->gates * l->hidden; g++)
        for (int64_t k = 0; k < l->width; k++)
            s->dh[k] += s->dshares[g] * lki_ref_get(w_hh, g * l->width + k);
}

lk_status lki_ref_recurrent_grad(const lk_call *call)
{
    lk_shape y = call->in[0].shape, w = call->in[2].shape;
    layer l = describe(call, y.dim[0], y.dim[1], w.dim[0], w.dim[1]);
    const lk_tensor *dlast = lki_ref_in(call, 4), *dfirst = lki_ref_out(call, 1);
    l.h0 = lki_ref_in(call, 5), l.c0 = lki_ref_in(call, 6), l.w_hr = lki_ref_in(call, 7);
    l.lengths = lki_ref_in(call, 8);
    LKI_TRY(lki_ref_check_lengths(l.lengths, l.steps));
    for (int i = 0; i < 3; i += 2)
        if (lki_ref_out(call, i)) lki_ref_fill(&call->out[i], 0);
    double *scratch = call->scratch;
    gradients s = {scratch, scratch + l.width, scratch + l.width + l.hidden,
                   scratch + l.width + 2 * l.hidden};
    int64_t state = l.width + (l.kind == LK_RECURRENT_LSTM ? l.hidden : 0);
    for (int64_t n = 0; n < l.batch; n++) {
        int64_t length = length_of(&l, n);
        for (int64_t k = 0; k < state; k++) s.dh[k] = at(dlast, n, state, k); /* c follows h */
        for (int64_t i = length - 1; i >= 0; i--) step_back(call, &l, &s, n, length, i);
        for (int64_t k = 0; dfirst && k < state; k++) lki_ref_set(dfirst, n * state + k, s.dh[k]);
    }
    return LK_OK;
}

/* ---- the weights ---- */

/* One row of dw_hh and one number of db_hh: the sums over all steps of what gate g of h's share gets. */
static void weight_row(const lk_call *call, const layer *l, int64_t g, double *sums)
{
    const lk_tensor *dgates = &call->in[0], *y = &call->in[1], *saved = &call->in[2];
    int64_t rows = l->gates * l->hidden;
    for (int64_t k = 0; k <= l->width; k++) sums[k] = 0;
    for (int64_t n = 0; n < l->batch; n++) {
        int64_t length = length_of(l, n);
        for (int64_t i = 0; i < length; i++) {
            int64_t row = step_at(l, length, i) * l->batch + n,
                    before = step_at(l, length, i - 1) * l->batch + n;
            double d = lki_ref_get(dgates, row * rows + g);
            if (l->kind == LK_RECURRENT_GRU && g >= 2 * l->hidden)
                d *= lki_ref_get(saved, row * l->saved + g - 2 * l->hidden);
            for (int64_t k = 0; k < l->width; k++)
                sums[k] += d * (i ? at(y, before, l->width, k) : at(l->h0, n, l->width, k));
            sums[l->width] += d;
        }
    }
    for (int64_t k = 0; lki_ref_out(call, 0) && k < l->width; k++)
        lki_ref_set(&call->out[0], g * l->width + k, sums[k]);
    if (lki_ref_out(call, 1)) lki_ref_set(&call->out[1], g, sums[l->width]);
}

/* dw_hr = dh^T (o tanh c), summed over all steps; dh is 0 after a sequence's end. */
static double projection_gradient(const lk_call *call, const layer *l, int64_t k, int64_t j)
{
    const lk_tensor *saved = &call->in[2], *dh = &call->in[4];
    double sum = 0;
    for (int64_t row = 0; row < l->steps * l->batch; row++)
        sum += at(dh, row, l->width, k) * at(saved, row, l->saved, 3 * l->hidden + j) *
               tanh(at(saved, row, l->saved, 4 * l->hidden + j));
    return sum;
}

lk_status lki_ref_recurrent_grad_weight(const lk_call *call)
{
    lk_shape dgates = call->in[0].shape;
    layer l = describe(call, dgates.dim[0], dgates.dim[1], dgates.dim[2], call->in[1].shape.dim[2]);
    l.h0 = lki_ref_in(call, 3);
    l.lengths = lki_ref_in(call, 5);
    LKI_TRY(lki_ref_check_lengths(l.lengths, l.steps));
    for (int64_t g = 0; g < l.gates * l.hidden; g++) weight_row(call, &l, g, call->scratch);
    for (int64_t k = 0; lki_ref_in(call, 4) && lki_ref_out(call, 2) && k < l.width; k++)
        for (int64_t j = 0; j < l.hidden; j++)
            lki_ref_set(&call->out[2], k * l.hidden + j, projection_gradient(call, &l, k, j));
    return LK_OK;
}
