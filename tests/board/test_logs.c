/* Reading logs that are half written, damaged, replaced, or grow meanwhile. */
#include "logs.h"

#include "base/atomic_file.h"
#include "logger/event.h"

static const char *problem_of(const lki_board_run *run, const char *below)
{
    for (int i = 0; i < run->file_count; i++)
        if (!strcmp(run->files[i].tail.below, below)) return run->files[i].problem;
    return NULL;
}

static void csv_grows_by_whole_rows(void **state)
{
    (void)state;
    enter("board-csv");
    lkt_shell_in(root, "mkdir -p csv_logger");
    write_text("csv_logger/train.csv", "step,loss,\"a,\"\"b\"\"\",time\n1,0.5,2,1000.25\n2,0.2");
    lki_board *board = open_board();
    lki_board_run *run = board->runs[0];
    assert_int_equal(points(run, "train", "loss"), 1);
    int64_t version = board->version;
    lkt_ok(lki_board_refresh(board, 0));
    assert_int_equal(board->version, version);

    append_text("csv_logger/train.csv", "5,3,1001.5\n3,nan,,1002\n");
    lkt_ok(lki_board_refresh(board, 0));
    assert_true(board->version > version);
    const lki_board_series *loss = shown(run, "train", "loss");
    assert_int_equal(loss->count, 3);
    assert_true(loss->value[1] == 0.25 && isnan(loss->value[2]) && loss->step[2] == 3);
    assert_true(loss->time[0] == 1000.25 && loss->time[2] == 1002);
    assert_int_equal(loss->finite_count, 2);
    assert_int_equal(loss->lowest, 1);
    assert_int_equal(points(run, "train", "a,\"b\""), 2);
    assert_null(shown(run, "train", "time"));
    assert_int_equal(run->epochs, 3);
    assert_null(problem_of(run, "csv_logger/train.csv"));
    lki_board_close(board);
}

static void damaged_rows_are_named(void **state)
{
    (void)state;
    enter("board-damaged");
    lkt_shell_in(root, "mkdir -p csv_logger");
    static const char text[] = "step,loss\n1,0.5\nrubbish\n2,0.4,7\n\0\0\0,\n3,0.3\n";
    write_bytes("csv_logger/valid.csv", "w", text, sizeof text - 1);
    write_text("log.jsonl",
               "{\"scope\":\"batch\",\"loader\":\"train\",\"sample\":32,\"metrics\":{\"loss\":1.5}}\n"
               "{\"scope\":\"batch\",\"loa\n[1]\n7\n"
               "{\"scope\":\"epoch\",\"loader\":null,\"epoch\":1,\"time\":5,\"metrics\":{\"x\":null}}\n"
               "{\"scope\":\"batch\",\"loader\":\"train\",\"samp");
    lki_board *board = open_board();
    lki_board_run *run = board->runs[0];
    assert_int_equal(points(run, "valid", "loss"), 2);
    lkt_contains(problem_of(run, "csv_logger/valid.csv"), "damaged rows");
    lkt_contains(problem_of(run, "log.jsonl"), "no JSON");
    const lki_board_series *batch = shown(run, "train", "loss"), *x = shown(run, "_epoch_", "x");
    assert_true(batch->axis == LKI_BOARD_SAMPLE && batch->step[0] == 32 && batch->value[0] == 1.5);
    assert_true(x->axis == LKI_BOARD_EPOCH && isnan(x->value[0]) && x->time[0] == 5);
    append_text("log.jsonl", "le\":64,\"metrics\":{\"loss\":1.25}}\n");
    lkt_ok(lki_board_refresh(board, 0));
    assert_int_equal(points(run, "train", "loss"), 2);
    lki_board_close(board);
}

