/* Synthetic digits: strokes on a 28x28 grid, bent, turned, moved, thick or thin, with stray marks and noise.
 *
 * The same bytes on every machine: random numbers are keyed (data/keyed.h), and only + - * / and square roots
 * are used, whose rounding IEEE 754 fixes. */
#include <lockstep/data.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/keyed.h"
#include "data/memory_dataset.h"

#include <math.h>

enum {
    SIDE = 28,
    AREA = SIDE * SIDE,
    CLASS_COUNT = 10,
    MAX_POINTS = 14,
    DEFAULT_TRAIN = 10000,
    DEFAULT_TEST = 2000
};

typedef struct point {
    double x, y;
} point;

/* Each digit as one pen stroke in a unit square, y downwards. */
static const struct {
    int count;
    point points[MAX_POINTS];
} shapes[CLASS_COUNT] = {
    {13,
     {{.5, .08},
      {.65, .14},
      {.76, .29},
      {.8, .5},
      {.76, .71},
      {.65, .86},
      {.5, .92},
      {.35, .86},
      {.24, .71},
      {.2, .5},
      {.24, .29},
      {.35, .14},
      {.5, .08}}},
    {3, {{.35, .26}, {.52, .1}, {.52, .9}}},
    {9,
     {{.22, .3}, {.3, .14}, {.5, .08}, {.7, .15}, {.76, .32}, {.68, .48}, {.45, .68}, {.22, .9}, {.8, .9}}},
    {11,
     {{.25, .16},
      {.48, .08},
      {.7, .16},
      {.74, .3},
      {.62, .44},
      {.45, .48},
      {.68, .54},
      {.78, .7},
      {.68, .86},
      {.46, .92},
      {.22, .84}}},
    {4, {{.62, .92}, {.62, .08}, {.2, .66}, {.82, .66}}},
    {9,
     {{.74, .1}, {.32, .1}, {.28, .46}, {.5, .4}, {.72, .5}, {.76, .68}, {.66, .86}, {.44, .92}, {.22, .84}}},
    {11,
     {{.68, .1},
      {.46, .2},
      {.3, .42},
      {.24, .66},
      {.32, .86},
      {.5, .92},
      {.7, .84},
      {.74, .66},
      {.64, .52},
      {.46, .5},
      {.28, .6}}},
    {4, {{.2, .1}, {.8, .1}, {.56, .5}, {.42, .92}}},
    {13,
     {{.5, .48},
      {.32, .38},
      {.3, .2},
      {.5, .08},
      {.7, .2},
      {.68, .38},
      {.5, .48},
      {.28, .6},
      {.24, .78},
      {.5, .92},
      {.76, .78},
      {.72, .6},
      {.5, .48}}},
    {11,
     {{.32, .9},
      {.54, .8},
      {.7, .58},
      {.76, .34},
      {.68, .14},
      {.5, .08},
      {.3, .16},
      {.26, .34},
      {.36, .48},
      {.54, .5},
      {.72, .4}}},
};

static double between(lki_keyed *random, double low, double high)
{
    return low + (high - low) * lki_keyed_f64(random);
}

static double distance_to_segment(point p, point a, point b)
{
    double dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy;
    double t = length2 > 0 ? ((p.x - a.x) * dx + (p.y - a.y) * dy) / length2 : 0;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    double ex = p.x - (a.x + t * dx), ey = p.y - (a.y + t * dy);
    return sqrt(ex * ex + ey * ey);
}

static int clamp_pixel(double value)
{
    return value < 0 ? 0 : value > SIDE - 1 ? SIDE - 1 : (int)value;
}

/* Ink falls off over one pixel beyond the stroke's radius; strokes that cross do not add up. */
static void draw_segment(double *ink, point a, point b, double radius)
{
    double reach = radius + 1;
    int x0 = clamp_pixel((a.x < b.x ? a.x : b.x) - reach),
        x1 = clamp_pixel((a.x > b.x ? a.x : b.x) + reach + 1);
    int y0 = clamp_pixel((a.y < b.y ? a.y : b.y) - reach),
        y1 = clamp_pixel((a.y > b.y ? a.y : b.y) + reach + 1);
    for (int y = y0; y <= y1; y++)
        for (int x = x0; x <= x1; x++) {
            double level = reach - distance_to_segment((point){x, y}, a, b);
            level = level < 0 ? 0 : level > 1 ? 1 : level;
            if (level > ink[y * SIDE + x]) ink[y * SIDE + x] = level;
        }
}

