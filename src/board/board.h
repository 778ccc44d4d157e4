/* All runs below some folders, as the page shows them. lki_board_open, then lki_board_refresh whenever
 * somebody asks for news, then lki_board_close. Folders and runs may come, grow and go meanwhile. One thread
 * at a time. */
#ifndef LKI_BOARD_BOARD_H
#define LKI_BOARD_BOARD_H

#include "board/run.h"

enum { LKI_BOARD_MAX_RUNS = 2000 };

typedef struct lki_board_root {
    char *given;  /* as the user wrote it */
    char *prefix; /* of its runs' names: "" if there is but one root */
    bool is_there;
} lki_board_root;

typedef struct lki_board {
    lki_board_root *roots;
    int root_count;
    lki_board_run **runs;
    int run_count;
    int next_id;
    int64_t version; /* grows with each change */
    bool has_more;   /* there are more runs than the board shows */
    int64_t looked_ns;
} lki_board;

/* A folder that is not there yet is fine; what is there and is no folder is refused. */
lk_status lki_board_open(lki_board **out, const char *const *folders, int count);
void lki_board_close(lki_board *board);

/* Looks at everything, unless it did so less than `age_ms` ago. */
lk_status lki_board_refresh(lki_board *board, int age_ms);

/* NULL if there is no such run any more. */
lki_board_run *lki_board_find(const lki_board *board, int id);

#endif
