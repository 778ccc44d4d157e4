/* The server over libmicrohttpd. It listens on 127.0.0.1 alone, answers from one thread, and sends with each
 * answer the headers that keep a browser from running or embedding what a logdir holds. */
#include "board/http.h"

#include "base/memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 64, TIMEOUT_S = 30 };

struct lki_http_server {
    struct MHD_Daemon *daemon;
    lki_http_handler handler;
    void *context;
};

static const char *query(const lki_http_request *request, const char *name)
{
    return MHD_lookup_connection_value((struct MHD_Connection *)request->inner, MHD_GET_ARGUMENT_KIND, name);
}

static void add_headers(struct MHD_Response *response, const char *type)
{
    static const char *const headers[][2] = {
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
         "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cache-Control", "no-store"},
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        MHD_add_response_header(response, headers[i][0], headers[i][1]);
    MHD_add_response_header(response, "Content-Type", type);
}

static const char *words_of(int status)
{
    return status == 403   ? "403: this link is not the one that lockstep board has printed\n"
           : status == 404 ? "404: there is no such thing\n"
           : status == 405 ? "405: only GET\n"
                           : "500: the board could not answer\n";
}

static enum MHD_Result send_answer(struct MHD_Connection *connection, const lki_http_answer *answer)
{
    bool has_body = answer->body != NULL;
    const char *body = has_body ? answer->body : words_of(answer->status);
    size_t nbytes = has_body ? answer->nbytes : strlen(body);
    struct MHD_Response *response =
        has_body && answer->is_owned
            ? MHD_create_response_from_buffer_with_free_callback(nbytes, (void *)body, lki_free)
            : MHD_create_response_from_buffer(nbytes, (void *)body, MHD_RESPMEM_MUST_COPY);
    if (!response) {
        if (has_body && answer->is_owned) lki_free((void *)body);
        return MHD_NO;
    }
    add_headers(response, has_body ? answer->type : "text/plain; charset=utf-8");
    if (answer->status == 405) MHD_add_response_header(response, "Allow", "GET");
    enum MHD_Result result = MHD_queue_response(connection, (unsigned)answer->status, response);
    MHD_destroy_response(response);
    return result;
}

/* Called once when the headers are there, and once more when the body is. */
static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_nbytes, void **state)
{
    static int begun;
    lki_http_server *server = context;
    lki_http_answer answer = {.status = 500};
    (void)version, (void)upload;
    if (*state != &begun) {
        *state = &begun;
        return MHD_YES;
    }
    if (*upload_nbytes) { /* thrown away */
        *upload_nbytes = 0;
        return MHD_YES;
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0) {
        answer.status = 405;
        return send_answer(connection, &answer);
    }
    lki_http_request request = {.path = url, .inner = connection, .query = query};
    server->handler(server->context, &request, &answer);
    return send_answer(connection, &answer);
}

/* A socket of our own tells why a port cannot be had. */
static lk_status listen_on(int port, int *fd, int *bound)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t nbytes = sizeof address;
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd >= 0 && setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(*fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(*fd, MAX_CONNECTIONS) == 0 &&
        getsockname(*fd, (struct sockaddr *)&address, &nbytes) == 0) {
        *bound = ntohs(address.sin_port);
        return LK_OK;
    }
    int why = errno;
    if (*fd >= 0) close(*fd);
    return lki_fail(LK_ERR_IO, "port %d of 127.0.0.1: %s: choose another with --port, or 0 for any", port,
                    strerror(why));
}

static lk_status start(lki_http_server **out, int port, int *bound, lki_http_handler handler, void *context)
{
    int fd;
    *out = NULL;
    LKI_TRY(listen_on(port, &fd, bound));
    lki_http_server *server = LKI_NEW(lki_http_server);
    if (!server) {
        close(fd);
        return LK_ERR_NOMEM;
    }
    server->handler = handler;
    server->context = context;
    server->daemon =
        MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD, 0, NULL, NULL, handle, server,
                         MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_END);
    if (server->daemon) {
        *out = server;
        return LK_OK;
    }
    close(fd);
    lki_free(server);
    return lki_fail(LK_ERR_IO, "libmicrohttpd could not start a server on port %d", *bound);
}

static void stop(lki_http_server *server)
{
    if (!server) return;
    MHD_stop_daemon(server->daemon);
    lki_free(server);
}

LKI_PLUGIN_EXPORT(http, lki_http_functions, char, .start = start, .stop = stop);
