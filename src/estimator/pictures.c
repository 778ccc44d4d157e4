/* The pictures of an evaluation. */
#include "estimator/estimator.h"
#include "plot/plot.h"

#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "data/fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 1400, HEIGHT = 600, MAX_PANELS = 4 };

/* Where panels lie in a page of that height. */
#define UPRIGHT    .bottom = 0.16, .top = 0.9
#define LEFT_HALF  .left = 0.09, .right = 0.48, UPRIGHT
#define RIGHT_HALF .left = 0.59, .right = 0.98, UPRIGHT
#define WHOLE_PAGE .left = 0.16, .right = 0.96, UPRIGHT

static const double *numbers(const lk_tensor *tensor)
{
    return tensor->data;
}

/* ---- Distributions ---- */

typedef struct distributions {
    lk_distribution pdf[2];
    lk_tensor *values[2], *fractions[2];
} distributions;

static void free_distributions(distributions *all)
{
    for (int i = 0; i < 2; i++) {
        lk_distribution_free(&all->pdf[i]);
        lk_tensor_free(all->values[i]);
        lk_tensor_free(all->fractions[i]);
    }
}

static lk_status draw_distributions(const char *path, const distributions *all, double ks)
{
    static const char *const names[] = {"target", "prediction"};
    char note[64];
    lki_page *page;
    lki_curve pdf[2], cdf[2];
    for (int i = 0; i < 2; i++) {
        const lk_distribution *d = &all->pdf[i];
        pdf[i] = (lki_curve){names[i], numbers(d->edges), numbers(d->density), lk_tensor_count(d->density),
                             LKI_CURVE_STEPS};
        cdf[i] = (lki_curve){names[i], numbers(all->values[i]), numbers(all->fractions[i]),
                             lk_tensor_count(all->values[i]), LKI_CURVE_LINE};
    }
    lki_snprintf(note, sizeof note, "KS distance %.4f", ks);
    LKI_TRY(lki_page_begin(&page, path, WIDTH, HEIGHT));
    lki_page_curves(page,
                    &(lki_panel){LEFT_HALF, .x_text = "value", .y_text = "PDF",
                                 .title = "probability density", .log_y = true},
                    pdf, 2);
    lki_page_curves(page,
                    &(lki_panel){RIGHT_HALF, .x_text = "value", .y_text = "CDF",
                                 .title = "distribution function", .note = note, .names_below = true},
                    cdf, 2);
    return lki_page_end(page);
}

lk_status lk_plot_distributions(const char *path, const lk_tensor *prediction, const lk_tensor *target)
{
    distributions all = {0};
    const lk_tensor *both[] = {target, prediction};
    lk_status status = LK_OK;
    for (int i = 0; i < 2 && !status; i++) {
        status = lk_pdf(both[i], 0, &all.pdf[i]);
        if (!status) status = lk_cdf(both[i], &all.values[i], &all.fractions[i]);
    }
    if (!status) status = draw_distributions(path, &all, lk_ks_statistic(prediction, target));
    free_distributions(&all);
    return status;
}

/* ---- Slices ---- */

static lk_status same_fields(const lk_tensor *a, const lk_tensor *b, int dims, lki_box *box, int64_t *rows)
{
    int64_t samples, channels, count_a, count_b;
    lki_box other;
    LKI_TRY(lki_field_axes(a, dims, box, &samples, &channels));
    count_a = samples * channels;
    LKI_TRY(lki_field_axes(b, dims, &other, &samples, &channels));
    count_b = samples * channels;
    if (count_a != count_b || memcmp(box->size, other.size, sizeof box->size) != 0)
        return lki_fail(LK_ERR_SHAPE, "prediction and target have different shapes");
    *rows = count_a;
    return LK_OK;
}

/* The plane in the middle of the first of three axes. */
static double *middle_plane(const lk_tensor *field, const lki_box *box, int64_t channel)
{
    int64_t plane = box->size[1] * box->size[2];
    double *values = LKI_NEW_ARRAY(double, plane);
    int64_t begin = (channel * box->size[0] + box->size[0] / 2) * plane;
    for (int64_t i = 0; values && i < plane; i++) values[i] = lk_tensor_get(field, begin + i);
    return values;
}

static void find_range(const double *values, int64_t count, double *low, double *high)
{
    for (int64_t i = 0; i < count; i++) {
        *low = fmin(*low, values[i]);
        *high = fmax(*high, values[i]);
    }
}

