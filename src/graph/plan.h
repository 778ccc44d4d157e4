/* The plan: a compiled graph. A flat list of prepared calls over placed memory, replayed for every batch.
 *
 * Life: lki_plan_compile takes the graph over, runs the passes that are left, resolves every node to a kernel
 * of the engine and frees all of it in lki_plan_free. Bind each input's address, then run. Plans that run one
 * at a time share a workspace: its memory is as large as the largest of them needs. A plan belongs to one
 * thread. Replaying allocates nothing. */
#ifndef LKI_GRAPH_PLAN_H
#define LKI_GRAPH_PLAN_H

#include "graph/graph.h"
#include "graph/home.h"

typedef struct lki_workspace lki_workspace;

/* In the memory of `home`, which must outlive it, or with NULL in the host's. Plans live where their
 * workspace does. */
lki_workspace *lki_workspace_create(lki_home *home);
void lki_workspace_free(lki_workspace *workspace);
size_t lki_workspace_nbytes(const lki_workspace *workspace);

typedef struct lki_plan_options {
    lk_engine *engine;
    lki_workspace *workspace; /* must outlive the plan */
    lk_generator *generator;  /* for dropout; NULL: the default one */
    lk_dtype precision;       /* LK_F32, or LK_BF16 / LK_F16 for the operands of products */
    bool no_fusion;           /* for tests */
} lki_plan_options;

/* Owns `graph` from the call on, whether it succeeds or not. */
lk_status lki_plan_compile(lki_plan **out, lk_graph *graph, lki_plan_options options);
void lki_plan_free(lki_plan *plan);

/* Binds an input to memory that must stay valid until the replay is over; a home takes a copy at once.
 * `index` is the order of lk_graph_input. */
lk_status lki_plan_bind(lki_plan *plan, int index, void *data);
int lki_plan_find_input(const lki_plan *plan, const char *name); /* -1 where there is none */

/* Replays all sections, or those from `first` to `last`. A kernel's error comes back with the layer's name in
 * front. */
lk_status lki_plan_run(lki_plan *plan);
lk_status lki_plan_run_sections(lki_plan *plan, lki_section first, lki_section last);

/* The output of that name as a tensor over the workspace: valid until the next replay of any plan there. NULL
 * with a sentence where there is none. The tensor belongs to the plan. */
const lk_tensor *lki_plan_output(lki_plan *plan, const char *name);

/* An output by its name, -1 if there is none, and as the engine has it: an address there, which is right from
 * a replay to the next. The tensor belongs to the plan and lives as long. */
int lki_plan_find_output(const lki_plan *plan, const char *name);
const lk_tensor *lki_plan_output_there(const lki_plan *plan, int index);

/* For homes. held: what the home holds for this plan; NULL on the host. set_input: where the engine reads an
 * input. settle: looks all addresses up again if they have changed; replays do so themselves. check_outputs:
 * the same after a replay; fails if what it left is gone. version: changes with the addresses. name_layer:
 * puts the layer of a call that failed in front of the error, if the call is one of the plan's. */
lki_plan_home *lki_plan_held(const lki_plan *plan);
void lki_plan_set_input(lki_plan *plan, int index, void *address);
lk_status lki_plan_settle(lki_plan *plan);
lk_status lki_plan_check_outputs(lki_plan *plan);
uint64_t lki_plan_version(const lki_plan *plan);
int lki_plan_output_count(const lki_plan *plan);
lk_status lki_plan_name_layer(const lki_plan *plan, lk_status status, const lk_call *call);

/* After a loss that is not finite: replays the forward half with the inputs as bound and says which layer
 * made the first value that is not a number. Always fails, with LK_ERR_NAN. */
lk_status lki_plan_explain_nan(lki_plan *plan);

/* Adds `count` batches to the counters of lki_graph_count_batches. */
void lki_plan_count_batches(const lki_plan *plan, int count);

bool lki_plan_draws(const lki_plan *plan); /* whether a call of it takes random numbers */
int lki_plan_call_count(const lki_plan *plan);
const lk_call *lki_plan_call(const lki_plan *plan, int index);
/* "layer 1 (Linear)", or NULL for a call of no layer. */
const char *lki_plan_call_layer(const lki_plan *plan, int index);
const lk_graph *lki_plan_graph(const lki_plan *plan);
/* The first call of a section; of LKI_SECTION_COUNT, the end of the last. */
int lki_plan_section_begin(const lki_plan *plan, lki_section section);
size_t lki_plan_arena_nbytes(const lki_plan *plan);

/* A listing of the plan, one call a line, for tests and `--dump-plan`. The caller frees it with lki_free. */
char *lki_plan_describe(const lki_plan *plan);

#endif
