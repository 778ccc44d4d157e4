/* After the first step a training step allocates nothing: neither through our own allocator nor through
 * malloc itself.
 *
 * This program brings its own malloc, calloc, realloc and memalign, which count and pass on to the C
 * library's. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "base/memory.h"

#include <errno.h>
#include <stdatomic.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_MALLOC 0 /* the sanitizers bring their own */
static long malloc_count(void)
{
    return 0;
}
#else
#define COUNTS_MALLOC 1
extern void *__libc_malloc(size_t nbytes);
extern void *__libc_calloc(size_t count, size_t nbytes);
extern void *__libc_realloc(void *block, size_t nbytes);
extern void *__libc_memalign(size_t alignment, size_t nbytes);
static atomic_long calls;

static long malloc_count(void)
{
    return atomic_load(&calls);
}

void *malloc(size_t nbytes)
{
    atomic_fetch_add(&calls, 1);
    return __libc_malloc(nbytes);
}

void *calloc(size_t count, size_t nbytes)
{
    atomic_fetch_add(&calls, 1);
    return __libc_calloc(count, nbytes);
}

void *realloc(void *block, size_t nbytes)
{
    atomic_fetch_add(&calls, 1);
    return __libc_realloc(block, nbytes);
}

int posix_memalign(void **out, size_t alignment, size_t nbytes)
{
    atomic_fetch_add(&calls, 1);
    *out = __libc_memalign(alignment, nbytes);
    return *out ? 0 : ENOMEM;
}
#endif

static lk_tensor *classes(int64_t count)
{
    lk_tensor *target = lk_tensor_create(LK_I64, LK_SHAPE(count));
    for (int64_t i = 0; i < count; i++) lk_tensor_set(target, i, (double)(i % 10));
    return target;
}

static void count_steps(lk_module *model, lk_criterion *criterion, lk_optimizer *optimizer, lk_tensor *x,
                        lk_tensor *y, lk_dtype precision)
{
    lk_step *step = lk_step(.model = model, .criterion = criterion, .optimizer = optimizer, .clip_norm = 1.0,
                            .precision = precision, .owned = true);
    lkt_not_null(step);
    lk_input inputs[] = {{"features", x}, {"targets", y}};
    for (int i = 0; i < 2; i++) lkt_ok(lk_step_train(step, inputs, 2));
    for (int i = 0; i < 2; i++) lkt_ok(lk_step_evaluate(step, inputs, 2));
    uint64_t own = lki_allocation_count();
    long all = malloc_count();
    for (int i = 0; i < 20; i++) {
        lkt_ok(lk_step_train(step, inputs, 2));
        lkt_ok(lk_step_evaluate(step, inputs, 2));
    }
    long all_after = malloc_count();
    assert_int_equal(lki_allocation_count(), own);
    if (COUNTS_MALLOC) assert_int_equal(all_after, all);
    lk_step_free(step);
    lk_tensor_free(x);
    lk_tensor_free(y);
}

static void a_linear_model_allocates_nothing(void **state)
{
    (void)state;
    count_steps(lk_sequential(lk_flatten(), lk_linear(784, 10)), lk_cross_entropy_loss(), lk_adam(.lr = 0.02),
                lk_rand(LK_SHAPE(32, 1, 28, 28)), classes(32), LK_F32);
}

static void a_perceptron_with_dropout_allocates_nothing(void **state)
{
    (void)state;
    count_steps(
        lk_sequential(lk_linear(20, 30), lk_gelu(), lk_layer_norm(30), lk_dropout(0.5), lk_linear(30, 10)),
        lk_cross_entropy_loss(.label_smoothing = 0.1), lk_sgd(.lr = 0.1, .momentum = 0.9),
        lk_rand(LK_SHAPE(16, 20)), classes(16), LK_F32);
}

static void a_convnet_allocates_nothing(void **state)
{
    (void)state;
    static const lk_dtype precisions[] = {LK_F32, LK_BF16};
    for (int i = 0; i < 2; i++)
        count_steps(lk_sequential(lk_conv2d(3, 8, 3), lk_batch_norm2d(8), lk_relu(), lk_max_pool2d(2),
                                  lk_flatten(), lk_linear(8 * 7 * 7, 10)),
                    lk_cross_entropy_loss(), lk_adamw(.lr = 1e-3), lk_rand(LK_SHAPE(8, 3, 16, 16)),
                    classes(8), precisions[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_linear_model_allocates_nothing),
        cmocka_unit_test(a_perceptron_with_dropout_allocates_nothing),
        cmocka_unit_test(a_convnet_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
