/* A damaged runner.last is never continued from: the one before it is, and a line says so. */
#define _GNU_SOURCE
#include "../comm/ranks.h"
#include "case_resume.h"

#include "base/status.h"
#include "checkpoint/older_runners.h"
#include "comm/net.h"

#include <lockstep/callback.h>
#include <lockstep/launch.h>
#include <lockstep/log.h>

#include <sys/stat.h>
#include <unistd.h>

static char whole_folder[1024], folder[1024], logged[4096];

static void remember(const char *level, const char *line, void *context)
{
    size_t length = strlen(logged);
    (void)level, (void)context;
    snprintf(logged + length, sizeof logged - length, "%s\n", line);
}

static const char *fresh(char *text, const char *name)
{
    snprintf(text, sizeof whole_folder, "%s", lkt_scratch_folder(name));
    return text;
}

static const char *checkpoint(const char *name)
{
    static char path[2048];
    snprintf(path, sizeof path, "%s/checkpoints/%s", folder, name);
    return path;
}

typedef enum damage { CUT_AWAY, HALF, SEVEN_BYTES, EMPTY, NOISE } damage;

static void spoil(const char *path, damage how)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    if (how == NOISE) { /* in the middle of the tensors */
        fseek(file, info.st_size * 3 / 4, SEEK_SET);
        int byte = fgetc(file);
        fseek(file, info.st_size * 3 / 4, SEEK_SET);
        fputc(byte ^ 4, file);
    }
    fclose(file);
    off_t length[] = {info.st_size - 1, info.st_size / 2, 7, 0, info.st_size};
    assert_int_equal(truncate(path, length[how]), 0);
}

/* A run of which something is left to do. */
static lkt_run_options begun(int nproc)
{
    lkt_run_options run = {.logdir = fresh(folder, "train_older"), .save_every = 2, .nproc = nproc};
    run.fail_batch = nproc ? 11 : 18; /* the places kept are two and four batches before, or three */
    lkt_fails(lkt_whole_run(&run), LK_ERR_INVALID, "a failure of the test's own");
    return (lkt_run_options){.logdir = folder, .autoresume = "last", .nproc = nproc};
}

static void goes_on_as_if_nothing_were(lkt_run_options run, const lkt_run_options *expected)
{
    logged[0] = 0;
    lk_set_log_sink(remember, NULL);
    lk_status status = lkt_whole_run(&run);
    lk_set_log_sink(NULL, NULL);
    lkt_ok(status);
    lkt_contains(logged, "runner.last.safetensors: ");
    lkt_contains(logged, "continuing from the checkpoint before it, ");
    lkt_same_runs(&run, expected);
}

static void whatever_the_damage(void **state)
{
    (void)state;
    lkt_run_options expected = {.logdir = fresh(whole_folder, "train_older_whole")};
    lkt_ok(lkt_whole_run(&expected));
    for (damage how = CUT_AWAY; how <= NOISE; how++) {
        lkt_run_options run = begun(0);
        spoil(checkpoint("runner.last.safetensors"), how);
        goes_on_as_if_nothing_were(run, &expected);
        assert_int_equal(access(checkpoint("runner.last.safetensors.damaged"), F_OK), 0);
    }
    lkt_run_options by_name = begun(0);
    spoil(checkpoint("runner.last.safetensors"), HALF);
    by_name.autoresume = NULL;
    by_name.resume = checkpoint("runner.last.safetensors");
    goes_on_as_if_nothing_were(by_name, &expected);
}

static void on_ranks(void **state)
{
    (void)state;
    lkt_run_options expected = {.logdir = fresh(whole_folder, "train_older_whole"), .nproc = 2};
    lkt_ok(lkt_whole_run(&expected));
    lkt_run_options run = begun(2);
    spoil(checkpoint("runner.last.safetensors"), HALF);
    goes_on_as_if_nothing_were(run, &expected);
}

/* Ranks that were started one by one on hosts that share no logdir: only rank 0 has files. */
typedef struct own_logdirs {
    lkt_run_options run;
    const char *expected; /* the weights at the end; NULL: all fail */
    int port;
} own_logdirs;

static lk_status whole_run(void *context)
{
    return lkt_whole_run(context);
}

