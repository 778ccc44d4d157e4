/* Which GPU and which cores a rank takes. */
#define _GNU_SOURCE
#include "lktest.h"

#include "base/threads.h"
#include "launch/devices.h"

#include <sched.h>

static void visible_gpus(void **state)
{
    (void)state;
    assert_int_equal(lki_visible_gpu_count(NULL, 4), 4);
    assert_int_equal(lki_visible_gpu_count("", 4), 0);
    assert_int_equal(lki_visible_gpu_count("-1", 4), 0);
    assert_int_equal(lki_visible_gpu_count("0,2", 4), 2);
    assert_int_equal(lki_visible_gpu_count(" 3, 1", 4), 2);
    assert_int_equal(lki_visible_gpu_count("0,9,1", 4),
                     1); /* the list ends at the first that does not exist */
    assert_int_equal(lki_visible_gpu_count("0,-1,1", 4), 1);
    assert_int_equal(lki_visible_gpu_count("0,0", 4), 1);
    assert_int_equal(lki_visible_gpu_count("GPU-8f1c,GPU-77aa", 4), 2);
    assert_int_equal(lki_visible_gpu_count("nonsense", 4), 0);
    assert_int_equal(lki_visible_gpu_count(NULL, 0), 0);
}

static void gpu_of_rank(void **state)
{
    (void)state;
    int index = -1;
    bool shared = true;
    lkt_ok(lki_gpu_of_rank(&index, &shared, 2, 4, 4));
    assert_int_equal(index, 2);
    assert_false(shared);
    lkt_ok(lki_gpu_of_rank(&index, &shared, 3, 4, 1)); /* Slurm has bound one to each task */
    assert_int_equal(index, 0);
    assert_false(shared);
    lkt_ok(lki_gpu_of_rank(&index, &shared, 5, 8, 4));
    assert_int_equal(index, 1);
    assert_true(shared);
    lkt_fails(lki_gpu_of_rank(&index, &shared, 1, 2, 0), LK_ERR_UNSUPPORTED, "local rank 1 sees no GPU");
}

static void cores_of_rank(void **state)
{
    (void)state;
    for (int cores = 1; cores <= 70; cores++) {
        for (int ranks = 1; ranks <= cores; ranks++) {
            int next = 0, begin, count;
            for (int rank = 0; rank < ranks; rank++) {
                assert_true(lki_cores_of_rank(&begin, &count, cores, rank, ranks));
                assert_int_equal(begin, next);
                assert_true(count == cores / ranks || count == cores / ranks + 1);
                next = begin + count;
            }
            assert_int_equal(next, cores);
        }
    }
    int begin, count;
    assert_false(lki_cores_of_rank(&begin, &count, 2, 0, 3));
    assert_false(lki_cores_of_rank(&begin, &count, 2, 2, 2));
    assert_false(lki_cores_of_rank(&begin, &count, 2, -1, 2));
}

static void pinning_and_back(void **state)
{
    (void)state;
    cpu_set_t before, during, after;
    int cores = lki_core_count();
    sched_getaffinity(0, sizeof before, &before);
    lki_pin_rank(cores - 1, cores);
    sched_getaffinity(0, sizeof during, &during);
    assert_int_equal(CPU_COUNT(&during), 1);
    assert_int_equal(lki_core_count(), 1);
    lki_unpin_rank();
    sched_getaffinity(0, sizeof after, &after);
    assert_true(CPU_EQUAL(&before, &after));
    lki_pin_rank(0, cores + 1); /* more ranks than cores: nobody is pinned */
    sched_getaffinity(0, sizeof after, &after);
    assert_true(CPU_EQUAL(&before, &after));
    lki_unpin_rank();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(visible_gpus),
        cmocka_unit_test(gpu_of_rank),
        cmocka_unit_test(cores_of_rank),
        cmocka_unit_test(pinning_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
