#include "resume/started_again.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"

#include <string.h>

enum { MAX_CHECKPOINTS = 64 };

static bool again;
static char *checkpoints[MAX_CHECKPOINTS];
static int checkpoint_count;

void lki_started_again(void)
{
    again = true;
}

bool lki_is_started_again(void)
{
    return again;
}

lk_status lki_started_again_from(const char *path)
{
    if (lki_goes_on_from(path)) return LK_OK;
    if (checkpoint_count == MAX_CHECKPOINTS)
        return lki_fail(LK_ERR_INVALID,
                        "a run that is started again has more than %d checkpoints to go on from",
                        MAX_CHECKPOINTS);
    checkpoints[checkpoint_count] = lki_strdup(path);
    return checkpoints[checkpoint_count++] ? LK_OK : LK_ERR_NOMEM;
}

bool lki_goes_on_from(const char *path)
{
    for (int i = 0; i < checkpoint_count; i++)
        if (checkpoints[i] && (strcmp(checkpoints[i], path) == 0 || lki_is_same_file(checkpoints[i], path)))
            return true;
    return false;
}
