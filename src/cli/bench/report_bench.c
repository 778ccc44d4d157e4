/* The tables of lockstep bench, for people or as JSON. */
#include "cli/bench/report.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

lki_bench_report *lki_bench_report_begin(bool json)
{
    lki_bench_report *report = LKI_NEW(lki_bench_report);
    if (report && json) report->json = json_array();
    return report;
}

void lki_bench_add_json(lki_bench_report *report, json_t *value)
{
    json_array_append_new(report->json, value);
}

bool lki_bench_begin_rows(lki_bench_report *report, const char *kind)
{
    bool fresh = !report->last_rows || strcmp(report->last_rows, kind) != 0;
    if (fresh && report->last_rows) putchar('\n');
    report->last_rows = kind;
    return fresh;
}

static json_t *workload_json(const lki_workload *w)
{
    return json_pack("{s:s, s:I, s:I, s:f, s:f, s:f}", "name", w->name, "parameters",
                     (json_int_t)w->parameter_count, "batch_size", (json_int_t)w->batch_size, "forward_s",
                     w->forward_s, "backward_s", w->backward_s, "update_s", w->update_s);
}

void lki_bench_report_step(lki_bench_report *report, const lki_workload *w)
{
    double step_s = w->forward_s + w->backward_s + w->update_s, rate = (double)w->batch_size / step_s;
    if (report->json) {
        json_t *value = workload_json(w);
        json_object_set_new(value, "step_s", json_real(step_s));
        json_object_set_new(value, "samples_per_s", json_real(rate));
        lki_bench_add_json(report, value);
        return;
    }
    if (lki_bench_begin_rows(report, "step"))
        printf("%-24s %11s %6s %11s %11s %11s %11s %11s\n", "step", "parameters", "batch", "forward us",
               "backward us", "update us", "step us", "samples/s");
    printf("%-24s %11lld %6lld %11.1f %11.1f %11.1f %11.1f %11.0f\n", w->name, (long long)w->parameter_count,
           (long long)w->batch_size, w->forward_s * 1e6, w->backward_s * 1e6, w->update_s * 1e6, step_s * 1e6,
           rate);
}

static json_t *prediction_json(const lki_prediction *p)
{
    return json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "ranks", p->ranks, "hosts", p->hosts, "step_s",
                     p->step_s, "communication_s", p->communication_s, "exposed_s", p->exposed_s,
                     "efficiency", p->efficiency, "samples_per_s", p->samples_per_s);
}

static const char *describe_backend(const lki_cluster *c)
{
    if (c->backend == LKI_SCALING_MPI) return "MPI between all ranks";
    if (c->backend == LKI_SCALING_GLOO) return "Gloo between all ranks";
    return c->ranks_per_host > 1 ? "shared memory within a host, Gloo between hosts" : "Gloo between hosts";
}

static void print_head(const lki_workload *w, const lki_cluster *c, int buckets)
{
    lki_network n = c->network;
    lki_network_defaults(&n);
    printf(
        "%s: %lld parameters in %d bucket%s, batch %lld per rank; forward %.3f ms, backward %.3f ms, update "
        "%.3f ms\n",
        w->name, (long long)w->parameter_count, buckets, buckets == 1 ? "" : "s", (long long)w->batch_size,
        w->forward_s * 1e3, w->backward_s * 1e3, w->update_s * 1e3);
    printf("%s; %d rank%s per host; %.4g us one way and %.4g us of software per message, %.4g Gbit/s\n",
           describe_backend(c), c->ranks_per_host, c->ranks_per_host == 1 ? "" : "s", n.latency_s * 1e6,
           n.overhead_s * 1e6, n.bandwidth * 8e-9);
    if (c->accumulation > 1)
        printf("gradients of %d batches are accumulated before they are sent\n", c->accumulation);
    if (c->compress) printf("gradients are sent as bf16\n");
    printf("%7s %7s %12s %12s %12s %11s %13s\n", "ranks", "hosts", "step ms", "exposed ms", "network ms",
           "efficiency", "samples/s");
}

static void print_prediction(const lki_prediction *p)
{
    printf("%7d %7d %12.3f %12.3f %12.3f %10.1f%% %13.0f\n", p->ranks, p->hosts, p->step_s * 1e3,
           p->exposed_s * 1e3, p->communication_s * 1e3, p->efficiency * 100, p->samples_per_s);
}

void lki_bench_report_scaling(lki_bench_report *report, const lki_workload *w, const lki_cluster *cluster,
                              int max_ranks)
{
    lki_prediction p;
    json_t *rows = report->json ? json_array() : NULL;
    lki_predict(w, cluster, max_ranks > 1 ? max_ranks : 2, &p);
    if (!rows) {
        if (report->last_rows) putchar('\n');
        report->last_rows = "scaling";
        print_head(w, cluster, p.buckets);
    }
    for (int64_t ranks = 1; ranks <= max_ranks; ranks *= 2) {
        lki_predict(w, cluster, (int)ranks, &p);
        if (rows)
            json_array_append_new(rows, prediction_json(&p));
        else
            print_prediction(&p);
    }
    if (rows) {
        json_t *value = workload_json(w);
        json_object_set_new(value, "buckets", json_integer(p.buckets));
        json_object_set_new(value, "predictions", rows);
        lki_bench_add_json(report, value);
    }
}

void lki_bench_report_collective(lki_bench_report *report, const char *comm, int ranks, double nbytes,
                                 double median_s, double best_s)
{
    if (report->json) {
        lki_bench_add_json(report, json_pack("{s:s, s:s, s:i, s:f, s:f, s:f}", "collective", "all-reduce",
                                             "comm", comm, "ranks", ranks, "nbytes", nbytes, "median_s",
                                             median_s, "best_s", best_s));
        return;
    }
    if (lki_bench_begin_rows(report, "collective"))
        printf("%-24s %11s %6s %11s %11s %11s\n", "all-reduce", "bytes", "ranks", "median us", "best us",
               "GB/s");
    printf("%-24s %11.0f %6d %11.1f %11.1f %11.3f\n", comm, nbytes, ranks, median_s * 1e6, best_s * 1e6,
           nbytes / median_s * 1e-9);
}

void lki_bench_report_drop(lki_bench_report *report)
{
    if (report) json_decref(report->json);
    lki_free(report);
}

lk_status lki_bench_report_end(lki_bench_report *report)
{
    lk_status status = LK_OK;
    if (report->json) {
        if (json_dumpf(report->json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0)
            status = lki_fail(LK_ERR_IO, "the report could not be written");
        putchar('\n');
    }
    lki_bench_report_drop(report);
    return status;
}
