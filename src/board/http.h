/* What the plug-in liblockstep_http.so does: a small HTTP server on loopback, made with libmicrohttpd. It
 * calls the handler for each GET from one thread of its own; everything else it refuses itself. */
#ifndef LKI_BOARD_HTTP_H
#define LKI_BOARD_HTTP_H

#include "base/plugin.h"
#include "base/status.h"

typedef struct lki_http_server lki_http_server;

typedef struct lki_http_request {
    const char *path;  /* unescaped; begins with "/" */
    const void *inner; /* the plug-in's own */
    /* A value of the query, unescaped; NULL if it is not given. Lives as long as the request. */
    const char *(*query)(const struct lki_http_request *request, const char *name);
} lki_http_request;

typedef struct lki_http_answer {
    int status;       /* 200, 403, 404 … */
    const char *type; /* "text/html; charset=utf-8" */
    const void *body; /* NULL: the status in words */
    size_t nbytes;
    bool is_owned; /* the server frees the body with lki_free */
} lki_http_answer;

typedef void (*lki_http_handler)(void *context, const lki_http_request *request, lki_http_answer *answer);

typedef struct lki_http_functions {
    /* Port 0: any that is free. *bound is the one that was taken. */
    lk_status (*start)(lki_http_server **out, int port, int *bound, lki_http_handler handler, void *context);
    /* Ends the requests under way, and frees the server. */
    void (*stop)(lki_http_server *server);
} lki_http_functions;

extern lki_plugin lki_http; /* the library's side */

#endif
