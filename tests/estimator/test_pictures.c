/* Pictures: each is drawn as PNG and as SVG, and what cannot be drawn is said. */
#include "case.h"

#include <unistd.h>

enum { N = 16 };

/* Fonts and drivers stay loaded until the process ends: not ours to free. Read by the leak checker, where one
 * is. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig\nleak:libltdl\nleak:libplplot\nleak:libpango\nleak:libcairo\n";
}

typedef lk_status (*draw)(const char *path, const lk_tensor *a, const lk_tensor *b);

static lk_status draw_slices(const char *path, const lk_tensor *a, const lk_tensor *b)
{
    return lk_plot_slices(path, a, b, 3, 1);
}

static lk_status draw_profiles(const char *path, const lk_tensor *a, const lk_tensor *b)
{
    return lk_plot_profiles(path, a, b, 3, 0);
}

static lk_status draw_spectra(const char *path, const lk_tensor *a, const lk_tensor *b)
{
    return lk_plot_spectra(path, a, b, 3);
}

static lk_tensor *turbulence(void)
{
    lk_tensor *field = lk_synthetic_turbulence(3, 3, (int64_t[]){N, N, N}, 0, NULL);
    lkt_not_null(field);
    return field;
}

/* The first bytes of a file; the picture must not be an empty one. */
static void expect_picture(const char *path, const char *beginning)
{
    char head[16] = {0};
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s is missing", path);
    assert_true(fread(head, 1, sizeof head - 1, file) > 8);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    assert_true(ftell(file) > 4000);
    fclose(file);
    assert_memory_equal(head, beginning, strlen(beginning));
}

static bool can_draw(void)
{
    lk_tensor *field = lkt_wavy(LK_SHAPE(1, 8));
    char path[1100];
    snprintf(path, sizeof path, "%s/probe.png", lkt_scratch_folder("picture_probe"));
    lk_status status = lk_plot_slices(path, field, field, 1, 0);
    lk_tensor_free(field);
    if (status == LK_ERR_UNSUPPORTED)
        print_message("%s\n", lk_error());
    else
        lkt_ok(status);
    return status == LK_OK;
}

static void every_picture_in_both_formats(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        draw draw;
    } pictures[] = {{"distributions", lk_plot_distributions},
                    {"slices", draw_slices},
                    {"profiles", draw_profiles},
                    {"spectra", draw_spectra}};
    if (!can_draw()) skip();
    lk_manual_seed(3);
    lk_tensor *target = turbulence(), *prediction = lk_filter_gaussian(target, 3, 0.8);
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++)
        for (int svg = 0; svg < 2; svg++) {
            char path[1100];
            snprintf(path, sizeof path, "%s/tests/scratch/pictures/%s.%s", LK_BUILD_DIR, pictures[i].name,
                     svg ? "svg" : "png");
            lkt_ok(pictures[i].draw(path, prediction, target));
            expect_picture(path, svg ? "<?xml" : "\x89PNG");
        }
    lk_tensor_free(target);
    lk_tensor_free(prediction);
}

static void losses(void **state)
{
    (void)state;
    if (!can_draw()) skip();
    lk_fields *fields = lk_tensor_fields(lkt_wavy(LK_SHAPE(1, 1, 8, 8, 8)), NULL);
    lk_estimator *estimator = lk_cnn3d(lk_fields_loaders(fields), .n_epochs = 20, .patience = 100,
                                       .logdir = lkt_scratch_folder("picture_logs"));
    char path[1100];
    snprintf(path, sizeof path, "%s/tests/scratch/pictures/losses.png", LK_BUILD_DIR);
    lkt_fails(lk_plot_losses(path, estimator), LK_ERR_INVALID, "there are no losses to draw");
    lkt_ok(lk_estimator_train(estimator));
    lkt_ok(lk_plot_losses(path, estimator));
    expect_picture(path, "\x89PNG");
    lk_estimator_free(estimator);
    lk_fields_free(fields);
}

static void what_cannot_be_drawn(void **state)
{
    (void)state;
    if (!can_draw()) skip();
    lk_tensor *a = lkt_wavy(LK_SHAPE(1, 8, 8)), *b = lkt_wavy(LK_SHAPE(1, 8, 4));
    lkt_fails(lk_plot_distributions("picture.gif", a, b), LK_ERR_INVALID,
              "picture.gif: a picture's name ends with .png or .svg");
    lkt_fails(lk_plot_distributions("/nowhere/a.png", a, b), LK_ERR_IO, "/nowhere/a.png: cannot be written");
    lkt_fails(lk_plot_slices("a.png", a, b, 2, 0), LK_ERR_SHAPE, "different shapes");
    lkt_fails(lk_plot_slices("a.png", a, a, 2, 1), LK_ERR_RANGE, "channel 1 of 1");
    lk_tensor_free(a);
    lk_tensor_free(b);
}

int main(void)
{
    lkt_scratch_folder("pictures");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_picture_in_both_formats),
        cmocka_unit_test(losses),
        cmocka_unit_test(what_cannot_be_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
