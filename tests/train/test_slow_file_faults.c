/* A run whose disk fails: each call that writes, renames, links or makes a file of its logdir fails once with
 * EIO, or it and all that follow with ENOSPC. The run ends with one sentence or was not harmed; the next one
 * goes on from the newest checkpoint that is whole, to the weights of a run that nothing disturbed. */
#define _GNU_SOURCE
#include "case.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char logdir[1024];  /* whose calls count; "": none */
static _Atomic long calls; /* so far */
static long failing = -1;  /* the number of the call that fails */
static bool for_good;      /* and all after it */
static int failure;        /* errno */

typedef struct report {
    char call[80]; /* the one that failed */
    long calls;
    int status; /* of lk_train */
    char sentence[512];
} report;
static report *shared;

static bool is_ours(const char *path)
{
    return *logdir && strncmp(path, logdir, strlen(logdir)) == 0;
}

/* Whether this call fails. */
static bool fails(const char *what, const char *path)
{
    if (!is_ours(path)) return false;
    long number = atomic_fetch_add(&calls, 1);
    if (failing < 0 || number < failing || (number > failing && !for_good)) return false;
    if (number == failing && shared)
        snprintf(shared->call, sizeof shared->call, "%s of %.60s", what, path + strlen(logdir));
    errno = failure;
    return true;
}

static bool fd_fails(const char *what, int fd)
{
    char link[40], path[1100];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return fails(what, path);
}

/* ---- In place of the C library's ---- */

ssize_t write(int fd, const void *data, size_t nbytes)
{
    struct iovec piece = {.iov_base = (void *)data, .iov_len = nbytes};
    if (!fd_fails("write", fd)) return writev(fd, &piece, 1);
    int why = errno; /* a full disk takes half of it */
    if (failure == ENOSPC && nbytes > 1 && calls == failing + 1) {
        piece.iov_len = nbytes / 2;
        return writev(fd, &piece, 1);
    }
    errno = why;
    return -1;
}

int fsync(int fd)
{
    return fd_fails("fsync", fd) ? -1 : 0; /* the files of this test need not outlive the machine */
}

