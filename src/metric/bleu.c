/* BLEU: how many n-grams of a translation are in its reference (Papineni and others, 2002). */
#include "base/arguments.h"
#include "base/take.h"
#include "metric/metric.h"

#include <string.h>

enum { MAX_ORDER = 16, DEFAULT_ORDER = 4 };

typedef struct bleu_metric {
    lk_metric base;
    int order;
    bool smooth, has_ignore;
    int64_t ignore;
    int64_t matched[MAX_ORDER], total[MAX_ORDER]; /* n-grams of n = 1, 2, ... */
    int64_t lengths[2];                           /* of the outputs and of the references */
} bleu_metric;

typedef struct sentence {
    int64_t *tokens;
    int64_t count;
} sentence;

static int64_t occurrences(const int64_t *gram, int n, sentence in)
{
    int64_t count = 0;
    for (int64_t i = 0; i + n <= in.count; i++)
        count += memcmp(gram, in.tokens + i, sizeof *gram * (size_t)n) == 0;
    return count;
}

/* Each n-gram of the output counts at most as often as the reference has it. */
static int64_t matches(sentence output, sentence reference, int n)
{
    int64_t found = 0;
    for (int64_t i = 0; i + n <= output.count; i++) {
        const int64_t *gram = output.tokens + i;
        if (occurrences(gram, n, (sentence){output.tokens, i + n - 1}) > 0) continue; /* counted already */
        int64_t there = occurrences(gram, n, output), wanted = occurrences(gram, n, reference);
        found += there < wanted ? there : wanted;
    }
    return found;
}

static void add_sentence(bleu_metric *metric, sentence output, sentence reference)
{
    metric->lengths[0] += output.count;
    metric->lengths[1] += reference.count;
    for (int n = 1; n <= metric->order; n++) {
        metric->matched[n - 1] += matches(output, reference, n);
        if (output.count >= n) metric->total[n - 1] += output.count - n + 1;
    }
}

static bool counts(const bleu_metric *metric, int64_t token)
{
    return !(metric->has_ignore && token == metric->ignore);
}

/* Row `index` of tokens (samples, length), without those that do not count. */
static void read_tokens(const bleu_metric *metric, const lk_tensor *from, int64_t index, sentence *to)
{
    int64_t length = from->shape.dim[1];
    to->count = 0;
    for (int64_t i = 0; i < length; i++) {
        int64_t token = (int64_t)lk_tensor_get(from, index * length + i);
        if (counts(metric, token)) to->tokens[to->count++] = token;
    }
}

/* The same of logits (samples, tokens, length): the highest, the first of equals. */
static void choose_tokens(const bleu_metric *metric, const lk_tensor *from, int64_t index, sentence *to)
{
    int64_t tokens = from->shape.dim[1], length = from->shape.dim[2];
    to->count = 0;
    for (int64_t i = 0; i < length; i++) {
        int64_t best = 0;
        double highest = -INFINITY;
        for (int64_t t = 0; t < tokens; t++) {
            double score = lk_tensor_get(from, (index * tokens + t) * length + i);
            if (score > highest) highest = score, best = t;
        }
        if (counts(metric, best)) to->tokens[to->count++] = best;
    }
}

static lk_status bleu_update(lk_metric *base, const lk_tensor *outputs, const lk_tensor *targets)
{
    bleu_metric *metric = (bleu_metric *)base;
    char a[160], b[160];
    if (!targets) return lki_fail(LK_ERR_INVALID, "bleu: there are no targets");
    int rank = outputs->shape.rank;
    if ((rank != 2 && rank != 3) || targets->shape.rank != 2 ||
        targets->shape.dim[0] != outputs->shape.dim[0])
        return lki_fail(LK_ERR_SHAPE,
                        "bleu: expected tokens (samples, length) or logits (samples, tokens, length) and "
                        "targets (samples, length), found %s and %s",
                        lk_shape_format(a, sizeof a, outputs->shape),
                        lk_shape_format(b, sizeof b, targets->shape));
    LKI_SCOPED int64_t *said = LKI_NEW_ARRAY(int64_t, outputs->shape.dim[rank - 1] + 1);
    LKI_SCOPED int64_t *wanted = LKI_NEW_ARRAY(int64_t, targets->shape.dim[1] + 1);
    if (!said || !wanted) return LK_ERR_NOMEM;
    sentence output = {said, 0}, reference = {wanted, 0};
    for (int64_t i = 0; i < targets->shape.dim[0]; i++) {
        if (rank == 2)
            read_tokens(metric, outputs, i, &output);
        else
            choose_tokens(metric, outputs, i, &output);
        read_tokens(metric, targets, i, &reference);
        add_sentence(metric, output, reference);
    }
    return LK_OK;
}

static void bleu_reset(lk_metric *base)
{
    bleu_metric *metric = (bleu_metric *)base;
    memset(metric->matched, 0, sizeof metric->matched);
    memset(metric->total, 0, sizeof metric->total);
    memset(metric->lengths, 0, sizeof metric->lengths);
}

static int bleu_parts(lk_metric *base, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    bleu_metric *metric = (bleu_metric *)base;
    parts[0] = (lki_metric_part){LKI_METRIC_SUM_I64, metric->matched, MAX_ORDER};
    parts[1] = (lki_metric_part){LKI_METRIC_SUM_I64, metric->total, MAX_ORDER};
    parts[2] = (lki_metric_part){LKI_METRIC_SUM_I64, metric->lengths, 2};
    return 3;
}

static double bleu_of(const bleu_metric *metric)
{
    double logs = 0, said = (double)metric->lengths[0], wanted = (double)metric->lengths[1];
    for (int n = 0; n < metric->order; n++) {
        double more = metric->smooth && n > 0;
        double matched = (double)metric->matched[n] + more, total = (double)metric->total[n] + more;
        if (matched == 0) return 0;
        logs += log(matched / total) / metric->order;
    }
    return (said > wanted ? 1 : exp(1 - wanted / said)) * exp(logs);
}

static lk_status bleu_compute(lk_metric *base)
{
    const bleu_metric *metric = (const bleu_metric *)base;
    base->values.items[0].value = metric->lengths[0] + metric->lengths[1] > 0 ? bleu_of(metric) : NAN;
    return LK_OK;
}

lk_metric *lk_bleu_metric_with(const lk_metric_options *given)
{
    LKI_TAKE(lk_metric_options, options, given, NULL);
    static const lki_metric_kind kind = {.name = "bleu",
                                         .update_tensors = bleu_update,
                                         .reset = bleu_reset,
                                         .parts = bleu_parts,
                                         .compute = bleu_compute,
                                         .reads = LKI_READS_IGNORE | LKI_READS_ORDER};
    int64_t ignored;
    int order = options.max_order ? options.max_order : DEFAULT_ORDER;
    if (order < 1 || order > MAX_ORDER)
        return lki_fail_null(LK_ERR_INVALID, "bleu: max_order: expected 1 to %d, found %d", MAX_ORDER, order);
    if (lki_whole_or(options.ignore_index, 0, "bleu", "ignore_index", &ignored)) return NULL;
    bleu_metric *metric = (bleu_metric *)lki_metric_new(sizeof *metric, &kind, &options);
    if (!metric) return NULL;
    metric->order = order;
    metric->smooth = options.smooth;
    metric->has_ignore = lki_number_given(options.ignore_index);
    metric->ignore = ignored;
    if (!lki_metric_add_value(&metric->base, "bleu", "")) return &metric->base;
    lk_metric_free(&metric->base);
    return NULL;
}
