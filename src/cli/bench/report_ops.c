/* The ops of a step, as tables or as JSON: their times, the three worst, what falls back, and the memory. */
#include "cli/bench/report.h"

#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "run/op_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORST_COUNT = 3, MEMORY_ROWS = 8 };

/* All calls of one op. The roof is of those for which it is known. */
typedef struct op_row {
    const char *op;
    int calls, fallbacks;
    double seconds, known_s, roof_s, memory_s;
} op_row;

static int by_seconds(const void *a, const void *b)
{
    const op_row *left = a, *right = b;
    return left->seconds != right->seconds ? (left->seconds < right->seconds ? 1 : -1) : 0;
}

static op_row *add_up(const lki_step_ops *ops, int *count, double *step_s)
{
    op_row *rows = LKI_NEW_ARRAY(op_row, ops->time_count + 1);
    *count = 0;
    *step_s = 0;
    for (int i = 0; rows && i < ops->time_count; i++) {
        const lki_op_time *time = &ops->times[i];
        int r = 0;
        while (r < *count && strcmp(rows[r].op, time->op) != 0) r++;
        if (r == *count) rows[(*count)++].op = time->op;
        rows[r].calls++;
        rows[r].fallbacks += time->fallback != NULL;
        rows[r].seconds += time->best_s;
        *step_s += time->best_s;
        if (time->roof_s < 0) continue;
        rows[r].known_s += time->best_s;
        rows[r].roof_s += time->roof_s;
        if (!strcmp(time->limit, "memory")) rows[r].memory_s += time->roof_s;
    }
    if (rows) qsort(rows, (size_t)*count, sizeof *rows, by_seconds);
    return rows;
}

static const char *limit_of(const op_row *row)
{
    if (row->known_s <= 0) return "";
    return row->memory_s > row->roof_s / 2 ? "memory" : "compute";
}

/* The calls that lose the most time above their roofline, the worst first. */
static int find_worst(const lki_step_ops *ops, const lki_op_time *worst[WORST_COUNT])
{
    int count = 0;
    for (int i = 0; i < ops->time_count; i++) {
        const lki_op_time *time = &ops->times[i];
        if (time->roof_s < 0 || time->best_s <= time->roof_s) continue;
        int at = count < WORST_COUNT ? count++ : WORST_COUNT;
        for (; at > 0; at--) {
            const lki_op_time *before = worst[at - 1];
            if (before->best_s - before->roof_s >= time->best_s - time->roof_s) break;
            if (at < WORST_COUNT) worst[at] = before;
        }
        if (at < WORST_COUNT) worst[at] = time;
    }
    return count;
}

/* ---- For people ---- */

static void print_times(const op_row *rows, int count, double step_s)
{
    printf("%-24s %6s %11s %7s %9s  %s\n", "op", "calls", "time us", "share", "roofline", "limit");
    for (int i = 0; i < count; i++) {
        char roof[32] = "";
        const op_row *row = &rows[i];
        if (row->known_s > 0) lki_snprintf(roof, sizeof roof, "%.0f%%", row->roof_s / row->known_s * 100);
        lki_fprintf(stdout, "%-24s %6d %11.1f %6.1f%% %9s  %s%s\n", row->op, row->calls, row->seconds * 1e6,
                    row->seconds / step_s * 100, roof, limit_of(row),
                    row->fallbacks ? row->known_s > 0 ? ", ref's kernel" : "ref's kernel" : "");
    }
}

static void print_worst(const lki_step_ops *ops)
{
    const lki_op_time *worst[WORST_COUNT];
    int count = find_worst(ops, worst);
    if (count) printf("most time above their roofline:\n");
    for (int i = 0; i < count; i++) {
        char time[32], roof[32];
        const lki_op_time *w = worst[i];
        printf("  %s of %s%s%s: %s, %s at the roofline of %s\n", w->op, lki_trace_kind_name(w->part),
               w->layer ? " in " : "", w->layer ? w->layer : "", lki_time_text(time, sizeof time, w->best_s),
               lki_time_text(roof, sizeof roof, w->roof_s), w->limit);
    }
    for (int i = 0; i < ops->time_count; i++)
        if (ops->times[i].fallback)
            lki_print_fallback(stdout, "  ", ops->times[i].op, ops->times[i].layer, ops->times[i].fallback);
}

