#include "resume/loader_states.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/state_values.h"
#include "data/loader.h"
#include "run/run.h"

/* ---- Where the next pass is drawn from: a generator of the loader's, a sampler that counts ---- */

static lk_status save_source(const lki_run_loader *entry, lk_state_dict *state)
{
    lk_loader_state between;
    LKI_SCOPED char *name = lki_format("loader.%s", entry->key);
    if (!name) return LK_ERR_NOMEM;
    lki_loader_save_between(entry->loader, &between);
    return lki_state_dict_put_bytes(state, name, &between, sizeof between);
}

static lk_status restore_source(lki_run_loader *entry, const lk_state_dict *state)
{
    lk_loader_state between;
    LKI_SCOPED char *name = lki_format("loader.%s", entry->key);
    if (!name) return LK_ERR_NOMEM;
    if (!lk_state_dict_has(state, name)) return LK_OK;
    LKI_TRY(lki_state_dict_get_bytes(state, name, &between, sizeof between));
    return lk_loader_restore(entry->loader, &between, NULL);
}

/* ---- First passes ---- */

static lk_status save_first_pass(const lki_run_loader *entry, lk_state_dict *state)
{
    if (!entry->first_pass) return LK_OK;
    LKI_SCOPED char *name = lki_format("first_pass.%s", entry->key);
    if (!name) return LK_ERR_NOMEM;
    return lki_state_dict_put_bytes(state, name, entry->first_pass, sizeof *entry->first_pass);
}

/* Rank 0 has saved it; the order is the same for all. Other numbers of ranks share another order between
 * them: they draw a first pass of their own. */
static lk_status restore_first_pass(const lk_runner *runner, lki_run_loader *entry,
                                    const lk_state_dict *state)
{
    lk_loader_state saved;
    LKI_SCOPED char *name = lki_format("first_pass.%s", entry->key);
    if (!name) return LK_ERR_NOMEM;
    if (!lk_state_dict_has(state, name)) return LK_OK;
    LKI_TRY(lki_state_dict_get_bytes(state, name, &saved, sizeof saved));
    if (saved.world != lki_run_share_count(runner)) return LK_OK;
    if (!entry->first_pass && !(entry->first_pass = LKI_NEW(lk_loader_state))) return LK_ERR_NOMEM;
    *entry->first_pass = saved;
    entry->first_pass->rank = runner->rank * lki_run_own_share_count(runner);
    return LK_OK;
}

/* ---- Passes that the last epoch has left ---- */

static lk_status save_cut(const lki_run_loader *entry, lk_state_dict *state)
{
    LKI_SCOPED char *continued = lki_format("continued.%s", entry->key);
    LKI_SCOPED char *size = lki_format("cut_batch_size.%s", entry->key);
    LKI_SCOPED char *name = lki_format("cut.%s", entry->key);
    if (!continued || !size || !name) return LK_ERR_NOMEM;
    if (entry->continued) LKI_TRY(lk_state_dict_put_i64(state, continued, entry->continued));
    if (!entry->cut) return LK_OK;
    LKI_TRY(lk_state_dict_put_i64(state, size, lk_loader_batch_size(entry->loader)));
    return lki_state_dict_put_bytes(state, name, entry->cut, sizeof *entry->cut);
}

static lk_status check_cut(const lk_runner *runner, const lki_run_loader *entry, const lk_loader_state *cut,
                           int64_t batch_size)
{
    int64_t own = lk_loader_batch_size(entry->loader);
    int ranks = lki_run_share_count(runner);
    if (cut->world == ranks && batch_size == own) return LK_OK;
    return lki_fail(LK_ERR_INVALID,
                    "the run was left in the middle of a pass over loader \"%s\", with batch size %lld on %d "
                    "ranks, and cannot go on there with %lld on %d",
                    entry->key, (long long)batch_size, cut->world, (long long)own, ranks);
}

static lk_status restore_cut(const lk_runner *runner, lki_run_loader *entry, const lk_state_dict *state)
{
    lk_loader_state cut;
    int64_t batch_size;
    LKI_SCOPED char *continued = lki_format("continued.%s", entry->key);
    LKI_SCOPED char *size = lki_format("cut_batch_size.%s", entry->key);
    LKI_SCOPED char *name = lki_format("cut.%s", entry->key);
    if (!continued || !size || !name) return LK_ERR_NOMEM;
    if (lk_state_dict_has(state, continued))
        LKI_TRY(lki_state_dict_get_counter(state, continued, &entry->continued));
    if (!lk_state_dict_has(state, name)) return LK_OK;
    LKI_TRY(lki_state_dict_get_bytes(state, name, &cut, sizeof cut));
    LKI_TRY(lki_state_dict_get_counter(state, size, &batch_size));
    LKI_TRY(check_cut(runner, entry, &cut, batch_size));
    if (!entry->cut && !(entry->cut = LKI_NEW(lk_loader_state))) return LK_ERR_NOMEM;
    *entry->cut = cut;
    /* Rank 0 has saved it; the order is the same for all. */
    entry->cut->rank = runner->rank * lki_run_own_share_count(runner);
    return LK_OK;
}

/* ---- All loaders ---- */

lk_status lki_loader_states_save(const lki_run_loaders *loaders, lk_state_dict *state)
{
    for (int i = 0; i < loaders->count; i++) {
        LKI_TRY(save_source(&loaders->items[i], state));
        LKI_TRY(save_first_pass(&loaders->items[i], state));
        LKI_TRY(save_cut(&loaders->items[i], state));
    }
    return LK_OK;
}

lk_status lki_loader_states_restore(lk_runner *runner, const lk_state_dict *state)
{
    lki_run_loaders *loaders = &runner->run->loaders;
    for (int i = 0; i < loaders->count; i++) {
        LKI_TRY(restore_source(&loaders->items[i], state));
        LKI_TRY(restore_first_pass(runner, &loaders->items[i], state));
        LKI_TRY(restore_cut(runner, &loaders->items[i], state));
    }
    return LK_OK;
}
