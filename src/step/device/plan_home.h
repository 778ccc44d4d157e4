/* What a plan has on a device: copies of the graph's constants, memory for its inputs, the outputs' way back
 * to the host, and the programs that were recorded of it.
 *
 * Inputs go through a few staging slots of pinned memory, so that the host can prepare the next batch while
 * the last one is still being read; when all are in use the plan waits for the device. An output that has
 * been asked for once is fetched with every replay from then on.
 *
 * A batch has a lane: its inputs on the device and the place of its outputs on the host. Batches in different
 * lanes can be in flight at once, the later one fed beside the computation of the earlier. */
#ifndef LKI_STEP_DEVICE_PLAN_HOME_H
#define LKI_STEP_DEVICE_PLAN_HOME_H

#include "graph/plan.h"

enum { LKI_LANES = 2 }; /* batches that can be in flight at once */

/* What a recorded program of a plan does. */
typedef enum lki_program_kind {
    LKI_PROGRAM_EVALUATE,
    LKI_PROGRAM_ACCUMULATE, /* trains, without an update */
    LKI_PROGRAM_UPDATE,     /* trains, with one */
    LKI_PROGRAM_COUNT
} lki_program_kind;

typedef struct lki_program {
    void *recording;  /* the engine's; NULL before it is made */
    uint64_t version; /* of the plan when it was made */
    uint64_t skips;   /* of the update then (lki_update_skips) */
} lki_program;

/* Of a plan, for recording.c and flight.c. */
typedef struct lki_programs {
    lki_program of[LKI_LANES][LKI_PROGRAM_COUNT];
    bool has_run;              /* once call by call: kernels have warmed up */
    bool lacks_program;        /* there was no room for one */
    bool has_room, lacks_room; /* for the batch after this one; once it was looked for */
} lki_programs;

lki_programs *lki_plan_home_programs(lki_plan_home *held);
void lki_plan_home_free_programs(lki_plan_home *held, int lane);

/* The slots of lki_home_ops. */
lk_status lki_plan_home_create(lki_plan_home **out, lki_home *home, lki_plan *plan, lk_graph *graph);
void lki_plan_home_free(lki_plan_home *held);
void *lki_plan_home_param(const lki_plan_home *held, const lk_param *param, const lk_tensor *tensor);
void *lki_plan_home_constant(const lki_plan_home *held, const lk_tensor *constant);
lk_status lki_plan_home_bind(lki_plan_home *held, int index, const void *host);
void lki_plan_home_begin_calls(lki_plan_home *held);
const lk_tensor *lki_plan_home_output(lki_plan_home *held, int index, const lk_tensor *there);

/* The lane of all that follows. `ahead`: nothing under way is in it, so that its batch can be fed beside what
 * is; the caller then waits for the lane itself and says so with arrived. */
lk_status lki_plan_home_enter(lki_plan_home *held, int lane, bool ahead);
/* Gives back the memory of all lanes but the first; nothing is under way in them. */
void lki_plan_home_leave(lki_plan_home *held);
bool lki_plan_home_is_full(const lki_plan_home *held); /* the next batch waits for all before it */
/* The lane's outputs are there, and become the ones to look at. `overtaken`: those that were not fetched are
 * not on the device any more. */
void lki_plan_home_arrived(lki_plan_home *held, int lane, bool overtaken);
/* Says where the input is in this lane, for those who fill it there. */
void *lki_plan_home_input(lki_plan_home *held, int index);
/* As bind, without a copy on the host: `stage` gives the memory to fill, feed_staged sends it on its way. Or
 * as rows in the dtype that they are stored in, which the device turns into the input's: where takes_rows
 * says, before they are staged, that there is room for so many bytes. */
lk_status lki_plan_home_stage(lki_plan_home *held, int index, void **out);
lk_status lki_plan_home_feed_staged(lki_plan_home *held, int index, const void *slot);
bool lki_plan_home_takes_rows(lki_plan_home *held, int index, size_t nbytes);
lk_status lki_plan_home_feed_rows(lki_plan_home *held, int index, const void *slot, const lk_rows *rows,
                                  lk_dtype dtype, int64_t count);

/* Outputs that were asked for before travel to the host beside what is asked for next. */
lk_status lki_plan_home_fetch_outputs(lki_plan_home *held);
/* *host holds the plan's loss after finish, and may guard the updates (lk_engine_ops.watch). */
lk_status lki_plan_home_watch(lki_plan_home *held, const lk_tensor *loss, lk_watched *host, bool guard);
/* A recorded program was started, which fetches what was wanted when it was recorded. */
void lki_plan_home_replayed(lki_plan_home *held);
/* Waits for the engine: fetched outputs are there, staging slots are free. A failure has the layer's name in
 * front. */
lk_status lki_plan_home_finish(lki_plan_home *held);
/* Changes when a recorded program would not be right any more. */
uint64_t lki_plan_home_version(const lki_plan_home *held);

#endif
