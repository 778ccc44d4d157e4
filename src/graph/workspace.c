#include "graph/workspace.h"

#include "base/memory.h"
#include "base/status.h"

enum { LEAST_NBYTES = 64 };

lki_workspace *lki_workspace_create(lki_home *home)
{
    lki_workspace *workspace = LKI_NEW(lki_workspace);
    if (workspace) workspace->home = home;
    return workspace;
}

static void release(lki_workspace *workspace, void *data)
{
    if (!data) return;
    if (workspace->home)
        workspace->home->ops->release(workspace->home, data);
    else
        lki_free(data);
}

void lki_workspace_free(lki_workspace *workspace)
{
    if (!workspace) return;
    release(workspace, workspace->arena);
    release(workspace, workspace->scratch);
    lki_free(workspace);
}

size_t lki_workspace_nbytes(const lki_workspace *workspace)
{
    return workspace->arena_nbytes + workspace->scratch_nbytes;
}

static lk_status grow(lki_workspace *workspace, char **block, size_t *nbytes, size_t wanted, const char *what)
{
    if (wanted < LEAST_NBYTES) wanted = LEAST_NBYTES; /* places in it are addresses, also those of nothing */
    if (wanted <= *nbytes) return LK_OK;
    /* Nothing in a workspace outlives a replay, so the old block can go first: the peak stays low. If there
     * is no room for the new one, the plans of before find theirs too small and ask for it again. */
    release(workspace, *block);
    *block = NULL;
    *nbytes = 0;
    workspace->version++;
    lki_home *home = workspace->home;
    *block = home ? home->ops->alloc(home, wanted, what) : lki_alloc_aligned(wanted, what);
    if (!*block) return LK_ERR_NOMEM;
    *nbytes = wanted;
    return LK_OK;
}

lk_status lki_workspace_reserve(lki_workspace *workspace, size_t arena_nbytes, size_t scratch_nbytes)
{
    LKI_TRY(grow(workspace, &workspace->arena, &workspace->arena_nbytes, arena_nbytes,
                 "the activations of the step"));
    return grow(workspace, &workspace->scratch, &workspace->scratch_nbytes, scratch_nbytes,
                "the kernels' scratch memory");
}
