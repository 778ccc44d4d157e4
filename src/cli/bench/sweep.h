/* lockstep bench --ops: the ops of an engine over random shapes and dtypes, beside the machine's roofline. */
#ifndef LKI_CLI_BENCH_SWEEP_H
#define LKI_CLI_BENCH_SWEEP_H

#include <lockstep/nn.h>

#include "cli/bench/bench.h"

/* What a net is made from: about so many elements, of which it chooses the shape. */
typedef struct lki_sweep_draw {
    lk_generator *generator;
    int64_t element_count;
    lk_shape shape; /* set by the net: of its operand */
} lki_sweep_draw;

/* Makes the net, a module of one value. NULL on failure. */
typedef lk_module *(*lki_sweep_net)(lki_sweep_draw *draw);

/* Ends with NULL. */
extern const lki_sweep_net lki_sweep_nets[];

/* Draws nets for about `seconds`, each of them at least twice, with small and with large operands, and
 * reports the ops whose names contain `filter` (NULL: all). The engine is one whose roofline is known: cpu.
 */
lk_status lki_bench_sweep(lki_bench_report *report, const char *engine, const char *filter, double seconds);

#endif
