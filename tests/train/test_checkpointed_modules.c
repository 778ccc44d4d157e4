/* Checkpointed modules: the same bits of gradients, weights and running values as without, in less memory. */
#include "case.h"
#include "engines.h"

#include "graph/plan.h"
#include "nn/module.h"
#include "step/step.h"

#include <string.h>

enum { STEPS = 20, BLOCKS = 8, WIDTH = 48, ROWS = 32, CLASSES = 5 };

typedef enum marking { NONE, BLOCK, NESTED, WHOLE } marking;

static lk_module *mark(lk_module *module, bool wanted)
{
    return wanted ? lk_module_checkpoint(module) : module;
}

/* Eight blocks of four layers. */
static lk_module *perceptron(marking how)
{
    lk_module *model = lk_sequential(lk_linear(WIDTH, WIDTH));
    for (int i = 0; i < BLOCKS; i++) {
        lk_module *inner = lk_sequential(lk_linear(WIDTH, WIDTH), lk_gelu(), lk_layer_norm(WIDTH),
                                         lk_linear(WIDTH, WIDTH), lk_tanh());
        lk_module *block =
            lk_sequential(lk_linear(WIDTH, WIDTH), lk_relu(), mark(inner, how == NESTED), lk_dropout(0.2),
                          lk_linear(WIDTH, WIDTH), lk_silu(), lk_linear(WIDTH, WIDTH), lk_sigmoid());
        char name[16];
        snprintf(name, sizeof name, "block%d", i);
        lk_module_add_child(model, name, mark(block, how == BLOCK || how == NESTED));
    }
    lk_module_add_child(model, "head", lk_linear(WIDTH, CLASSES));
    return mark(model, how == WHOLE);
}

static lk_module *convnet(marking how)
{
    lk_module *model = lk_sequential(lk_conv2d(3, 8, 3, .padding = 1));
    for (int i = 0; i < 3; i++) {
        lk_module *block =
            lk_sequential(lk_conv2d(8, 8, 3, .padding = 1), lk_batch_norm2d(8), lk_relu(),
                          lk_conv2d(8, 8, 3, .padding = 1), lk_batch_norm2d(8), lk_dropout(0.1), lk_tanh());
        char name[16];
        snprintf(name, sizeof name, "block%d", i);
        lk_module_add_child(model, name, mark(block, how != NONE));
    }
    lk_module_add_child(model, "pool", lk_max_pool2d(2));
    lk_module_add_child(model, "flat", lk_flatten());
    lk_module_add_child(model, "head", lk_linear(8 * 4 * 4, CLASSES));
    return model;
}

/* (rows, 12, 24): dropout in attention and in the layers. */
static lk_module *transformer(marking how)
{
    lk_module *model = lk_sequential(lk_linear(24, 24));
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer%d", i);
        lk_module *layer =
            lk_transformer_encoder_layer(24, 4, .dim_feedforward = 96, .dropout = 0.1, .batch_first = true);
        lk_module_add_child(model, name, mark(layer, how != NONE));
    }
    lk_module_add_child(model, "flat", lk_flatten());
    lk_module_add_child(model, "head", lk_linear(12 * 24, CLASSES));
    return model;
}

typedef struct subject {
    const char *name;
    lk_module *(*make)(marking how);
    lk_shape input;
    double least_gain; /* of the arena, in f32 */
} subject;

static subject subject_of(int which)
{
    const subject all[] = {{"perceptron", perceptron, LK_SHAPE(ROWS, WIDTH), 2},
                           {"convnet", convnet, LK_SHAPE(ROWS, 3, 8, 8), 1.5},
                           {"transformer", transformer, LK_SHAPE(ROWS, 12, 24), 1.6}};
    return all[which];
}

typedef struct result {
    char hash[128];
    double losses[STEPS];
    void *grads; /* of the last step */
    int64_t grad_count;
    size_t arena_nbytes;
} result;

static result train(const subject *s, marking how, int engine_kind, lk_dtype precision, int steps)
{
    result r = {0};
    lk_manual_seed(3);
    /* One thread: attention has scratch per thread, which is in the arena, too. */
    lk_engine *engine = engine_kind == CPU
                            ? lk_engine_open("cpu", LK_OPTIONS(lk_engine_options, .thread_count = 1))
                            : open_engine(engine_kind);
    lkt_not_null(engine);
    lk_module *model = s->make(how);
    lkt_not_null(model);
    lk_tensor *x = lk_randn(s->input), *y = lk_tensor_create(LK_I64, LK_SHAPE(ROWS));
    for (int i = 0; i < ROWS; i++) lk_tensor_set(y, i, i % CLASSES);
    lk_step *step =
        lk_step(.model = model, .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.01),
                .engine = engine, .precision = precision, .owned = true);
    lkt_not_null(step);
    for (int i = 0; i < steps; i++) {
        lkt_ok(lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}}, 2));
        r.losses[i] = lk_step_loss(step);
    }
    r.arena_nbytes = lki_plan_arena_nbytes(step->current->plan);
    snprintf(r.hash, sizeof r.hash, "%s", lkt_hash(model));
    void *grads = lk_step_flat_grads(step, &r.grad_count);
    r.grads = malloc((size_t)r.grad_count * sizeof(float));
    memcpy(r.grads, grads, (size_t)r.grad_count * sizeof(float));
    lk_step_free(step);
    lk_engine_close(engine);
    lk_tensor_free(x);
    lk_tensor_free(y);
    return r;
}

