#include "resume/scheduler_state.h"

#include "base/memory.h"
#include "base/status.h"

enum { MAX_SCHEDULER_NUMBERS = 64 };

lk_status lki_scheduler_save(lk_state_dict *state, const lk_scheduler *scheduler)
{
    lk_named_number numbers[MAX_SCHEDULER_NUMBERS];
    int count = scheduler ? lk_scheduler_save(scheduler, numbers, MAX_SCHEDULER_NUMBERS) : 0;
    if (count > MAX_SCHEDULER_NUMBERS)
        return lki_fail(LK_ERR_UNSUPPORTED, "the scheduler's state is too large to save");
    for (int i = 0; i < count; i++) {
        LKI_SCOPED char *name = lki_format("scheduler.%s", numbers[i].name);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_put_f64(state, name, numbers[i].value));
    }
    return LK_OK;
}

lk_status lki_scheduler_restore(const lk_state_dict *state, lk_scheduler *scheduler)
{
    lk_named_number numbers[MAX_SCHEDULER_NUMBERS];
    int count =
        scheduler ? lk_scheduler_save(scheduler, numbers, MAX_SCHEDULER_NUMBERS) : 0; /* for the names */
    for (int i = 0; i < count; i++) {
        LKI_SCOPED char *name = lki_format("scheduler.%s", numbers[i].name);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_get_f64(state, name, &numbers[i].value));
    }
    return count ? lk_scheduler_restore(scheduler, numbers, count) : LK_OK;
}
