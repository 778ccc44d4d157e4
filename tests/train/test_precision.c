/* Training with 16-bit activations: the losses of f32 and of PyTorch's autocast within what 16 bits allow, on
 * every engine; which casts a plan is left with; what stays f32. */
#include "engines.h"
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "step/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 30, COMPARED = 18, FEW = 5, BATCH = 16 };

/* As tests/oracle/autocast.py. */
static lk_module *network(void)
{
    lk_manual_seed(5);
    return lk_sequential(lk_conv2d(3, 8, 3, .padding = 1, .no_bias = true), lk_batch_norm2d(8), lk_relu(),
                         lk_max_pool2d(3, .stride = 2, .padding = 1),
                         lk_residual(lk_sequential(
                             lk_conv2d(8, 8, 3, .padding = 1, .no_bias = true), lk_batch_norm2d(8), lk_relu(),
                             lk_conv2d(8, 8, 3, .padding = 1, .no_bias = true), lk_batch_norm2d(8))),
                         lk_relu(), lk_conv2d(8, 16, 3, .stride = 2, .padding = 1), lk_relu(),
                         lk_avg_pool2d(2), lk_adaptive_avg_pool2d(1), lk_flatten(), lk_linear(16, 24),
                         lk_relu(), lk_linear(24, 10));
}

typedef struct job {
    lk_engine *engine;
    lk_step *step;
    lk_tensor *x, *y;
} job;

static job start(lk_engine *engine, lk_dtype precision)
{
    job j = {.engine = engine};
    lk_module *model = network();
    j.x = lk_tensor_create(LK_F32, LK_SHAPE(BATCH, 3, 16, 16));
    j.y = lk_tensor_create(LK_I64, LK_SHAPE(BATCH));
    lkt_ok(lk_normal(j.x, 0, 1, lk_default_generator()));
    for (int i = 0; i < BATCH; i++) ((int64_t *)j.y->data)[i] = i * 7 % 10;
    j.step = lk_step(.model = model, .criterion = lk_cross_entropy_loss(),
                     .optimizer = lk_sgd(.lr = 0.05, .momentum = 0.9), .engine = engine, .owned = true,
                     .precision = precision);
    lkt_not_null(j.step);
    return j;
}

static double train(const job *j)
{
    lkt_ok(lk_step_train(j->step, (lk_input[]){{"features", j->x}, {"targets", j->y}}, 2));
    return lk_step_loss(j->step);
}

static void end(job *j)
{
    lk_step_free(j->step);
    lk_engine_close(j->engine);
    lk_tensor_free(j->x);
    lk_tensor_free(j->y);
}

static void losses_follow_f32_and_pytorchs_autocast(void **state)
{
    (void)state;
    static const lk_dtype dtypes[] = {LK_F32, LK_BF16, LK_F16};
    double wide[STEPS], low[STEPS];
    FILE *file = fopen(LK_SOURCE_DIR "/tests/golden/train/autocast.txt", "r");
    lkt_not_null(file);
    for (int i = 0; i < STEPS; i++) assert_int_equal(fscanf(file, "%lf %lf", &wide[i], &low[i]), 2);
    fclose(file);
    bool gpu = gpu_is_asked_for(); /* slow engines make a few steps */
    int first = gpu ? GPU : REF, last = gpu ? GPU : CPU;
    for (int which = first; which <= last; which++)
        for (int d = 0; d < 3; d++) {
            static const double most[] = {2e-4, 0.012, 0.006};
            int steps = which == CPU ? STEPS : FEW;
            if (which == GPU) setenv("LOCKSTEP_LOW_ACTIVATIONS", "1", 1);
            job j = start(open_engine(which), dtypes[d]);
            for (int i = 0; i < steps; i++) {
                double loss = train(&j);
                if (i >= COMPARED) continue; /* from there on PyTorch's own two runs part */
                lkt_close(loss, wide[i], most[d]);
                if (d == 1) lkt_close(loss, low[i], most[d]);
            }
            assert_true(steps < STEPS || lk_step_loss(j.step) < 1.1);
            end(&j);
            unsetenv("LOCKSTEP_LOW_ACTIVATIONS");
        }
}

static int count_casts(const lki_plan *plan, lk_dtype from, lk_dtype to)
{
    int count = 0;
    for (int i = 0; i < lki_plan_call_count(plan); i++) {
        const lk_call *call = lki_plan_call(plan, i);
        count += call->op == LK_OP_CAST && call->in[0].dtype == from && call->out[0].dtype == to;
    }
    return count;
}

/* The picture, six weights and the gradient of the logits become 16 bits, once each; nothing goes back. */
static void activations_are_not_cast_back_and_forth(void **state)
{
    (void)state;
    size_t nbytes[2];
    for (int low = 0; low < 2; low++) {
        setenv("LOCKSTEP_LOW_ACTIVATIONS", low ? "1" : "0", 1);
        job j = start(open_engine(CPU), LK_BF16);
        train(&j);
        const lki_plan *plan = j.step->current->plan;
        nbytes[low] = lki_plan_arena_nbytes(plan);
        if (low) assert_int_equal(count_casts(plan, LK_F32, LK_BF16), 8);
        assert_int_equal(count_casts(plan, LK_BF16, LK_F32), 0);
        assert_int_equal(lk_step_output(j.step, "logits")->dtype, LK_F32);
        for (int i = 0; i < j.step->params.count; i++)
            if (j.step->params.items[i].param->trainable)
                assert_int_equal(j.step->params.items[i].param->grad->dtype, LK_F32);
        end(&j);
    }
    unsetenv("LOCKSTEP_LOW_ACTIVATIONS");
    assert_true((double)nbytes[1] < 0.7 * (double)nbytes[0]);
}

