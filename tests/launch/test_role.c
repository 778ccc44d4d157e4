/* Who am I: the precedence, each source, and sentences about what is missing or wrong. */
#include "lktest.h"

#include "launch/role.h"

#include <lockstep/launch.h>

#define ENVIRONMENT(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SLURM_TASK                                                                                           \
    "SLURM_JOB_ID=123456", "SLURM_STEP_ID=0", "SLURM_PROCID=5", "SLURM_NTASKS=8", "SLURM_LOCALID=1",         \
        "SLURM_NODEID=2", "SLURM_JOB_NODELIST=n[1-4]", "SLURM_STEP_TASKS_PER_NODE=2(x4)"

static const char *const nothing[] = {NULL};

static lki_role role_in(const lki_launch_flags *flags, const char *const *environment, int gpus)
{
    lki_role role;
    lkt_ok(lki_launch_role(&role, flags, environment, gpus));
    return role;
}

static void alone(void **state)
{
    (void)state;
    lki_role role = role_in(NULL, nothing, 0);
    assert_int_equal(role.source, LKI_ROLE_LOCAL);
    assert_int_equal(role.rank, 0);
    assert_int_equal(role.world_size, 1);
    assert_int_equal(role.fork_count, 1);
    role = role_in(&(lki_launch_flags){.nproc = 4}, nothing, 0);
    assert_int_equal(role.fork_count, 4);
    assert_int_equal(role.source, LKI_ROLE_LOCAL);
}

static void flags_win(void **state)
{
    (void)state;
    lki_launch_flags flags = {.world_size = 3, .has_rank = true, .rank = 2, .host = "10.0.0.1", .port = 1234};
    lki_role role = role_in(
        &flags, ENVIRONMENT("RANK=0", "WORLD_SIZE=9", "MASTER_ADDR=x", "MASTER_PORT=7", SLURM_TASK), 0);
    assert_int_equal(role.source, LKI_ROLE_FLAGS);
    assert_int_equal(role.rank, 2);
    assert_int_equal(role.world_size, 3);
    assert_string_equal(role.master, "10.0.0.1");
    assert_int_equal(role.port, 1234);
    flags.port = 0;
    assert_int_equal(role_in(&flags, nothing, 0).port, 29500);
    assert_int_equal(role_in(&flags, ENVIRONMENT("MASTER_PORT=77"), 0).port, 77);
}

static void incomplete_flags(void **state)
{
    (void)state;
    lki_role role;
    lkt_fails(lki_launch_role(&role, &(lki_launch_flags){.world_size = 2}, nothing, 0), LK_ERR_CONFIG,
              "needs --rank");
    lkt_fails(lki_launch_role(&role, &(lki_launch_flags){.has_rank = true}, nothing, 0), LK_ERR_CONFIG,
              "needs --world-size");
    lkt_fails(lki_launch_role(&role, &(lki_launch_flags){.has_rank = true, .world_size = 2}, nothing, 0),
              LK_ERR_CONFIG, "needs --host");
    lkt_fails(lki_launch_role(&role,
                              &(lki_launch_flags){.has_rank = true, .rank = 2, .world_size = 2, .host = "h"},
                              nothing, 0),
              LK_ERR_CONFIG, "go from 0 to 1");
    lkt_fails(lki_launch_role(&role, &(lki_launch_flags){.host = "h"}, nothing, 0), LK_ERR_CONFIG,
              "--host h needs");
    lki_launch_flags torchbearer = {.has_rank = true, .rank = 1, .host = "h", .default_world_size = 2};
    assert_int_equal(role_in(&torchbearer, nothing, 0).world_size, 2);
}

