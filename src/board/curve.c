#include "board/curve.h"

#include "base/memory.h"

#include <math.h>

/* Whose points are thinned: their places on the axis, and the smoothed values, or NULL. */
typedef struct curve {
    const lki_board_series *series;
    const lki_board_view *view;
    double *smooth;
    double first; /* time of the first point */
} curve;

static double x_of(const curve *c, int64_t i)
{
    const lki_board_series *series = c->series;
    if (c->view->x == LKI_BOARD_X_STEP) return series->step[i];
    return c->view->x == LKI_BOARD_X_TIME ? series->time[i] : series->time[i] - c->first;
}

/* s[i] = w s[i-1] + (1 - w) y[i], divided by 1 - w^i, as if nothing had been before. What is not finite is
 * left out. */
static bool smooth(curve *c)
{
    const lki_board_series *series = c->series;
    double weight = c->view->smooth, sum = 0, known = 0;
    if (!(weight > 0)) return true;
    c->smooth = LKI_NEW_ARRAY(double, series->count);
    if (!c->smooth) return false;
    for (int64_t i = 0; i < series->count; i++) {
        if (isfinite(series->value[i])) {
            sum = weight * sum + (1 - weight) * series->value[i];
            known = weight * known + (1 - weight);
        }
        c->smooth[i] = known > 0 ? sum / known : NAN;
    }
    return true;
}

/* The visible points [begin, end), one more on each side, so that the line leaves the chart. */
static void cut(const curve *c, int64_t *begin, int64_t *end)
{
    int64_t first = 0, last = c->series->count;
    while (first < last && x_of(c, first) < c->view->from) first++;
    while (last > first && x_of(c, last - 1) > c->view->to) last--;
    *begin = first > 0 ? first - 1 : 0;
    *end = last < c->series->count ? last + 1 : last;
}

/* The lowest and the highest point of one bucket. */
typedef struct bucket {
    int64_t lowest, highest; /* -1: empty */
} bucket;

static void add_index(int64_t *kept, int64_t *count, int64_t index)
{
    if (index >= 0 && (*count == 0 || kept[*count - 1] < index)) kept[(*count)++] = index;
}

static void flush(bucket *b, int64_t *kept, int64_t *count)
{
    add_index(kept, count, b->lowest < b->highest ? b->lowest : b->highest);
    add_index(kept, count, b->lowest < b->highest ? b->highest : b->lowest);
    *b = (bucket){-1, -1};
}

/* Steps need not grow: the logs of another program may begin at 0 again. */
static bool is_ordered(const curve *c, int64_t begin, int64_t end)
{
    double last = x_of(c, begin);
    for (int64_t i = begin; i < end; i++) {
        double x = x_of(c, i);
        if (x < last) return false;
        if (isfinite(x)) last = x;
    }
    return true;
}

/* The indices of the points that are kept; at most two per bucket, and the first and the last. A bucket is a
 * part of the axis, or of the list if the axis goes back. */
static int64_t thin(const curve *c, int64_t begin, int64_t end, int64_t *kept)
{
    const double *value = c->series->value;
    double low = x_of(c, begin), width = (x_of(c, end - 1) - low) / c->view->buckets;
    bucket b = {-1, -1};
    int64_t count = 0, number = -2;
    bool is_few = end - begin <= 2 * (int64_t)c->view->buckets;
    bool by_axis = !is_few && width > 0 && isfinite(width) && is_ordered(c, begin, end);
    add_index(kept, &count, begin);
    for (int64_t i = begin; i < end; i++) {
        if (!isfinite(value[i]) || !isfinite(x_of(c, i))) continue;
        int64_t at = is_few    ? i
                     : by_axis ? (int64_t)((x_of(c, i) - low) / width)
                               : (i - begin) * c->view->buckets / (end - begin);
        if (at != number) flush(&b, kept, &count);
        number = at;
        if (b.lowest < 0 || value[i] < value[b.lowest]) b.lowest = i;
        if (b.highest < 0 || value[i] > value[b.highest]) b.highest = i;
    }
    flush(&b, kept, &count);
    add_index(kept, &count, end - 1);
    return count;
}

static void put_array(lki_text_out *out, const char *name, const curve *c, const double *values,
                      const int64_t *kept, int64_t count)
{
    lki_text_out_printf(out, ",\"%s\":[", name);
    for (int64_t i = 0; i < count; i++) {
        double value = values ? values[kept[i]] : x_of(c, kept[i]);
        if (i) lki_text_out_put(out, ",", 1);
        if (!isfinite(value))
            lki_text_out_put(out, "null", 4);
        else /* times need more digits than values */
            lki_text_out_printf(out, values ? "%.7g" : "%.13g", value);
    }
    lki_text_out_put(out, "]", 1);
}

void lki_board_put_curve(lki_text_out *out, const lki_board_series *series, const lki_board_view *view)
{
    curve c = {.series = series, .view = view, .first = series->count ? series->time[0] : 0};
    int64_t begin = 0, end = 0, count = 0;
    bool has_x = series->count && (view->x == LKI_BOARD_X_STEP || isfinite(c.first));
    bool is_made = smooth(&c);
    if (has_x) cut(&c, &begin, &end);
    LKI_SCOPED int64_t *kept = LKI_NEW_ARRAY(int64_t, end - begin + 2);
    if (!is_made || !kept) {
        out->status = LK_ERR_NOMEM;
    } else {
        if (end > begin) count = thin(&c, begin, end, kept);
        lki_text_out_printf(out, "\"n\":%lld,\"bad\":%lld", (long long)series->count,
                            (long long)(series->count - series->finite_count));
        put_array(out, "x", &c, NULL, kept, count);
        put_array(out, "y", &c, series->value, kept, count);
        if (c.smooth) put_array(out, "s", &c, c.smooth, kept, count);
    }
    lki_free(c.smooth);
}
