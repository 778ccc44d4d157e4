/* liblockstep_plplot.so: base/plugin.h. */
#ifndef LKI_PLOT_PLPLOT_PLPLOT_PLUGIN_H
#define LKI_PLOT_PLPLOT_PLPLOT_PLUGIN_H

#include "base/plugin.h"
#include "plot/plot.h"

typedef struct lki_plplot_functions {
    __typeof__(&lki_page_begin) begin;
    __typeof__(&lki_page_end) end;
    __typeof__(&lki_page_curves) curves;
    __typeof__(&lki_page_image) image;
    __typeof__(&lki_page_matrix) matrix;
} lki_plplot_functions;

extern lki_plugin lki_plplot; /* the library's side */

#endif
