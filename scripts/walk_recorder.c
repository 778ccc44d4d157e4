/* Preloaded into a program that was built with -finstrument-functions: writes down which functions some
 * batches enter.
 *
 * Only the main thread of the process that was started is recorded: rank 0 forks the others. A batch begins
 * when the function at WALK_MARK (its offset in the program) is entered; those from WALK_FIRST on are
 * recorded, WALK_COUNT of them. Then they are written to WALK_OUT, "depth offset" per function and an empty
 * line between two batches, and the run is asked to stop as a user would. */
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
static int count, depth, base_depth, marks, first, last;
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
    const char *where = getenv("WALK_MARK"), *from = getenv("WALK_FIRST"), *many = getenv("WALK_COUNT");
    dl_iterate_phdr(take_base, &base);
    mark = where ? strtoull(where, NULL, 16) : 0;
    first = from ? atoi(from) : 1;
    last = first + (many ? atoi(many) : 1);
    is_walked = 1;
    pthread_atfork(NULL, NULL, leave_out_child);
}

static void finish(void)
{
    FILE *file = fopen(getenv("WALK_OUT"), "w");
    for (int i = 0; file && i < count; i++)
        fprintf(file, "%s%d %lx\n", i && entered[i].offset == mark ? "\n" : "", entered[i].depth - base_depth,
                (unsigned long)entered[i].offset);
    if (file) fclose(file);
    raise(SIGTERM);
}

void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)caller;
    if (!is_walked) return;
    uintptr_t offset = (uintptr_t)function - base;
    depth++;
    if (offset == mark && ++marks == first) base_depth = depth;
    if (offset == mark && marks == last) finish();
    if (marks < first || marks >= last || count == MOST) return;
    entered[count].offset = offset;
    entered[count++].depth = depth;
    if (depth < base_depth) base_depth = depth;
}

void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)function;
    (void)caller;
    if (is_walked) depth--;
}
