/* What a run prints: nothing unless it is asked to, and then what was asked for, on stdout of rank 0. */
#include "case.h"

#include "run/run.h"

#include <fcntl.h>
#include <unistd.h>

static char folder[1024];

typedef struct show_case {
    lk_show show;
    bool verbose;
    int log_every, nproc, epochs;
    const char *logdir, *resume;
    lk_callback *callback;
    lk_logger *logger;
    double clip_norm;
    bool tokens;
} show_case;

static lk_dataset *sentences(int64_t count)
{
    lk_tensor *x = lk_tensor_create(LK_I64, LK_SHAPE(count, 5)),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(count));
    for (int64_t i = 0; i < 5 * count; i++) lk_tensor_set(x, i, (double)(i * i % 7));
    for (int64_t i = 0; i < count; i++) lk_tensor_set(y, i, (double)(i % LKT_CLASSES));
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

static lk_status train(show_case c)
{
    lk_runner *runner = lk_supervised_runner();
    lk_callback *callbacks[3] = {lk_accuracy_callback(.topk = {1}),
                                 lk_optimizer_callback(.clip_norm = c.clip_norm), c.callback};
    lk_status status = lk_train(
        runner,
        .model = c.tokens ? lk_sequential(lk_embedding(7, 4), lk_flatten(), lk_linear(20, LKT_CLASSES))
                          : lkt_linear_model(),
        .criterion = lk_cross_entropy_loss(), .optimizer = lk_sgd(.lr = 0.1),
        .loaders =
            lk_loaders({"train", lk_loader(c.tokens ? sentences(40) : lkt_points(40, 1), .batch_size = 8)},
                       {"valid", lk_loader(c.tokens ? sentences(24) : lkt_points(24, 2), .batch_size = 8)}),
        .callbacks = {callbacks, c.callback ? 3 : 2}, .loggers = {&c.logger, c.logger != NULL},
        .num_epochs = c.epochs ? c.epochs : 2, .logdir = c.logdir, .resume = c.resume,
        .valid_loader = "valid", .seed = 5, .device = "cpu", .show = c.show, .verbose = c.verbose,
        .log_every = c.log_every, .nproc = c.nproc);
    lk_runner_free(runner);
    return status;
}

/* What train(c) writes to stdout; static text. */
static const char *shown(show_case c)
{
    static char text[65536];
    fflush(stdout);
    int before = dup(STDOUT_FILENO),
        file = open(lkt_path(folder, "out.txt"), O_RDWR | O_CREAT | O_TRUNC, 0666);
    assert_true(before >= 0 && file >= 0 && dup2(file, STDOUT_FILENO) >= 0);
    lk_status status = train(c);
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    lkt_ok(status);
    ssize_t count = pread(file, text, sizeof text - 1, 0);
    assert_true(count >= 0);
    text[count] = '\0';
    close(before);
    close(file);
    return text;
}

static int count_of(const char *text, const char *fragment)
{
    int count = 0;
    for (; (text = strstr(text, fragment)); text += strlen(fragment)) count++;
    return count;
}

static void test_the_library_is_silent(void **state)
{
    (void)state;
    assert_string_equal(shown((show_case){0}), "");
    assert_string_equal(shown((show_case){.show = LK_SHOW_NOTHING}), "");
    assert_string_equal(shown((show_case){.show = LK_SHOW_NOTHING, .verbose = true}), "");
    assert_string_equal(shown((show_case){.show = LK_SHOW_NOTHING, .log_every = 1}), "");
}

static void test_one_line_per_epoch(void **state)
{
    (void)state;
    const char *text = shown((show_case){.show = LK_SHOW_EPOCHS});
    lkt_contains(text, "lockstep ");
    lkt_contains(text, ": Sequential with 21 parameters; device cpu");
    lkt_contains(text, "train: 40 samples, valid: 24 samples\n");
    lkt_contains(text, "  epoch 1/2  train loss ");
    lkt_contains(text, "  epoch 2/2  train loss ");
    assert_int_equal(count_of(text, "  lr 0.1 "), 2);
    assert_int_equal(count_of(text, "  valid loss "), 3); /* with the title of the table */
    assert_int_equal(count_of(text, "  accuracy01 "), 2);
    assert_int_equal(count_of(text, "s *\n"), 2); /* both are the best so far */
    assert_int_equal(count_of(text, "best: epoch 2, "), 1);
    assert_null(strstr(text, "Layer "));
    assert_null(strstr(text, "loss/std"));
    assert_null(strchr(text, '\x1b'));
    /* The date and the time in front. */
    const char *line = strstr(text, "  epoch 1/2");
    int year, month, day, hour, minute, second;
    assert_int_equal(sscanf(line - 19, "%d-%d-%d %d:%d:%d", &year, &month, &day, &hour, &minute, &second), 6);
}

static void test_all_of_it(void **state)
{
    (void)state;
    char text[65536];
    snprintf(text, sizeof text, "%s", shown((show_case){.verbose = true}));
    lkt_contains(text, "Layer ");
    lkt_contains(text, "  epoch 2/2  train loss ");
    assert_int_equal(count_of(text, "\n  loss/std  "), 2);
    assert_int_equal(count_of(text, "\n  accuracy01  "), 2);
    /* What the line or another row says is not repeated. */
    assert_null(strstr(text, "/mean"));
    assert_null(strstr(text, "\n  loss  "));
    assert_null(strstr(text, "\n  lr  "));
    lkt_contains(shown((show_case){.show = LK_SHOW_ALL}), "loss/std");
}

