/* Connectionist temporal classification: the probability of all alignments of a target with its input. */
#include <lockstep/nn.h>

#include "base/arguments.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "nn/embeddings.h"

#include <math.h>

/* Stands for the logarithm of 0: far below any sum of log-probabilities, but the difference of two is a
 * number. */
static const double IMPOSSIBLE = -1e30;

typedef struct ctc {
    int64_t blank;
    bool zero_infinity;
    lk_reduction reduction;
} ctc;

/* The arguments with a batch, and what follows from them. A path goes through 2 S + 1 states: blank, the
 * first label, blank, ..., the last label, blank. */
typedef struct paths {
    lk_value *scores;                       /* (T, N, C) */
    lk_value *labels;                       /* i64 (N, S) */
    lk_value *input_lengths, *label_counts; /* i64 (N) */
    lk_value *states;                       /* i64 (N, 2 S + 1): the class of each */
    lk_value *skips;                        /* bool (N, 2 S + 1): whether two states before may come before */
    int64_t steps, count, classes, length;  /* T, N, C, S */
} paths;

static lk_value *number(lk_value *like, double value)
{
    return lk_op_full(lk_value_graph(like), lk_scalar_shape(), value, lk_value_dtype(like));
}

/* i64 arithmetic goes through f64, which holds every length exactly. */
static lk_value *as_numbers(lk_value *whole)
{
    return lk_op_cast(whole, LK_F64);
}

/* Targets that lie one after the other, (sum of the lengths), as rows (N, sum): row n begins where the
 * targets before it end. What lies after the end of a row is never used. */
static lk_value *as_rows(const paths *p, lk_value *labels)
{
    int64_t whole = lk_value_shape(labels).dim[0];
    lk_value *lengths = as_numbers(p->label_counts);
    lk_value *begin = lk_op_sub(lk_op_cumsum(lengths, 0), lengths);
    lk_value *place = lk_op_arange(lk_value_graph(labels), 0, (double)whole, 1, LK_F64);
    place = lk_op_add(lk_op_unsqueeze(begin, 1), lk_op_unsqueeze(place, 0));
    place = lk_op_cast(lk_op_clamp(place, 0, (double)whole - 1), LK_I64);
    return lk_op_gather(lk_op_expand(lk_op_unsqueeze(labels, 0), LK_SHAPE(p->count, whole)), 1, place);
}

static lk_status check(lk_value *const *inputs)
{
    lk_shape scores = lk_value_shape(inputs[0]), labels = lk_value_shape(inputs[1]);
    lk_graph *graph = lk_value_graph(inputs[0]);
    int batch = scores.rank - 2; /* 1 with a batch, else 0 */
    bool fits =
        batch == 0 ? labels.rank == 1
                   : batch == 1 && (labels.rank == 1 || (labels.rank == 2 && labels.dim[0] == scores.dim[1]));
    for (int i = 2; fits && i < 4; i++) {
        lk_shape lengths = lk_value_shape(inputs[i]);
        fits = lengths.rank == batch || (batch == 0 && lk_shape_count(lengths) == 1);
        if (fits && batch == 1) fits = lengths.dim[0] == scores.dim[1];
    }
    for (int i = 1; fits && i < 4; i++) fits = lk_value_dtype(inputs[i]) == LK_I64;
    if (fits) return LK_OK;
    lki_graph_fail(graph, LK_ERR_SHAPE,
                   "expected log-probabilities (T, N, C), i64 targets (N, S) and i64 lengths of inputs and "
                   "targets (N), found %s, %s, %s and %s",
                   LKI_SHOW(scores), LKI_SHOW(labels), LKI_SHOW(lk_value_shape(inputs[2])),
                   LKI_SHOW(lk_value_shape(inputs[3])));
    return LK_ERR_SHAPE;
}

/* The lengths themselves, by a look-up that fails while the batch is computed if one is not in 0..largest. */
static lk_value *checked(lk_value *lengths, int64_t largest)
{
    lk_value *known = lk_op_arange(lk_value_graph(lengths), 0, (double)largest + 1, 1, LK_F64);
    return lk_op_cast(lk_op_gather(known, 0, lengths), LK_I64);
}

/* Each label with a blank before it, and one at the end. */
static lk_value *make_states(const paths *p, int64_t blank)
{
    lk_graph *graph = lk_value_graph(p->scores);
    lk_value *blanks = lk_op_full(graph, LK_SHAPE(p->count, p->length, 1), (double)blank, LK_I64);
    lk_value *last = lk_op_full(graph, LK_SHAPE(p->count, 1), (double)blank, LK_I64);
    if (p->length == 0) return last;
    lk_value *pair[] = {blanks, lk_op_unsqueeze(p->labels, 2)};
    lk_value *both[] = {lk_op_reshape(lk_op_concat(pair, 2, 2), LK_SHAPE(p->count, 2 * p->length)), last};
    return lk_op_concat(both, 2, 1);
}

