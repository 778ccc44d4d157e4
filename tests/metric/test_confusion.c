/* The confusion matrix as numbers, CSV, text and picture. */
#include "lktest.h"

#include <lockstep/metric.h>

#include "base/atomic_file.h"
#include "base/memory.h"
#include "tensor/png.h"

static const char *const animals[] = {"cat", "a, \"dog\"", "Käfer"};

/* Predictions of three classes; the last one never occurs. */
static lk_metric *three_classes(bool normalize)
{
    lk_metric *metric =
        lk_confusion_matrix_metric(.num_classes = 3, .class_names = animals, .normalize = normalize);
    lk_tensor *scores = lk_tensor_create(LK_F32, LK_SHAPE(8, 3));
    static const int predicted[] = {0, 0, 0, 1, 1, 1, 2, 0}, truth[] = {0, 0, 0, 0, 1, 1, 1, 1};
    lk_tensor *targets = lk_tensor_create(LK_I32, LK_SHAPE(8));
    for (int i = 0; i < 8; i++) {
        lk_tensor_set(scores, i * 3 + predicted[i], 1);
        lk_tensor_set(targets, i, truth[i]);
    }
    lkt_not_null(metric);
    lkt_ok(lk_metric_update(metric, scores, targets));
    lk_tensor_free(scores);
    lk_tensor_free(targets);
    return metric;
}

static void numbers(void **state)
{
    (void)state;
    static const double counts[] = {3, 1, 0, 1, 2, 1, 0, 0, 0},
                        shares[] = {.75, .25, 0, .25, .5, .25, 0, 0, 0};
    for (int normalize = 0; normalize < 2; normalize++) {
        lk_metric *metric = three_classes(normalize);
        lk_tensor *matrix = lk_confusion_matrix(metric);
        lkt_not_null(matrix);
        for (int i = 0; i < 9; i++)
            lkt_close(lk_tensor_get(matrix, i), normalize ? shares[i] : counts[i], 1e-15);
        lk_tensor_free(matrix);
        lk_metric_reset(metric);
        matrix = lk_confusion_matrix(metric);
        for (int i = 0; i < 9; i++) lkt_close(lk_tensor_get(matrix, i), 0, 0);
        lk_tensor_free(matrix);
        lk_metric_free(metric);
    }
}

static void csv(void **state)
{
    (void)state;
    char path[1200];
    LKI_SCOPED char *text = NULL, *shares = NULL;
    size_t nbytes;
    snprintf(path, sizeof path, "%s/matrix.csv", lkt_scratch_folder("confusion"));
    lk_metric *metric = three_classes(false);
    lkt_ok(lk_confusion_matrix_save_csv(metric, path));
    lk_metric_free(metric);
    lkt_ok(lki_read_file(&text, &nbytes, path));
    assert_string_equal(
        text,
        "true\\predicted,cat,\"a, \"\"dog\"\"\",Käfer\ncat,3,1,0\n\"a, \"\"dog\"\"\",1,2,1\nKäfer,0,0,0\n");
    metric = three_classes(true);
    lkt_ok(lk_confusion_matrix_save_csv(metric, path));
    lkt_fails(lk_confusion_matrix_save_csv(metric, "/nowhere/x.csv"), LK_ERR_IO,
              "/nowhere/x.csv: could not create");
    lk_metric_free(metric);
    lkt_ok(lki_read_file(&shares, &nbytes, path));
    lkt_contains(shares, "cat,0.75,0.25,0\n");
}

static void terminal_text(void **state)
{
    (void)state;
    lk_metric *metric = three_classes(false);
    char *text = lk_confusion_matrix_text(metric, false);
    lkt_not_null(text);
    assert_string_equal(text, "true \\ predicted      cat a, \"dog\"    Käfer\n"
                              "             cat        3        1        0\n"
                              "        a, \"dog\"        1        2        1\n"
                              "           Käfer        0        0        0\n");
    lk_text_free(text);
    text = lk_confusion_matrix_text(metric, true);
    lkt_contains(text, "\x1b[48;5;32m\x1b[38;5;231m        3 \x1b[0m");
    lk_text_free(text);
    lk_metric_free(metric);
}

static void picture(void **state)
{
    (void)state;
    char path[1200];
    snprintf(path, sizeof path, "%s/matrix.png", lkt_scratch_folder("confusion"));
    lk_metric *metric = three_classes(false);
    lk_tensor *drawn = lk_confusion_matrix_draw(metric);
    lkt_not_null(drawn);
    lk_status saved = lk_confusion_matrix_save_png(metric, path);
    if (saved == LK_ERR_UNSUPPORTED) {
        print_message("skipped: %s\n", lk_error());
        lk_tensor_free(drawn);
        lk_metric_free(metric);
        skip();
    }
    lkt_ok(saved);
    lk_tensor *read = lki_png_read(path);
    lkt_not_null(read);
    assert_true(lk_shape_equal(drawn->shape, read->shape));
    assert_memory_equal(drawn->data, read->data, lk_tensor_nbytes(drawn));
    lk_tensor_free(read);
    lk_tensor_free(drawn);
    lk_metric_free(metric);
    lkt_ok(lki_write_file_atomic(path, "\x89PNG\r\n\x1a\nxx", 10));
    assert_null(lki_png_read(path));
    lkt_contains(lk_error(), "matrix.png: no PNG picture");
}

static void any_number_of_classes(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 24, 25, 80, 81, 300};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        lk_metric *metric = lk_confusion_matrix_metric(.num_classes = counts[i]);
        lk_tensor *pixels = lk_confusion_matrix_draw(metric);
        lkt_not_null(pixels);
        assert_true(pixels->shape.dim[0] < 5000 && pixels->shape.dim[1] < 5000);
        char *text = lk_confusion_matrix_text(metric, true);
        lkt_not_null(text);
        lk_text_free(text);
        lk_tensor_free(pixels);
        lk_metric_free(metric);
    }
}

static void what_is_no_matrix(void **state)
{
    (void)state;
    lk_metric *other = lk_mse_metric(.prefix = ""), *early = lk_confusion_matrix_metric(.normalize = true);
    assert_null(lk_confusion_matrix(other));
    lkt_contains(lk_error(), "no confusion matrix");
    assert_null(lk_confusion_matrix_draw(early));
    lkt_contains(lk_error(), "no batch yet");
    assert_null(lk_confusion_matrix_text(early, false));
    lkt_fails(lk_confusion_matrix_save_png(early, "x.png"), LK_ERR_INVALID, "no batch yet");
    assert_null(lk_confusion_matrix_metric(.class_names = animals));
    lkt_contains(lk_error(), "class_names need num_classes");
    lk_metric_free(other);
    lk_metric_free(early);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),
        cmocka_unit_test(csv),
        cmocka_unit_test(terminal_text),
        cmocka_unit_test(picture),
        cmocka_unit_test(any_number_of_classes),
        cmocka_unit_test(what_is_no_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