static void test_lines_of_steps(void **state)
{
    (void)state;
    const char *text = shown((show_case){.log_every = 3});
    assert_int_equal(count_of(text, "  step "), 3); /* of 10 */
    lkt_contains(text, "step  3/10 | loss ");
    lkt_contains(text, "step  9/10 | loss ");
    lkt_contains(text, " | lr 1.00e-01 | ");
    lkt_contains(text, " samples/s\n");
    lkt_contains(text, "epoch 2/2"); /* who asks for steps gets the epochs too */
    assert_null(strstr(text, "norm"));
    text = shown((show_case){.log_every = 5, .clip_norm = 1e-4, .tokens = true});
    assert_int_equal(count_of(text, " | norm "), 2);
    lkt_contains(text, " tokens/s\n");
    /* Silent runs keep them in log.txt. */
    shown((show_case){.show = LK_SHOW_NOTHING, .log_every = 4, .logdir = lkt_path(folder, "steps")});
    char *log = lkt_read(lkt_path(folder, "steps/log.txt"));
    assert_int_equal(count_of(log, "\nstep "), 2);
    free(log);
}

/* The norm is that of GradientNorm, which computes it anyhow. */
static void test_a_norm_that_is_there(void **state)
{
    (void)state;
    const char *text = shown((show_case){.log_every = 5, .callback = lk_gradient_norm_callback()});
    assert_int_equal(count_of(text, " | norm "), 2);
}

/* One rank speaks. */
static void test_two_ranks(void **state)
{
    (void)state;
    const char *text = shown((show_case){.show = LK_SHOW_EPOCHS, .nproc = 2, .log_every = 2});
    assert_int_equal(count_of(text, "lockstep "), 1);
    assert_int_equal(count_of(text, "  epoch "), 2);
    lkt_contains(text, "; 2 ranks over shm;");
    assert_int_equal(count_of(text, "\nepoch "), 1);
    assert_null(strstr(text, "it/s"));
}

/* Who gives a console logger has its lines, and none beside them. */
static void test_a_console_of_ones_own(void **state)
{
    (void)state;
    const char *text = shown((show_case){.show = LK_SHOW_EPOCHS, .logger = lk_console_logger()});
    lkt_contains(text, "\ntrain (1/2) accuracy01: ");
    assert_int_equal(count_of(text, "* Epoch (2/2)"), 1);
    assert_null(strstr(text, "  epoch "));
    lkt_contains(text, "best: epoch 2");
}

static lk_status hurry(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    runner->run->screen.line_interval_ns = 1;
    return LK_OK;
}

static lk_status dawdle(lk_callback *callback, lk_runner *runner)
{
    (void)callback, (void)runner;
    usleep(6000); /* longer than between two looks at the clock */
    return LK_OK;
}

/* As after 30 seconds, in an epoch that lasts. */
static void test_lines_inside_an_epoch(void **state)
{
    (void)state;
    lk_callback_ops ops = {.name = "Hurry", .on_loader_start = hurry, .on_batch_start = dawdle};
    const char *text = shown(
        (show_case){.show = LK_SHOW_EPOCHS, .epochs = 1, .callback = lk_callback_create(&ops, NULL, 1)});
    lkt_contains(text, "  1/1 * Epoch (train): ");
    lkt_contains(text, "/5 [00:00<");
    lkt_contains(text, "it/s, loss=");
}

/* A loader that rests has no number, and no star. */
static void test_a_loader_that_rests(void **state)
{
    (void)state;
    const char *text =
        shown((show_case){.show = LK_SHOW_EPOCHS, .callback = lk_periodic_loader_callback({"valid", 2})});
    lkt_contains(text, "epoch 1/2  train loss ");
    lkt_contains(text, "  valid loss -  ");
    assert_int_equal(count_of(text, "s *\n"), 1);
}

static void test_a_long_table_is_cut(void **state)
{
    (void)state;
    const char *text = shown((show_case){.show = LK_SHOW_EPOCHS, .epochs = 40});
    const char *table = strstr(text, "\nepoch ");
    lkt_not_null(table);
    assert_int_equal(count_of(table, "\n  ...\n"), 1);
    lkt_contains(table, "\n    3 ");
    lkt_contains(table, "\n   40 ");
    assert_null(strstr(table, "\n   10 "));
    lkt_contains(table, "train loss: ");
    lkt_contains(shown((show_case){.show = LK_SHOW_ALL, .epochs = 40}), "\n   10 ");
}

static int prepare(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("train_screen"));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_library_is_silent),
        cmocka_unit_test(test_one_line_per_epoch),
        cmocka_unit_test(test_all_of_it),
        cmocka_unit_test(test_lines_of_steps),
        cmocka_unit_test(test_a_norm_that_is_there),
        cmocka_unit_test(test_two_ranks),
        cmocka_unit_test(test_a_console_of_ones_own),
        cmocka_unit_test(test_lines_inside_an_epoch),
        cmocka_unit_test(test_a_loader_that_rests),
        cmocka_unit_test(test_a_long_table_is_cut),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
