/* lk_set_allocator: all memory of a model, a step and its batches comes from the host and goes back to it. */
#include "lktest.h"

#include <lockstep/lockstep.h>
#include <lockstep/sys/comm.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* In front of each block: who made it, and where the memory begins. */
typedef struct mark {
    uint64_t owner;
    void *begin;
    size_t nbytes;
} mark;

enum { HOST = 0x686f7374, MARK_NBYTES = 64 };

static atomic_int live, taken, given_back;
static atomic_bool is_empty;

static void *take(size_t nbytes, size_t alignment, void *context)
{
    assert_true(context == &live && alignment && (alignment & (alignment - 1)) == 0 && alignment <= 2 << 20);
    char *begin = atomic_load(&is_empty) ? NULL : malloc(nbytes + alignment + MARK_NBYTES);
    if (!begin) return NULL;
    char *block = (char *)(((uintptr_t)begin + MARK_NBYTES + alignment - 1) / alignment * alignment);
    memcpy(block - sizeof(mark), &(mark){HOST, begin, nbytes}, sizeof(mark));
    memset(block, 0xa5, nbytes);
    live++;
    taken++;
    return block;
}

static mark mark_of(void *block)
{
    mark found;
    memcpy(&found, (char *)block - sizeof found, sizeof found);
    assert_true(found.owner == HOST);
    return found;
}

static void give_back(void *block, void *context)
{
    assert_true(block && context == &live);
    free(mark_of(block).begin);
    live--;
    given_back++;
}

static void *grow(void *block, size_t nbytes, void *context)
{
    void *grown = take(nbytes, _Alignof(max_align_t), context);
    if (!grown || !block) return grown;
    size_t before = mark_of(block).nbytes;
    memcpy(grown, block, before < nbytes ? before : nbytes);
    give_back(block, context);
    return grown;
}

static void train(void)
{
    lk_engine *engine = lk_engine_open("cpu", &(lk_engine_options){.thread_count = 2});
    lk_step *step = lk_step(.model = lk_sequential(lk_linear(8, 64), lk_tanh(), lk_linear(64, 1)),
                            .criterion = lk_mse_loss(), .optimizer = lk_adam(.lr = 0.01), .engine = engine,
                            .comm = lk_comm_alone(), .owned = true);
    lkt_not_null(step);
    lk_tensor *x = lk_rand(LK_SHAPE(100000, 8)), *y = lk_rand(LK_SHAPE(100000, 1));
    lk_input batch[] = {{"features", x}, {"targets", y}};
    for (int i = 0; i < 3; i++) lkt_ok(lk_step_train(step, batch, 2));
    lk_tensor_free(x);
    lk_tensor_free(y);
    lk_step_free(step);
    lk_engine_close(engine);
}

static void all_comes_and_goes(void **state)
{
    (void)state;
    lk_allocator own = {LK_SIZE(lk_allocator), .alloc = take, .resize = grow, .context = &live};
    lkt_fails(lk_set_allocator(&own), LK_ERR_INVALID, "alloc, resize and free are all needed");
    own.free = give_back;
    lkt_ok(lk_set_allocator(&own));
    train();
    int left = live;
    assert_true(taken > 100 && given_back > 100);
    train();
    assert_int_equal(live, left); /* what stays is made once */
    lkt_fails(lk_set_allocator(&own), LK_ERR_INVALID, "has taken memory already");
}

static void no_memory_is_a_status(void **state)
{
    (void)state;
    is_empty = true;
    assert_null(lk_rand(LK_SHAPE(10)));
    assert_int_equal(lk_error_status(), LK_ERR_NOMEM);
    is_empty = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_comes_and_goes),
        cmocka_unit_test(no_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
