/* What lies in a logdir besides its curves: config, log, pictures, confusion matrices. Nothing but PNG, and
 * the CSV of a confusion matrix, is given out by its path. */
#include "board/answers.h"

#include "base/memory.h"
#include "board/inside.h"
#include "board/run_settings.h"

#include <jansson.h>
#include <string.h>

enum {
    MAX_CONFIG = 1 << 20,
    MAX_MODEL = 1 << 24,
    LOG_END = 1 << 16,
    MAX_PICTURE = 1 << 26,
    MAX_TABLE = 1 << 20,
    MAX_DEPTH = 4,
    MAX_LISTED = 2000,
};

void lki_board_answer_config(lki_board *board, const lki_http_request *request, lki_http_answer *answer)
{
    lki_text_out out = {0};
    size_t nbytes;
    const lki_board_run *run = lki_board_queried_run(board, request, answer);
    if (!run) return;
    LKI_SCOPED char *text = lki_inside_read(run->folder, "config.yml", MAX_CONFIG, &nbytes);
    lki_board_put_config(&out, text ? text : "", text ? nbytes : 0);
    lki_board_send_text(answer, &out, LKI_BOARD_JSON);
}

void lki_board_answer_log(lki_board *board, const lki_http_request *request, lki_http_answer *answer)
{
    size_t nbytes = 0;
    const lki_board_run *run = lki_board_queried_run(board, request, answer);
    if (!run) return;
    char *text = lki_inside_read(run->folder, "log.txt", LOG_END, &nbytes);
    if (!text) text = lki_strdup("");
    answer->status = 500;
    if (text) *answer = (lki_http_answer){200, "text/plain; charset=utf-8", text, nbytes, true};
}

void lki_board_answer_histograms(lki_board *board, const lki_http_request *request, lki_http_answer *answer)
{
    lki_text_out out = {0};
    const lki_board_run *run = lki_board_queried_run(board, request, answer);
    if (!run) return;
    lki_board_put_histograms(&out, &run->histograms);
    lki_board_send_text(answer, &out, LKI_BOARD_JSON);
}

/* Half a file would be half a model. */
void lki_board_answer_model(lki_board *board, const lki_http_request *request, lki_http_answer *answer)
{
    size_t nbytes = 0;
    const lki_board_run *run = lki_board_queried_run(board, request, answer);
    if (!run) return;
    char *text = lki_inside_read(run->folder, "model.json", MAX_MODEL, &nbytes);
    json_t *document = text ? json_loadb(text, nbytes, 0, NULL) : NULL;
    *answer = (lki_http_answer){200, LKI_BOARD_JSON, "null", 4, false};
    if (json_is_object(document))
        *answer = (lki_http_answer){200, LKI_BOARD_JSON, text, nbytes, true};
    else
        lki_free(text);
    json_decref(document);
}

/* ---- The list ---- */

typedef struct listing {
    lki_text_out *out;
    const lki_board_run *run;
    const char *below;
    int depth;
    int *count;
} listing;

static bool has_ending(const char *name, const char *ending)
{
    size_t length = strlen(name), ending_length = strlen(ending);
    return length > ending_length && !strcmp(name + length - ending_length, ending);
}

static bool is_confusion(const char *path)
{
    return strstr(path, "confusion_matrix") != NULL && has_ending(path, ".csv");
}

static void put_file(void *context, const char *name, bool is_folder)
{
    listing *l = context;
    LKI_SCOPED char *path = *l->below ? lki_format("%s/%s", l->below, name) : lki_strdup(name);
    if (!path || *l->count == MAX_LISTED) return;
    if (is_folder) {
        listing deeper = {l->out, l->run, path, l->depth + 1, l->count};
        LKI_SCOPED char *folder = lki_format("%s/%s", l->run->folder, path);
        bool is_own = folder && !lki_board_is_run(folder); /* what another run made is not this one's */
        if (is_own && l->depth < MAX_DEPTH && strcmp(name, "checkpoints") != 0)
            lki_inside_list(l->run->folder, path, put_file, &deeper);
        return;
    }
    if (!has_ending(name, ".png") && !is_confusion(path)) return;
    lki_text_out_put(l->out, ",", *l->count > 0);
    lki_text_out_string(l->out, path);
    ++*l->count;
}

void lki_board_answer_files(lki_board *board, const lki_http_request *request, lki_http_answer *answer)
{
    lki_text_out out = {0};
    int count = 0;
    const lki_board_run *run = lki_board_queried_run(board, request, answer);
    if (!run) return;
    listing whole = {&out, run, "", 0, &count};
    lki_text_out_put(&out, "{\"files\":[", 10);
    lki_inside_list(run->folder, "", put_file, &whole);
    lki_text_out_put(&out, "]}", 2);
    lki_board_send_text(answer, &out, LKI_BOARD_JSON);
}

/* ---- One of them ---- */

void lki_board_answer_picture(lki_board *board, const lki_http_request *request, lki_http_answer *answer)
{
    static const unsigned char magic[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    size_t nbytes = 0;
    const lki_board_run *run = lki_board_queried_run(board, request, answer);
    const char *path = request->query(request, "path");
    char *bytes = run && path && has_ending(path, ".png")
                      ? lki_inside_read(run->folder, path, MAX_PICTURE, &nbytes)
                      : NULL;
    answer->status = 404;
    if (bytes && nbytes > sizeof magic && !memcmp(bytes, magic, sizeof magic))
        *answer = (lki_http_answer){200, "image/png", bytes, nbytes, true};
    else
        lki_free(bytes);
}

void lki_board_answer_table(lki_board *board, const lki_http_request *request, lki_http_answer *answer)
{
    size_t nbytes = 0;
    const lki_board_run *run = lki_board_queried_run(board, request, answer);
    const char *path = request->query(request, "path");
    char *text =
        run && path && is_confusion(path) ? lki_inside_read(run->folder, path, MAX_TABLE, &nbytes) : NULL;
    answer->status = 404;
    if (text) *answer = (lki_http_answer){200, "text/plain; charset=utf-8", text, nbytes, true};
}
