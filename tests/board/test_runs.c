/* Which folders are runs, what state they are in, and what their curves look like when they are thinned. */
#include "logs.h"

#include "board/curve.h"
#include "board/run_settings.h"

#include <fcntl.h>
#include <jansson.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static void make_run(const char *name)
{
    char path[1100];
    lkt_shell_in(root, "mkdir -p '%s/csv_logger'", name);
    snprintf(path, sizeof path, "%s/csv_logger/train.csv", name);
    write_text(path, "step,loss\n1,0.5\n2,0.4\n");
}

static void runs_come_and_go(void **state)
{
    (void)state;
    enter("board-runs");
    make_run("a");
    make_run("deep/er/b");
    make_run("a/nested");
    make_run(".hidden");
    lkt_shell_in(
        root,
        "mkdir outside empty && mv a/nested outside/ && mkdir -p elsewhere && mv outside ../board-outside");
    lkt_shell_in(root, "ln -s ../board-outside link && ln -s link a/link; true");
    lki_board *board = open_board();
    assert_int_equal(board->run_count, 2);
    assert_non_null(run_named(board, "a"));
    assert_non_null(run_named(board, "deep/er/b"));
    int id = run_named(board, "a")->id;
    make_run("c");
    lkt_shell_in(root, "rm -r deep");
    lkt_ok(lki_board_refresh(board, 0));
    assert_int_equal(board->run_count, 2);
    assert_non_null(run_named(board, "c"));
    assert_int_equal(run_named(board, "a")->id, id);
    lkt_shell_in(root, "cd .. && rm -r board-runs board-outside");
    lkt_ok(lki_board_refresh(board, 0));
    assert_int_equal(board->run_count, 0);
    assert_false(board->roots[0].is_there);
    lkt_shell_in("/", "mkdir -p '%s'", root);
    make_run("d");
    lkt_ok(lki_board_refresh(board, 0));
    assert_int_equal(board->run_count, 1);
    assert_true(board->roots[0].is_there);
    lki_board_close(board);
}

static void a_file_is_no_logdir(void **state)
{
    (void)state;
    enter("board-file");
    write_text("file", "");
    lki_board *board;
    const char *folders[] = {path_of("file")};
    lkt_fails(lki_board_open(&board, folders, 1), LK_ERR_INVALID, "is no folder");
    assert_null(board);
}

static void links_inside_of_runs_are_not_followed(void **state)
{
    (void)state;
    enter("board-links");
    make_run("a");
    write_text("secret.csv", "step,secret\n1,42\n");
    lkt_shell_in(root, "ln -s ../../secret.csv a/csv_logger/other.csv && ln -s ../secret.csv a/log.jsonl");
    lki_board *board = open_board();
    assert_int_equal(board->run_count, 1);
    assert_int_equal(board->runs[0]->file_count, 1);
    lki_board_close(board);
}

static void write_lock(const char *format, long pid, const char *host, int64_t age_s)
{
    char text[400];
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
    snprintf(text, sizeof text, format, pid, host);
    write_text(".lock", text);
    assert_int_equal(utimensat(AT_FDCWD, path_of(".lock"), times, 0), 0);
}