/* The gradient of a small convolution's weight, a sum over pictures that threads share, after one step. */
static void gradient_of_conv(int thread_count, float *out, size_t nbytes)
{
    lk_manual_seed(5);
    lk_engine *engine = lk_engine_open("cpu", LK_OPTIONS(lk_engine_options, .thread_count = thread_count));
    lk_module *model = lk_sequential(lk_conv2d(2, 3, 3), lk_flatten(), lk_linear(108, 3));
    lk_tensor *x = lk_randn(LK_SHAPE(4, 2, 8, 8)), *y = lk_tensor_full(LK_I64, LK_SHAPE(4), 1);
    lk_step *step =
        lk_step(.model = model, .criterion = lk_cross_entropy_loss(), .optimizer = lk_sgd(.lr = 0.05),
                .engine = engine, .precision = LK_BF16, .owned = true);
    lkt_not_null(step);
    lkt_ok(lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}}, 2));
    const lk_tensor *grad = lk_module_param(model, "0.weight")->grad;
    assert_int_equal(lk_tensor_nbytes(grad), nbytes);
    memcpy(out, grad->data, nbytes);
    lk_step_free(step);
    lk_engine_close(engine);
    lk_tensor_free(x);
    lk_tensor_free(y);
}

/* How many threads share a sum decides its bits: the engine's own, whatever ran in the process before. */
static void bits_do_not_depend_on_what_ran_before(void **state)
{
    (void)state;
    float expected[3 * 2 * 3 * 3], found[3 * 2 * 3 * 3], other[3 * 2 * 3 * 3];
    gradient_of_conv(2, expected, sizeof expected);
    for (int earlier = 1; earlier <= 8; earlier++) {
        gradient_of_conv(earlier, other, sizeof other);
        gradient_of_conv(2, found, sizeof found);
        assert_memory_equal(found, expected, sizeof expected);
    }
}

static void a_device_gives_the_hosts_bits(void **state)
{
    (void)state;
    for (lk_dtype precision = LK_BF16; precision <= LK_F16; precision++) {
        job host = start(open_engine(REF), precision), far = start(open_engine(FAR), precision);
        for (int i = 0; i < 5; i++) assert_true(train(&host) == train(&far));
        end(&host);
        end(&far);
    }
}

/* An activation that is an output, one that meets f32, one that leads to an op that wants f32, and a view. */
static lk_value *many_ends(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                           void *context)
{
    (void)names, (void)count;
    lk_module *model = context;
    lk_value *h = lk_op_relu(lk_module_forward(model, inputs[0]));
    lk_graph_output(graph, "hidden", h);
    lk_value *shaped = lk_op_reshape(h, LK_SHAPE(BATCH * 4, 2));
    lk_graph_output(graph, "shaped", shaped);
    lk_value *mixed = lk_op_add(h, inputs[1]);
    lk_value *soft = lk_op_softmax(mixed, 1);
    return lk_op_add(lk_op_mean(lk_op_mul(soft, inputs[1]), NULL, 0, false),
                     lk_op_mean(lk_op_exp(lk_op_mul_scalar(shaped, 0.1)), NULL, 0, false));
}

static void outputs_and_mixtures_are_f32(void **state)
{
    (void)state;
    double losses[2];
    for (int k = 0; k < 2; k++) {
        lk_manual_seed(1);
        lk_module *model = lk_linear(6, 8);
        lk_tensor *x = lk_rand(LK_SHAPE(BATCH, 6)), *z = lk_rand(LK_SHAPE(BATCH, 8));
        lk_step *step =
            lk_step(.model = model, .function = many_ends, .context = model,
                    .precision = k ? LK_BF16 : LK_F32, .optimizer = lk_sgd(.lr = 0.1), .owned = true);
        lkt_not_null(step);
        for (int i = 0; i < 10; i++) lkt_ok(lk_step_train(step, (lk_input[]){{"x", x}, {"z", z}}, 2));
        losses[k] = lk_step_loss(step);
        const lk_tensor *hidden = lk_step_output(step, "hidden"), *shaped = lk_step_output(step, "shaped");
        assert_int_equal(hidden->dtype, LK_F32);
        assert_int_equal(shaped->dtype, LK_F32);
        assert_memory_equal(hidden->data, shaped->data, lk_tensor_nbytes(hidden));
        lk_tensor_free(x);
        lk_tensor_free(z);
        lk_step_free(step);
    }
    lkt_close(losses[1], losses[0], 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_follow_f32_and_pytorchs_autocast),
        cmocka_unit_test(activations_are_not_cast_back_and_forth),
        cmocka_unit_test(bits_do_not_depend_on_what_ran_before),
        cmocka_unit_test(a_device_gives_the_hosts_bits),
        cmocka_unit_test(outputs_and_mixtures_are_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
