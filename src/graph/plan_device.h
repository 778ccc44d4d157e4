/* What a plan has on a device: copies of the graph's constants, memory for its inputs, and the outputs' way
 * back to the host.
 *
 * Inputs go through a few staging slots of pinned memory, so that the host can prepare the next batch while
 * the last one is still being read; when all are in use the plan waits for the device. An output that has
 * been asked for once is fetched with every replay from then on.
 *
 * A batch has a lane: its inputs on the device and the place of its outputs on the host. Batches in different
 * lanes can be under way at once, the later one fed beside the computation of the earlier. */
#ifndef LKI_GRAPH_PLAN_DEVICE_H
#define LKI_GRAPH_PLAN_DEVICE_H

#include "graph/plan.h"

/* NULL, without an error, for engines that work on the host's memory; every function takes that. */
lk_status lki_plan_device_create(lki_plan_device **out, lk_engine *engine, lk_graph *graph);
void lki_plan_device_free(lki_plan_device *device);

/* The constant's own data where `device` is NULL. */
void *lki_plan_device_constant(const lki_plan_device *device, const lk_tensor *constant);
/* The lane of all that follows. `ahead`: nothing under way is in it, so that its batch can be fed beside what
 * is; the caller then waits for the lane itself and says so with arrived. */
lk_status lki_plan_device_enter(lki_plan_device *device, int lane, bool ahead);
/* Gives back the memory of all lanes but the first; nothing is under way in them. */
void lki_plan_device_leave(lki_plan_device *device);
bool lki_plan_device_is_full(const lki_plan_device *device); /* the next batch waits for all before it */
/* The lane's outputs are there, and become the ones to look at. `overtaken`: those that were not fetched are
 * not on the device any more. */
void lki_plan_device_arrived(lki_plan_device *device, int lane, bool overtaken);
void *lki_plan_device_input(const lki_plan_device *device, int index);
lk_status lki_plan_device_feed(lki_plan_device *device, int index, const void *host);
/* The same without a copy on the host: `stage` gives the memory to fill, feed_staged sends it on its way. Or
 * as rows in the dtype that they are stored in, which the device turns into the input's: where takes_rows
 * says, before they are staged, that there is room for so many bytes. */
lk_status lki_plan_device_stage(lki_plan_device *device, int index, void **out);
lk_status lki_plan_device_feed_staged(lki_plan_device *device, int index, const void *slot);
bool lki_plan_device_takes_rows(lki_plan_device *device, int index, size_t nbytes);
lk_status lki_plan_device_feed_rows(lki_plan_device *device, int index, const void *slot, const lk_rows *rows,
                                    lk_dtype dtype, int64_t count);

/* The output on the host: waits for the device where it is not there yet. NULL with a sentence. */
const lk_tensor *lki_plan_device_output(lki_plan_device *device, int index, const lk_tensor *on_device);
/* Enqueues the copy of an output that is wanted. */
lk_status lki_plan_device_fetch(lki_plan_device *device, int index, const lk_tensor *on_device);
/* Calls, or a recorded program, are under way; the program fetches what was wanted when it was recorded. */
void lki_plan_device_started(lki_plan_device *device, bool fetches);
/* The engine was waited for: fetched outputs are there, staging slots are free. */
void lki_plan_device_finished(lki_plan_device *device);
/* Changes when one more output is wanted. */
uint64_t lki_plan_device_version(const lki_plan_device *device);

#endif