static void environment(void **state)
{
    (void)state;
    lki_role role = role_in(NULL,
                            ENVIRONMENT("RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
                                        "MASTER_ADDR=m", "MASTER_PORT=4444", SLURM_TASK),
                            0);
    assert_int_equal(role.source, LKI_ROLE_ENVIRONMENT);
    assert_int_equal(role.rank, 3);
    assert_int_equal(role.local_rank, 1);
    assert_int_equal(role.local_size, 2);
    assert_string_equal(role.master, "m");
    assert_int_equal(role.port, 4444);
    lkt_fails(lki_launch_role(&role, NULL, ENVIRONMENT("RANK=0"), 0), LK_ERR_CONFIG, "not WORLD_SIZE");
    lkt_fails(lki_launch_role(&role, NULL, ENVIRONMENT("WORLD_SIZE=2"), 0), LK_ERR_CONFIG,
              "WORLD_SIZE is 2, but RANK is not set");
    assert_int_equal(role_in(NULL, ENVIRONMENT("WORLD_SIZE=1"), 0).source, LKI_ROLE_LOCAL);
    assert_int_equal(role_in(NULL, ENVIRONMENT("WORLD_SIZE=8", SLURM_TASK), 0).source, LKI_ROLE_SLURM);
    lkt_fails(lki_launch_role(&role, NULL, ENVIRONMENT("RANK=0", "WORLD_SIZE=2"), 0), LK_ERR_CONFIG,
              "MASTER_ADDR is not set");
    lkt_fails(lki_launch_role(&role, NULL, ENVIRONMENT("RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=x"), 0),
              LK_ERR_CONFIG, "RANK is 2, but WORLD_SIZE is 2");
    lkt_fails(lki_launch_role(&role, NULL, ENVIRONMENT("RANK=one", "WORLD_SIZE=2"), 0), LK_ERR_CONFIG,
              "RANK: expected a number from 0 to 100000000, found \"one\"");
    lkt_fails(lki_launch_role(&role, NULL, ENVIRONMENT("RANK=-1", "WORLD_SIZE=2"), 0), LK_ERR_CONFIG,
              "found \"-1\"");
}

/* torchrun's agent listens at MASTER_PORT itself: ranks of one run find another port, the same for all. */
static void torchrun_keeps_the_port(void **state)
{
    (void)state;
    lki_role first = role_in(NULL,
                             ENVIRONMENT("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=m", "MASTER_PORT=29500",
                                         "TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_RUN_ID=none",
                                         "TORCHELASTIC_RESTART_COUNT=0"),
                             0);
    lki_role second = role_in(NULL,
                              ENVIRONMENT("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=m", "MASTER_PORT=29500",
                                          "TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_RUN_ID=none",
                                          "TORCHELASTIC_RESTART_COUNT=1"),
                              0);
    assert_int_equal(first.port, second.port);
    assert_true(first.port >= 12000 && first.port + first.port_count < 32768 && first.port_count > 1);
    assert_string_not_equal(first.token, second.token);
    lki_role own = role_in(NULL,
                           ENVIRONMENT("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=m", "MASTER_PORT=29500",
                                       "TORCHELASTIC_USE_AGENT_STORE=False"),
                           0);
    assert_int_equal(own.port, 29500);
    assert_int_equal(own.port_count, 1);
}

static void a_host_beside_slurm(void **state)
{
    (void)state;
    lki_launch_flags flags = {.host = "10.0.0.7"};
    lki_role role = role_in(&flags, ENVIRONMENT(SLURM_TASK), 0);
    assert_int_equal(role.source, LKI_ROLE_SLURM);
    assert_string_equal(role.master, "10.0.0.7");
    assert_int_equal(role.port, 53456);
    flags.port = 4321;
    role = role_in(&flags, ENVIRONMENT(SLURM_TASK), 0);
    assert_int_equal(role.port, 4321);
    assert_int_equal(role.port_count, 1);
}

static void slurm_one_task_a_rank(void **state)
{
    (void)state;
    lki_role role = role_in(NULL, ENVIRONMENT(SLURM_TASK), 8);
    assert_int_equal(role.source, LKI_ROLE_SLURM);
    assert_int_equal(role.rank, 5);
    assert_int_equal(role.world_size, 8);
    assert_int_equal(role.local_rank, 1);
    assert_int_equal(role.local_size, 2);
    assert_int_equal(role.node_count, 4);
    assert_int_equal(role.fork_count, 1);
    assert_string_equal(role.master, "n1");
    assert_int_equal(role.port, 53456);
    assert_true(role.port_count > 1);
    role = role_in(NULL, ENVIRONMENT(SLURM_TASK, "MASTER_ADDR=other", "MASTER_PORT=99"), 0);
    assert_string_equal(role.master, "other");
    assert_int_equal(role.port, 99);
    assert_int_equal(role.port_count, 1);
}

