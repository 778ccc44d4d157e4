/* Pages of pictures. What draws them is a plug-in: whoever has a page has it open. */
#include "plot/plot.h"

#include "base/plugin.h"
#include "base/status.h"
#include "plot/plplot/plplot_plugin.h"

lki_plugin lki_plplot = {
    .name = "plplot",
    .library = "PLplot",
    .package = "libplplot-dev",
    .functions_nbytes = sizeof(lki_plplot_functions),
};

static const lki_plplot_functions *plplot(void)
{
    return lki_plugin_open(&lki_plplot);
}

lk_status lki_page_begin(lki_page **out, const char *path, int width, int height)
{
    if (!plplot()) return lki_fail_prefix(LK_ERR_UNSUPPORTED, "%s", path);
    return plplot()->begin(out, path, width, height);
}

lk_status lki_page_end(lki_page *page)
{
    return plplot()->end(page);
}

void lki_page_curves(lki_page *page, const lki_panel *panel, const lki_curve *curves, int count)
{
    plplot()->curves(page, panel, curves, count);
}

void lki_page_image(lki_page *page, const lki_panel *panel, const double *values, int64_t rows,
                    int64_t columns, double low, double high, bool diverging)
{
    plplot()->image(page, panel, values, rows, columns, low, high, diverging);
}

void lki_page_matrix(lki_page *page, const lki_panel *panel, const lki_matrix *matrix)
{
    plplot()->matrix(page, panel, matrix);
}