static void draw_planes(lki_page *page, double *const planes[3], const lki_box *box)
{
    static const char *const titles[] = {"target", "prediction", "error"};
    int64_t rows = box->size[1], columns = box->size[2], count = rows * columns;
    double low = INFINITY, high = -INFINITY, least = 0, most = 0;
    find_range(planes[0], count, &low, &high);
    find_range(planes[1], count, &low, &high);
    find_range(planes[2], count, &least, &most);
    double error = fmax(-least, most);
    for (int i = 0; i < 3; i++) {
        lki_panel panel = {.left = 0.05 + 0.325 * i,
                           .right = 0.265 + 0.325 * i,
                           .bottom = 0.18,
                           .top = 0.88,
                           .title = titles[i],
                           .x_text = box->dims == 2 ? "y" : "z",
                           .y_text = i                ? ""
                                     : box->dims == 2 ? "x"
                                                      : "y"};
        lki_page_image(page, &panel, planes[i], rows, columns, i < 2 ? low : -error, i < 2 ? high : error,
                       i == 2);
    }
}

/* A field in one dimension is a line. */
static void draw_lines(lki_page *page, double *const lines[3], const lki_box *box, const double *places)
{
    int64_t count = box->size[2];
    lki_curve both[] = {{"target", places, lines[0], count, LKI_CURVE_LINE},
                        {"prediction", places, lines[1], count, LKI_CURVE_LINE}};
    lki_page_curves(page, &(lki_panel){LEFT_HALF, .x_text = "point", .y_text = "value", .title = "field"},
                    both, 2);
    lki_curve error = {"error", places, lines[2], count, LKI_CURVE_LINE};
    lki_page_curves(
        page, &(lki_panel){RIGHT_HALF, .x_text = "point", .y_text = "prediction - target", .title = "error"},
        &error, 1);
}

static lk_status draw_slices(const char *path, double *const planes[3], const lki_box *box)
{
    lki_page *page;
    LKI_SCOPED double *places = LKI_NEW_ARRAY(double, box->size[2]);
    if (!places) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < box->size[2]; i++) places[i] = (double)i;
    LKI_TRY(lki_page_begin(&page, path, WIDTH, box->dims == 1 ? HEIGHT : 440));
    if (box->dims == 1)
        draw_lines(page, planes, box, places);
    else
        draw_planes(page, planes, box);
    return lki_page_end(page);
}

lk_status lk_plot_slices(const char *path, const lk_tensor *prediction, const lk_tensor *target, int dims,
                         int64_t channel)
{
    lki_box box;
    int64_t rows;
    LKI_TRY(same_fields(prediction, target, dims, &box, &rows));
    if (channel < 0 || channel >= rows)
        return lki_fail(LK_ERR_RANGE, "channel %lld of %lld", (long long)channel, (long long)rows);
    int64_t count = box.size[1] * box.size[2];
    LKI_SCOPED double *truth = middle_plane(target, &box, channel);
    LKI_SCOPED double *guess = middle_plane(prediction, &box, channel);
    LKI_SCOPED double *error = LKI_NEW_ARRAY(double, count);
    if (!truth || !guess || !error) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < count; i++) error[i] = guess[i] - truth[i];
    return draw_slices(path, (double *const[]){truth, guess, error}, &box);
}

/* ---- Profiles ---- */

static void draw_profiles(lki_page *page, const lk_tensor *truth, const lk_tensor *guess,
                          const double *places)
{
    int64_t panels = truth->shape.dim[0] < MAX_PANELS ? truth->shape.dim[0] : MAX_PANELS,
            count = truth->shape.dim[1];
    double width = 1.0 / (double)panels;
    for (int64_t i = 0; i < panels; i++) {
        char title[48];
        snprintf(title, sizeof title, "mean of channel %lld", (long long)i);
        lki_curve curves[] = {{"target", places, numbers(truth) + i * count, count, LKI_CURVE_LINE},
                              {"prediction", places, numbers(guess) + i * count, count, LKI_CURVE_LINE}};
        lki_page_curves(page,
                        &(lki_panel){.left = width * ((double)i + 0.28),
                                     .right = width * ((double)i + 0.97),
                                     .bottom = 0.16,
                                     .top = 0.9,
                                     .x_text = "point",
                                     .title = title},
                        curves, 2);
    }
}

