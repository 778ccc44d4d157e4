#include "run/stop.h"

#include "base/clock.h"
#include "base/status.h"
#include "run/run.h"

enum { STOP_CHECK_BATCHES = 16 };

/* How late a request to stop may be noticed where batches are slow. */
static const int64_t STOP_CHECK_NS = 250000000;

/* As many batches as fit between two looks, by the slowest rank's clock: the ranks must count alike. */
static int64_t batches_to_next_look(int64_t ns_a_batch)
{
    int64_t count = ns_a_batch > 0 ? STOP_CHECK_NS / ns_a_batch : STOP_CHECK_BATCHES;
    return count < 1 ? 1 : count > STOP_CHECK_BATCHES ? STOP_CHECK_BATCHES : count;
}

lk_status lki_stop_asked(lk_runner *runner, bool at_end, bool *out)
{
    lki_run *run = runner->run;
    int64_t asked = run->stop.flag ? *run->stop.flag : 0;
    *out = asked != 0;
    if (!run->ranks.comm || run->ranks.comm->size == 1) return LK_OK;
    *out = false;
    /* Only where all ranks take as many batches may all of them ask: in training, and before the rest. */
    if (!runner->is_train_loader && (at_end || runner->loader_batch_step > 0)) return LK_OK;
    if (runner->is_train_loader && !at_end && --run->stop.look.batches_left > 0) return LK_OK;
    int64_t now = lki_now_ns(), taken = run->stop.look.batches;
    int64_t said[] = {asked, taken ? (now - run->stop.look.ns) / taken : 0};
    LKI_TRY(lk_comm_all_reduce(run->ranks.comm, said, 2, LK_I64, LK_REDUCE_MAX));
    if (runner->is_train_loader && !at_end) {
        run->stop.look.batches = run->stop.look.batches_left = taken ? batches_to_next_look(said[1]) : 1;
        run->stop.look.ns = lki_now_ns();
    }
    *out = said[0] != 0;
    return LK_OK;
}

/* Also keeps a rank that the signal will end from ending before rank 0 has written everything: a launcher
 * that misses one rank ends the others. */
lk_status lki_stop_share_signal(lk_runner *runner)
{
    lki_run *run = runner->run;
    int64_t number = *run->stop.flag;
    if (!run->ranks.comm || run->ranks.comm->size == 1) return LK_OK;
    LKI_TRY(lk_comm_all_reduce(run->ranks.comm, &number, 1, LK_I64, LK_REDUCE_MAX));
    if (!*run->stop.flag) *run->stop.flag = (int)number;
    return LK_OK;
}

lk_status lki_stop_leave_together(lk_runner *runner)
{
    return runner->run->ranks.comm ? lk_comm_barrier(runner->run->ranks.comm) : LK_OK;
}
