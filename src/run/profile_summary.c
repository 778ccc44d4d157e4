#include "run/profile_summary.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "data/loader.h"
#include "run/op_text.h"
#include "run/roofline.h"
#include "run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOP_COUNT = 10, DEPTH = 32 };

/* Of the train batches that count. */
typedef struct shares {
    int64_t steps, compiling; /* compiling: batches that are left out */
    double step_s;            /* of all steps, with the wait for their batches */
    double self_s[LKI_TRACE_KIND_COUNT];
} shares;

typedef struct site_time {
    int site;
    double self_s;
    int64_t count;
} site_time;

typedef struct summary {
    const lki_trace *trace;
    shares own;
    site_time *sites; /* of each site of the trace, then by time */
    const char *slow_callback;
    double slow_callback_s;
} summary;

/* ---- Adding up ---- */

/* A batch that compiles its plan says nothing about the others. */
static lk_status find_compiling(const lki_trace *trace, bool **out, int32_t *most)
{
    *most = 0;
    for (int64_t i = 0; i < trace->span_count; i++)
        if (trace->spans[i].trains && trace->spans[i].batch > *most) *most = trace->spans[i].batch;
    *out = LKI_NEW_ARRAY(bool, *most + 1);
    if (!*out) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < trace->span_count; i++)
        if (trace->spans[i].trains && trace->sites[trace->spans[i].site].kind == LKI_TRACE_COMPILE)
            (*out)[trace->spans[i].batch] = true;
    return LK_OK;
}

static double seconds_of(const lki_trace_span *span)
{
    return (double)(span->end_ns - span->begin_ns) * 1e-9;
}

static void add_self(summary *s, const lki_trace_span *span, double seconds)
{
    const lki_trace_site *site = &s->trace->sites[span->site];
    s->own.self_s[site->kind] += seconds;
    s->sites[span->site].self_s += seconds;
    if (site->kind != LKI_TRACE_CALLBACK || s->sites[span->site].self_s <= s->slow_callback_s) return;
    s->slow_callback = site->name;
    s->slow_callback_s = s->sites[span->site].self_s;
}

/* The time of a span belongs to the innermost one. Spans are sorted: those that are open form a stack. */
static void add_spans(summary *s, const bool *compiles)
{
    const lki_trace_span *open[DEPTH];
    int depth = 0;
    for (int64_t i = 0; i < s->trace->span_count; i++) {
        const lki_trace_span *span = &s->trace->spans[i];
        bool counts = span->trains && !compiles[span->batch];
        while (depth > 0 && open[depth - 1]->end_ns <= span->begin_ns) depth--;
        if (!counts) continue;
        if (depth > 0)
            add_self(s, open[depth - 1], -seconds_of(span));
        else
            s->own.step_s += seconds_of(span);
        add_self(s, span, seconds_of(span));
        s->sites[span->site].count++;
        s->own.steps += s->trace->sites[span->site].kind == LKI_TRACE_BATCH;
        if (depth < DEPTH) open[depth++] = span;
    }
}

static lk_status add_up(summary *s, const lki_trace *trace)
{
    bool *compiles;
    int32_t most;
    *s = (summary){.trace = trace};
    LKI_TRY(find_compiling(trace, &compiles, &most));
    int64_t compiling = 0;
    for (int32_t b = 0; b <= most; b++) compiling += compiles[b];
    if (compiling >= most) memset(compiles, 0, (size_t)most + 1); /* else nothing would be left */
    s->own.compiling = compiling >= most ? 0 : compiling;
    s->sites = LKI_NEW_ARRAY(site_time, trace->site_count + 1);
    for (int i = 0; s->sites && i < trace->site_count; i++) s->sites[i].site = i;
    if (s->sites) add_spans(s, compiles);
    lki_free(compiles);
    return s->sites ? LK_OK : LK_ERR_NOMEM;
}

/* ---- The lines ---- */

static double share_of(const shares *of, lki_trace_kind kind)
{
    return of->step_s > 0 ? of->self_s[kind] / of->step_s : 0;
}

static double mean_share(const shares *all, int count, lki_trace_kind kind)
{
    double sum = 0;
    for (int r = 0; r < count; r++) sum += share_of(&all[r], kind);
    return sum / count;
}