int rename(const char *from, const char *to)
{
    return fails("rename", to) ? -1 : renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int link(const char *from, const char *to)
{
    return fails("link", to) ? -1 : linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int mkdir(const char *path, mode_t mode)
{
    return fails("mkdir", path) ? -1 : mkdirat(AT_FDCWD, path, mode);
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
    va_end(arguments);
    if ((flags & O_CREAT) && fails("open", path)) return -1;
    return openat(AT_FDCWD, path, flags, mode);
}

static ssize_t stream_write(void *cookie, const char *data, size_t nbytes)
{
    ssize_t written = write((int)(intptr_t)cookie, data, nbytes);
    return written < 0 ? 0 : written; /* as fopencookie wants it */
}

static int stream_close(void *cookie)
{
    return close((int)(intptr_t)cookie);
}

/* A stream writes through the functions above. */
FILE *fopen(const char *path, const char *mode)
{
    FILE *(*real)(const char *, const char *) =
        (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
    if (*mode == 'r' || !is_ours(path)) return real(path, mode);
    int fd = open(path, O_WRONLY | O_CREAT | (*mode == 'a' ? O_APPEND : O_TRUNC), 0666);
    if (fd < 0) return NULL;
    return fopencookie((void *)(intptr_t)fd, mode,
                       (cookie_io_functions_t){.write = stream_write, .close = stream_close});
}

/* ---- The run ---- */

static lk_status train(const char *folder, int epochs, bool goes_on)
{
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(
        runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
        .optimizer = lk_adam(.lr = 0.05),
        .loaders = lk_loaders({"train", lk_loader(lkt_points(40, 1), .batch_size = 8, .shuffle = true)},
                              {"valid", lk_loader(lkt_points(24, 2), .batch_size = 8)}),
        .callbacks = lk_callbacks(
            lk_accuracy_callback(),
            lk_checkpoint_callback(.loader_key = "valid", .metric_key = "loss", .minimize = true, .topk = 2)),
        .num_epochs = epochs, .logdir = folder, .valid_loader = "valid", .valid_metric = "loss",
        .minimize_valid_metric = true, .autoresume = goes_on ? "last" : NULL, .seed = 5, .save_every = 3,
        .device = "cpu");
    lk_runner_free(runner);
    return status;
}

enum { EPOCHS = 3 };

/* In a process of its own, which ends with what happened in `shared`. */
static void train_apart(const char *folder, int epochs, bool goes_on, long call, int why, bool stays)
{
    memset(shared, 0, sizeof *shared);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        snprintf(logdir, sizeof logdir, "%s", folder);
        failing = call;
        failure = why;
        for_good = stays;
        shared->status = (int)train(folder, epochs, goes_on);
        snprintf(shared->sentence, sizeof shared->sentence, "%s", lk_error());
        shared->calls = atomic_load(&calls);
        *logdir = 0;
        _exit(0);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    if (how != 0) fail_msg("call %ld, %s: the run ended with %x", call, shared->call, (unsigned)how);
}

static void hash_of(char hash[LK_HASH_LENGTH + 1], const char *folder)
{
    lk_state_dict *state = lk_load_safetensors(lkt_path(folder, "checkpoints/model.last.safetensors"));
    lkt_not_null(state);
    lkt_ok(lk_weights_hash(state, hash));
    lk_state_dict_free(state);
}

/* Every checkpoint that has its name is whole, and nothing half-written is left behind. */
static void check_folder(const char *folder, long call)
{
    DIR *entries = opendir(lkt_path(folder, "checkpoints"));
    if (!entries) return;
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (strstr(entry->d_name, ".tmp"))
            fail_msg("call %ld, %s: %s is left", call, shared->call, entry->d_name);
        if (!strstr(entry->d_name, ".safetensors")) continue;
        lk_state_dict *state = lk_load_safetensors(lkt_path(folder, "checkpoints/%s", entry->d_name));
        if (!state) fail_msg("call %ld, %s: %s", call, shared->call, lk_error());
        lk_state_dict_free(state);
    }
    closedir(entries);
}

/* A link that cannot be made is made up for by a copy or a rename. */
static bool is_harmless(const char *call)
{
    return strncmp(call, "link of ", 8) == 0;
}

static void fail_each_call(bool goes_on, int why, bool stays)
{
    char folder[1024], run[1200], before[1200], expected[LK_HASH_LENGTH + 1], hash[LK_HASH_LENGTH + 1];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("file_faults"));
    snprintf(before, sizeof before, "%s/before", folder);
    snprintf(run, sizeof run, "%s/run", folder);
    train_apart(lkt_path(folder, "whole"), EPOCHS, false, -1, 0, false);
    hash_of(expected, lkt_path(folder, "whole"));
    if (goes_on)
        train_apart(before, 1, false, -1, 0, false);
    else
        lkt_shell_in(folder, "mkdir before");
    lkt_shell_in(folder, "cp -a before run");
    train_apart(run, EPOCHS, goes_on, -1, 0, false);
    long count = shared->calls, unharmed = 0;
    assert_true(count > 40);
    for (long call = 0; call < count; call++) {
        lkt_shell_in(folder, "rm -rf run && cp -a before run");
        train_apart(run, EPOCHS, goes_on, call, why, stays);
        bool held = shared->status == LK_OK;
        if (held && !is_harmless(shared->call))
            fail_msg("call %ld, %s: failed, and nobody heard of it", call, shared->call);
        if (!held && (!*shared->sentence || strchr(shared->sentence, '\n')))
            fail_msg("call %ld, %s: \"%s\" is no sentence", call, shared->call, shared->sentence);
        if (!held && !strstr(shared->sentence, strerror(why)))
            fail_msg("call %ld, %s: \"%s\" does not say why", call, shared->call, shared->sentence);
        unharmed += held;
        check_folder(run, call);
        report failed = *shared;
        train_apart(run, EPOCHS, true, -1, 0, false);
        if (shared->status) fail_msg("after call %ld, %s: %s", call, failed.call, shared->sentence);
        hash_of(hash, run);
        if (strcmp(hash, expected)) fail_msg("after call %ld, %s: other weights", call, failed.call);
    }
    print_message("%ld calls failed, %ld of them without harm\n", count, unharmed);
}

static void a_first_run_with_errors(void **state)
{
    (void)state;
    fail_each_call(false, EIO, false);
}

static void a_run_that_goes_on_with_errors(void **state)
{
    (void)state;
    fail_each_call(true, EIO, false);
}

static void a_run_that_goes_on_and_a_full_disk(void **state)
{
    (void)state;
    fail_each_call(true, ENOSPC, true);
}

int main(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_run_with_errors),
        cmocka_unit_test(a_run_that_goes_on_with_errors),
        cmocka_unit_test(a_run_that_goes_on_and_a_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
