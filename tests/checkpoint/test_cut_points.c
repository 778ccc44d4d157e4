/* The power fails while the newest runner checkpoint is replaced, at 1,000 places: after each byte that is
 * written and before each call that changes the folder. The checkpoint before it or the new one loads. */
#define _GNU_SOURCE
#include "lktest.h"

#include "base/memory.h"
#include "callbacks/late_save.h"
#include "checkpoint/older_runners.h"

#include <lockstep/checkpoint.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CUTS = 1000, KEPT = 2, NUMBERS = 300 };

/* Bytes and calls that are left until nothing reaches the disk any more; below 0: no end. */
static _Thread_local long left = -1;
static _Thread_local long used;

/* How much of `wanted` still happens. */
static long take(long wanted)
{
    used += wanted;
    if (left < 0) return wanted;
    long granted = wanted < left ? wanted : left;
    left -= granted;
    return granted;
}

/* In place of the C library's. What is cut off says that it has happened: nobody hears of it any more. */
ssize_t write(int fd, const void *data, size_t nbytes)
{
    long granted = take((long)nbytes);
    if (granted > 0) {
        struct iovec piece = {.iov_base = (void *)data, .iov_len = (size_t)granted};
        ssize_t written = writev(fd, &piece, 1);
        if (written != granted) return written;
    }
    return (ssize_t)nbytes;
}

int rename(const char *from, const char *to)
{
    return take(1) ? renameat(AT_FDCWD, from, AT_FDCWD, to) : 0;
}

int link(const char *from, const char *to)
{
    return take(1) ? linkat(AT_FDCWD, from, AT_FDCWD, to, 0) : 0;
}

int unlink(const char *path)
{
    return take(1) ? unlinkat(AT_FDCWD, path, 0) : 0;
}

int fsync(int fd)
{
    (void)fd; /* the files of this test need not outlive the machine */
    return 0;
}

static lk_state_dict *state_of(float number)
{
    float numbers[NUMBERS];
    lk_state_dict *state = lk_state_dict_create();
    for (int i = 0; i < NUMBERS; i++) numbers[i] = number;
    lkt_ok(lk_state_dict_put(state, "model.0.weight", lk_tensor_from(LK_F32, LK_SHAPE(NUMBERS), numbers)));
    lkt_ok(lk_state_dict_put_i64(state, "epoch_step", (int64_t)number));
    lkt_ok(lk_state_dict_put_string(state, "text", number > 1 ? "a new one, which is longer" : "an old one"));
    return state;
}

static void save(const char *folder, float number)
{
    lk_state_dict *state = state_of(number);
    (void)lki_save_newest_runner(folder, KEPT,
                                 state); /* cut off, it may also notice that something is amiss */
    lk_state_dict_free(state);
}

/* The epoch of the newest checkpoint that loads, as a run looks for it. */
static int64_t newest(const char *folder)
{
    char *path = lki_format("%s/runner.last.safetensors", folder);
    lk_state_dict *state = lk_load_safetensors(path);
    while (!state) {
        char *older = lki_older_runner(path);
        lki_free(path);
        path = older;
        if (access(path, F_OK) != 0) break;
        state = lk_load_safetensors(path);
    }
    lki_free(path);
    if (!state) return -1;
    int64_t epoch = -1;
    lkt_ok(lk_state_dict_get_i64(state, "epoch_step", &epoch));
    const float *numbers = lk_state_dict_get(state, "model.0.weight")->data;
    for (int i = 0; i < NUMBERS; i++) assert_true(numbers[i] == (float)epoch);
    lk_state_dict_free(state);
    return epoch;
}

static void clear(const char *folder)
{
    static const char *const names[] = {"runner.last.safetensors", "runner.last.1.safetensors"};
    char path[1200];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlinkat(AT_FDCWD, path, 0);
    }
    snprintf(path, sizeof path, "%s/.runner.last.safetensors.%ld.tmp", folder, (long)getpid());
    unlinkat(AT_FDCWD, path, 0);
}

static void test_cuts(void **state)
{
    (void)state;
    const char *folder = lkt_scratch_folder("checkpoint_cuts");
    save(folder, 1);
    used = 0;
    save(folder, 2);
    long whole = used, old = 0, new = 0;
    assert_true(whole > CUTS);
    for (long cut = 0; cut < CUTS; cut++) {
        /* All calls but the last few come at the ends: each of those, and places between them. */
        long at = cut < 20 ? cut : cut >= CUTS - 20 ? whole - (CUTS - 1 - cut) : cut * whole / CUTS;
        clear(folder);
        save(folder, 1);
        left = at;
        save(folder, 2);
        left = -1;
        int64_t epoch = newest(folder);
        if (epoch != 1 && epoch != 2) fail_msg("cut off after %ld of %ld: nothing loads", at, whole);
        old += epoch == 1;
        new += epoch == 2;
    }
    assert_true(old > 0 && new > 0);
    assert_int_equal(newest(folder), 2);
}

/* ---- A save beside the training ---- */

static void test_later(void **state)
{
    (void)state;
    const char *folder = lkt_scratch_folder("checkpoint_later");
    lki_late_save *late = NULL;
    lk_state_dict *first = state_of(1), *second = state_of(2);
    lkt_ok(lki_late_save_start(&late, folder, KEPT, first));
    *(float *)lk_state_dict_get(first, "model.0.weight")->data = 7; /* what is written was copied */
    lkt_ok(lki_late_save_start(&late, folder, KEPT, second));
    lkt_ok(lki_late_save_finish(&late));
    assert_null(late);
    assert_int_equal(newest(folder), 2);
    char path[1200];
    snprintf(path, sizeof path, "%s/runner.last.1.safetensors", folder);
    lk_state_dict *older = lk_load_safetensors(path);
    lkt_not_null(older);
    assert_true(*(float *)lk_state_dict_get(older, "model.0.weight")->data == 1);
    lk_state_dict_free(older);
    /* A failure is told by whoever waits for the write. */
    lkt_ok(lki_late_save_start(&late, "/proc/nowhere", KEPT, second));
    lkt_fails(lki_late_save_start(&late, folder, KEPT, second), LK_ERR_IO, "/proc/nowhere");
    assert_null(late);
    lkt_ok(lki_late_save_finish(&late));
    lk_state_dict_free(first);
    lk_state_dict_free(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
