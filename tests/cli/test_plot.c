/* lockstep plot: the pictures of real runs, what is refused, and the suggested learning rate. */
#include "run_folder.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "optim/suggest_lr.h"
#include "tensor/png.h"

#include <math.h>
#include <stdlib.h>

#define CONFUSION                                                                                            \
    " --run/0/callbacks='[{_target_: ConfusionMatrixCallback, input_key: logits, target_key: targets, "      \
    "num_classes: 10}, {_target_: Accuracy}]'"

/* 0 to 765, of a pixel at a place in the picture (0 to 1, from the top left). */
static int brightness(const lk_tensor *pixels, double x, double y)
{
    int64_t row = (int64_t)(y * (double)pixels->shape.dim[0]),
            column = (int64_t)(x * (double)pixels->shape.dim[1]);
    const uint8_t *at = (const uint8_t *)pixels->data + (row * pixels->shape.dim[1] + column) * 3;
    return at[0] + at[1] + at[2];
}

static lk_tensor *picture(const char *name, int64_t height, int64_t width)
{
    lk_tensor *pixels = lki_png_read(path_of(name));
    lkt_not_null(pixels);
    assert_int_equal(pixels->shape.dim[0], height);
    assert_int_equal(pixels->shape.dim[1], width);
    return pixels;
}

static int64_t count_ink(const lk_tensor *pixels)
{
    int64_t count = 0;
    const uint8_t *data = pixels->data;
    for (int64_t i = 0; i < lk_tensor_count(pixels); i += 3)
        count += data[i] + data[i + 1] + data[i + 2] < 600;
    return count;
}

static void check_svg(const char *name)
{
    LKI_SCOPED char *text = NULL;
    size_t nbytes;
    lkt_ok(lki_read_file(&text, &nbytes, path_of(name)));
    lkt_contains(text, "<svg");
    lkt_contains(text, "</svg>");
}

static bool has_plplot(void)
{
#ifdef LOCKSTEP_HAVE_PLPLOT
    return true;
#else
    print_message("skipped: built without PLplot\n");
    return false;
#endif
}

static void test_a_run(void **state)
{
    (void)state;
    if (!has_plplot()) skip();
    enter("cli_plot");
    check_done("run -C " EXAMPLES "/digits.json -e 3 --optimizer/lr=0.05" CONFUSION);
    check_done("plot logs --metric accuracy01 --metric=accuracy01/std");
    lk_tensor *matrix = picture("logs/plots/confusion_matrix_valid.png", 860, 1000);
    /* The cells of a class that is told apart: dark on the diagonal, white beside it. Corners of cells have
     * no text. */
    double cell = 0.66 / 10, x = 0.2 + 0.1 * cell, y = 0.1 + 0.1 * 0.7 / 10;
    assert_true(brightness(matrix, x, y) < 500);
    assert_true(brightness(matrix, x + 9 * cell, y) > 690);
    lk_tensor_free(matrix);
    lk_tensor *loss = picture("logs/plots/loss.png", 600, 900);
    assert_true(count_ink(loss) > 3000);
    lk_tensor_free(loss);
    static const char *const names[] = {"loss", "accuracy01", "accuracy01.std", "confusion_matrix_train",
                                        "confusion_matrix_valid"};
    for (int i = 0; i < 5; i++) {
        char name[200];
        snprintf(name, sizeof name, "logs/plots/%s.svg", names[i]);
        check_svg(name);
    }
    check_done("plot logs -o there --format svg");
    assert_true(exists("there/loss.svg") && !exists("there/loss.png"));
}

static void test_learning_rates(void **state)
{
    (void)state;
    if (!has_plplot()) skip();
    enter("cli_plot_rates");
    const said *r = lockstep_in(folder, "run -C " EXAMPLES "/digits.json --optimizer/lr=1e-5:float "
                                        "--run/0/callbacks='[{_target_: LRFinder, final_lr: 10}]'");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->err, "LRFinder: suggested lr 0.0");
    check_done("plot logs");
    lk_tensor *pixels = picture("logs/plots/lr_finder.png", 600, 900);
    assert_true(count_ink(pixels) > 2000);
    lk_tensor_free(pixels);
    check_svg("logs/plots/lr_finder.svg");
}

static void test_refused(void **state)
{
    (void)state;
    enter("cli_plot_refused");
    check_refused(folder, "plot", 2, "the logdir of a run");
    check_refused(folder, "plot a b", 2, "one logdir at a time");
    check_refused(folder, "plot nowhere", 1, "nowhere: there is no such folder");
    check_refused(folder, "plot .", 1, "nothing to draw");
    if (!has_plplot()) skip();
    lkt_ok(lki_make_folders(path_of("l/csv_logger")));
    write_text("l/csv_logger/train.csv", "step,loss,\"a, \"\"b\"\"\"\n1,2.5,1\n2,1.5,3\n3,1.");
    check_done("plot l --metric 'a, \"b\"'"); /* the last line is being written */
    check_refused(folder, "plot l -o there --format svg --metric lsos", 1, "has the metric \"lsos\"");
    write_text("l/csv_logger/train.csv", "");
    check_refused(folder, "plot l", 1, "train.csv: not a table: it has no header");
    remove(path_of("l/csv_logger/train.csv"));
    write_text("l/lr_finder.csv", "step,lr\n1,2\n");
    check_refused(folder, "plot l", 1, "lr_finder.csv: expected step, lr and a loss");
    remove(path_of("l/lr_finder.csv"));
    lkt_ok(lki_make_folders(path_of("l/confusion_matrix")));
    write_text("l/confusion_matrix/valid_0001.csv", "true,a,b\na,1,0\n");
    check_refused(folder, "plot l", 1, "expected as many rows as classes");
}

/* The loss falls as a logistic function of log(lr), most steeply at 1e-2, and runs away at the end. */
static void test_the_suggestion(void **state)
{
    (void)state;
    double rates[100], losses[100];
    for (int i = 0; i < 100; i++) {
        rates[i] = pow(10, -5 + 6.0 * i / 99);
        losses[i] = 2 / (1 + pow(rates[i] / 1e-2, 2)) + (rates[i] > 2 ? 100 * rates[i] : 0) + 0.01 * (i % 2);
    }
    double rate = lki_suggest_lr(rates, losses, 100, NULL);
    assert_true(rate > 0.7e-2 && rate < 1.4e-2);
    for (int i = 80; i < 100; i++) losses[i] = NAN;
    rate = lki_suggest_lr(rates, losses, 100, NULL);
    assert_true(rate > 0.7e-2 && rate < 1.4e-2);
    for (int i = 0; i < 100; i++) losses[i] = 1 + i;
    assert_true(isnan(lki_suggest_lr(rates, losses, 100, NULL)));
    for (int i = 0; i < 100; i++) losses[i] = -i;
    assert_true(isnan(lki_suggest_lr(rates, losses, 7, NULL)));
    assert_true(isnan(lki_suggest_lr(rates, losses, 0, NULL)));
}

int main(void)
{
    pass_over_fonts();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run),
        cmocka_unit_test(test_learning_rates),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_the_suggestion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
