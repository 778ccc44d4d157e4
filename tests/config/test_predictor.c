/* lk_predictor: the outputs of the step that it stands for, from a model and from a config, in batches of any
 * size and from several threads; and what it refuses. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include <pthread.h>
#include <stdio.h>

enum { WIDTH = 6, CLASSES = 3 };

static lk_module *net(void)
{
    return lk_sequential(lk_linear(WIDTH, 16), lk_batch_norm1d(16), lk_relu(), lk_dropout(.p = 0.5),
                         lk_linear(16, CLASSES));
}

static char weights[1100];

static lk_module *saved(void)
{
    lk_manual_seed(3);
    lk_module *model = net();
    lk_tensor_set(lk_module_param(model, "1.running_mean")->value, 2, 0.25); /* not as a new one */
    lk_state_dict *state = lk_module_state_dict(model);
    snprintf(weights, sizeof weights, "%s/weights.safetensors", lkt_scratch_folder("predictor"));
    assert_int_equal(lk_save_safetensors(weights, state), LK_OK);
    lk_state_dict_free(state);
    return model;
}

static lk_tensor *some(int64_t count)
{
    lk_manual_seed((uint64_t)count);
    return lk_randn(LK_SHAPE(count, WIDTH));
}

static void assert_close(const lk_tensor *found, const lk_tensor *wanted, double tolerance)
{
    assert_non_null(found);
    assert_int_equal(lk_tensor_count(found), lk_tensor_count(wanted));
    for (int64_t i = 0; i < lk_tensor_count(wanted); i++)
        if (fabs(lk_tensor_get(found, i) - lk_tensor_get(wanted, i)) > tolerance)
            fail_msg("[%lld]: %g is not %g", (long long)i, lk_tensor_get(found, i), lk_tensor_get(wanted, i));
}

static void test_batches_of_any_size(void **state)
{
    (void)state;
    lk_module *model = saved();
    lk_step *step = lk_step(.model = model);
    lk_predictor *predictor = lk_predictor(weights, .model = net(), .device = "cpu", .max_batch = 10);
    assert_non_null(predictor);
    const int64_t sizes[] = {1, 9, 10, 11, 37, 10};
    for (int i = 0; i < 6; i++) {
        lk_tensor *x = some(sizes[i]);
        lk_input input = {"features", x};
        assert_int_equal(lk_step_evaluate(step, &input, 1), LK_OK);
        lk_tensor *found = lk_predictor_run(predictor, x);
        assert_close(found, lk_step_output(step, "logits"), 1e-5);
        assert_int_equal(found->shape.dim[0], sizes[i]);
        lk_tensor_free(found);
        lk_tensor_free(x);
    }
    lk_predictor_free(predictor);
    lk_step_free(step);
    lk_module_free(model);
}

/* The data of the config is not there, and its weights are not drawn. */
static const char config_text[] = "runner:\n"
                                  "  _target_: SupervisedRunner\n"
                                  "  input_key: x\n"
                                  "  output_key: y\n"
                                  "  model:\n"
                                  "    _var_: model\n"
                                  "    _target_: Sequential\n"
                                  "    args:\n"
                                  "      - {_target_: Linear, in_features: 6, out_features: 16}\n"
                                  "      - {_target_: BatchNorm1d, num_features: 16}\n"
                                  "      - ReLU\n"
                                  "      - {_target_: Dropout, p: 0.5}\n"
                                  "      - {_target_: Linear, in_features: 16, out_features: 3}\n"
                                  "run:\n"
                                  "  - _call_: train\n"
                                  "    criterion: CrossEntropyLoss\n"
                                  "    optimizer: {_target_: Adam, params: {_var_: model.parameters}}\n"
                                  "    loaders:\n"
                                  "      train: {_target_: DataLoader, batch_size: 4,\n"
                                  "              dataset: {_target_: CSVDataset, path: nowhere.csv}}\n";

static void test_from_a_config(void **state)
{
    (void)state;
    char path[1200];
    lk_module *model = saved();
    snprintf(path, sizeof path, "%s.yml", weights);
    FILE *file = fopen(path, "w");
    fputs(config_text, file);
    fclose(file);
    lk_predictor *one = lk_predictor(weights, .model = net(), .device = "cpu");
    lk_manual_seed(11);
    lk_predictor *other = lk_predictor(weights, .config = path, .device = "cpu");
    if (!other) fail_msg("%s", lk_error());
    lk_tensor *drawn = lk_rand(LK_SHAPE(1));
    lk_manual_seed(11);
    lk_tensor *first = lk_rand(LK_SHAPE(1));
    assert_true(lk_tensor_get(drawn, 0) == lk_tensor_get(first, 0));
    lk_tensor *x = some(7), *a = lk_predictor_run(one, x), *b = lk_predictor_run(other, x);
    assert_close(a, b, 0);
    lk_tensor *const all[] = {drawn, first, x, a, b};
    for (int i = 0; i < 5; i++) lk_tensor_free(all[i]);
    lk_predictor_free(one);
    lk_predictor_free(other);
    lk_module_free(model);
}