static void replaced_files_are_read_anew(void **state)
{
    (void)state;
    enter("board-replaced");
    lkt_shell_in(root, "mkdir -p csv_logger");
    write_text("csv_logger/train.csv", "step,loss\n1,0.5\n2,0.4\n");
    write_text("csv_logger/valid.csv", "step,loss\n1,0.6\n");
    lki_board *board = open_board();
    lki_board_run *run = board->runs[0];
    /* As the logger does when a metric is new: the file is another one, with one column more. */
    write_text("csv_logger/new", "step,auc,loss\n1,,0.5\n2,,0.4\n3,0.9,0.3\n");
    assert_int_equal(rename(path_of("csv_logger/new"), path_of("csv_logger/train.csv")), 0);
    lkt_ok(lki_board_refresh(board, 0));
    assert_int_equal(points(run, "train", "loss"), 3);
    assert_int_equal(points(run, "train", "auc"), 1);
    assert_int_equal(points(run, "valid", "loss"), 1);
    write_text("csv_logger/train.csv", "step,loss\n1,0.1\n"); /* a run that starts afresh: shorter */
    lkt_ok(lki_board_refresh(board, 0));
    assert_int_equal(points(run, "train", "loss"), 1);
    assert_int_equal(points(run, "train", "auc"), 0);
    assert_int_equal(unlink(path_of("csv_logger/valid.csv")), 0);
    lkt_ok(lki_board_refresh(board, 0));
    assert_int_equal(points(run, "valid", "loss"), 0);
    lki_board_close(board);
}

static size_t take_all(void *context, const char *bytes, size_t nbytes)
{
    (void)bytes;
    *(size_t *)context += nbytes;
    return nbytes;
}

static void a_file_replaced_after_the_look_is_not_mixed(void **state)
{
    (void)state;
    enter("board-tail");
    char below[] = "a.csv";
    lki_tail tail = {.below = below};
    size_t taken = 0;
    write_text("a.csv", "12345678");
    lkt_ok(lki_tail_follow(&tail, root, take_all, &taken));
    assert_int_equal(taken, 8);
    append_text("a.csv", "9");
    assert_int_equal(lki_tail_look(&tail, root), LKI_TAIL_GREW);
    write_text("new", "a longer one than before");
    assert_int_equal(rename(path_of("new"), path_of("a.csv")), 0);
    lkt_ok(lki_tail_follow(&tail, root, take_all, &taken));
    assert_int_equal(taken, 8);
    assert_int_equal(lki_tail_look(&tail, root), LKI_TAIL_REPLACED);
    lki_tail_rewind(&tail);
    lkt_ok(lki_tail_follow(&tail, root, take_all, &taken));
    assert_int_equal(taken, 8 + 24);
}

static void lines_without_a_step_are_left_out(void **state)
{
    (void)state;
    enter("board-no-step");
    write_text("log.jsonl",
               "{\"scope\":\"epoch\",\"loader\":\"train\",\"metrics\":{\"loss\":1}}\n"
               "{\"scope\":\"epoch\",\"loader\":\"train\",\"epoch\":null,\"metrics\":{\"loss\":2}}\n"
               "{\"scope\":\"batch\",\"loader\":\"train\",\"sample\":\"3\",\"metrics\":{\"loss\":3}}\n"
               "{\"scope\":\"epoch\",\"loader\":\"train\",\"epoch\":4,\"metrics\":{\"loss\":4}}\n");
    lki_board *board = open_board();
    const lki_board_series *loss = shown(board->runs[0], "train", "loss");
    assert_int_equal(loss->count, 1);
    assert_true(loss->step[0] == 4);
    lkt_contains(problem_of(board->runs[0], "log.jsonl"), "without a step");
    assert_int_equal(board->runs[0]->files[0].bad_entries, 3);
    lki_board_close(board);
}

static lki_event_buffer make_events(void)
{
    lki_event_buffer buffer = {0};
    lk_metric_value values[] = {{"loss", 0.5}, {"lr", 0.02}};
    lkt_ok(lki_event_put_version(&buffer, 1000));
    for (int i = 1; i <= 5; i++)
        lkt_ok(lki_event_put_scalars(&buffer, 1000 + i, i, (lk_metric_values){values, 2}, "/epoch"));
    return buffer;
}

static void events_grow_byte_by_byte(void **state)
{
    (void)state;
    enter("board-events");
    lkt_shell_in(root, "mkdir -p tensorboard/train csv_logger");
    lki_event_buffer buffer = make_events();
    const char *name = "tensorboard/train/events.out.tfevents.1.host.2.0";
    write_text(name, "");
    lki_board *board = open_board();
    int64_t before = 0;
    for (size_t done = 0; done < buffer.used; done++) {
        write_bytes(name, "a", buffer.data + done, 1);
        lkt_ok(lki_board_refresh(board, 0));
        int64_t now = points(board->runs[0], "train", "loss");
        assert_true(now == before || now == before + 1);
        before = now;
    }
    assert_int_equal(before, 5);
    assert_null(problem_of(board->runs[0], name));
    const lki_board_series *lr = shown(board->runs[0], "train", "lr");
    assert_true(lr->axis == LKI_BOARD_EPOCH && lr->count == 5 && lr->time[4] == 1005);
    /* CSV has the same metrics without times: the copy with times is shown, until the other has more. */
    write_text("csv_logger/train.csv", "step,loss\n1,0.5\n2,0.5\n3,0.5\n4,0.5\n5,0.5\n");
    lkt_ok(lki_board_refresh(board, 0));
    assert_int_equal(shown(board->runs[0], "train", "loss")->kind, LKI_BOARD_EVENTS);
    append_text("csv_logger/train.csv", "6,0.5\n");
    lkt_ok(lki_board_refresh(board, 0));
    assert_int_equal(shown(board->runs[0], "train", "loss")->kind, LKI_BOARD_CSV);
    lki_board_close(board);
    lki_event_buffer_fini(&buffer);
}

