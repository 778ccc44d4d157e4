#include "board/routes.h"

#include "base/memory.h"
#include "board/answers.h"

#include <string.h>
#include <sys/random.h>

lk_status lki_board_make_token(char token[LKI_BOARD_TOKEN_LENGTH + 1])
{
    unsigned char bytes[LKI_BOARD_TOKEN_LENGTH / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return lki_fail(LK_ERR_IO, "the system gave no random numbers for the page's link");
    for (size_t i = 0; i < sizeof bytes; i++) {
        token[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        token[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    token[LKI_BOARD_TOKEN_LENGTH] = 0;
    return LK_OK;
}

/* What follows "/TOKEN/"; NULL without it. Takes the same time wherever they differ. */
static const char *behind_token(const char *token, const char *path)
{
    unsigned differs = 0;
    if (strlen(path) < LKI_BOARD_TOKEN_LENGTH + 2) return NULL;
    for (int i = 0; i < LKI_BOARD_TOKEN_LENGTH; i++) differs |= (unsigned)(token[i] ^ path[i + 1]);
    if (differs || path[0] != '/' || path[LKI_BOARD_TOKEN_LENGTH + 1] != '/') return NULL;
    return path + LKI_BOARD_TOKEN_LENGTH + 2;
}

static const char *type_of(const char *name)
{
    const char *ending = strrchr(name, '.');
    if (!ending) return "text/plain; charset=utf-8";
    if (!strcmp(ending, ".html")) return "text/html; charset=utf-8";
    if (!strcmp(ending, ".js")) return "text/javascript; charset=utf-8";
    if (!strcmp(ending, ".css")) return "text/css; charset=utf-8";
    return !strcmp(ending, ".svg") ? "image/svg+xml" : "text/plain; charset=utf-8";
}

static void answer_asset(const lki_board_site *site, const char *name, lki_http_answer *answer)
{
    if (!*name) name = "index.html";
    const char *text = site->asset(name);
    answer->status = 404;
    if (text) *answer = (lki_http_answer){200, type_of(name), text, strlen(text), false};
}

typedef void (*answer_function)(lki_board *board, const lki_http_request *request, lki_http_answer *answer);

static const struct {
    const char *name;
    answer_function answer;
} calls[] = {
    {"api/runs", lki_board_answer_runs},       {"api/curves", lki_board_answer_curves},
    {"api/config", lki_board_answer_config},   {"api/log", lki_board_answer_log},
    {"api/files", lki_board_answer_files},     {"api/picture", lki_board_answer_picture},
    {"api/confusion", lki_board_answer_table}, {"api/histograms", lki_board_answer_histograms},
    {"api/model", lki_board_answer_model},
};

void lki_board_answer(void *context, const lki_http_request *request, lki_http_answer *answer)
{
    const lki_board_site *site = context;
    const char *name = behind_token(site->token, request->path);
    *answer = (lki_http_answer){.status = 403};
    if (!name) return;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(calls[i].name, name)) {
            calls[i].answer(site->board, request, answer);
            return;
        }
    answer_asset(site, name, answer);
}
