/* Preloaded into a program that was built with -finstrument-functions: writes down which functions one batch
 * enters.
 *
 * Only the main thread of the process that was started is recorded: rank 0 forks the others. The recording
 * begins when the function at WALK_MARK (its offset in the program) has been entered WALK_BATCH times and
 * ends when it is entered again. Then the list is written to WALK_OUT, "depth offset" per line, and the run
 * is asked to stop as a user would. */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1 << 20 };

static struct {
    uintptr_t offset;
    int depth;
} entered[MOST];
static int count, depth, deepest_return, marks, wanted;
static uintptr_t base, mark;
static _Thread_local int is_walked; /* the main thread */

static int take_base(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    *(uintptr_t *)context = info->dlpi_addr;
    return 1; /* the program itself comes first */
}

static void leave_out_child(void)
{
    is_walked = 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *where = getenv("WALK_MARK"), *which = getenv("WALK_BATCH");
    dl_iterate_phdr(take_base, &base);
    mark = where ? strtoull(where, NULL, 16) : 0;
    wanted = which ? atoi(which) : 1;
    is_walked = 1;
    pthread_atfork(NULL, NULL, leave_out_child);
}

static void finish(void)
{
    FILE *file = fopen(getenv("WALK_OUT"), "w");
    for (int i = 0; file && i < count; i++)
        fprintf(file, "%d %lx\n", entered[i].depth - deepest_return, (unsigned long)entered[i].offset);
    if (file) fclose(file);
    raise(SIGTERM);
}

void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)caller;
    if (!is_walked) return;
    uintptr_t offset = (uintptr_t)function - base;
    depth++;
    if (offset == mark && ++marks == wanted) deepest_return = depth;
    if (marks == wanted && count < MOST) {
        entered[count].offset = offset;
        entered[count++].depth = depth;
    }
    if (offset == mark && marks == wanted + 1) finish();
}

void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)function;
    (void)caller;
    if (!is_walked) return;
    depth--;
    if (marks == wanted && depth < deepest_return) deepest_return = depth;
}
