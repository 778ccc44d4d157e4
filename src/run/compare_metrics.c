#include "run/compare_metrics.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "run/run.h"

#include <math.h>
#include <string.h>

static bool is_compared(const char *name)
{
    return strncmp(name, "_timer/", 7) != 0;
}

/* One NaN is like another. */
static uint64_t bits_of(double value)
{
    uint64_t bits = 0;
    if (isnan(value)) return UINT64_MAX;
    if (value != 0) memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* FNV-1a over names and values. */
static uint64_t hash_of(const lk_metrics *metrics)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (int i = 0; i < lk_metrics_count(metrics); i++) {
        const char *name = lk_metrics_name(metrics, i);
        if (!is_compared(name)) continue;
        for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
        hash = (hash ^ bits_of(lk_metrics_value(metrics, i))) * 0x100000001b3;
    }
    return hash;
}

static lk_status all_are_alike(lk_comm *comm, const lk_metrics *metrics, bool *out)
{
    LKI_SCOPED uint64_t *hashes = LKI_NEW_ARRAY(uint64_t, comm->size);
    uint64_t mine = hash_of(metrics);
    if (!hashes) return LK_ERR_NOMEM;
    LKI_TRY(lk_comm_all_gather(comm, &mine, hashes, 1, LK_I64));
    *out = true;
    for (int r = 1; r < comm->size; r++) *out = *out && hashes[r] == hashes[0];
    return LK_OK;
}

/* name, 0, value; name, 0, value; ... Returns how many bytes; `block` may be NULL. */
static size_t pack(const lk_metrics *metrics, char *block)
{
    size_t used = 0;
    for (int i = 0; i < lk_metrics_count(metrics); i++) {
        const char *name = lk_metrics_name(metrics, i);
        double value = lk_metrics_value(metrics, i);
        size_t length = strlen(name) + 1;
        if (!is_compared(name)) continue;
        if (block) memcpy(block + used, name, length);
        if (block) memcpy(block + used + length, &value, sizeof value);
        used += length + sizeof value;
    }
    return used;
}

/* Tells the first difference between this rank's metrics and those of `rank`; false where there is none. */
static bool tell(const lk_metrics *mine, const char *theirs, int64_t nbytes, int rank, const char *what)
{
    for (int64_t at = 0; at < nbytes;) {
        const char *name = theirs + at;
        double value;
        at += (int64_t)strlen(name) + 1;
        memcpy(&value, theirs + at, sizeof value);
        at += (int64_t)sizeof value;
        bool is_here = lk_metrics_has(mine, name);
        if (is_here && bits_of(lk_metrics_get(mine, name)) == bits_of(value)) continue;
        char found[64] = "none";
        if (is_here) snprintf(found, sizeof found, "%.9g", lk_metrics_get(mine, name));
        lki_log(LKI_LOG_WARNING,
                "%s metric \"%s\" is %s on rank 0 and %.9g on rank %d: rank 0's is reported; join them with "
                "lk_runner_all_reduce or lk_custom_metric",
                what, name, found, value, rank);
        return true;
    }
    return false;
}

static lk_status find_difference(lk_runner *runner, const lk_metrics *metrics, const char *what)
{
    lk_comm *comm = runner->run->ranks.comm;
    LKI_SCOPED int64_t *sizes = LKI_NEW_ARRAY(int64_t, comm->size);
    int64_t mine = (int64_t)pack(metrics, NULL), longest = 1, told = 0;
    if (!sizes) return LK_ERR_NOMEM;
    LKI_TRY(lk_comm_all_gather(comm, &mine, sizes, 1, LK_I64));
    for (int r = 0; r < comm->size; r++) longest = sizes[r] > longest ? sizes[r] : longest;
    LKI_SCOPED char *block = lki_calloc((size_t)longest, "a rank's metrics");
    LKI_SCOPED char *all = lki_calloc((size_t)(longest * comm->size), "the ranks' metrics");
    if (!block || !all) return LK_ERR_NOMEM;
    pack(metrics, block);
    LKI_TRY(lk_comm_all_gather(comm, block, all, longest, LK_U8));
    for (int r = 1; runner->rank == 0 && !told && r < comm->size; r++)
        told = tell(metrics, all + r * longest, sizes[r], r, what);
    LKI_TRY(lk_comm_broadcast(comm, &told, 1, LK_I64, 0));
    runner->run->ranks.told_difference = told;
    return LK_OK;
}

lk_status lki_compare_metrics(lk_runner *runner, const lk_metrics *metrics, const char *what)
{
    lki_run *run = runner->run;
    bool alike;
    if (!run->ranks.comm || run->ranks.comm->size == 1 || run->ranks.told_difference) return LK_OK;
    LKI_TRY(all_are_alike(run->ranks.comm, metrics, &alike));
    return alike ? LK_OK : find_difference(runner, metrics, what);
}