static void two_slurm_jobs_or_steps_do_not_meet(void **state)
{
    (void)state;
    lki_role first = role_in(NULL,
                             ENVIRONMENT("SLURM_JOB_ID=10001", "SLURM_STEP_ID=0", "SLURM_PROCID=0",
                                         "SLURM_NTASKS=1", "SLURM_JOB_NODELIST=n"),
                             0);
    lki_role other = role_in(NULL,
                             ENVIRONMENT("SLURM_JOB_ID=20001", "SLURM_STEP_ID=0", "SLURM_PROCID=0",
                                         "SLURM_NTASKS=1", "SLURM_JOB_NODELIST=n"),
                             0);
    lki_role step = role_in(NULL,
                            ENVIRONMENT("SLURM_JOB_ID=10001", "SLURM_STEP_ID=1", "SLURM_PROCID=0",
                                        "SLURM_NTASKS=1", "SLURM_JOB_NODELIST=n"),
                            0);
    lki_role again = role_in(NULL,
                             ENVIRONMENT("SLURM_JOB_ID=10001", "SLURM_STEP_ID=0", "SLURM_RESTART_COUNT=1",
                                         "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_JOB_NODELIST=n"),
                             0);
    assert_int_equal(first.port, other.port); /* which is why there is a token */
    assert_string_not_equal(first.token, other.token);
    assert_string_not_equal(first.token, step.token);
    assert_string_not_equal(first.token, again.token);
}

static void slurm_one_task_a_node(void **state)
{
    (void)state;
    const char *const *task = ENVIRONMENT("SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=1",
                                          "SLURM_NTASKS=2", "SLURM_LOCALID=0", "SLURM_NODEID=1",
                                          "SLURM_JOB_NODELIST=a,b", "SLURM_TASKS_PER_NODE=1(x2)");
    lki_role role = role_in(NULL, task, 4);
    assert_int_equal(role.fork_count, 4);
    assert_int_equal(role.world_size, 8);
    assert_int_equal(role.rank, 4);
    role = role_in(&(lki_launch_flags){.nproc = 3}, task, 4);
    assert_int_equal(role.fork_count, 3);
    assert_int_equal(role.world_size, 6);
    assert_int_equal(role.rank, 3);
    role = role_in(NULL, task, 0);
    assert_int_equal(role.fork_count, 1);
    assert_int_equal(role.rank, 1);
    lki_role unused;
    lkt_fails(lki_launch_role(&unused, &(lki_launch_flags){.nproc = 3}, ENVIRONMENT(SLURM_TASK), 0),
              LK_ERR_CONFIG, "--nproc 3 with 8 Slurm tasks on 4 nodes");
}

#define NODE_TASK                                                                                            \
    "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=0",              \
        "SLURM_NODEID=1", "SLURM_JOB_NODELIST=a,b", "SLURM_TASKS_PER_NODE=1(x2)"

static void slurm_gpus(void **state)
{
    (void)state;
    lki_role role = role_in(NULL, ENVIRONMENT(NODE_TASK, "CUDA_VISIBLE_DEVICES=0,1"), 0);
    assert_int_equal(role.gpu_count, 2); /* Slurm's word, whatever this host looks like */
    assert_int_equal(role.fork_count, 2);
    assert_int_equal(role.world_size, 4);
    assert_int_equal(role.rank, 2);
    assert_int_equal(role_in(NULL, ENVIRONMENT(NODE_TASK, "SLURM_GPUS_ON_NODE=3"), 8).fork_count, 3);
    assert_int_equal(role_in(NULL, ENVIRONMENT(NODE_TASK, "CUDA_VISIBLE_DEVICES=NoDevFiles"), 8).fork_count,
                     1);
    assert_int_equal(role_in(NULL, ENVIRONMENT(NODE_TASK, "CUDA_VISIBLE_DEVICES=0,1"), -1).fork_count, 1);
    role = role_in(&(lki_launch_flags){.nproc = 3}, ENVIRONMENT(NODE_TASK, "CUDA_VISIBLE_DEVICES=0,1"), 0);
    assert_int_equal(role.fork_count, 3);
    role = role_in(NULL, ENVIRONMENT(SLURM_TASK, "CUDA_VISIBLE_DEVICES=1"), 4);
    assert_int_equal(role.fork_count, 1);
    assert_int_equal(role.gpu_count, 1);
}

