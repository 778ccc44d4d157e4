/* Denormals are flushed between two calls, and the thread's mode is as before after them; the threads of a
 * pool follow the thread that asks them. */
#include "lktest.h"

#include "base/float_mode.h"
#include "base/threads.h"

#include <fenv.h>

/* Read and written where the compiler cannot compute it itself. */
static volatile float smallest = 0x1p-126f, half = 0.5f;

static bool flushes(void)
{
    float result = smallest * half;
    return result == 0;
}

static void denormals_are_flushed_and_kept_again(void **state)
{
    (void)state;
    bool can = LKI_FLOAT_FLUSH != 0;
    assert_false(flushes());
    lki_float_mode outer = lki_float_mode_flush();
    assert_int_equal(flushes(), can);
    lki_float_mode inner = lki_float_mode_flush();
    lki_float_mode_restore(inner);
    assert_int_equal(flushes(), can);
    lki_float_mode_restore(outer);
    assert_false(flushes());
}

/* Rounding is the caller's, and what was raised in between stays raised. */
static void only_denormals_change(void **state)
{
    (void)state;
#if defined(__x86_64__) || defined(__aarch64__)
    volatile float zero = 0, one = 1, result;
    fesetround(FE_DOWNWARD);
    feclearexcept(FE_ALL_EXCEPT);
    lki_float_mode mode = lki_float_mode_flush();
    assert_int_equal(fegetround(), FE_DOWNWARD);
    result = one / zero;
    lki_float_mode_restore(mode);
    assert_true(isinf(result));
    assert_int_equal(fegetround(), FE_DOWNWARD);
    assert_true(fetestexcept(FE_DIVBYZERO));
    fesetround(FE_TONEAREST);
    feclearexcept(FE_ALL_EXCEPT);
#endif
}

enum { THREADS = 4 };

static void look(int64_t begin, int64_t end, int thread, void *context)
{
    (void)begin;
    (void)end;
    ((bool *)context)[thread] = flushes();
}

static void threads_follow_who_asks_them(void **state)
{
    (void)state;
    lki_pool *pool;
    lkt_ok(lki_pool_create(&pool, THREADS, 0));
    for (int round = 0; round < 4; round++) {
        bool seen[THREADS] = {false}, flush = round % 2 == 1 && LKI_FLOAT_FLUSH != 0;
        lki_float_mode mode = lki_float_mode_now();
        if (flush) lki_float_mode_flush();
        lki_parallel_for(pool, THREADS, 1, look, seen);
        lki_float_mode_restore(mode);
        for (int i = 0; i < THREADS; i++) assert_int_equal(seen[i], flush);
    }
    lki_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(denormals_are_flushed_and_kept_again),
        cmocka_unit_test(only_denormals_change),
        cmocka_unit_test(threads_follow_who_asks_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
