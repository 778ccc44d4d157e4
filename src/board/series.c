#include "board/series.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

static bool is_same_metric(const lki_board_series *series, lki_board_axis axis, const char *loader,
                           const char *metric)
{
    return series->axis == axis && !strcmp(series->metric, metric) && !strcmp(series->loader, loader);
}

lki_board_series *lki_board_series_claim(lki_board_series_list *list, lki_board_kind kind,
                                         lki_board_axis axis, const char *loader, const char *metric)
{
    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind == kind && is_same_metric(&list->items[i], axis, loader, metric))
            return &list->items[i];
    if (list->count == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 32;
        lki_board_series *grown =
            lki_realloc(list->items, sizeof *grown * (size_t)capacity, "the board's metrics");
        if (!grown) return NULL;
        list->items = grown;
        list->capacity = capacity;
    }
    lki_board_series made = {
        .kind = kind, .axis = axis, .loader = lki_strdup(loader), .metric = lki_strdup(metric)};
    if (!made.loader || !made.metric) {
        lki_free(made.loader);
        lki_free(made.metric);
        return NULL;
    }
    list->items[list->count] = made;
    return &list->items[list->count++];
}

static bool grow_column(double **column, int64_t capacity)
{
    double *grown = lki_realloc(*column, sizeof *grown * (size_t)capacity, "the board's points");
    if (grown) *column = grown;
    return grown != NULL;
}

lk_status lki_board_series_add(lki_board_series *series, double step, double time, double value)
{
    int64_t at = series->count;
    if (at == series->capacity) {
        int64_t capacity = at ? 2 * at : 64;
        if (!grow_column(&series->step, capacity) || !grow_column(&series->time, capacity) ||
            !grow_column(&series->value, capacity))
            return LK_ERR_NOMEM;
        series->capacity = capacity;
    }
    series->step[at] = step;
    series->time[at] = time;
    series->value[at] = value;
    series->count++;
    if (!isfinite(value)) return LK_OK;
    if (series->finite_count == 0 || value < series->value[series->lowest]) series->lowest = at;
    if (series->finite_count == 0 || value > series->value[series->highest]) series->highest = at;
    series->finite_count++;
    return LK_OK;
}

static void free_series(lki_board_series *series)
{
    lki_free(series->loader);
    lki_free(series->metric);
    lki_free(series->step);
    lki_free(series->time);
    lki_free(series->value);
}

void lki_board_series_drop(lki_board_series_list *list, lki_board_kind kind)
{
    int kept = 0;
    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind == kind)
            free_series(&list->items[i]);
        else
            list->items[kept++] = list->items[i];
    list->count = kept;
}

void lki_board_series_fini(lki_board_series_list *list)
{
    for (int i = 0; i < list->count; i++) free_series(&list->items[i]);
    lki_free(list->items);
    *list = (lki_board_series_list){0};
}

bool lki_board_series_is_shown(const lki_board_series_list *list, const lki_board_series *series)
{
    for (int i = 0; i < list->count; i++) {
        const lki_board_series *other = &list->items[i];
        if (other == series || !is_same_metric(other, series->axis, series->loader, series->metric)) continue;
        if (other->count > series->count || (other->count == series->count && other->kind < series->kind))
            return false;
    }
    return series->count > 0;
}

const char *lki_board_axis_name(lki_board_axis axis)
{
    static const char *const names[] = {"epoch", "sample", "step"};
    return names[axis];
}
