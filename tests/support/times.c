#include "times.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Where the cell behind this one begins; NULL in the last one of a line. */
static char *next_cell(char *at)
{
    bool quoted = false;
    for (; *at && *at != '\n' && (quoted || *at != ','); at++) quoted ^= *at == '"';
    return *at == ',' ? at + 1 : NULL;
}

static void drop(char *begin, char *end)
{
    memmove(begin, end, strlen(end) + 1);
}

static int time_column(char *header)
{
    int column = 0;
    for (char *at = header; at; at = next_cell(at), column++)
        if (!strncmp(at, "time,", 5) || !strncmp(at, "time\n", 5)) return column;
    return -1;
}

void lkt_drop_times(char *text, const char *name)
{
    size_t length = strlen(name);
    bool is_csv = length > 4 && !strcmp(name + length - 4, ".csv") && !strncmp(text, "step,", 5);
    int column = is_csv ? time_column(text) : -1;
    for (char *line = text; column > 0 && line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char *cell = line;
        for (int i = 0; i < column && cell; i++) cell = next_cell(cell);
        if (cell) drop(cell - 1, cell + strcspn(cell, ",\n"));
    }
    for (char *at = text; (at = strstr(at, "\"time\":"));) drop(at, at + strcspn(at, ",") + 1);
}