typedef struct asker {
    lk_predictor *predictor;
    const lk_tensor *wanted;
    int64_t count;
    int wrong;
} asker;

static void *ask(void *pointer)
{
    asker *own = pointer;
    for (int i = 0; i < 20; i++) {
        lk_tensor *x = lk_tensor_full(LK_F32, LK_SHAPE(own->count, WIDTH), 0.5);
        lk_tensor *y = lk_predictor_run(own->predictor, x);
        for (int64_t at = 0; y && at < lk_tensor_count(y); at++)
            own->wrong += fabs(lk_tensor_get(y, at) - lk_tensor_get(own->wanted, at % CLASSES)) > 1e-5;
        own->wrong += !y;
        lk_tensor_free(x);
        lk_tensor_free(y);
    }
    return NULL;
}

static void test_threads_ask_at_the_same_time(void **state)
{
    (void)state;
    pthread_t threads[4];
    asker askers[4];
    lk_module_free(saved());
    lk_predictor *predictor = lk_predictor(weights, .model = net(), .device = "cpu");
    lk_tensor *x = lk_tensor_full(LK_F32, LK_SHAPE(1, WIDTH), 0.5), *wanted = lk_predictor_run(predictor, x);
    assert_non_null(wanted);
    for (int i = 0; i < 4; i++) {
        askers[i] = (asker){predictor, wanted, 1 + i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(askers[i].wrong, 0);
    }
    lk_tensor_free(x);
    lk_tensor_free(wanted);
    lk_predictor_free(predictor);
}

static void test_other_dtypes_and_layouts(void **state)
{
    (void)state;
    lk_module_free(saved());
    lk_predictor *predictor = lk_predictor(weights, .model = net(), .device = "cpu");
    lk_tensor *x = some(4), *wide = lk_tensor_cast(x, LK_F64), *wanted = lk_predictor_run(predictor, x);
    lk_tensor *found = lk_predictor_run(predictor, wide);
    assert_close(found, wanted, 1e-5);
    lk_tensor_free(found);
    lk_tensor *more = lk_randn(LK_SHAPE(4, 2 * WIDTH)), *columns = lk_tensor_slice(more, 1, 0, WIDTH);
    assert_int_equal(lk_tensor_copy(columns, x), LK_OK);
    found = lk_predictor_run(predictor, columns); /* not contiguous */
    assert_close(found, wanted, 0);
    lk_tensor *const all[] = {found, x, wide, wanted, columns, more};
    for (int i = 0; i < 6; i++) lk_tensor_free(all[i]);
    lk_predictor_free(predictor);
}

#define REFUSED(call, status, fragment)                                                                      \
    do {                                                                                                     \
        assert_null(call);                                                                                   \
        assert_int_equal(lk_error_status(), status);                                                         \
        lkt_contains(lk_error(), fragment);                                                                  \
    } while (0)

static void test_what_it_refuses(void **state)
{
    (void)state;
    lk_module_free(saved());
    REFUSED(lk_predictor(NULL, .model = net()), LK_ERR_INVALID, "there is no file of weights");
    REFUSED(lk_predictor(weights), LK_ERR_INVALID, "either .model");
    REFUSED(lk_predictor(weights, .model = net(), .config = "x.yml"), LK_ERR_INVALID, "either .model");
    REFUSED(lk_predictor(weights, .model = net(), .max_batch = -1), LK_ERR_RANGE, "max_batch: -1");
    REFUSED(lk_predictor(weights, .model = net(), .thread_count = -1), LK_ERR_RANGE, "thread_count: -1");
    REFUSED(lk_predictor("nowhere.safetensors", .model = net()), LK_ERR_NOT_FOUND, "nowhere.safetensors");
    REFUSED(lk_predictor(weights, .config = "nowhere.yml"), LK_ERR_NOT_FOUND, "nowhere.yml");
    REFUSED(lk_predictor(weights, .model = lk_linear(WIDTH, 2)), LK_ERR_NOT_FOUND, "weights.safetensors");
    REFUSED(lk_predictor(weights, .model = net(), .device = "abacus"), LK_ERR_CONFIG, "abacus");
    lk_predictor *predictor = lk_predictor(weights, .model = net(), .device = "cpu");
    lk_tensor *narrow = lk_randn(LK_SHAPE(2, 5)), *none = lk_tensor_create(LK_F32, LK_SHAPE(0, WIDTH));
    REFUSED(lk_predictor_run(predictor, narrow), LK_ERR_SHAPE, "5");
    REFUSED(lk_predictor_run(predictor, none), LK_ERR_SHAPE, "no samples");
    REFUSED(lk_predictor_run(predictor, NULL), LK_ERR_INVALID, "NULL");
    lk_tensor_free(narrow);
    lk_tensor_free(none);
    lk_predictor_free(predictor);
    lk_predictor_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches_of_any_size),
        cmocka_unit_test(test_from_a_config),
        cmocka_unit_test(test_threads_ask_at_the_same_time),
        cmocka_unit_test(test_other_dtypes_and_layouts),
        cmocka_unit_test(test_what_it_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
