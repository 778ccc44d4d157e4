/* Named arguments and lists: every argument is evaluated once, a list has the items that were written, and
 * LK_ZERO is a zero where a plain zero is the default. */
#include "lktest.h"

#include "base/arguments.h"

#include <lockstep/lockstep.h>

#include <math.h>

static int calls;

static lk_module *counted(void)
{
    calls++;
    return lk_relu();
}

static void items_are_counted(void **state)
{
    (void)state;
    int a, b;
    assert_int_equal(lk_count_to_end(NULL, sizeof(void *)), 0);
    assert_int_equal(lk_count_to_end((void *const[]){LK_END}, sizeof(void *)), 0);
    assert_int_equal(lk_count_to_end((void *const[]){&a, NULL, &b, LK_END}, sizeof(void *)), 3);
    lk_loader_list loaders = lk_loaders({"train", NULL}, {"valid", NULL}, {NULL, NULL});
    assert_int_equal(loaders.count, 3);
    assert_string_equal(loaders.items[1].key, "valid");
    assert_int_equal(lk_names("u").count, 1);
    assert_int_equal(lk_param_groups({.prefix = "a", .lr = 1}, {.lr = 2}).count, 2);
}

static void arguments_are_evaluated_once(void **state)
{
    (void)state;
    calls = 0;
    int64_t in = 3, out = 4;
    lk_module *model = lk_sequential(lk_residual(counted(), lk_residual(counted(), lk_residual(counted()))),
                                     lk_linear(in++, out++, .no_bias = calls++ > 0), counted());
    lkt_not_null(model);
    assert_int_equal(calls, 5);
    assert_int_equal(in, 4);
    assert_int_equal(out, 5);
    lkt_not_null(lk_module_child(model, "0.1.1.0"));
    lk_module_free(model);
}

/* Twenty levels, which took gigabytes of text when a macro mentioned its arguments twice. */
static void twenty_levels(void **state)
{
    (void)state;
#define FIVE(inside) lk_residual(lk_residual(lk_residual(lk_residual(lk_residual(inside)))))
    lk_module *model = FIVE(FIVE(FIVE(FIVE(lk_linear(2, 2)))));
#undef FIVE
    lkt_not_null(model);
    assert_int_equal(lk_module_param_count(model), 6);
    lk_module_free(model);
}

/* A NULL among the items is a part that failed, and not the end. */
static void a_null_is_no_end(void **state)
{
    (void)state;
    assert_null(lk_sequential(lk_relu(), lk_linear(0, 1), lk_linear(1, 1)));
    lkt_contains(lk_error(), "Linear");
}

static void zeros(void **state)
{
    (void)state;
    int64_t whole = 7;
    assert_true(lki_number_or(0, 0.5) == 0.5);
    assert_true(lki_number_or(2, 0.5) == 2);
    assert_true(lki_number_or(LK_ZERO, 0.5) == 0 && !signbit(lki_number_or(LK_ZERO, 0.5)));
    assert_true(signbit(lki_number_meant(0)) && lki_number_meant(3) == 3);
    lkt_ok(lki_whole_or(0, -100, "Layer", "index", &whole));
    assert_int_equal(whole, -100);
    lkt_ok(lki_whole_or(LK_ZERO, -100, "Layer", "index", &whole));
    assert_int_equal(whole, 0);
    lkt_ok(lki_whole_or(-3, -100, "Layer", "index", &whole));
    assert_int_equal(whole, -3);
    lkt_fails(lki_whole_or(0.5, 1, "Layer", "index", &whole), LK_ERR_INVALID,
              "Layer: index: expected a whole number, found 0.5");
    lkt_fails(lki_whole_or(NAN, 1, "Layer", "index", &whole), LK_ERR_INVALID, "expected a whole number");
    lkt_fails(lki_whole_or(1e300, 1, "Layer", "index", &whole), LK_ERR_INVALID, "expected a whole number");
    assert_null(lk_flatten(.start_dim = 1.5));
    lkt_contains(lk_error(), "Flatten: start_dim: expected a whole number, found 1.5");
    assert_null(lk_cross_entropy_loss(.ignore_index = 0.25));
    assert_null(lk_mixup(.alpha = LK_ZERO));
    lkt_contains(lk_error(), "alpha: expected more than 0, found 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_counted),
        cmocka_unit_test(arguments_are_evaluated_once),
        cmocka_unit_test(twenty_levels),
        cmocka_unit_test(a_null_is_no_end),
        cmocka_unit_test(zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
