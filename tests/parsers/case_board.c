/* What the live page reads of a logdir that somebody else has written, and what a browser may ask it. */
#define _GNU_SOURCE
#include "parsers.h"

#include "base/memory.h"
#include "board/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A log in one of the three formats, in two pieces, as one that grows. */
static void read_log(lki_tail_read read, lki_board_kind kind, const uint8_t *data, size_t nbytes)
{
    if (nbytes < 1) return;
    lki_board_series_list series = {0};
    lki_board_histogram_list histograms = {0};
    lki_board_file file = {.kind = kind, .loader = lki_strdup("train")};
    lki_board_reading reading = {.file = &file, .series = &series, .histograms = &histograms};
    const char *text = (const char *)data + 1;
    size_t total = nbytes - 1, first = total * data[0] / 255;
    size_t done = first ? read(&reading, text, first) : 0;
    must(done <= first, "no more is taken than there is");
    done += read(&reading, text + done, total - done);
    must(done <= total, "no more is taken than there is");
    for (int i = 0; i < series.count; i++) {
        must(series.items[i].count <= (int64_t)total, "no more points than bytes");
        must(series.items[i].finite_count <= series.items[i].count, "no more numbers than points");
    }
    lki_board_series_fini(&series);
    lki_board_histograms_fini(&histograms);
    lki_free(file.loader);
    lki_free(file.header);
}

static void parse_csv_log(const uint8_t *data, size_t nbytes)
{
    read_log(lki_board_read_csv, LKI_BOARD_CSV, data, nbytes);
}

static void parse_jsonl_log(const uint8_t *data, size_t nbytes)
{
    read_log(lki_board_read_jsonl, LKI_BOARD_JSONL, data, nbytes);
}

static void parse_event_log(const uint8_t *data, size_t nbytes)
{
    read_log(lki_board_read_events, LKI_BOARD_EVENTS, data, nbytes);
}

/* ---- Requests ---- */

enum { MAX_ARGUMENTS = 8 };
typedef struct query {
    const char *names[MAX_ARGUMENTS], *values[MAX_ARGUMENTS];
    int count;
} query;

static const char *look_up(const lki_http_request *request, const char *name)
{
    const query *q = request->inner;
    for (int i = 0; i < q->count; i++)
        if (!strcmp(q->names[i], name)) return q->values[i];
    return NULL;
}

static const char *asset(const char *name)
{
    return strcmp(name, "index.html") ? NULL : "<html></html>";
}

static void ask(lki_board *board, char *request)
{
    lki_board_site site = {.board = board, .asset = asset, .token = "0123456789abcdef0123456789abcdef"};
    query q = {0};
    lki_http_request asked = {.inner = &q, .query = look_up};
    lki_http_answer answer = {0};
    char *path = NULL, *rest = request, *name = strsep(&rest, "?");
    while (rest && q.count < MAX_ARGUMENTS) {
        char *value = strsep(&rest, "&");
        q.names[q.count] = strsep(&value, "=");
        q.values[q.count++] = value ? value : "";
    }
    must(asprintf(&path, "/%s/%s", site.token, name) > 0, "there is memory");
    asked.path = path;
    lki_board_answer(&site, &asked, &answer);
    must(answer.status >= 200 && answer.status < 600, "a request has an answer");
    if (answer.status == 200) must(answer.body != NULL, "an answer has a body");
    if (answer.is_owned) lki_free((void *)answer.body);
    asked.path = name; /* without the page's token */
    lki_board_answer(&site, &asked, &answer);
    must(answer.status == 403, "a request without the token is refused");
    free(path);
}

/* A byte that chooses a file of a run, a line of requests with spaces between them, and the file. */
static void parse_page(const uint8_t *data, size_t nbytes)
{
    static const char *const files[] = {
        "config.yml",  "hparams.json",         "model.json",
        "log.txt",     "csv_logger/train.csv", "checkpoints/model.storage.json",
        "train.jsonl", "confusion.csv",        ".lock"};
    enum { FILES = sizeof files / sizeof *files };
    char path[200], *line, *one;
    lki_board *board = NULL;
    if (nbytes < 2) return;
    const uint8_t *end = memchr(data + 1, '\n', nbytes - 1);
    if (!end) return;
    char *rest = line = as_text(data + 1, (size_t)(end - data - 1));
    for (int i = 0; i < 3; i++) {
        static const char *const folders[] = {"run", "run/csv_logger", "run/checkpoints"};
        snprintf(path, sizeof path, "%s/%s", parser_folder(), folders[i]);
        mkdir(path, 0700);
    }
    as_file("run/log.txt", NULL, 0);
    snprintf(path, sizeof path, "run/%s", files[data[0] % FILES]);
    as_file(path, end + 1, (size_t)(data + nbytes - end - 1));
    snprintf(path, sizeof path, "%s/run", parser_folder());
    must(lki_board_open(&board, &(const char *){path}, 1) == LK_OK, "a board is opened");
    if (lki_board_refresh(board, 0)) check_refusal();
    must(board->run_count <= 1, "there is one run");
    for (int i = 0; i < 6 && (one = strsep(&rest, " ")); i++) ask(board, one);
    lki_board_close(board);
    snprintf(path, sizeof path, "%s/run/%s", parser_folder(), files[data[0] % FILES]);
    remove(path);
    free(line);
}

const parser board_parsers[] = {{"log-csv", parse_csv_log},
                                {"log-jsonl", parse_jsonl_log},
                                {"log-events", parse_event_log},
                                {"page", parse_page},
                                {NULL, NULL}};
