/* Curves as text: a line of blocks, and charts with axes for a terminal. Values that are not finite leave a
 * gap. */
#ifndef LKI_LOGGER_CHART_H
#define LKI_LOGGER_CHART_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { LKI_CHART_MAX_SERIES = 8 };

/* "▇▅▃▂▁" of at most `width` cells, each the mean of its share of the values; without UTF-8 "#*-_". Returns
 * text, which has room for 4 * width + 1 bytes. It is empty if no value is finite. */
char *lki_sparkline(char *text, const double *values, int64_t count, int width, bool unicode);

typedef struct lki_series {
    const char *name;
    const double *x, *y; /* x grows */
    int64_t count;
} lki_series;

typedef struct lki_chart {
    const char *title;
    lki_series series[LKI_CHART_MAX_SERIES];
    int series_count;
    int columns, rows; /* of the whole chart; at least 24 and 5 are used */
    bool unicode, colour;
} lki_chart;

/* A title with the latest values, the curves and their axes, in `rows` lines. Curves are made of Braille dots
 * if they can be told apart by colour, otherwise each has a mark of its own. Fails if memory runs out. */
lk_status lki_chart_print(FILE *out, const lki_chart *chart);

#endif