/* Turned and sheared without sines: (1, t) / sqrt(1 + t^2) is a direction. */
static void place_points(point *out, int digit, lki_keyed *random)
{
    double turn = between(random, -.35, .35), shear = between(random, -.25, .25);
    double c = 1 / sqrt(1 + turn * turn), s = turn * c;
    double width = between(random, 14, 22), height = between(random, 16, 23);
    double centre_x = (SIDE - 1) / 2.0 + between(random, -2, 2),
           centre_y = (SIDE - 1) / 2.0 + between(random, -2, 2);
    for (int i = 0; i < shapes[digit].count; i++) {
        double x = (shapes[digit].points[i].x - .5 + between(random, -.05, .05)) * width;
        double y = (shapes[digit].points[i].y - .5 + between(random, -.05, .05)) * height;
        x += shear * y;
        out[i] = (point){c * x - s * y + centre_x, s * x + c * y + centre_y};
    }
}

static void draw_stray_mark(double *ink, lki_keyed *random)
{
    point a = {between(random, 0, SIDE - 1), between(random, 0, SIDE - 1)};
    point b = {a.x + between(random, -6, 6), a.y + between(random, -6, 6)};
    draw_segment(ink, a, b, between(random, .2, .8));
}

static void draw_digit(uint8_t *out, int digit, lki_keyed *random)
{
    double ink[AREA] = {0};
    point points[MAX_POINTS];
    place_points(points, digit, random);
    double radius = between(random, .5, 1.5), strength = between(random, 160, 255);
    for (int i = 0; i + 1 < shapes[digit].count; i++) draw_segment(ink, points[i], points[i + 1], radius);
    for (int64_t marks = lki_keyed_below(random, 3); marks > 0; marks--) draw_stray_mark(ink, random);
    for (int i = 0; i < AREA; i++) {
        double value = ink[i] * strength + between(random, -30, 30);
        out[i] = value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
    }
}

static lk_status draw_all(lk_tensor *images, lk_tensor *labels, const lk_synthetic_digits_options *options)
{
    if (!images || !labels) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < options->count; i++) {
        lki_keyed random = lki_keyed_make(options->seed, options->train, (uint64_t)i, 0);
        int digit = (int)lki_keyed_below(&random, CLASS_COUNT);
        ((uint8_t *)labels->data)[i] = (uint8_t)digit;
        draw_digit((uint8_t *)images->data + i * AREA, digit, &random);
    }
    return LK_OK;
}

lk_dataset *lk_synthetic_digits_with(const lk_synthetic_digits_options *given)
{
    LKI_TAKE(lk_synthetic_digits_options, options, given, NULL);
    if (options.count < 0)
        return lki_fail_null(LK_ERR_INVALID, "synthetic digits: count: expected at least 1, found %lld",
                             (long long)options.count);
    if (options.count == 0) options.count = options.train ? DEFAULT_TRAIN : DEFAULT_TEST;
    lk_tensor *images = lk_tensor_create(LK_U8, LK_SHAPE(options.count, SIDE, SIDE));
    lk_tensor *labels = lk_tensor_create(LK_U8, LK_SHAPE(options.count));
    if (draw_all(images, labels, &options) != LK_OK) {
        lk_tensor_free(images);
        lk_tensor_free(labels);
        return NULL;
    }
    lki_memory_field fields[] = {
        {.name = "features",
         .tensor = images,
         .dtype = LK_F32,
         .shape = LK_SHAPE(1, SIDE, SIDE),
         .divisor = 255},
        {.name = "targets", .tensor = labels, .dtype = LK_I64},
    };
    return lki_memory_dataset_create(fields, 2);
}
