/* Which GPU a rank takes, and what the ranks agree to speak: with real processes, with GPUs and without. */
#include "../comm/conformance.h"

#include "comm/net.h"
#include "device/open_plugin.h"
#include "launch/connect.h"
#include "launch/gpus.h"

typedef struct plan {
    int port;
    const char *backend, *device;
} plan;

static void what_means_a_gpu(void **state)
{
    (void)state;
    unsetenv("LOCKSTEP_ENGINE");
    assert_false(lki_gpu_is_meant(NULL));
    assert_false(lki_gpu_is_meant("cpu"));
    assert_false(lki_gpu_is_meant("ref"));
    assert_true(lki_gpu_is_meant("cuda"));
    assert_true(lki_gpu_is_meant("cuda:3"));
    assert_true(lki_gpu_is_meant("auto"));
    setenv("LOCKSTEP_ENGINE", "cpu", 1);
    assert_false(lki_gpu_is_meant("auto"));
    assert_true(lki_gpu_is_meant("cuda"));
    setenv("LOCKSTEP_ENGINE", "cuda:1", 1);
    assert_true(lki_gpu_is_meant("auto"));
    unsetenv("LOCKSTEP_ENGINE");
}

static lk_status connect_planned(lk_comm **out, int rank, int size, const plan *p)
{
    lki_role role;
    lki_launch_flags flags = {
        .world_size = size, .has_rank = true, .rank = rank, .host = "127.0.0.1", .port = p->port};
    lk_status status = lki_launch_role(&role, &flags, NULL, 0);
    lki_connect_options options = {
        .backend = p->backend, .device = p->device, .join_timeout_ms = 60000, .no_pinning = true};
    return status == LK_OK ? lki_comm_connect(out, &role, &options) : status;
}

/* Every rank fails with the same sentence, at once, or all of them speak NCCL. */
static const char *nccl_by_hand(int rank, int size, void *context)
{
    lk_comm *comm = NULL;
    float value = (float)rank;
    lk_status status = connect_planned(&comm, rank, size, context);
    if (!lki_cuda_has_device()) {
        rank_check(status == LK_ERR_UNSUPPORTED && !comm);
        rank_check(strstr(lk_error(), "comm nccl: rank 0: this machine has no NVIDIA GPU") != NULL);
        return NULL;
    }
    rank_ok(status);
    rank_check(strcmp(comm->ops->name, "nccl") == 0);
    rank_ok(lk_comm_all_reduce(comm, &value, 1, LK_F32, LK_REDUCE_SUM));
    rank_check(value == (float)(size * (size - 1) / 2));
    lk_comm_free(comm);
    return NULL;
}

static const char *by_itself(int rank, int size, void *context)
{
    lk_comm *comm = NULL;
    float value = (float)rank;
    rank_ok(connect_planned(&comm, rank, size, context));
    /* One GPU for several ranks is not for NCCL to choose by itself. */
    bool suffices = lki_cuda_device_count(NULL) >= size;
    rank_check(strcmp(comm->ops->name, suffices ? "nccl" : "shm") == 0);
    rank_ok(lk_comm_all_reduce(comm, &value, 1, LK_F32, LK_REDUCE_SUM));
    rank_check(value == (float)(size * (size - 1) / 2));
    lk_comm_free(comm);
    return NULL;
}

static void run_plan(plan p, int size, rank_body body)
{
    int fd;
    lkt_ok(lki_net_listen(&fd, &p.port));
    close(fd);
    run_processes(size, body, &p);
}

static void nccl_is_all_or_nothing(void **state)
{
    (void)state;
    run_plan((plan){.backend = "nccl", .device = "cuda"}, 3, nccl_by_hand);
}

static void auto_takes_what_is_there(void **state)
{
    (void)state;
    run_plan((plan){.device = "auto"}, 2, by_itself);
    run_plan((plan){.backend = "auto", .device = "cuda"}, 3, by_itself);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_means_a_gpu),
        cmocka_unit_test(nccl_is_all_or_nothing),
        cmocka_unit_test(auto_takes_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
