#include "data/resize.h"

#include "base/status.h"
#include "data/scratch.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

lk_status lki_interpolation_parse(lki_interpolation *out, const char *kind, const char *name)
{
    static const char *const names[] = {"nearest", "bilinear", "bicubic"};
    *out = LKI_INTERPOLATION_BILINEAR;
    for (int i = 0; name && i < 3; i++) {
        *out = (lki_interpolation)i;
        if (strcmp(name, names[i]) == 0) return LK_OK;
    }
    if (!name) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: interpolation: expected nearest, bilinear or bicubic, found \"%s\"",
                    kind, name);
}

/* ---- Which pixels of a line make an output pixel, and with which weights ---- */

typedef struct axis {
    int64_t in, out, taps; /* at most `taps` pixels make one */
    int64_t *first;        /* (out): the first pixel of each */
    int64_t *count;        /* (out) */
    float *weights;        /* (out, taps) */
} axis;

typedef struct filter {
    lki_interpolation interpolation;
    bool antialias;
} filter;

/* How far a filter reaches, in pixels of the output. */
static double reach(const filter *by)
{
    return by->interpolation == LKI_INTERPOLATION_BICUBIC ? 2 : 1;
}

static double scale_of(const axis *line)
{
    return (double)line->in / (double)line->out;
}

static int64_t taps_of(const axis *line, const filter *by)
{
    double scale = scale_of(line);
    double support = by->antialias && scale > 1 ? reach(by) * scale : reach(by);
    return by->interpolation == LKI_INTERPOLATION_NEAREST ? 1 : 2 * (int64_t)ceil(support) + 1;
}

/* Keys' cubic; PyTorch takes a = -0.75 and, with antialias, a = -0.5. */
static double cubic(double x, double a)
{
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double weight_at(double x, const filter *by)
{
    if (by->interpolation == LKI_INTERPOLATION_BICUBIC) return cubic(x, by->antialias ? -0.5 : -0.75);
    return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

/* Every pixel below the filter, which is as wide as the output's pixels are far apart. */
static void weigh_antialiased(axis *line, int64_t i, const filter *by)
{
    double scale = scale_of(line), wide = scale > 1 ? scale : 1;
    double support = reach(by) * wide, centre = scale * ((double)i + 0.5), sum = 0;
    int64_t begin = (int64_t)fmax(centre - support + 0.5, 0);
    int64_t end = (int64_t)fmin(centre + support + 0.5, (double)line->in);
    float *out = line->weights + i * line->taps;
    line->first[i] = begin;
    line->count[i] = end - begin;
    for (int64_t j = begin; j < end; j++) sum += weight_at(((double)j - centre + 0.5) / wide, by);
    for (int64_t j = begin; j < end; j++)
        out[j - begin] = (float)(weight_at(((double)j - centre + 0.5) / wide, by) / sum);
}

/* The two or four pixels around the point; those beyond the edge are the edge's. */
static void weigh_neighbours(axis *line, int64_t i, const filter *by)
{
    bool is_cubic = by->interpolation == LKI_INTERPOLATION_BICUBIC;
    double at = scale_of(line) * ((double)i + 0.5) - 0.5;
    if (!is_cubic && at < 0) at = 0;
    int64_t base = (int64_t)floor(at), begin = is_cubic ? base - 1 : base,
            end = is_cubic ? base + 3 : base + 2;
    int64_t last = line->in - 1, first = begin < 0 ? 0 : begin > last ? last : begin;
    float *out = line->weights + i * line->taps;
    int64_t count = 0;
    memset(out, 0, (size_t)line->taps * sizeof *out);
    for (int64_t j = begin; j < end; j++) {
        int64_t pixel = (j < first ? first : j > last ? last : j) - first;
        out[pixel] += (float)weight_at((double)j - at, by);
        if (pixel + 1 > count) count = pixel + 1;
    }
    line->first[i] = first;
    line->count[i] = count;
}

static void weigh(axis *line, const filter *by)
{
    float scale = (float)line->in / (float)line->out;
    for (int64_t i = 0; i < line->out; i++) {
        if (by->interpolation == LKI_INTERPOLATION_NEAREST) {
            int64_t pixel = (int64_t)floorf((float)i * scale);
            line->first[i] = pixel < line->in ? pixel : line->in - 1;
            line->count[i] = 1;
            line->weights[i] = 1;
        } else if (by->antialias) {
            weigh_antialiased(line, i, by);
        } else {
            weigh_neighbours(line, i, by);
        }
    }
}

/* ---- Two passes: along x into `rows`, then along y ---- */

static void resize_rows(const lki_window *from, int64_t c, const axis *x, float *rows)
{
    const float *plane = from->data + c * from->picture_height * from->picture_width;
    for (int64_t y = 0; y < from->height; y++) {
        const float *in = plane + (from->top + y) * from->picture_width + from->left;
        for (int64_t i = 0; i < x->out; i++) {
            const float *pixel = in + x->first[i], *weight = x->weights + i * x->taps;
            float sum = 0;
            for (int64_t k = 0; k < x->count[i]; k++) sum += weight[k] * pixel[k];
            *rows++ = sum;
        }
    }
}

static void resize_columns(const float *rows, const axis *y, int64_t width, float *out)
{
    memset(out, 0, (size_t)(y->out * width) * sizeof *out);
    for (int64_t i = 0; i < y->out; i++, out += width)
        for (int64_t k = 0; k < y->count[i]; k++) {
            const float *row = rows + (y->first[i] + k) * width;
            float weight = y->weights[i * y->taps + k];
            for (int64_t x = 0; x < width; x++) out[x] += weight * row[x];
        }
}

static size_t axis_nbytes(const axis *line)
{
    size_t out = (size_t)line->out;
    return 2 * out * sizeof(int64_t) + (out * (size_t)line->taps * sizeof(float) + 63) / 64 * 64;
}

static char *lay_out(axis *line, char *memory)
{
    line->first = (int64_t *)memory;
    line->count = line->first + line->out;
    line->weights = (float *)(line->count + line->out);
    return memory + axis_nbytes(line);
}

lk_status lki_resize(const lki_window *from, float *out, int64_t channels, int64_t out_height,
                     int64_t out_width, lki_interpolation interpolation, bool antialias)
{
    filter by = {interpolation, antialias};
    axis x = {.in = from->width, .out = out_width}, y = {.in = from->height, .out = out_height};
    x.taps = taps_of(&x, &by);
    y.taps = taps_of(&y, &by);
    size_t rows_nbytes = (size_t)(from->height * out_width) * sizeof(float);
    char *memory = lki_scratch_take(axis_nbytes(&x) + axis_nbytes(&y) + rows_nbytes);
    if (!memory) return lki_last_status();
    float *rows = (float *)lay_out(&y, lay_out(&x, memory));
    weigh(&x, &by);
    weigh(&y, &by);
    for (int64_t c = 0; c < channels; c++) {
        resize_rows(from, c, &x, rows);
        resize_columns(rows, &y, out_width, out + c * out_height * out_width);
    }
    lki_scratch_give();
    return LK_OK;
}