static void expect_same(const subject *s, const result *a, const result *b)
{
    if (memcmp(a->losses, b->losses, sizeof a->losses)) fail_msg("%s: the losses differ", s->name);
    assert_int_equal(a->grad_count, b->grad_count);
    if (memcmp(a->grads, b->grads, (size_t)a->grad_count * sizeof(float)))
        fail_msg("%s: the gradients differ", s->name);
    assert_string_equal(a->hash, b->hash);
}

static void compare(int which, marking how, int engine, lk_dtype precision, int steps)
{
    subject s = subject_of(which);
    result plain = train(&s, NONE, engine, precision, steps), less = train(&s, how, engine, precision, steps);
    double gain = (double)plain.arena_nbytes / (double)less.arena_nbytes;
    print_message("%s %d, %s: %zu bytes, checkpointed %zu\n", s.name, how, lk_dtype_name(precision),
                  plain.arena_nbytes, less.arena_nbytes);
    expect_same(&s, &plain, &less);
    /* What is small altogether lies apart on a device, so that its arena grows with each value. */
    if (how != WHOLE && engine != FAR && precision == LK_F32 && !(gain > s.least_gain))
        fail_msg("%s: the arena shrinks from %zu to %zu bytes alone", s.name, plain.arena_nbytes,
                 less.arena_nbytes);
    free(plain.grads);
    free(less.grads);
}

static void blocks_give_the_same_bits_in_less_memory(void **state)
{
    (void)state;
    static const lk_dtype precisions[] = {LK_F32, LK_BF16, LK_F16};
    for (int which = 0; which < 3; which++)
        for (int p = 0; p < 3; p++) compare(which, BLOCK, CPU, precisions[p], STEPS);
}

static void every_engine_computes_again_what_it_computed(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        compare(which, BLOCK, REF, LK_F32, 3);
        compare(which, BLOCK, FAR, LK_F32, 3);
    }
    compare(0, BLOCK, REF, LK_BF16, 3);
}

static void modules_inside_of_one_another(void **state)
{
    (void)state;
    compare(0, NESTED, CPU, LK_F32, STEPS);
    compare(0, NESTED, CPU, LK_BF16, 3);
    compare(0, WHOLE, CPU, LK_F32, 3);
}

/* ---- whole runs ---- */

static lk_dataset *pictures(int64_t count)
{
    lk_generator generator;
    lk_generator_seed(&generator, 5);
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(count, 3, 8, 8)),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(count));
    lk_normal(x, 0, 1, &generator);
    for (int64_t i = 0; i < count; i++) lk_tensor_set(y, i, (double)lk_randint(CLASSES, &generator));
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

static void train_ranks(marking how, int ranks, bool sync, const char *precision, char hash[128])
{
    lk_runner *runner = lk_supervised_runner();
    lk_manual_seed(3);
    lk_status status = lk_train(
        runner, .model = convnet(how), .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.01),
        .loaders = lk_loaders({"train", lk_loader(pictures(80), .batch_size = 8)}), .num_epochs = 2,
        .seed = 4, .nproc = ranks, .sync_batch_norm = sync, .thread_count = 1, .precision = precision);
    if (status) fail_msg("%d ranks: %s", ranks, lk_error());
    snprintf(hash, 128, "%s", lkt_hash(runner->model));
    lk_runner_free(runner);
}

/* With the running values of batch norms, which are part of the hash. */
static void ranks_train_the_same_weights(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp32", "bf16"};
    char plain[128], less[128];
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int sync = 0; sync < ranks; sync++)
            for (int p = 0; p < 2; p++) {
                train_ranks(NONE, ranks, sync, precisions[p], plain);
                train_ranks(BLOCK, ranks, sync, precisions[p], less);
                assert_string_equal(plain, less);
            }
}

static void a_copy_is_marked_as_the_original_is(void **state)
{
    (void)state;
    lk_module *model = perceptron(BLOCK), *copy = lk_module_clone(model);
    assert_null(lk_module_checkpoint(NULL));
    assert_true(lk_module_child(copy, "block3")->is_checkpointed);
    assert_false(lk_module_child(copy, "head")->is_checkpointed);
    lk_module_free(copy);
    lk_module_free(model);
}

/* ---- configs ---- */

static lk_module *make_module(const char *text)
{
    void *module = NULL;
    return lk_component_make(text, NULL, 0, LK_KIND_MODULE, &module) == LK_OK ? module : NULL;
}

static void configs_mark_modules(void **state)
{
    (void)state;
    lk_module *model =
        make_module("{_target_: Sequential, args: [{_target_: Linear, args: [4, 4], checkpoint: "
                    "y}, {_target_: ReLU, checkpoint: n}, {_target_: Sequential, checkpoint: true, "
                    "args: [Tanh]}]}");
    lkt_not_null(model);
    assert_true(lk_module_child(model, "0")->is_checkpointed);
    assert_false(lk_module_child(model, "1")->is_checkpointed);
    assert_true(lk_module_child(model, "2")->is_checkpointed);
    lk_module_free(model);
    assert_null(make_module("{_target_: Linear, args: [4, 4], checkpoint: always}"));
    lkt_contains(lk_error(), "checkpoint: expected a boolean (true or false), found \"always\"");
    assert_null(make_module("{_target_: Linear, args: [4, 4], checkpoints: y}"));
    lkt_contains(lk_error(), "unknown key \"checkpoints\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_give_the_same_bits_in_less_memory),
        cmocka_unit_test(every_engine_computes_again_what_it_computed),
        cmocka_unit_test(modules_inside_of_one_another),
        cmocka_unit_test(ranks_train_the_same_weights),
        cmocka_unit_test(a_copy_is_marked_as_the_original_is),
        cmocka_unit_test(configs_mark_modules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
