#include "run/stragglers.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "comm/comm.h"
#include "comm/comm_own.h"
#include "run/run.h"

#include <stdio.h>

enum { EVEN_PERCENT = 5 }; /* of the run: ranks that differ less than this are as fast as each other */

/* What a rank has spent its time on. */
typedef struct rank_time {
    double seconds, waited_s, loader_s;
} rank_time;

static double share(const rank_time *one)
{
    return one->seconds > 0 ? one->waited_s / one->seconds : 0;
}

static void print(const rank_time *all, int count, FILE *out)
{
    int least = 0, most = 0;
    double mean = 0;
    for (int r = 0; r < count; r++) {
        mean += share(&all[r]) / count;
        if (share(&all[r]) < share(&all[least])) least = r;
        if (share(&all[r]) > share(&all[most])) most = r;
    }
    lki_fprintf(out, "the ranks waited for each other %.0f%% of %.1f s", 100 * mean, all[0].seconds);
    if (100 * (share(&all[most]) - share(&all[least])) < EVEN_PERCENT) {
        fputs(", all about alike\n", out);
        return;
    }
    lki_fprintf(out, ": rank %d %.0f%%, rank %d only %.0f%%; the others wait for rank %d", most,
                100 * share(&all[most]), least, 100 * share(&all[least]), least);
    lki_fprintf(out, ", which waited %.1f s for its loaders\n", all[least].loader_s);
}

lk_status lki_stragglers_report(lk_runner *runner)
{
    lki_run *run = runner->run;
    lk_comm *comm = run->ranks.comm;
    if (!comm || comm->size == 1 || comm->ops->on_device || run->evaluating) return LK_OK;
    rank_time own = {.seconds = (double)(lki_now_ns() - comm->own->origin_ns) * 1e-9,
                     .waited_s = (double)lki_comm_waited_ns(comm) * 1e-9,
                     .loader_s = (double)run->vitals.all_loader_ns * 1e-9};
    LKI_SCOPED rank_time *all = LKI_NEW_ARRAY(rank_time, comm->size);
    if (!all) return LK_ERR_NOMEM;
    LKI_TRY(lk_comm_all_gather(comm, &own, all, sizeof own, LK_U8));
    if (runner->is_master && runner->verbose) print(all, comm->size, stdout);
    return LK_OK;
}
