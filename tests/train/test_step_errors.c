/* What a user gets wrong: each one line that names the layer and the shapes, and nothing crashes or leaks. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "base/memory.h"

#include <math.h>

static lk_tensor *classes(int64_t count, int64_t highest)
{
    lk_tensor *target = lk_tensor_create(LK_I64, LK_SHAPE(count));
    for (int64_t i = 0; i < count; i++) lk_tensor_set(target, i, (double)(i % (highest + 1)));
    return target;
}

/* Trains one batch and gives back the status; everything is freed. */
static lk_status try_step(lk_module *model, lk_criterion *criterion, lk_tensor *x, lk_tensor *y)
{
    lk_step *step =
        lk_step(.model = model, .criterion = criterion, .optimizer = lk_sgd(.lr = 0.1), .owned = true);
    lkt_not_null(step);
    lk_status status = lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}}, 2);
    lk_step_free(step);
    lk_tensor_free(x);
    lk_tensor_free(y);
    assert_null(strchr(lk_error(), '\n'));
    return status;
}

static void a_shape_that_does_not_fit(void **state)
{
    (void)state;
    lk_module *model = lk_sequential(lk_linear(784, 100), lk_relu(), lk_linear(99, 10));
    lkt_fails(try_step(model, lk_cross_entropy_loss(), lk_rand(LK_SHAPE(4, 784)), classes(4, 9)),
              LK_ERR_SHAPE, "layer 2 (Linear)");
    lkt_contains(lk_error(), "(4, 100)");
    lkt_contains(lk_error(), "(10, 99)");
    model = lk_sequential(lk_conv2d(3, 8, 3));
    lkt_fails(try_step(model, lk_mse_loss(), lk_rand(LK_SHAPE(2, 4, 8, 8)), lk_rand(LK_SHAPE(2, 8, 6, 6))),
              LK_ERR_SHAPE, "layer 0 (Conv2d)");
    lkt_contains(lk_error(), "(2, 4, 8, 8)");
}

static void a_target_that_does_not_fit(void **state)
{
    (void)state;
    lkt_fails(try_step(lk_linear(5, 3), lk_cross_entropy_loss(), lk_rand(LK_SHAPE(4, 5)), classes(7, 2)),
              LK_ERR_SHAPE, "(7,)");
}

static void dtypes_that_do_not_mix(void **state)
{
    (void)state;
    lk_tensor *doubles = lk_tensor_create(LK_F64, LK_SHAPE(4, 5));
    lkt_fails(try_step(lk_sequential(lk_linear(5, 3)), lk_cross_entropy_loss(), doubles, classes(4, 2)),
              LK_ERR_DTYPE, "layer 0 (Linear)");
    lkt_contains(lk_error(), "f64");
}

static void a_class_outside_of_the_range(void **state)
{
    (void)state;
    lkt_fails(try_step(lk_linear(5, 3), lk_cross_entropy_loss(), lk_rand(LK_SHAPE(8, 5)), classes(8, 5)),
              LK_ERR_RANGE, "3");
    lkt_contains(lk_error(), "0..2");
}

static void a_word_outside_of_the_embedding(void **state)
{
    (void)state;
    lk_module *model = lk_sequential(lk_embedding(10, 4), lk_flatten(), lk_linear(8, 3));
    lk_tensor *words = lk_tensor_create(LK_I64, LK_SHAPE(2, 2));
    lk_tensor_set(words, 3, 10);
    lkt_fails(try_step(model, lk_cross_entropy_loss(), words, classes(2, 1)), LK_ERR_RANGE,
              "layer 0 (Embedding)");
    lkt_contains(lk_error(), "10");
}

static void a_loss_that_is_not_a_number_changes_nothing(void **state)
{
    (void)state;
    lk_manual_seed(1);
    lk_module *model = lk_sequential(lk_linear(5, 4), lk_relu(), lk_linear(4, 3));
    lk_criterion *criterion = lk_cross_entropy_loss();
    lk_optimizer *optimizer = lk_sgd(.lr = 0.1);
    lk_step *step = lk_step(.model = model, .criterion = criterion, .optimizer = optimizer, .owned = true);
    lk_tensor *x = lk_rand(LK_SHAPE(2, 5)), *y = classes(2, 1);
    lk_input inputs[] = {{"features", x}, {"targets", y}};
    lkt_ok(lk_step_train(step, inputs, 2));
    lk_tensor *before = lk_tensor_clone(lk_module_param(model, "0.weight")->value);
    lk_tensor_set(x, 3, NAN);
    lkt_fails(lk_step_train(step, inputs, 2), LK_ERR_NAN, "input \"features\"");
    lk_tensor *after = lk_module_param(model, "0.weight")->value;
    assert_memory_equal(before->data, after->data, lk_tensor_nbytes(before));
    lk_tensor_set(x, 3, 0.5);
    lk_tensor_set(after, 0, INFINITY);
    lkt_fails(lk_step_train(step, inputs, 2), LK_ERR_NAN, "weight");
    lk_tensor_free(before);
    lk_tensor_free(x);
    lk_tensor_free(y);
    lk_step_free(step);
}

