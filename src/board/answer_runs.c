/* The list of runs: their names, states, settings, and each metric's last and extreme values. */
#include "board/answers.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_AGAIN_MS = 500 };

const lki_board_run *lki_board_queried_run(const lki_board *board, const lki_http_request *request,
                                           lki_http_answer *answer)
{
    const char *id = request->query(request, "run");
    const lki_board_run *run = id ? lki_board_find(board, atoi(id)) : NULL;
    if (!run) answer->status = 404;
    return run;
}

void lki_board_send_text(lki_http_answer *answer, lki_text_out *out, const char *type)
{
    if (out->status || !out->text) {
        lki_text_out_fini(out);
        *answer = (lki_http_answer){.status = 500};
        return;
    }
    *answer = (lki_http_answer){200, type, out->text, out->used, true};
}

static void put_field(lki_text_out *out, const char *name, const char *text)
{
    lki_text_out_printf(out, ",\"%s\":", name);
    lki_text_out_string(out, text);
}

static void put_series(lki_text_out *out, const lki_board_series *series)
{
    lki_text_out_printf(out, "{\"axis\":\"%s\"", lki_board_axis_name(series->axis));
    put_field(out, "loader", series->loader);
    put_field(out, "metric", series->metric);
    lki_text_out_printf(out, ",\"n\":%lld,\"timed\":%s,\"last\":", (long long)series->count,
                        series->time[0] > 0 ? "true" : "false");
    lki_text_out_number(out, series->value[series->count - 1]);
    if (series->finite_count) {
        lki_text_out_put(out, ",\"min\":", 7);
        lki_text_out_number(out, series->value[series->lowest]);
        lki_text_out_put(out, ",\"max\":", 7);
        lki_text_out_number(out, series->value[series->highest]);
        lki_text_out_printf(out, ",\"min_at\":%.17g,\"max_at\":%.17g", series->step[series->lowest],
                            series->step[series->highest]);
    }
    lki_text_out_put(out, "}", 1);
}

static void put_notes(lki_text_out *out, const lki_board_run *run)
{
    bool any = false;
    lki_text_out_put(out, ",\"notes\":[", 10);
    for (int i = 0; i < run->file_count; i++) {
        const lki_board_file *file = &run->files[i];
        if (!file->problem) continue;
        LKI_SCOPED char *note = lki_format("%s: %s were left out (%lld)", file->tail.below, file->problem,
                                           (long long)file->bad_entries);
        lki_text_out_put(out, ",", any);
        lki_text_out_string(out, note);
        any = true;
    }
    lki_text_out_put(out, "]", 1);
}

static void put_run(lki_text_out *out, const lki_board_run *run)
{
    bool any = false;
    lki_text_out_printf(out, "{\"id\":%d", run->id);
    put_field(out, "name", run->name);
    put_field(out, "folder", run->folder);
    put_field(out, "state", lki_board_run_state_name(run->state));
    put_field(out, "valid_loader", run->valid_loader);
    put_field(out, "valid_metric", run->valid_metric);
    lki_text_out_printf(out,
                        ",\"minimize\":%s,\"epochs\":%lld,\"num_epochs\":%lld,\"started\":%lld,\"last\":%lld,"
                        "\"updated\":%lld",
                        run->minimize < 0 ? "null"
                        : run->minimize   ? "true"
                                          : "false",
                        (long long)run->epochs, (long long)run->num_epochs, (long long)run->started,
                        (long long)run->last, (long long)run->updated);
    lki_text_out_printf(out, ",\"hparams\":%s", run->hparams ? run->hparams : "{}");
    put_notes(out, run);
    lki_text_out_put(out, ",\"series\":[", 11);
    for (int i = 0; i < run->series.count; i++) {
        const lki_board_series *series = &run->series.items[i];
        if (!lki_board_series_is_shown(&run->series, series)) continue;
        lki_text_out_put(out, ",", any);
        put_series(out, series);
        any = true;
    }
    lki_text_out_put(out, "]}", 2);
}

/* What the user should know of the folders themselves. */
static void put_troubles(lki_text_out *out, const lki_board *board)
{
    bool any = false;
    lki_text_out_put(out, ",\"troubles\":[", 13);
    for (int i = 0; i < board->root_count; i++) {
        if (board->roots[i].is_there) continue;
        LKI_SCOPED char *trouble = lki_format("%s is not there", board->roots[i].given);
        lki_text_out_put(out, ",", any);
        lki_text_out_string(out, trouble);
        any = true;
    }
    if (board->has_more)
        lki_text_out_printf(out, "%s\"only the first %d runs are shown\"", any ? "," : "",
                            LKI_BOARD_MAX_RUNS);
    lki_text_out_put(out, "]", 1);
}

void lki_board_answer_runs(lki_board *board, const lki_http_request *request, lki_http_answer *answer)
{
    lki_text_out out = {0};
    const char *have_text = request->query(request, "have");
    long long have = have_text ? atoll(have_text) : 0;
    bool any = false;
    if (lki_board_refresh(board, LOOK_AGAIN_MS)) {
        answer->status = 500;
        return;
    }
    if (have > board->version) have = 0; /* another board has said it */
    lki_text_out_printf(&out, "{\"version\":%lld", (long long)board->version);
    if (have != board->version) {
        lki_text_out_put(&out, ",\"ids\":[", 8);
        for (int i = 0; i < board->run_count; i++)
            lki_text_out_printf(&out, "%s%d", i ? "," : "", board->runs[i]->id);
        lki_text_out_put(&out, "],\"runs\":[", 10);
        for (int i = 0; i < board->run_count; i++) {
            if (have > 0 && board->runs[i]->version <= have) continue;
            lki_text_out_put(&out, ",", any);
            put_run(&out, board->runs[i]);
            any = true;
        }
        lki_text_out_put(&out, "]", 1);
        put_troubles(&out, board);
    }
    lki_text_out_put(&out, "}", 1);
    lki_board_send_text(answer, &out, LKI_BOARD_JSON);
}