static void states_follow_the_lock(void **state)
{
    (void)state;
    static const char owner[] = "process %ld on %s";
    char host[256] = "";
    enter("board-states");
    gethostname(host, sizeof host - 1);
    int64_t now = time(NULL);
    assert_int_equal(lki_board_run_state(root, 3, 0, now), LKI_RUN_ENDED);
    assert_int_equal(lki_board_run_state(root, 3, 8, now), LKI_RUN_STOPPED);
    assert_int_equal(lki_board_run_state(root, 8, 8, now), LKI_RUN_FINISHED);
    write_lock(owner, getpid(), host, 0);
    assert_int_equal(lki_board_run_state(root, 3, 8, now), LKI_RUN_RUNNING);
    /* This process has the number of an older one. */
    write_lock(owner, getpid(), host, 86400);
    assert_int_equal(lki_board_run_state(root, 3, 8, now), LKI_RUN_DIED);
    /* It does have the lock, but the file's time is of a clock that is behind. */
    int fd = open(path_of(".lock"), O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    if (access("/proc/locks", R_OK) == 0)
        assert_int_equal(lki_board_run_state(root, 3, 8, now), LKI_RUN_RUNNING);
    else
        print_message("the kernel does not list its locks here\n");
    assert_int_equal(close(fd), 0);
    assert_int_equal(lki_board_run_state(root, 3, 8, now), LKI_RUN_DIED);
    pid_t child = fork();
    if (child == 0) _exit(0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    write_lock(owner, child, host, 0); /* a zombie */
    assert_int_equal(lki_board_run_state(root, 3, 8, now), LKI_RUN_DIED);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(lki_board_run_state(root, 3, 8, now), LKI_RUN_DIED);
    write_lock(owner, 1, "another-host", 0);
    assert_int_equal(lki_board_run_state(root, 3, 8, now), LKI_RUN_RUNNING);
    write_lock(owner, 1, "another-host", 1000);
    assert_int_equal(lki_board_run_state(root, 3, 8, now), LKI_RUN_RUNNING);
    assert_int_equal(lki_board_run_state(root, 3, 8, now - 900), LKI_RUN_SILENT);
    write_lock("rubbish", 0, "", 1000);
    assert_int_equal(lki_board_run_state(root, 3, 8, now - 900), LKI_RUN_SILENT);
}

static json_t *curve(const lki_board_series *series, const lki_board_view *view)
{
    lki_text_out out = {0};
    lki_text_out_put(&out, "{", 1);
    lki_board_put_curve(&out, series, view);
    lki_text_out_put(&out, "}", 1);
    json_t *parsed = json_loads(out.text, 0, NULL);
    if (!parsed) fail_msg("no JSON: %s", out.text);
    lki_text_out_fini(&out);
    return parsed;
}

static double item(const json_t *curve, const char *name, size_t at)
{
    return json_number_value(json_array_get(json_object_get(curve, name), at));
}

static void thinning_keeps_the_peaks(void **state)
{
    (void)state;
    enum { COUNT = 100000, BUCKETS = 200 };
    lki_board_series_list list = {0};
    lki_board_series *series = lki_board_series_claim(&list, LKI_BOARD_CSV, LKI_BOARD_EPOCH, "train", "loss");
    for (int i = 0; i < COUNT; i++)
        lkt_ok(lki_board_series_add(series, i, NAN, i == 54321 ? 100 : i == 777 ? NAN : i == 12345 ? -7 : 1));
    lki_board_view view = {.from = NAN, .to = NAN, .buckets = BUCKETS};
    json_t *thin = curve(series, &view);
    size_t count = json_array_size(json_object_get(thin, "x"));
    assert_true(count >= BUCKETS && count <= 2 * BUCKETS + 4);
    double lowest = 0, highest = 0;
    for (size_t i = 0; i < count; i++) {
        if (item(thin, "y", i) == -7) lowest = item(thin, "x", i);
        if (item(thin, "y", i) == 100) highest = item(thin, "x", i);
        if (i) assert_true(item(thin, "x", i) > item(thin, "x", i - 1));
    }
    assert_true(lowest == 12345 && highest == 54321);
    assert_true(item(thin, "x", 0) == 0 && item(thin, "x", count - 1) == COUNT - 1);
    assert_int_equal(json_integer_value(json_object_get(thin, "bad")), 1);
    json_decref(thin);

    /* Zoomed in, each point is there, and one on each side. */
    view.from = 1000;
    view.to = 1100;
    thin = curve(series, &view);
    assert_int_equal(json_array_size(json_object_get(thin, "x")), 103);
    assert_true(item(thin, "x", 0) == 999);
    json_decref(thin);
    /* Without times there is nothing to show over time. */
    view.x = LKI_BOARD_X_RELATIVE;
    thin = curve(series, &view);
    assert_int_equal(json_array_size(json_object_get(thin, "x")), 0);
    json_decref(thin);
    lki_board_series_fini(&list);
}

/* An axis that begins at 0 again, goes back by one step, or stands still. */
static void axes_that_go_back_are_thinned(void **state)
{
    (void)state;
    static const int periods[] = {40000, 50000, 2, 1};
    enum { COUNT = 100000, BUCKETS = 200 };
    for (int p = 0; p < 4; p++) {
        bool has_peak = false;
        lki_board_series_list list = {0};
        lki_board_series *series =
            lki_board_series_claim(&list, LKI_BOARD_EVENTS, LKI_BOARD_EPOCH, "train", "loss");
        for (int i = 0; i < COUNT; i++)
            lkt_ok(lki_board_series_add(series, i % periods[p], NAN, i == 54321 ? 100 : 1));
        lki_board_view view = {.from = NAN, .to = NAN, .buckets = BUCKETS};
        json_t *thin = curve(series, &view);
        size_t count = json_array_size(json_object_get(thin, "x"));
        assert_true(count >= BUCKETS && count <= 2 * BUCKETS + 4);
        for (size_t i = 0; i < count; i++) has_peak = has_peak || item(thin, "y", i) == 100;
        assert_true(has_peak);
        json_decref(thin);
        lki_board_series_fini(&list);
    }
}

/* Steps that do not grow, and numbers that no run has, are drawn somehow; nothing breaks. */
static void odd_steps_are_survived(void **state)
{
    (void)state;
    static const double steps[] = {3, -1e300, 1e300, 0, 2, NAN, 1, 4};
    enum { COUNT = sizeof steps / sizeof *steps };
    lki_board_series_list list = {0};
    lki_board_series *series = lki_board_series_claim(&list, LKI_BOARD_JSONL, LKI_BOARD_EPOCH, "", "x");
    for (int i = 0; i < COUNT; i++) lkt_ok(lki_board_series_add(series, steps[i], 1e300 * i, i));
    for (int x = LKI_BOARD_X_STEP; x <= LKI_BOARD_X_TIME; x++) {
        lki_board_view view = {.x = (lki_board_x)x, .from = NAN, .to = NAN, .buckets = 1};
        json_t *thin = curve(series, &view);
        assert_true(json_array_size(json_object_get(thin, "x")) <= COUNT);
        json_decref(thin);
    }
    lki_board_series_fini(&list);
    enter("board-odd");
    lkt_shell_in(root, "mkdir csv_logger");
    write_text("csv_logger/train.csv", "step,loss,time\n1e300,1,1e300\n-1e300,2,-1e300\n5,3,inf\n");
    lki_board *board = open_board();
    assert_int_equal(points(board->runs[0], "train", "loss"), 3);
    assert_int_equal(board->runs[0]->epochs, 5);
    lki_board_close(board);
}

/* TensorBoard's smoothing of 1, 2, NaN, 3 with 0.5: (w s + (1 - w) y) / (1 - w^n), worked out by hand. */
static void smoothing_is_tensorboards(void **state)
{
    (void)state;
    static const double values[] = {1, 2, NAN, 3}, expected[] = {1, 5.0 / 3, 17.0 / 7};
    lki_board_series_list list = {0};
    lki_board_series *series = lki_board_series_claim(&list, LKI_BOARD_CSV, LKI_BOARD_EPOCH, "train", "loss");
    for (int i = 0; i < 4; i++) lkt_ok(lki_board_series_add(series, i, 100 + i, values[i]));
    lki_board_view view = {.x = LKI_BOARD_X_RELATIVE, .from = NAN, .to = NAN, .buckets = 10, .smooth = 0.5};
    json_t *smooth = curve(series, &view);
    assert_int_equal(json_array_size(json_object_get(smooth, "s")), 3);
    for (size_t i = 0; i < 3; i++) lkt_close(item(smooth, "s", i), expected[i], 1e-6);
    assert_true(item(smooth, "x", 2) == 3);
    json_decref(smooth);
    lki_board_series_fini(&list);
}

static void configs_become_flat(void **state)
{
    (void)state;
    static const char yaml[] =
        "model:\n  layers:\n    - {name: Linear, size: [2, 3]}\n    - ReLU\nlr: &lr 0.02\n"
        "other: *lr\n\"<b>\": \"a\\\"b\"\nbroken: [1\nx: }";
    lki_text_out out = {0};
    lki_board_put_config(&out, yaml, sizeof yaml - 1);
    json_t *flat = json_loads(out.text, 0, NULL);
    if (!flat) fail_msg("no JSON: %s", out.text);
    assert_string_equal(json_string_value(json_object_get(flat, "model/layers/0/name")), "Linear");
    assert_string_equal(json_string_value(json_object_get(flat, "model/layers/0/size/1")), "3");
    assert_string_equal(json_string_value(json_object_get(flat, "model/layers/1")), "ReLU");
    assert_string_equal(json_string_value(json_object_get(flat, "lr")), "0.02");
    assert_string_equal(json_string_value(json_object_get(flat, "<b>")), "a\"b");
    assert_null(strstr(out.text, "<"));
    json_decref(flat);
    lki_text_out_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_come_and_go),
        cmocka_unit_test(a_file_is_no_logdir),
        cmocka_unit_test(links_inside_of_runs_are_not_followed),
        cmocka_unit_test(states_follow_the_lock),
        cmocka_unit_test(thinning_keeps_the_peaks),
        cmocka_unit_test(axes_that_go_back_are_thinned),
        cmocka_unit_test(odd_steps_are_survived),
        cmocka_unit_test(smoothing_is_tensorboards),
        cmocka_unit_test(configs_become_flat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
