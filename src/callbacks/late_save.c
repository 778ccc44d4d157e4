#include "callbacks/late_save.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/older_runners.h"
#include "comm/quiet_thread.h"

#include <pthread.h>

struct lki_late_save {
    pthread_t thread;
    char *folder;
    int keep;
    lk_state_dict *state;
    lki_error failure;
};

static void free_save(lki_late_save *save)
{
    lk_state_dict_free(save->state);
    lki_free(save->folder);
    lki_free(save);
}

lk_status lki_save_newest_runner(const char *folder, int keep, const lk_state_dict *state)
{
    LKI_SCOPED char *path = lki_format("%s/runner.last.safetensors", folder);
    if (!path) return LK_ERR_NOMEM;
    LKI_TRY(lki_age_runners(folder, keep));
    return lk_save_safetensors(path, state);
}

static void *write_it(void *context)
{
    lki_late_save *save = context;
    lki_allocate_apart();
    lki_error_keep(&save->failure, lki_save_newest_runner(save->folder, save->keep, save->state));
    return NULL;
}

/* The tensors of a runner's state are views of what the next batch changes. */
static lk_status copy_state(lk_state_dict **out, const lk_state_dict *state)
{
    lk_state_dict *copy = lk_state_dict_create();
    lk_status status = copy ? LK_OK : LK_ERR_NOMEM;
    for (int64_t i = 0; status == LK_OK && i < lk_state_dict_count(state); i++)
        status = lk_state_dict_put(copy, lk_state_dict_name(state, i),
                                   lk_tensor_clone(lk_state_dict_tensor(state, i)));
    for (int64_t i = 0; status == LK_OK && i < lk_state_dict_string_count(state); i++) {
        const char *name = lk_state_dict_string_name(state, i);
        status = lk_state_dict_put_string(copy, name, lk_state_dict_get_string(state, name));
    }
    if (status != LK_OK) {
        lk_state_dict_free(copy);
        copy = NULL;
    }
    *out = copy;
    return status;
}

lk_status lki_late_save_start(lki_late_save **out, const char *folder, int keep, const lk_state_dict *state)
{
    LKI_TRY(lki_late_save_finish(out));
    lki_late_save *save = LKI_NEW(lki_late_save);
    if (!save) return LK_ERR_NOMEM;
    save->keep = keep;
    save->folder = lki_strdup(folder);
    lk_status status = save->folder ? copy_state(&save->state, state) : LK_ERR_NOMEM;
    if (status == LK_OK)
        status = lki_quiet_thread_start(&save->thread, write_it, save, "the writer of checkpoints");
    if (status != LK_OK)
        free_save(save);
    else
        *out = save;
    return status;
}

lk_status lki_late_save_finish(lki_late_save **out)
{
    lki_late_save *save = *out;
    lk_status status = LK_OK;
    *out = NULL;
    if (!save) return LK_OK;
    pthread_join(save->thread, NULL);
    if (save->failure.status != LK_OK) status = lki_error_restore(&save->failure);
    free_save(save);
    return status;
}