lk_status lk_plot_profiles(const char *path, const lk_tensor *prediction, const lk_tensor *target, int dims,
                           int axis)
{
    lki_box box;
    lki_page *page;
    int64_t rows;
    LKI_TRY(same_fields(prediction, target, dims, &box, &rows));
    lk_tensor *truth = lk_profile(target, dims, axis),
              *guess = truth ? lk_profile(prediction, dims, axis) : NULL;
    LKI_SCOPED double *places = guess ? LKI_NEW_ARRAY(double, guess->shape.dim[1]) : NULL;
    lk_status status = places ? lki_page_begin(&page, path, WIDTH, HEIGHT) : lki_last_status();
    if (!status) {
        for (int64_t i = 0; i < guess->shape.dim[1]; i++) places[i] = (double)i;
        draw_profiles(page, truth, guess, places);
        status = lki_page_end(page);
    }
    lk_tensor_free(truth);
    lk_tensor_free(guess);
    return status;
}

/* ---- Spectra ---- */

static lk_status draw_spectra(const char *path, const lk_tensor *k, const lk_tensor *truth,
                              const lk_tensor *guess)
{
    lki_page *page;
    int64_t count = lk_tensor_count(k);
    LKI_SCOPED double *line = LKI_NEW_ARRAY(double, count);
    if (!line) return LK_ERR_NOMEM;
    /* Through the target's second wave number, a little above it. */
    int64_t at = count > 1 ? 1 : 0;
    double scale = 2 * numbers(truth)[at] / pow(numbers(k)[at], -5.0 / 3);
    for (int64_t i = 0; i < count; i++) line[i] = scale * pow(numbers(k)[i], -5.0 / 3);
    lki_curve curves[] = {{"target", numbers(k), numbers(truth), count, LKI_CURVE_LINE},
                          {"prediction", numbers(k), numbers(guess), count, LKI_CURVE_LINE},
                          {"k#u-5/3#d", numbers(k), line, count, LKI_CURVE_DASHED}};
    LKI_TRY(lki_page_begin(&page, path, 800, HEIGHT));
    lki_page_curves(page,
                    &(lki_panel){WHOLE_PAGE, .x_text = "wave number k", .y_text = "E(k)",
                                 .title = "power spectrum", .log_x = true, .log_y = true},
                    curves, 3);
    return lki_page_end(page);
}

lk_status lk_plot_spectra(const char *path, const lk_tensor *prediction, const lk_tensor *target, int dims)
{
    lki_box box;
    int64_t rows;
    lk_tensor *k = NULL, *other_k = NULL, *truth = NULL, *guess = NULL;
    LKI_TRY(same_fields(prediction, target, dims, &box, &rows));
    lk_status status = lk_power_spectrum(target, dims, &k, &truth);
    if (!status) status = lk_power_spectrum(prediction, dims, &other_k, &guess);
    if (!status) status = draw_spectra(path, k, truth, guess);
    lk_tensor_free(k);
    lk_tensor_free(other_k);
    lk_tensor_free(truth);
    lk_tensor_free(guess);
    return status;
}

/* ---- Losses ---- */

lk_status lk_plot_losses(const char *path, const lk_estimator *estimator)
{
    lki_page *page;
    lki_curve curves[LKI_MAX_ESTIMATOR_LOADERS];
    int64_t longest = 0;
    if (!estimator) return lki_last_status();
    for (int i = 0; i < estimator->history_count; i++)
        if (estimator->histories[i].count > longest) longest = estimator->histories[i].count;
    if (longest == 0)
        return lki_fail(LK_ERR_INVALID, "%s: there are no losses to draw: train first", estimator->name);
    LKI_SCOPED double *epochs = LKI_NEW_ARRAY(double, longest);
    if (!epochs) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < longest; i++) epochs[i] = (double)(i + 1);
    for (int i = 0; i < estimator->history_count; i++) {
        const lki_history *history = &estimator->histories[i];
        curves[i] = (lki_curve){history->key, epochs, history->losses, history->count, LKI_CURVE_LINE};
    }
    LKI_TRY(lki_page_begin(&page, path, 800, HEIGHT));
    lki_page_curves(page,
                    &(lki_panel){WHOLE_PAGE, .x_text = "epoch", .y_text = "loss", .title = estimator->name,
                                 .log_y = true},
                    curves, estimator->history_count);
    return lki_page_end(page);
}