/* exp overflows inside the model: the layer that did it is named, with its shape. */
static lk_value *explode(lk_value *x, void *context)
{
    (void)context;
    return lk_op_exp(lk_op_mul_scalar(x, 1e6));
}

static void the_layer_that_made_the_nan_is_named(void **state)
{
    (void)state;
    lk_module *model = lk_sequential(lk_linear(5, 4), lk_function(explode, NULL), lk_linear(4, 3));
    lkt_fails(
        try_step(model, lk_cross_entropy_loss(), lk_tensor_full(LK_F32, LK_SHAPE(2, 5), 3), classes(2, 1)),
        LK_ERR_NAN, "layer 1");
    lkt_contains(lk_error(), "(2, 4)");
}

static void targets_that_are_all_ignored(void **state)
{
    (void)state;
    lkt_fails(try_step(lk_linear(5, 3), lk_cross_entropy_loss(.ignore_index = 1), lk_rand(LK_SHAPE(2, 5)),
                       lk_tensor_full(LK_I64, LK_SHAPE(2), 1)),
              LK_ERR_NAN, "every target of the batch may be ignored");
}

static void out_of_memory(void **state)
{
    (void)state;
    lk_tensor *x = lk_rand(LK_SHAPE(64, 1024)), *y = classes(64, 9);
    lk_module *model = lk_sequential(lk_linear(1024, 2048), lk_relu(), lk_linear(2048, 10));
    lk_optimizer *optimizer = lk_adam();
    lk_criterion *criterion = lk_cross_entropy_loss();
    lki_set_allocation_limit(4 << 20);
    lk_step *step = lk_step(.model = model, .criterion = criterion, .optimizer = optimizer);
    lki_set_allocation_limit(0);
    assert_null(step);
    lkt_contains(lk_error(), "out of memory");
    lkt_contains(lk_error(), "MiB");
    lk_module_free(model);
    lk_criterion_free(criterion);
    lk_optimizer_free(optimizer);
    lk_tensor_free(x);
    lk_tensor_free(y);
}

static void missing_pieces(void **state)
{
    (void)state;
    lk_module *model = lk_linear(3, 2);
    lk_step *step = lk_step(.model = model);
    lk_tensor *x = lk_rand(LK_SHAPE(2, 3));
    lkt_fails(lk_step_train(step, (lk_input[]){{"features", x}}, 1), LK_ERR_INVALID, "without an optimizer");
    lkt_fails(lk_step_evaluate(step, (lk_input[]){{"pixels", x}}, 1), LK_ERR_NOT_FOUND, "\"features\"");
    lkt_ok(lk_step_evaluate(step, (lk_input[]){{"features", x}}, 1));
    assert_false(lk_step_has_loss(step));
    assert_null(lk_step_output(step, "logit"));
    lkt_contains(lk_error(), "\"logit\"");
    lk_step_free(step);
    lk_module_free(model);
    lk_tensor_free(x);
}

/* Products in bf16 follow those in f32 closely enough to train. */
static void bf16_trains_like_f32(void **state)
{
    (void)state;
    double losses[2];
    lk_tensor *x = lk_rand(LK_SHAPE(64, 50)), *y = classes(64, 9);
    for (int i = 0; i < 2; i++) {
        lk_manual_seed(7);
        lk_step *step = lk_step(.model = lk_sequential(lk_linear(50, 64), lk_relu(), lk_linear(64, 10)),
                                .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.01),
                                .owned = true, .precision = i ? LK_BF16 : LK_F32);
        lkt_not_null(step);
        for (int k = 0; k < 60; k++)
            lkt_ok(lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}}, 2));
        losses[i] = lk_step_loss(step);
        lk_step_free(step);
    }
    assert_true(losses[0] < 1.5);
    lkt_close(losses[1], losses[0], 0.05);
    lk_tensor_free(x);
    lk_tensor_free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shape_that_does_not_fit),
        cmocka_unit_test(a_target_that_does_not_fit),
        cmocka_unit_test(dtypes_that_do_not_mix),
        cmocka_unit_test(a_class_outside_of_the_range),
        cmocka_unit_test(a_word_outside_of_the_embedding),
        cmocka_unit_test(a_loss_that_is_not_a_number_changes_nothing),
        cmocka_unit_test(the_layer_that_made_the_nan_is_named),
        cmocka_unit_test(targets_that_are_all_ignored),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(missing_pieces),
        cmocka_unit_test(bf16_trains_like_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
