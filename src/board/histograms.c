#include "board/histograms.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

enum { MAX_TAGS = 2000 };

static lki_board_histograms *claim(lki_board_histogram_list *list, const char *loader, const char *tag)
{
    for (int i = 0; i < list->count; i++)
        if (!strcmp(list->items[i]->tag, tag) && !strcmp(list->items[i]->loader, loader))
            return list->items[i];
    size_t nbytes = sizeof *list->items * ((size_t)list->count + 1);
    lki_board_histograms **grown = lki_realloc(list->items, nbytes, "the board's histograms");
    if (!grown) return NULL;
    list->items = grown;
    lki_board_histograms *made = LKI_NEW(lki_board_histograms);
    if (!made) return NULL;
    made->loader = lki_strdup(loader);
    made->tag = lki_strdup(tag);
    made->stride = 1;
    if (!made->loader || !made->tag) {
        lki_free(made->loader);
        lki_free(made->tag);
        lki_free(made);
        return NULL;
    }
    return list->items[list->count++] = made;
}

static void thin(lki_board_histograms *series)
{
    int kept = 0;
    for (int i = 0; i < series->count; i++)
        if (i % 2 == 0)
            series->items[kept++] = series->items[i];
        else
            lki_free(series->items[i].limits);
    series->count = kept;
    series->stride *= 2;
}

/* Neighbours become one bucket where there are more than the page shows. */
static lk_status copy(lki_board_histogram *to, double step, const lk_histogram *from)
{
    int join = (from->bucket_count + LKI_BOARD_MAX_BUCKETS - 1) / LKI_BOARD_MAX_BUCKETS;
    int count = (from->bucket_count + join - 1) / join;
    *to = (lki_board_histogram){.step = step, .min = from->min, .bucket_count = count};
    to->limits = LKI_NEW_ARRAY(double, 2 * (size_t)count);
    if (!to->limits) return LK_ERR_NOMEM;
    to->counts = to->limits + count;
    for (int i = 0; i < from->bucket_count; i++) {
        to->limits[i / join] = from->limits[i];
        to->counts[i / join] += from->counts[i];
    }
    return LK_OK;
}

lk_status lki_board_histogram_add(lki_board_histogram_list *list, const char *loader, const char *tag,
                                  double step, const lk_histogram *histogram)
{
    if (list->count >= MAX_TAGS || histogram->bucket_count < 1) return LK_OK;
    lki_board_histograms *series = claim(list, loader, tag);
    if (!series) return LK_ERR_NOMEM;
    if (series->seen++ % series->stride != 0) return LK_OK;
    if (series->count == LKI_BOARD_MAX_HISTOGRAMS) thin(series);
    LKI_TRY(copy(&series->items[series->count], step, histogram));
    series->count++;
    return LK_OK;
}

void lki_board_histograms_fini(lki_board_histogram_list *list)
{
    for (int i = 0; i < list->count; i++) {
        for (int k = 0; k < list->items[i]->count; k++) lki_free(list->items[i]->items[k].limits);
        lki_free(list->items[i]->loader);
        lki_free(list->items[i]->tag);
        lki_free(list->items[i]);
    }
    lki_free(list->items);
    *list = (lki_board_histogram_list){0};
}

/* ---- As text ---- */

static void put_numbers(lki_text_out *out, const char *name, const double *values, int count)
{
    lki_text_out_printf(out, ",\"%s\":[", name);
    for (int i = 0; i < count; i++) {
        if (i) lki_text_out_put(out, ",", 1);
        lki_text_out_number(out, values[i]);
    }
    lki_text_out_put(out, "]", 1);
}

static void put_histogram(lki_text_out *out, const lki_board_histogram *one)
{
    lki_text_out_put(out, "{\"step\":", 8);
    lki_text_out_number(out, one->step);
    lki_text_out_put(out, ",\"min\":", 7);
    lki_text_out_number(out, one->min);
    put_numbers(out, "limits", one->limits, one->bucket_count);
    put_numbers(out, "counts", one->counts, one->bucket_count);
    lki_text_out_put(out, "}", 1);
}

void lki_board_put_histograms(lki_text_out *out, const lki_board_histogram_list *list)
{
    lki_text_out_put(out, "[", 1);
    for (int i = 0; i < list->count; i++) {
        const lki_board_histograms *series = list->items[i];
        lki_text_out_put(out, i ? ",{\"loader\":" : "{\"loader\":", i ? 11 : 10);
        lki_text_out_string(out, series->loader);
        lki_text_out_put(out, ",\"tag\":", 7);
        lki_text_out_string(out, series->tag);
        lki_text_out_put(out, ",\"items\":[", 10);
        for (int k = 0; k < series->count; k++) {
            if (k) lki_text_out_put(out, ",", 1);
            put_histogram(out, &series->items[k]);
        }
        lki_text_out_put(out, "]}", 2);
    }
    lki_text_out_put(out, "]", 1);
}
