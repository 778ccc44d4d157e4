/* The plan: a compiled graph. A flat list of prepared calls over placed memory, replayed for every batch.
 *
 * Life: lki_plan_compile takes the graph over, runs the passes that are left, resolves every node to a kernel
 * of the engine and frees all of it in lki_plan_free. Bind each input's address, then run. Plans that run one
 * at a time share a workspace: its memory is as large as the largest of them needs. A plan belongs to one
 * thread. Replaying allocates nothing. */
#ifndef LKI_GRAPH_PLAN_H
#define LKI_GRAPH_PLAN_H

#include "graph/graph.h"

enum { LKI_LANES = 2 }; /* batches that can be under way at once */

typedef struct lki_plan lki_plan;
typedef struct lki_plan_device lki_plan_device;
typedef struct lki_workspace lki_workspace;

lki_workspace *lki_workspace_create(lk_engine *engine);
void lki_workspace_free(lki_workspace *workspace);
size_t lki_workspace_nbytes(const lki_workspace *workspace);

typedef struct lki_plan_options {
    lk_engine *engine;
    lki_workspace *workspace;          /* must outlive the plan */
    lk_generator *generator;           /* for dropout; NULL: the default one */
    lk_dtype precision;                /* LK_F32, or LK_BF16 / LK_F16 for the operands of products */
    const struct lki_mirror *borrowed; /* copies of parameters that live on another engine */
    bool no_fusion;                    /* for tests */
} lki_plan_options;

/* Owns `graph` from the call on, whether it succeeds or not. */
lk_status lki_plan_compile(lki_plan **out, lk_graph *graph, lki_plan_options options);
void lki_plan_free(lki_plan *plan);

/* Binds an input to memory that must stay valid until the replay is over; an engine with memory of its own
 * takes a copy at once. `index` is the order of lk_graph_input. */
lk_status lki_plan_bind(lki_plan *plan, int index, void *data);
/* Instead: the device's memory of an input, for those who fill it there. NULL on the host. */
void *lki_plan_device_input_of(lki_plan *plan, int index);
lki_plan_device *lki_plan_device_of(lki_plan *plan);
int lki_plan_find_input(const lki_plan *plan, const char *name); /* -1 where there is none */

/* Replays all sections, or one of them. A kernel's error comes back with the layer's name in front. */
lk_status lki_plan_run(lki_plan *plan);
lk_status lki_plan_run_section(lki_plan *plan, lki_section section);

/* The output of that name as a tensor over the workspace: valid until the next replay of any plan there. NULL
 * with a sentence where there is none. The tensor belongs to the plan. */
const lk_tensor *lki_plan_output(lki_plan *plan, const char *name);

/* For engines with memory of their own, whose calls return before they are done. All do nothing on others.
 * fetch_outputs: the outputs that were asked for before travel to the host beside what is asked for next.
 * watch: *host holds that output after finish, and may guard the updates (lk_engine_ops.watch). finish:
 * waits; a failure has the layer's name in front. version: changes when a recorded program would not be right
 * any more. */
lk_status lki_plan_fetch_outputs(lki_plan *plan);
lk_status lki_plan_watch(lki_plan *plan, const char *name, lk_watched *host, bool guard);
lk_status lki_plan_finish(lki_plan *plan);
/* Where the next batch goes, and which batch is looked at: see plan_device.h. */
lk_status lki_plan_enter(lki_plan *plan, int lane, bool ahead);
void lki_plan_arrived(lki_plan *plan, int lane, bool overtaken);
void lki_plan_leave(lki_plan *plan);
bool lki_plan_is_full(const lki_plan *plan); /* the next batch waits for all before it */
void lki_plan_replayed(lki_plan *plan);      /* a recorded program was started */
uint64_t lki_plan_version(const lki_plan *plan);

/* After a loss that is not finite: replays the forward half with the inputs as bound and says which layer
 * made the first value that is not a number. Always fails, with LK_ERR_NAN. */
lk_status lki_plan_explain_nan(lki_plan *plan);

bool lki_plan_draws(const lki_plan *plan); /* whether a call of it takes random numbers */
int lki_plan_call_count(const lki_plan *plan);
const lk_call *lki_plan_call(const lki_plan *plan, int index);
/* The first call of a section; of LKI_SECTION_COUNT, the end of the last. */
int lki_plan_section_begin(const lki_plan *plan, lki_section section);
size_t lki_plan_arena_nbytes(const lki_plan *plan);

/* A listing of the plan, one call a line, for tests and `--dump-plan`. The caller frees it with lki_free. */
char *lki_plan_describe(const lki_plan *plan);

#endif
