#include "lktest.h"

#include <unistd.h>

/* The letter of /proc/PID/stat: 'T' is stopped. */
static char state_of(pid_t pid)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    const char *name_end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    fclose(file);
    return name_end ? name_end[2] : 0;
}

void lkt_until_stopped(pid_t pid, bool stopped)
{
    enum { TURNS = 120000 };
    for (int turn = 0; (state_of(pid) == 'T') != stopped; turn++, usleep(1000))
        if (turn == TURNS) fail_msg("process %d is in state %c", (int)pid, state_of(pid));
}
