/* What the files that write the report of lockstep bench share. */
#ifndef LKI_CLI_BENCH_REPORT_H
#define LKI_CLI_BENCH_REPORT_H

#include "cli/bench/bench.h"

#include <jansson.h>

struct lki_bench_report {
    json_t *json;          /* NULL: for people */
    const char *last_rows; /* which table the last row belongs to */
};

/* Takes the value over. */
void lki_bench_add_json(lki_bench_report *report, json_t *value);

/* True where a table of that kind has to be begun, after an empty line if it is not the first. */
bool lki_bench_begin_rows(lki_bench_report *report, const char *kind);

#endif
