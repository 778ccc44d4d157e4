/* What the files of lockstep bench share. */
#ifndef LKI_CLI_BENCH_BENCH_H
#define LKI_CLI_BENCH_BENCH_H

#include "cli/bench/scaling.h"
#include "cli/bench/step_ops.h"
#include "cli/load.h"

/* Measured steps, one a row; and predictions, one table a workload. As JSON: one value, written at the end.
 */
typedef struct lki_bench_report lki_bench_report;
lki_bench_report *lki_bench_report_begin(bool json);
void lki_bench_report_step(lki_bench_report *report, const lki_workload *workload);
void lki_bench_report_scaling(lki_bench_report *report, const lki_workload *workload,
                              const lki_cluster *cluster, int max_ranks);
/* Of the step that was reported last. */
lk_status lki_bench_report_ops(lki_bench_report *report, const lki_step_ops *ops);
void lki_bench_report_collective(lki_bench_report *report, const char *comm, int ranks, double nbytes,
                                 double median_s, double best_s);
/* Both free it; the first one writes what has not been written. */
lk_status lki_bench_report_end(lki_bench_report *report);
void lki_bench_report_drop(lki_bench_report *report);

/* Times all-reduces of a few sizes between ranks of this host, or between those that this process is one of.
 * Rank 0 reports. */
lk_status lki_bench_collectives(lki_bench_report *report, int nproc, const char *backend);

/* Trains the config on each split of the cores into ranks and threads, for about `seconds` each, and reports
 * the samples per second and the command of the fastest. `options` names its files. */

lk_status lki_bench_split(lki_bench_report *report, const lki_config_options *options, double seconds);

#endif
