/* The curves of one metric, of several runs. */
#include "board/answers.h"

#include "base/number_text.h"
#include "board/curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BUCKETS = 500, MAX_BUCKETS = 4000 };

static double number_of(const lki_http_request *request, const char *name, double otherwise)
{
    const char *text = request->query(request, name);
    char *end;
    double value = text ? lki_strtod(text, &end) : otherwise;
    return text && (end == text || *end) ? otherwise : value;
}

static lki_board_x x_of(const char *name)
{
    if (name && !strcmp(name, "relative")) return LKI_BOARD_X_RELATIVE;
    return name && !strcmp(name, "time") ? LKI_BOARD_X_TIME : LKI_BOARD_X_STEP;
}

static lki_board_view read_view(const lki_http_request *request)
{
    lki_board_view view = {
        .x = x_of(request->query(request, "x")),
        .from = number_of(request, "from", NAN),
        .to = number_of(request, "to", NAN),
        .smooth = number_of(request, "smooth", 0),
        .buckets = DEFAULT_BUCKETS,
    };
    double buckets = number_of(request, "buckets", DEFAULT_BUCKETS);
    if (buckets >= 1) view.buckets = buckets < MAX_BUCKETS ? (int)buckets : MAX_BUCKETS;
    if (!(view.smooth >= 0 && view.smooth < 1)) view.smooth = 0;
    return view;
}

static const lki_board_series *find_series(const lki_board_run *run, const char *axis, const char *loader,
                                           const char *metric)
{
    for (int i = 0; i < run->series.count; i++) {
        const lki_board_series *series = &run->series.items[i];
        if (!strcmp(series->metric, metric) && !strcmp(series->loader, loader) &&
            !strcmp(lki_board_axis_name(series->axis), axis) &&
            lki_board_series_is_shown(&run->series, series))
            return series;
    }
    return NULL;
}

void lki_board_answer_curves(lki_board *board, const lki_http_request *request, lki_http_answer *answer)
{
    const char *axis = request->query(request, "axis"), *loader = request->query(request, "loader");
    const char *metric = request->query(request, "metric"), *runs = request->query(request, "runs");
    lki_board_view view = read_view(request);
    lki_text_out out = {0};
    bool any = false;
    if (!axis || !loader || !metric || !runs) {
        answer->status = 404;
        return;
    }
    lki_text_out_put(&out, "{\"curves\":[", 11);
    for (char *end; *runs; runs = *end == ',' ? end + 1 : end) {
        const lki_board_run *run = lki_board_find(board, (int)strtol(runs, &end, 10));
        const lki_board_series *series = run ? find_series(run, axis, loader, metric) : NULL;
        if (end == runs || (*end && *end != ',')) break;
        if (!series) continue;
        lki_text_out_printf(&out, "%s{\"run\":%d,", any ? "," : "", run->id);
        lki_board_put_curve(&out, series, &view);
        lki_text_out_put(&out, "}", 1);
        any = true;
    }
    lki_text_out_put(&out, "]}", 2);
    lki_board_send_text(answer, &out, LKI_BOARD_JSON);
}