static void damaged_events_cost_one_record(void **state)
{
    (void)state;
    enter("board-bad-events");
    lki_event_buffer buffer = make_events();
    const char *name = "events.out.tfevents.1.host.2.0";
    buffer.data[buffer.used / 2] ^= 1;
    write_bytes(name, "w", buffer.data, buffer.used);
    lki_board *board = open_board();
    assert_int_equal(points(board->runs[0], "", "loss"), 4);
    lkt_contains(problem_of(board->runs[0], name), "damaged records");
    lki_board_close(board);
    /* Bytes that are no events at all. */
    for (size_t i = 0; i < buffer.used; i++) buffer.data[i] = (uint8_t)(i * 37 + 11);
    write_bytes(name, "w", buffer.data, buffer.used);
    board = open_board();
    assert_int_equal(points(board->runs[0], "", "loss"), 0);
    lki_board_close(board);
    lki_event_buffer_fini(&buffer);
}

/* A long series is thinned to every second one and so on; many buckets become fewer; and a file that was
 * replaced takes its histograms along. */
static void histograms_are_kept_in_bounds(void **state)
{
    (void)state;
    enum { STEPS = 200, BUCKETS = 300 };
    double limits[BUCKETS], counts[BUCKETS], all = 0;
    lki_event_buffer buffer = {0};
    const char *name = "tensorboard/train/events.out.tfevents.1.host.2.0";
    enter("board-histograms");
    lkt_shell_in(root, "mkdir -p tensorboard/train");
    for (int i = 0; i < BUCKETS; i++) limits[i] = i + 1, counts[i] = i % 3;
    lk_histogram histogram = {
        .min = 0, .max = BUCKETS, .count = 300, .bucket_count = BUCKETS, .limits = limits, .counts = counts};
    lkt_ok(lki_event_put_version(&buffer, 1000));
    for (int step = 1; step <= STEPS; step++)
        lkt_ok(lki_event_put_histogram(&buffer, 1000 + step, step, "weights/w", &histogram));
    write_bytes(name, "w", buffer.data, buffer.used);
    lki_board *board = open_board();
    const lki_board_histogram_list *list = &board->runs[0]->histograms;
    assert_int_equal(list->count, 1);
    assert_in_range(list->items[0]->count, LKI_BOARD_MAX_HISTOGRAMS / 2, LKI_BOARD_MAX_HISTOGRAMS);
    assert_string_equal(list->items[0]->loader, "train");
    assert_true(list->items[0]->items[0].step == 1 && list->items[0]->items[1].step == 5);
    const lki_board_histogram *one = &list->items[0]->items[0];
    assert_in_range(one->bucket_count, 2, LKI_BOARD_MAX_BUCKETS);
    assert_true(one->limits[one->bucket_count - 1] == BUCKETS);
    for (int i = 0; i < one->bucket_count; i++) all += one->counts[i];
    assert_true(all == 300);
    write_text(name, "");
    lkt_ok(lki_board_refresh(board, 0));
    assert_int_equal(board->runs[0]->histograms.count, 0);
    lki_board_close(board);
    lki_event_buffer_fini(&buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_grows_by_whole_rows),
        cmocka_unit_test(damaged_rows_are_named),
        cmocka_unit_test(replaced_files_are_read_anew),
        cmocka_unit_test(events_grow_byte_by_byte),
        cmocka_unit_test(damaged_events_cost_one_record),
        cmocka_unit_test(histograms_are_kept_in_bounds),
        cmocka_unit_test(lines_without_a_step_are_left_out),
        cmocka_unit_test(a_file_replaced_after_the_look_is_not_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
