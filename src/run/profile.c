#include "run/profile.h"

#include "base/memory.h"
#include "base/status.h"
#include "launch/meeting.h"
#include "run/run.h"
#include "run/profile_summary.h"
#include "run/trace_file.h"

#include <stdio.h>
#include <string.h>

/* 16 MiB of address space; only what is used becomes memory. */
enum { SPAN_CAPACITY = 1 << 19, DEFAULT_BATCHES = 50, CLOCK_ROUNDS = 8, IDENTITY_NBYTES = 160 };

/* ---- One time line ---- */

static lk_status hosts_differ(lk_comm *comm, bool *out)
{
    char own[IDENTITY_NBYTES] = "";
    LKI_SCOPED char *all = LKI_NEW_ARRAY(char, (size_t)comm->size *IDENTITY_NBYTES);
    if (!all) return LK_ERR_NOMEM;
    lki_host_identity(own, sizeof own);
    LKI_TRY(lk_comm_all_gather(comm, own, all, sizeof own, LK_U8));
    *out = false;
    for (int r = 1; r < comm->size; r++)
        if (strcmp(all, all + (size_t)r * IDENTITY_NBYTES) != 0) *out = true;
    return LK_OK;
}

/* Within a host the clock is common. Between hosts, all ranks look at theirs when a barrier opens: they are
 * off by what the opening takes to reach them, which is least in the quickest round. */
static lk_status align_clocks(lk_comm *comm, int64_t *offset_ns)
{
    int64_t best_ns = INT64_MAX;
    bool differ;
    *offset_ns = 0;
    if (!comm || comm->size == 1) return LK_OK;
    LKI_TRY(hosts_differ(comm, &differ));
    for (int round = 0; differ && round < CLOCK_ROUNDS; round++) {
        int64_t before_ns = lki_now_ns();
        LKI_TRY(lk_comm_barrier(comm));
        int64_t own_ns = lki_now_ns(), first_ns = own_ns;
        LKI_TRY(lk_comm_broadcast(comm, &first_ns, 1, LK_I64, 0));
        if (round > 0 && own_ns - before_ns < best_ns) {
            best_ns = own_ns - before_ns;
            *offset_ns = first_ns - own_ns;
        }
    }
    return LK_OK;
}

/* ---- The trace's life ---- */

char *lki_profile_path(const lk_runner *runner)
{
    const char *path = runner->run->profile.wish.path;
    return path ? lki_strdup(path) : lki_format("%s/trace.json", runner->run->given.logdir);
}

lk_status lki_profile_begin(lk_runner *runner)
{
    lki_profile *profile = &runner->run->profile;
    lk_comm *comm = runner->run->ranks.comm;
    if (!runner->run->given.options.profile || profile->was_begun) return LK_OK;
    if (profile->wish.given && profile->wish.epoch != runner->epoch_step) return LK_OK;
    profile->was_begun = true;
    LKI_TRY(align_clocks(comm, &profile->offset_ns));
    profile->origin_ns = lki_now_ns() + profile->offset_ns;
    if (comm && comm->size > 1)
        LKI_TRY(lk_comm_all_reduce(comm, &profile->origin_ns, 1, LK_I64, LK_REDUCE_MIN));
    profile->trace = lki_trace_create(SPAN_CAPACITY);
    lki_trace_now = profile->trace;
    return profile->trace ? LK_OK : LK_ERR_NOMEM;
}

void lki_profile_begin_pass(lk_runner *runner)
{
    int given = runner->run->given.options.profile_batches;
    lki_profile *profile = &runner->run->profile;
    bool wanted = !profile->wish.loader_key || strcmp(profile->wish.loader_key, runner->loader_key) == 0;
    profile->batches_left = !wanted ? 0 : given ? given : DEFAULT_BATCHES;
}

void lki_profile_next_batch(lk_runner *runner)
{
    lki_profile *profile = &runner->run->profile;
    lki_trace *trace = profile->trace;
    int64_t number = runner->loader_batch_step + 1 + (runner->run->batch.under_way != NULL);
    bool goes_on = profile->batches_left > 0 && !trace->left_out;
    bool is_batch = number <= runner->loader_batch_len;
    if (runner->is_train_loader) {
        profile->seen += is_batch;
        profile->traced += is_batch && goes_on;
    } else {
        profile->evaluations += is_batch;
        profile->evaluated += is_batch && goes_on;
    }
    profile->batches_left -= profile->batches_left > 0;
    trace->batch = (int32_t)number;
    trace->trains = runner->is_train_loader;
    lki_trace_now = goes_on ? trace : NULL;
}

void lki_profile_end_pass(lk_runner *runner)
{
    lki_trace *trace = runner->run->profile.trace;
    if (!trace) return;
    trace->batch = 0;
    trace->trains = false;
    lki_trace_now = trace;
}

lk_status lki_profile_end(lk_runner *runner)
{
    lki_profile *profile = &runner->run->profile;
    if (!profile->trace) return LK_OK;
    lki_trace_now = NULL;
    LKI_TRY(lki_trace_file_write(runner));
    LKI_TRY(lki_profile_summarize(runner, &profile->summary));
    lki_profile_drop_trace(profile);
    return LK_OK;
}

void lki_profile_print(const lk_runner *runner)
{
    const lki_run *run = runner->run;
    if (!run->profile.summary) return;
    if (run->given.options.show != LK_SHOW_NOTHING) fputs(run->profile.summary, stdout);
    if (run->reporting.log_file) fputs(run->profile.summary, run->reporting.log_file);
}

void lki_profile_drop_trace(lki_profile *profile)
{
    lki_trace_free(profile->trace);
    profile->trace = NULL;
}

void lki_profile_fini(lki_profile *profile)
{
    lki_profile_drop_trace(profile);
    lki_free(profile->summary);
    memset(profile, 0, sizeof *profile);
}
