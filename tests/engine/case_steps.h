/* Fast paths that only a whole step can enter: one kernel instead of a recorded graph, norms that take along
 * what stands behind them, convolutions whose places are folded. */
#ifndef LKT_ENGINE_CASE_STEPS_H
#define LKT_ENGINE_CASE_STEPS_H

#include <lockstep/sys/engine.h>

/* Trains steps on both sides of those paths' thresholds on an engine that has the paths, and compares their
 * losses with the reference engine's. Returns how many failed, after a line about each. */
int lkt_run_fast_steps(lk_engine *engine, const char *where);

#endif
