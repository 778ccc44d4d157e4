/* Drawing pictures: a page of panels, each with its axes, over PLplot, which has one state for the whole
 * process: a page holds its lock from begin to end. */
#ifndef LKI_PLOT_PLOT_H
#define LKI_PLOT_PLOT_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct lki_page lki_page;

/* A page for path.png or path.svg. Nothing is left of it unless lki_page_end succeeds. */
lk_status lki_page_begin(lki_page **out, const char *path, int width, int height);
lk_status lki_page_end(lki_page *page);

/* A line or steps of one panel. Logarithmic axes leave out what is not above 0. */
typedef enum lki_curve_kind { LKI_CURVE_LINE, LKI_CURVE_STEPS, LKI_CURVE_DASHED } lki_curve_kind;
typedef struct lki_curve {
    const char *name;
    const double *x, *y;
    int64_t count; /* of steps: x has one more */
    lki_curve_kind kind;
} lki_curve;

typedef struct lki_panel {
    double left, right, bottom, top; /* in the page, 0 to 1; the axes' texts lie outside */
    const char *x_text, *y_text, *title;
    bool log_x, log_y;
    const char *note; /* a line of text inside, or NULL */
    bool names_below; /* the curves' names lie in the lower corner */
} lki_panel;

void lki_page_curves(lki_page *page, const lki_panel *panel, const lki_curve *curves, int count);

/* values (rows, columns), rows upwards, as colours from low to high with a bar beside them. */
void lki_page_image(lki_page *page, const lki_panel *panel, const double *values, int64_t rows,
                    int64_t columns, double low, double high, bool diverging);

/* A square of counts: a row per true class, the first one at the top, a column per predicted one. A cell is
 * coloured by its share of its row, and carries its text if there are few enough. */
typedef struct lki_matrix {
    int64_t classes;
    const double *shares;     /* (classes, classes), 0 to 1 */
    const char *const *texts; /* (classes, classes) */
    const char *const *names; /* (classes) */
    const char *bar_text;
} lki_matrix;
void lki_page_matrix(lki_page *page, const lki_panel *panel, const lki_matrix *matrix);

#endif