/* Whatever is wrong is wrong for every task: none of them may go on and wait for the others. */
static void slurm_wrong_allocations(void **state)
{
    (void)state;
    lki_role role;
    lki_launch_flags four = {.world_size = 4}, eight = {.world_size = 8};
    lkt_fails(lki_launch_role(&role, &four, ENVIRONMENT(SLURM_TASK), 0), LK_ERR_CONFIG,
              "--world-size 4, but Slurm has started 8 tasks: start as many (srun -n 4)");
    assert_int_equal(role_in(&eight, ENVIRONMENT(SLURM_TASK), 0).rank, 5);
    four.nproc = 3;
    lkt_fails(lki_launch_role(&role, &four, ENVIRONMENT(NODE_TASK), 0), LK_ERR_CONFIG,
              "2 nodes with 3 ranks each make 6");
    lkt_fails(
        lki_launch_role(&role, &eight, ENVIRONMENT("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4"), 0),
        LK_ERR_CONFIG, "MPI has started 4 tasks: start as many (mpirun -np 8)");
    lkt_fails(lki_launch_role(&role, &eight, ENVIRONMENT("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=m"), 0),
              LK_ERR_CONFIG, "--world-size 8, but WORLD_SIZE is 2");
    /* Three tasks on two nodes are not two a node, and the node that has two says so as well. */
    lki_launch_flags two = {.nproc = 2};
    for (int node = 0; node < 2; node++)
        lkt_fails(lki_launch_role(&role, &two,
                                  ENVIRONMENT("SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_NTASKS=3",
                                              node ? "SLURM_PROCID=2" : "SLURM_PROCID=0",
                                              node ? "SLURM_NODEID=1" : "SLURM_NODEID=0",
                                              "SLURM_JOB_NODELIST=a,b", "SLURM_STEP_TASKS_PER_NODE=2,1"),
                                  0),
                  LK_ERR_CONFIG, "--nproc 2 with 3 Slurm tasks on 2 nodes");
    lki_launch_flags one = {.nproc = 1};
    lkt_fails(lki_launch_role(&role, &one, ENVIRONMENT(SLURM_TASK), 0), LK_ERR_CONFIG,
              "--nproc 1 with 8 Slurm tasks on 4 nodes");
    assert_int_equal(role_in(&two, ENVIRONMENT(SLURM_TASK), 0).fork_count, 1);
}

static void slurm_misconfigured(void **state)
{
    (void)state;
    lki_role role;
    lkt_fails(
        lki_launch_role(&role, NULL, ENVIRONMENT("SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=1"), 0),
        LK_ERR_CONFIG, "neither SLURM_STEP_NUM_TASKS nor SLURM_NTASKS");
    lkt_fails(lki_launch_role(
                  &role, NULL,
                  ENVIRONMENT("SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=1"), 0),
              LK_ERR_CONFIG, "SLURM_PROCID: expected a number from 0 to 0");
    lkt_fails(lki_launch_role(
                  &role, NULL,
                  ENVIRONMENT("SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=2"), 0),
              LK_ERR_CONFIG, "not SLURM_JOB_NODELIST");
    lkt_fails(lki_launch_role(&role, NULL,
                              ENVIRONMENT("SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=1",
                                          "SLURM_NTASKS=2", "SLURM_JOB_NODELIST=n[1-"),
                              0),
              LK_ERR_FORMAT, "host list \"n[1-\"");
    /* The batch script itself, and a shell of salloc, are no tasks. */
    role = role_in(NULL, ENVIRONMENT("SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=4"), 0);
    assert_int_equal(role.source, LKI_ROLE_LOCAL);
    role = role_in(
        NULL, ENVIRONMENT("SLURM_JOB_ID=7", "SLURM_STEP_ID=4294967291", "SLURM_PROCID=0", "SLURM_NTASKS=4"),
        0);
    assert_int_equal(role.source, LKI_ROLE_LOCAL);
}

