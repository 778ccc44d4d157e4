/* With shards, the same bits come out of 1, 2, 4 and 8 ranks over shared memory, Gloo and MPI; and of a job
 * that lost a rank and went on with half of them. Under mpirun this program starts itself again. */
#include "shards_case.h"

#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self_path;

/* What trains differently in every way that a shard could show in. */
static const lkt_shard_run kinds[] = {
    {.shards = 8, .accumulation = 2, .clip_norm = 0.5, .workers = 1},
    {.shards = 8, .model = LKT_CONVNET, .mixes = true},
    {.shards = 8, .model = LKT_CONVNET, .precision = "bf16", .own_loss = true, .drop_last = true},
    {.shards = 8, .precision = "fp16"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static lkt_shard_run first[KINDS]; /* on one rank of one thread */

static const lkt_shard_run *on_one_rank(int kind)
{
    if (!*first[kind].hash) {
        first[kind] = kinds[kind];
        first[kind].ranks = first[kind].threads = 1;
        lkt_ok(lkt_shard_train(&first[kind]));
    }
    return &first[kind];
}

static void try_all(const char *comm)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int ranks = 2; ranks <= 8; ranks *= 2) {
            lkt_shard_run run = kinds[kind];
            run.ranks = ranks;
            run.threads = 3 - ranks / 4;
            run.comm = comm;
            lkt_ok(lkt_shard_train(&run));
            lkt_same_run(&run, on_one_rank(kind));
        }
}

static void over_shared_memory(void **state)
{
    (void)state;
    try_all("shm");
}

static void over_gloo(void **state)
{
    (void)state;
    if (!lki_comm_has_gloo()) {
        print_message("built without Gloo\n");
        skip();
    }
    try_all("gloo");
}

/* ---- Under mpirun ---- */

static int train_as_rank(int kind)
{
    lkt_shard_run run = kinds[kind];
    run.threads = 2;
    run.comm = "mpi";
    lk_status status = lkt_shard_train(&run);
    if (status) fprintf(stderr, "%s\n", lk_error());
    if (!status && lk_rank() == 0) printf("hash %s\n", run.hash);
    return status;
}

static void run_under_mpirun(int kind, int ranks, char *hash, size_t capacity)
{
    char command[1024], line[256];
    snprintf(command, sizeof command,
             "timeout 100 mpirun --allow-run-as-root --oversubscribe -np %d '%s' --as-rank %d", ranks,
             self_path, kind);
    hash[0] = '\0';
    FILE *out = popen(command, "r");
    assert_non_null(out);
    while (fgets(line, sizeof line, out))
        if (strncmp(line, "hash ", 5) == 0) snprintf(hash, capacity, "%.64s", line + 5);
    assert_int_equal(pclose(out), 0);
}

static void over_mpi(void **state)
{
    (void)state;
    char hash[128];
    if (!lki_comm_has_mpi() || system("command -v mpirun >/dev/null") != 0) {
        print_message("no mpirun here\n");
        skip();
    }
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        int kind = ranks == 4 ? 1 : 0;
        run_under_mpirun(kind, ranks, hash, sizeof hash);
        assert_string_equal(hash, on_one_rank(kind)->hash);
    }
}

/* ---- After a death ---- */

/* The ranks of a job whose third one is killed in its second epoch. */
static void lose_a_rank(lkt_shard_run run)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(lkt_shard_train(&run) == LK_OK ? 0 : 1);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
}

static void half_of_them_go_on_after_a_kill(void **state)
{
    (void)state;
    static char folder[1024];
    for (int kind = 0; kind < 2; kind++) {
        lkt_shard_run run = kinds[kind], whole = kinds[kind];
        snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("train_slow_shards"));
        whole.ranks = whole.threads = 1;
        whole.batch_size = run.batch_size = 3;
        lkt_ok(lkt_shard_train(&whole));
        run.ranks = 4;
        run.threads = 2;
        run.logdir = folder;
        run.save_every = 3;
        run.stop_epoch = 2;
        run.stop_batch = 5;
        run.killed_rank = 3;
        lose_a_rank(run);
        run.stop_epoch = 0;
        run.ranks = 2;
        run.threads = 1;
        run.autoresume = "last";
        lkt_ok(lkt_shard_train(&run));
        lkt_same_run(&run, &whole);
    }
}

int main(int argc, char **argv)
{
    self_path = argv[0];
    if (argc == 3 && strcmp(argv[1], "--as-rank") == 0) return train_as_rank(atoi(argv[2]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_shared_memory),
        cmocka_unit_test(over_gloo),
        cmocka_unit_test(over_mpi),
        cmocka_unit_test(half_of_them_go_on_after_a_kill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