static void put_cover(FILE *out, const lk_runner *runner, const shares *own)
{
    const lki_profile *p = &runner->run->profile;
    fprintf(out, "profile of epoch %lld: %lld of %lld train batches", (long long)runner->epoch_step,
            (long long)p->traced, (long long)p->seen);
    if (p->evaluations)
        fprintf(out, " and %lld of %lld others", (long long)p->evaluated, (long long)p->evaluations);
    LKI_SCOPED char *path = lki_profile_path(runner);
    fprintf(out, ", %d rank%s, in %s (open it in Perfetto or chrome://tracing)\n", runner->world_size,
            runner->world_size == 1 ? "" : "s", path ? path : "trace.json");
    if (p->trace->left_out)
        fprintf(out, "  the trace was full: %lld spans are left out\n", (long long)p->trace->left_out);
    if (own->compiling)
        fprintf(out, "  not counted below: %lld batch%s that compiled a plan\n", (long long)own->compiling,
                own->compiling == 1 ? "" : "es");
}

static void put_shares(FILE *out, const shares *all, int count)
{
    static const lki_trace_kind shown[] = {LKI_TRACE_FORWARD, LKI_TRACE_CRITERION, LKI_TRACE_BACKWARD,
                                           LKI_TRACE_UPDATE,  LKI_TRACE_PROGRAM,   LKI_TRACE_COMMUNICATION,
                                           LKI_TRACE_LOADER,  LKI_TRACE_CALLBACK};
    char time[32];
    double rest = 1;
    lki_time_text(time, sizeof time, all[0].step_s / (double)all[0].steps);
    fprintf(out, "  a step takes %s%s:", time, count > 1 ? " on rank 0; mean shares of all ranks" : "");
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        double share = mean_share(all, count, shown[i]);
        rest -= share;
        if (share > 0) lki_fprintf(out, " %s %.1f%%,", lki_trace_kind_name(shown[i]), share * 100);
    }
    lki_fprintf(out, " other %.1f%%\n", rest * 100);
}

static void put_waiting(FILE *out, const shares *all, int count)
{
    int worst = 0;
    double least = INFINITY, most = -1, sum = 0;
    for (int r = 0; r < count; r++) {
        double waits = share_of(&all[r], LKI_TRACE_LOADER) + share_of(&all[r], LKI_TRACE_COMMUNICATION);
        sum += waits;
        least = fmin(least, waits);
        if (waits <= most) continue;
        most = waits;
        worst = r;
    }
    lki_fprintf(out, "  waiting for data and other ranks: %.1f%%", sum / count * 100);
    if (count > 1)
        lki_fprintf(out, " (%.1f%% to %.1f%%, the most on rank %d)", least * 100, most * 100, worst);
    fputc('\n', out);
}

static bool is_op(lki_trace_kind kind)
{
    return kind <= LKI_TRACE_PROGRAM;
}

static int by_time(const void *a, const void *b)
{
    const site_time *x = a, *y = b;
    return x->self_s != y->self_s ? (x->self_s < y->self_s ? 1 : -1) : x->site - y->site;
}

static lk_status put_op(FILE *out, const summary *s, const site_time *op, lki_roofline *roofline)
{
    const lki_trace_site *site = &s->trace->sites[op->site];
    char time[32], roof[48] = "";
    const char *limit;
    double least_s;
    LKI_TRY(lki_roofline_seconds(roofline, site, &least_s, &limit));
    if (least_s >= 0 && op->self_s > 0)
        lki_snprintf(roof, sizeof roof, "%.0f%% of %s", least_s * (double)op->count / op->self_s * 100,
                     limit);
    lki_time_text(time, sizeof time, op->self_s / (double)s->own.steps);
    char share[16];
    lki_snprintf(share, sizeof share, "%.1f%%", op->self_s / s->own.step_s * 100);
    fprintf(out, "  %-10s %-22s %-28.28s %11s %7s  %s\n", lki_trace_kind_name(site->kind), site->name,
            lki_layer_text(site->where), time, share, roof);
    return LK_OK;
}

/* The sites of ops come first, then the rest. */
static lk_status put_ops(FILE *out, summary *s, lki_roofline *roofline, int *count)
{
    int kept = 0;
    *count = 0;
    for (int i = 0; i < s->trace->site_count; i++)
        if (is_op(s->trace->sites[i].kind) && s->sites[i].count) s->sites[kept++] = s->sites[i];
    qsort(s->sites, (size_t)kept, sizeof *s->sites, by_time);
    *count = kept;
    if (!kept) return LK_OK;
    fprintf(out, "  %-10s %-22s %-28s %11s %7s  %s\n", "part", "op", "layer", "per step", "share",
            "roofline");
    for (int i = 0; i < kept && i < TOP_COUNT; i++) LKI_TRY(put_op(out, s, &s->sites[i], roofline));
    return LK_OK;
}