static void mpi(void **state)
{
    (void)state;
    lki_role role = role_in(NULL,
                            ENVIRONMENT("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4",
                                        "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                                        "PMIX_NAMESPACE=99", "PMIX_RANK=1"),
                            0);
    assert_int_equal(role.source, LKI_ROLE_MPI);
    assert_int_equal(role.rank, 1);
    assert_int_equal(role.world_size, 4);
    assert_int_equal(role.local_size, 2);
    lkt_contains(role.token, "99");
    role = role_in(NULL, ENVIRONMENT("PMI_RANK=2", "PMI_SIZE=3"), 0);
    assert_int_equal(role.source, LKI_ROLE_MPI);
    assert_int_equal(role.local_rank, -1);
    role = role_in(NULL, ENVIRONMENT("PMIX_RANK=2"), 0);
    assert_int_equal(role.source, LKI_ROLE_MPI);
    assert_int_equal(role.world_size, 0);
    lkt_fails(lki_launch_role(&role, NULL, ENVIRONMENT("OMPI_COMM_WORLD_RANK=1"), 0), LK_ERR_CONFIG,
              "not OMPI_COMM_WORLD_SIZE");
}

static void mpirun_inside_slurm(void **state)
{
    (void)state;
    /* mpirun's helper was task 1 of 2; this process is rank 3 of 4. */
    lki_role role = role_in(NULL,
                            ENVIRONMENT("SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=1",
                                        "SLURM_NTASKS=2", "SLURM_NODEID=1", "SLURM_JOB_NODELIST=a,b",
                                        "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4"),
                            0);
    assert_int_equal(role.source, LKI_ROLE_MPI);
    assert_int_equal(role.rank, 3);
    /* srun --mpi=pmi2 sets both, and they agree. */
    role = role_in(NULL,
                   ENVIRONMENT("SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=2",
                               "SLURM_NODEID=1", "SLURM_JOB_NODELIST=a,b", "PMI_RANK=1", "PMI_SIZE=2"),
                   0);
    assert_int_equal(role.source, LKI_ROLE_SLURM);
}

static void command_line(void **state)
{
    (void)state;
    char *argv[] = {"prog",      "-m", "10.0.0.2", "data", "--rank=1", "--world-size", "4", "--port", "88",
                    "--verbose", "--", "-r",       "9",    NULL};
    int argc = 13;
    lki_launch_flags flags = {0};
    lkt_ok(lki_launch_flags_parse(&flags, &argc, argv));
    assert_int_equal(argc, 6);
    assert_string_equal(argv[1], "data");
    assert_string_equal(argv[2], "--verbose");
    assert_string_equal(argv[4], "-r");
    assert_null(argv[6]);
    assert_string_equal(flags.host, "10.0.0.2");
    assert_true(flags.has_rank);
    assert_int_equal(flags.rank, 1);
    assert_int_equal(flags.world_size, 4);
    assert_int_equal(flags.port, 88);
    char *aliases[] = {"prog", "--master", "a", "--master-addr", "b", "--host",
                       "c",    "-r",       "0", "--nproc=2",     NULL};
    argc = 10;
    lkt_ok(lki_launch_flags_parse(&flags, &argc, aliases));
    assert_int_equal(argc, 1);
    assert_string_equal(flags.host, "c");
    assert_int_equal(flags.nproc, 2);
}

static void wrong_command_lines(void **state)
{
    (void)state;
    lki_launch_flags flags = {0};
    int argc = 3;
    lkt_fails(lki_launch_flags_parse(&flags, &argc, (char *[]){"p", "--rank", "two", NULL}), LK_ERR_CONFIG,
              "--rank: expected a number from 0 to 999999, found \"two\"");
    argc = 2;
    lkt_fails(lki_launch_flags_parse(&flags, &argc, (char *[]){"p", "--world-size", NULL}), LK_ERR_CONFIG,
              "expected a value");
    argc = 2;
    lkt_fails(lki_launch_flags_parse(&flags, &argc, (char *[]){"p", "--port=70000", NULL}), LK_ERR_CONFIG,
              "70000");
    argc = 2;
    lkt_fails(lki_launch_flags_parse(&flags, &argc, (char *[]){"p", "--nproc=0", NULL}), LK_ERR_CONFIG,
              "\"0\"");
    argc = 3;
    lkt_fails(lki_launch_flags_parse(&flags, &argc, (char *[]){"p", "--host", "", NULL}), LK_ERR_CONFIG,
              "an address");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),
        cmocka_unit_test(flags_win),
        cmocka_unit_test(incomplete_flags),
        cmocka_unit_test(environment),
        cmocka_unit_test(torchrun_keeps_the_port),
        cmocka_unit_test(a_host_beside_slurm),
        cmocka_unit_test(slurm_one_task_a_rank),
        cmocka_unit_test(two_slurm_jobs_or_steps_do_not_meet),
        cmocka_unit_test(slurm_one_task_a_node),
        cmocka_unit_test(slurm_gpus),
        cmocka_unit_test(slurm_wrong_allocations),
        cmocka_unit_test(slurm_misconfigured),
        cmocka_unit_test(mpi),
        cmocka_unit_test(mpirun_inside_slurm),
        cmocka_unit_test(command_line),
        cmocka_unit_test(wrong_command_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