static const char *run_in_own_logdir(int rank, int size, void *context)
{
    own_logdirs *own = context;
    char number[16], other[1100];
    snprintf(number, sizeof number, "%d", rank);
    setenv("RANK", number, 1);
    snprintf(number, sizeof number, "%d", size);
    setenv("WORLD_SIZE", number, 1);
    snprintf(number, sizeof number, "%d", own->port);
    setenv("MASTER_PORT", number, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    snprintf(other, sizeof other, "%s/of-%d", folder, rank);
    if (rank > 0) own->run.logdir = other;
    lk_status status = lk_distributed_run(whole_run, &own->run);
    if (!own->expected) {
        rank_check(status == LK_ERR_FORMAT && strstr(lk_error(), "runner.last.safetensors: "));
        return NULL;
    }
    rank_ok(status);
    rank_check(strcmp(own->run.hash, own->expected) == 0);
    return NULL;
}

static void run_in_own_logdirs(const lkt_run_options *run, const char *expected)
{
    own_logdirs own = {.run = *run, .expected = expected};
    int fd;
    own.run.nproc = 0;
    lkt_ok(lki_net_listen(&fd, &own.port));
    close(fd);
    run_processes(2, run_in_own_logdir, &own);
}

static void on_ranks_that_see_other_folders(void **state)
{
    (void)state;
    lkt_run_options expected = {.logdir = fresh(whole_folder, "train_older_whole"), .nproc = 2};
    lkt_ok(lkt_whole_run(&expected));
    lkt_run_options run = begun(2);
    spoil(checkpoint("runner.last.safetensors"), HALF);
    run_in_own_logdirs(&run, expected.hash);
    run = begun(2);
    assert_int_equal(unlink(checkpoint("runner.last.safetensors")), 0);
    run_in_own_logdirs(&run, expected.hash);
    run = begun(2);
    spoil(checkpoint("runner.last.safetensors"), HALF);
    spoil(checkpoint("runner.last.1.safetensors"), EMPTY);
    run_in_own_logdirs(&run, NULL);
}

/* The process died between the two steps of a save, on a file system without links. */
static void only_the_older_one_is_there(void **state)
{
    (void)state;
    lkt_run_options expected = {.logdir = fresh(whole_folder, "train_older_whole")};
    lkt_ok(lkt_whole_run(&expected));
    lkt_run_options run = begun(0);
    assert_int_equal(unlink(checkpoint("runner.last.safetensors")), 0);
    lkt_ok(lkt_whole_run(&run));
    lkt_same_runs(&run, &expected);
}

static void if_all_are_damaged_nothing_is_overwritten(void **state)
{
    (void)state;
    lkt_run_options run = begun(0);
    spoil(checkpoint("runner.last.safetensors"), HALF);
    spoil(checkpoint("runner.last.1.safetensors"), EMPTY);
    lkt_fails(lkt_whole_run(&run), LK_ERR_FORMAT, "runner.last.safetensors: ");
    assert_int_equal(access(checkpoint("runner.last.safetensors"), F_OK), 0);
    assert_int_equal(access(checkpoint("runner.last.1.safetensors"), F_OK), 0);
}

/* It may be whole, and readable in a moment. A link to itself stands for a file system with a hiccup. */
static void a_file_that_cannot_be_read_is_not_passed_over(void **state)
{
    (void)state;
    lkt_run_options run = begun(0);
    const char *newest = checkpoint("runner.last.safetensors");
    assert_int_equal(unlink(newest), 0);
    assert_int_equal(symlink(newest, newest), 0);
    lkt_fails(lkt_whole_run(&run), LK_ERR_IO, "runner.last.safetensors: could not");
    assert_int_not_equal(access(checkpoint("runner.last.safetensors.damaged"), F_OK), 0);
    assert_int_equal(access(checkpoint("runner.last.1.safetensors"), F_OK), 0);
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(lkt_path(folder, "%s", name), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_holds(const char *name, const char *text)
{
    char *found = lkt_read(lkt_path(folder, "%s", name));
    assert_string_equal(found, text);
    free(found);
}

static void as_many_as_are_wanted(void **state)
{
    (void)state;
    fresh(folder, "train_older_count");
    lkt_ok(lki_age_runners(folder, 3)); /* of nothing */
    static const char *const texts[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++) {
        lkt_ok(lki_age_runners(folder, 3));
        if (i > 0) assert_holds("runner.last.safetensors", texts[i - 1]); /* there is always a newest */
        unlink(lkt_path(folder, "runner.last.safetensors"));              /* a new file takes its place */
        put("runner.last.safetensors", texts[i]);
    }
    assert_holds("runner.last.safetensors", "d");
    assert_holds("runner.last.1.safetensors", "c");
    assert_holds("runner.last.2.safetensors", "b");
    assert_int_not_equal(access(lkt_path(folder, "runner.last.3.safetensors"), F_OK), 0);
    assert_null(lki_older_runner("model.last.safetensors"));
    assert_null(lki_older_runner("l/runner.last.0.safetensors"));
    char *older = lki_older_runner("l/runner.last.9.safetensors");
    assert_string_equal(older, "l/runner.last.10.safetensors");
    free(older);
    assert_null(lk_checkpoint_callback(.keep_runners = -1));
}

/* The two ways to say how often must not contradict each other. */
static void said_twice(void **state)
{
    (void)state;
    lkt_run_options run = {.logdir = fresh(folder, "train_older"), .save_every = 2, .save_every_batches = 3};
    lkt_fails(lkt_whole_run(&run), LK_ERR_INVALID, "save_every is 2, but save_every_batches");
}

int main(int argc, char **argv)
{
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_the_damage),
        cmocka_unit_test(on_ranks),
        cmocka_unit_test(on_ranks_that_see_other_folders),
        cmocka_unit_test(only_the_older_one_is_there),
        cmocka_unit_test(if_all_are_damaged_nothing_is_overwritten),
        cmocka_unit_test(a_file_that_cannot_be_read_is_not_passed_over),
        cmocka_unit_test(as_many_as_are_wanted),
        cmocka_unit_test(said_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