/* A label may follow the label before it without a blank, unless both are the same. */
static lk_value *make_skips(const paths *p, int64_t blank)
{
    int64_t width = 2 * p->length + 1;
    lk_graph *graph = lk_value_graph(p->scores);
    if (p->length == 0) return lk_op_cast(lk_op_full(graph, LK_SHAPE(p->count, 1), 0, LK_F32), LK_BOOL);
    lk_value *first = lk_op_full(graph, LK_SHAPE(p->count, 2), (double)blank, LK_I64);
    lk_value *both[] = {first, lk_op_slice(p->states, 1, 0, width - 2, 1)};
    lk_value *before = lk_op_concat(both, 2, 1);
    lk_value *differs = lk_op_cast(lk_op_not_equal(p->states, before), LK_F32);
    lk_value *is_label = lk_op_cast(lk_op_not_equal(p->states, number(p->states, (double)blank)), LK_F32);
    lk_value *place = lk_op_arange(graph, 0, (double)width, 1, LK_F32);
    lk_value *is_late = lk_op_cast(lk_op_greater(place, number(place, 1.5)), LK_F32);
    return lk_op_cast(lk_op_mul(lk_op_mul(differs, is_label), is_late), LK_BOOL);
}

static lk_status prepare(paths *p, lk_value *const *inputs, int64_t blank)
{
    LKI_TRY(check(inputs));
    bool has_batch = lk_value_shape(inputs[0]).rank == 3;
    p->scores = has_batch ? inputs[0] : lk_op_unsqueeze(inputs[0], 1);
    p->input_lengths = has_batch ? inputs[2] : lk_op_reshape(inputs[2], LK_SHAPE(1));
    p->label_counts = has_batch ? inputs[3] : lk_op_reshape(inputs[3], LK_SHAPE(1));
    if (!p->scores) return LK_ERR_SHAPE;
    lk_shape shape = lk_value_shape(p->scores);
    p->steps = shape.dim[0], p->count = shape.dim[1], p->classes = shape.dim[2];
    if (p->steps < 1 || blank >= p->classes) {
        lki_graph_fail(lk_value_graph(p->scores), LK_ERR_SHAPE,
                       "expected at least 1 step and a class of number %lld, found %s", (long long)blank,
                       LKI_SHOW(shape));
        return LK_ERR_SHAPE;
    }
    p->input_lengths = checked(p->input_lengths, p->steps);
    lk_value *labels = inputs[1];
    p->label_counts = checked(p->label_counts, lk_value_shape(labels).dim[lk_value_shape(labels).rank - 1]);
    if (has_batch && lk_value_shape(labels).rank == 1) {
        p->labels =
            lk_value_shape(labels).dim[0] ? as_rows(p, labels) : lk_op_reshape(labels, LK_SHAPE(p->count, 0));
    } else {
        p->labels = has_batch ? labels : lk_op_unsqueeze(labels, 0);
    }
    if (!p->labels) return LK_ERR_SHAPE;
    p->length = lk_value_shape(p->labels).dim[1];
    /* What stands behind the end of a target need not be a class. */
    lk_value *place = lk_op_arange(lk_value_graph(p->scores), 0, (double)p->length, 1, LK_I64);
    lk_value *is_inside = p->length ? lk_op_less(place, lk_op_unsqueeze(p->label_counts, 1)) : NULL;
    if (is_inside) p->labels = lki_where_index(is_inside, p->labels, (double)blank);
    p->states = make_states(p, blank);
    p->skips = make_skips(p, blank);
    return p->states && p->skips ? LK_OK : LK_ERR_SHAPE;
}

/* x moved `by` states to the right. */
static lk_value *moved(lk_value *x, int64_t by)
{
    int64_t before[LK_MAX_DIMS] = {0, by}, after[LK_MAX_DIMS] = {0};
    int64_t width = lk_value_shape(x).dim[1];
    return lk_op_pad(lk_op_slice(x, 1, 0, width - by, 1), before, after, LK_PAD_CONSTANT, IMPOSSIBLE);
}

/* (N, width) at the given number of states from the left. */
static lk_value *at(lk_value *x, lk_value *place)
{
    return lk_op_squeeze(lk_op_gather(x, 1, lk_op_unsqueeze(lk_op_cast(place, LK_I64), 1)), 1);
}

