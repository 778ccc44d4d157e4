/* The answers of the board: what a request for a path gets. Knows nothing of sockets. */
#ifndef LKI_BOARD_ROUTES_H
#define LKI_BOARD_ROUTES_H

#include "board/board.h"
#include "board/http.h"

enum { LKI_BOARD_TOKEN_LENGTH = 32 };

typedef struct lki_board_site {
    lki_board *board;
    /* The text of a file of the page ("main.js"); NULL if there is none. */
    const char *(*asset)(const char *name);
    char token[LKI_BOARD_TOKEN_LENGTH + 1];
} lki_board_site;

/* A token that cannot be guessed. */
lk_status lki_board_make_token(char token[LKI_BOARD_TOKEN_LENGTH + 1]);

/* An lki_http_handler; the context is an lki_board_site. A path begins with "/TOKEN/"; any other gets 403. */
void lki_board_answer(void *context, const lki_http_request *request, lki_http_answer *answer);

#endif