static void print_memory(const lki_step_ops *ops)
{
    printf("memory: %zu bytes of activations, %zu of scratch, %zu of parameters, %zu of gradients, %zu of "
           "optimizer state\n",
           ops->arena_nbytes, ops->scratch_nbytes, ops->param_nbytes, ops->param_nbytes, ops->state_nbytes);
    if (!ops->memory_count) return;
    printf("at the peak, %s of %s%s%s, %zu bytes are in use:\n", ops->peak_op, ops->peak_part,
           ops->peak_layer ? " in " : "", ops->peak_layer ? ops->peak_layer : "", ops->peak_nbytes);
    printf("%-24s %6s %11s %7s  %s\n", "values of", "count", "bytes", "share", "the largest");
    for (int i = 0; i < ops->memory_count && i < MEMORY_ROWS; i++) {
        const lki_op_memory *m = &ops->memory[i];
        lki_fprintf(stdout, "%-24s %6d %11zu %6.1f%%  %zu bytes%s%s\n", m->op, m->value_count, m->nbytes,
                    (double)m->nbytes / (double)ops->peak_nbytes * 100, m->largest_nbytes,
                    m->largest_layer ? " in " : "", m->largest_layer ? m->largest_layer : "");
    }
}

/* ---- As JSON ---- */

static json_t *roof_json(double seconds)
{
    return seconds < 0 ? json_null() : json_real(seconds);
}

static json_t *call_json(const lki_op_time *time)
{
    return json_pack("{s:s, s:s?, s:s, s:f, s:o, s:s?}", "op", time->op, "layer", time->layer, "part",
                     lki_trace_kind_name(time->part), "time_s", time->best_s, "roofline_s",
                     roof_json(time->roof_s), "fallback", time->fallback);
}

static json_t *rows_json(const op_row *rows, int count, double step_s)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        const op_row *row = &rows[i];
        json_t *roof = row->known_s > 0 ? json_real(row->roof_s / row->known_s) : json_null();
        json_array_append_new(list, json_pack("{s:s, s:i, s:f, s:f, s:o, s:s, s:i}", "op", row->op, "calls",
                                              row->calls, "time_s", row->seconds, "share",
                                              row->seconds / step_s, "roofline", roof, "limit", limit_of(row),
                                              "fallbacks", row->fallbacks));
    }
    return list;
}

static json_t *memory_json(const lki_step_ops *ops)
{
    json_t *list = json_array();
    for (int i = 0; i < ops->memory_count; i++) {
        const lki_op_memory *m = &ops->memory[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:i, s:I, s:I, s:s?}", "op", m->op, "values", m->value_count,
                                        "nbytes", (json_int_t)m->nbytes, "largest_nbytes",
                                        (json_int_t)m->largest_nbytes, "largest_layer", m->largest_layer));
    }
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:s?, s:s?, s:s?, s:o}", "arena_nbytes", (json_int_t)ops->arena_nbytes,
        "scratch_nbytes", (json_int_t)ops->scratch_nbytes, "parameters_nbytes", (json_int_t)ops->param_nbytes,
        "state_nbytes", (json_int_t)ops->state_nbytes, "peak_nbytes", (json_int_t)ops->peak_nbytes, "peak_op",
        ops->peak_op, "peak_part", ops->peak_part, "peak_layer", ops->peak_layer, "at_peak", list);
}

/* Into the step that was reported last. */
static void add_to_step(lki_bench_report *report, const lki_step_ops *ops, const op_row *rows, int count,
                        double step_s)
{
    const lki_op_time *worst[WORST_COUNT];
    json_t *step = json_array_get(report->json, json_array_size(report->json) - 1);
    json_t *calls = json_array(), *worst_calls = json_array();
    int worst_count = find_worst(ops, worst);
    for (int i = 0; i < ops->time_count; i++) json_array_append_new(calls, call_json(&ops->times[i]));
    for (int i = 0; i < worst_count; i++) json_array_append_new(worst_calls, call_json(worst[i]));
    json_object_set_new(step, "ops", rows_json(rows, count, step_s));
    json_object_set_new(step, "calls", calls);
    json_object_set_new(step, "worst", worst_calls);
    json_object_set_new(step, "memory", memory_json(ops));
}

lk_status lki_bench_report_ops(lki_bench_report *report, const lki_step_ops *ops)
{
    int count;
    double step_s;
    LKI_SCOPED op_row *rows = add_up(ops, &count, &step_s);
    if (!rows) return LK_ERR_NOMEM;
    if (report->json) return add_to_step(report, ops, rows, count, step_s), LK_OK;
    lki_bench_begin_rows(report, "ops");
    if (count) print_times(rows, count, step_s);
    print_worst(ops);
    putchar('\n');
    print_memory(ops);
    return LK_OK;
}