/* The log-probability of the paths to each state after each step, of which a sequence keeps its last. */
static lk_value *run(const paths *p)
{
    int64_t width = 2 * p->length + 1;
    lk_value *index = lk_op_expand(lk_op_unsqueeze(p->states, 0), LK_SHAPE(p->steps, p->count, width));
    lk_value *emitted = lk_op_gather(p->scores, 2, index); /* (T, N, width) */
    lk_value *now = lk_op_squeeze(lk_op_slice(emitted, 0, 0, 1, 1), 0);
    if (!now) return NULL;
    lk_dtype dtype = lk_value_dtype(now);
    if (width > 2) { /* a path begins with the first blank or the first label */
        int64_t before[LK_MAX_DIMS] = {0}, after[LK_MAX_DIMS] = {0, width - 2};
        now = lk_op_pad(lk_op_slice(now, 1, 0, 2, 1), before, after, LK_PAD_CONSTANT, IMPOSSIBLE);
    }
    lk_value *lengths = lk_op_unsqueeze(p->input_lengths, 1);
    lk_value *never = lk_op_full(lk_value_graph(now), LK_SHAPE(p->count, width), IMPOSSIBLE, dtype);
    for (int64_t t = 1; t < p->steps && now; t++) {
        lk_value *next = now;
        if (width > 2) {
            lk_value *ways[] = {now, moved(now, 1), lk_op_where(p->skips, moved(now, 2), never)};
            next = lk_op_logsumexp(lk_op_stack(ways, 3, 0), LK_AXES(0), false);
        }
        next = lk_op_add(next, lk_op_squeeze(lk_op_slice(emitted, 0, t, t + 1, 1), 0));
        now = lk_op_where(lk_op_greater(lengths, number(lengths, (double)t)), next, now);
    }
    return now;
}

/* PyTorch's gradient of a log-probability also has its exponential: with a log_softmax before the loss it
 * makes no difference, without one the numbers are PyTorch's. It adds 0 to the loss. */
static lk_value *add_exponentials(const paths *p, lk_value *loss)
{
    lk_value *time = lk_op_arange(lk_value_graph(loss), 0, (double)p->steps, 1, LK_I64);
    lk_value *counts = lk_op_less(lk_op_reshape(time, LK_SHAPE(p->steps, 1, 1)),
                                  lk_op_reshape(p->input_lengths, LK_SHAPE(1, p->count, 1)));
    lk_value *exponentials = lk_op_exp(p->scores);
    lk_value *nothing = lk_op_sub(exponentials, lk_op_detach(exponentials));
    nothing = lk_op_where(counts, nothing, lki_scalar_like(nothing, 0));
    return lk_op_add(loss, lk_op_sum(nothing, LK_AXES(0, 2), false));
}

/* The mean divides by the length of each target first; an empty one counts as 1. */
static lk_value *reduce(const ctc *own, const paths *p, lk_value *loss)
{
    if (own->reduction != LK_REDUCTION_MEAN) return lki_reduced(loss, own->reduction);
    lk_value *lengths = lk_op_clamp(lk_op_cast(p->label_counts, lk_value_dtype(loss)), 1, INFINITY);
    return lk_op_mean(lk_op_div(loss, lengths), LK_ALL_AXES, false);
}

static lk_value *ctc_forward(lk_value *const *inputs, int count, void *context)
{
    const ctc *own = context;
    paths p = {0};
    (void)count;
    if (prepare(&p, inputs, own->blank)) return NULL;
    lk_value *last = run(&p);
    if (!last) return NULL;
    /* A path ends with the last label or the blank behind it; without labels there is only the blank. */
    lk_value *twice = lk_op_mul_scalar(as_numbers(p.label_counts), 2);
    lk_value *behind = at(last, lk_op_clamp(twice, 0, 2 * (double)p.length));
    lk_value *label = at(last, lk_op_clamp(lk_op_add_scalar(twice, -1), 0, 2 * (double)p.length));
    lk_value *is_empty = lk_op_equal(p.label_counts, number(p.label_counts, 0));
    lk_value *impossible = lki_full_like(label, IMPOSSIBLE);
    lk_value *ends[] = {behind, lk_op_where(is_empty, impossible, label)};
    lk_value *loss = lk_op_neg(lk_op_logsumexp(lk_op_stack(ends, 2, 0), LK_AXES(0), false));
    if (!loss) return NULL;
    loss = add_exponentials(&p, loss);
    lk_value *fits = lk_op_less(loss, lki_scalar_like(loss, -IMPOSSIBLE / 2));
    loss = lk_op_where(fits, loss, lki_scalar_like(loss, own->zero_infinity ? 0 : INFINITY));
    bool has_batch = lk_value_shape(inputs[0]).rank == 3;
    if (own->reduction == LK_REDUCTION_NONE && !has_batch) return lk_op_squeeze(loss, 0);
    return reduce(own, &p, loss);
}

lk_criterion *lk_ctc_loss_with(const lk_ctc_loss_options *given)
{
    LKI_TAKE(lk_ctc_loss_options, options, given, NULL);
    ctc draft = {options.blank, options.zero_infinity, options.reduction};
    if (lki_check_reduction("CTCLoss", draft.reduction)) return NULL;
    if (draft.blank < 0)
        return lki_fail_null(LK_ERR_INVALID, "CTCLoss: blank: expected 0 or more, found %lld",
                             (long long)draft.blank);
    return lki_several_criterion("CTCLoss", ctc_forward, 4, &draft, sizeof draft);
}