/* Calls that a plain kernel computes, as it has no other. */
static void put_fallbacks(FILE *out, const summary *s, int op_count)
{
    for (int i = 0; i < op_count; i++) {
        const lki_trace_site *site = &s->trace->sites[s->sites[i].site];
        if (site->fallback) lki_print_fallback(out, "  ", site->name, site->where, site->fallback);
    }
}

/* ---- What to do about it ---- */

static double mean_call_s(const summary *s, int op_count)
{
    double sum = 0, count = 0;
    for (int i = 0; i < op_count; i++) {
        sum += s->sites[i].self_s;
        count += (double)s->sites[i].count;
    }
    return count > 0 ? sum / count : INFINITY;
}

static void put_advice(FILE *out, const lk_runner *runner, const summary *s, const shares *all, int op_count)
{
    int ranks = runner->world_size;
    double loader = mean_share(all, ranks, LKI_TRACE_LOADER),
           comm = mean_share(all, ranks, LKI_TRACE_COMMUNICATION),
           callbacks = mean_share(all, ranks, LKI_TRACE_CALLBACK);
    const char *top = op_count ? s->trace->sites[s->sites[0].site].name : "";
    fputs("  what to try: ", out);
    if (loader > 0.15 && loader >= comm)
        fputs("the step waits for its batches: raise num_workers, or make the dataset cheaper to read\n",
              out);
    else if (comm > 0.2)
        fputs("the step waits for other ranks: a larger batch_size, accumulation_steps, compress_gradients "
              "or fewer ranks\n",
              out);
    else if (callbacks > 0.2 && s->slow_callback)
        fprintf(out, "callbacks take much of the step, %sCallback the most: call it less often\n",
                s->slow_callback);
    else if (!op_count || s->trace->sites[s->sites[0].site].kind == LKI_TRACE_PROGRAM)
        fputs("the step is one recorded program, whose kernels this trace does not tell apart; your GPU's "
              "own profiler does\n",
              out);
    else if (mean_call_s(s, op_count) < 2e-6)
        fputs("a call takes under 2 us, much of it its start: a larger batch_size does more per call\n", out);
    else
        fprintf(out,
                "the step computes, %s the most: more cores or ranks, precision bf16 if the CPU or GPU "
                "has it, or a smaller model\n",
                top);
}

static lk_status put_all(FILE *out, lk_runner *runner, summary *s, const shares *all)
{
    lki_roofline roofline = {.engine = runner->engine};
    int op_count;
    put_cover(out, runner, &s->own);
    if (!s->own.steps || !(s->own.step_s > 0)) return LK_OK;
    put_shares(out, all, runner->world_size);
    put_waiting(out, all, runner->world_size);
    LKI_TRY(put_ops(out, s, &roofline, &op_count));
    put_fallbacks(out, s, op_count);
    put_advice(out, runner, s, all, op_count);
    return LK_OK;
}

static lk_status write_summary(lk_runner *runner, summary *s, const shares *all, char **out)
{
    char *text = NULL;
    size_t nbytes = 0;
    LKI_SCOPED char *path = lki_format("%s/profile.txt", runner->run->given.logdir);
    FILE *stream = path ? open_memstream(&text, &nbytes) : NULL;
    if (!stream) return lki_fail(LK_ERR_NOMEM, "out of memory for the profile");
    lk_status status = put_all(stream, runner, s, all);
    fclose(stream);
    if (!status && runner->is_master) status = lki_write_file_atomic(path, text, nbytes);
    if (!status && runner->is_master) *out = lki_strdup(text);
    free(text);
    return status;
}

lk_status lki_profile_summarize(lk_runner *runner, char **out)
{
    summary s;
    lk_comm *comm = runner->run->ranks.comm;
    *out = NULL;
    LKI_SCOPED shares *all = LKI_NEW_ARRAY(shares, runner->world_size);
    if (!all) return LK_ERR_NOMEM;
    lk_status status = add_up(&s, runner->run->profile.trace);
    all[0] = s.own;
    if (!status && comm && comm->size > 1)
        status = lk_comm_all_gather(comm, &s.own, all, sizeof s.own, LK_U8);
    /* Every rank looks for its own roofline, so that each is measured as the ranks compute: all at once. */
    if (!status) status = write_summary(runner, &s, all, out);
    lki_free(s.sites);
    return status;
}
