/* Logdirs that a test writes by hand, and a board over them. */
#ifndef TESTS_BOARD_LOGS_H
#define TESTS_BOARD_LOGS_H

#include "lktest.h"

#include "base/memory.h"
#include "board/board.h"

#include <unistd.h>

static char root[1024];

static inline void enter(const char *name)
{
    snprintf(root, sizeof root, "%s", lkt_scratch_folder(name));
}

static inline const char *path_of(const char *below)
{
    static char path[4][4096];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", root, below);
    return path[turn];
}

static inline void write_bytes(const char *below, const char *mode, const void *bytes, size_t nbytes)
{
    FILE *file = fopen(path_of(below), mode);
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, nbytes, file), nbytes);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *below, const char *text)
{
    write_bytes(below, "w", text, strlen(text));
}

static inline void append_text(const char *below, const char *text)
{
    write_bytes(below, "a", text, strlen(text));
}

static inline lki_board *open_board(void)
{
    lki_board *board;
    const char *folders[] = {root};
    lkt_ok(lki_board_open(&board, folders, 1));
    lkt_ok(lki_board_refresh(board, 0));
    return board;
}

static inline lki_board_run *run_named(const lki_board *board, const char *name)
{
    for (int i = 0; i < board->run_count; i++)
        if (!strcmp(board->runs[i]->name, name)) return board->runs[i];
    return NULL;
}

/* The copy of a metric that the page shows; NULL if there is none. */
static inline const lki_board_series *shown(const lki_board_run *run, const char *loader, const char *metric)
{
    for (int i = 0; i < run->series.count; i++) {
        const lki_board_series *series = &run->series.items[i];
        if (!strcmp(series->loader, loader) && !strcmp(series->metric, metric) &&
            lki_board_series_is_shown(&run->series, series))
            return series;
    }
    return NULL;
}

static inline int64_t points(const lki_board_run *run, const char *loader, const char *metric)
{
    const lki_board_series *series = shown(run, loader, metric);
    return series ? series->count : 0;
}

#endif
