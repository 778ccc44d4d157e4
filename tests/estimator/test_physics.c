/* PICAE and PIMLturb: what their output must be whatever the weights are, and that they learn. */
#include "case.h"

enum { N = 16 };

static lk_fields *vector_fields(int64_t samples)
{
    lk_tensor *field = lk_tensor_create(LK_F32, LK_SHAPE(samples, 3, N, N, N));
    lk_tensor *flow = lk_synthetic_turbulence(3 * samples, 3, (int64_t[]){N, N, N}, 0, NULL);
    lkt_not_null(flow);
    memcpy(field->data, flow->data, lk_tensor_nbytes(field));
    lk_tensor_free(flow);
    return lk_tensor_fields(field, NULL);
}

static int64_t place(int64_t x, int64_t y, int64_t z)
{
    return ((x + N) % N * N + (y + N) % N) * N + (z + N) % N;
}

/* The largest |divergence| of (3, N, N, N) by periodic central differences. */
static double largest_divergence(const float *u)
{
    double largest = 0;
    const int64_t points = N * N * N;
    for (int64_t x = 0; x < N; x++)
        for (int64_t y = 0; y < N; y++)
            for (int64_t z = 0; z < N; z++) {
                double sum = u[place(x + 1, y, z)] - u[place(x - 1, y, z)];
                sum += u[points + place(x, y + 1, z)] - u[points + place(x, y - 1, z)];
                sum += u[2 * points + place(x, y, z + 1)] - u[2 * points + place(x, y, z - 1)];
                largest = fmax(largest, fabs(sum / 2));
            }
    return largest;
}

static double largest_value(const lk_tensor *tensor)
{
    double largest = 0;
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++)
        largest = fmax(largest, fabs(lk_tensor_get(tensor, i)));
    return largest;
}

static void assert_free_of_divergence(lk_estimator *picae, const lk_fields *fields)
{
    lk_tensor *out = lk_estimator_predict(picae, lk_fields_features(fields));
    lkt_not_null(out);
    assert_true(lk_shape_equal(out->shape, lk_fields_features(fields)->shape));
    double largest = largest_value(out);
    assert_true(largest > 0);
    for (int64_t s = 0; s < out->shape.dim[0]; s++) {
        double divergence = largest_divergence((const float *)out->data + s * 3 * N * N * N);
        if (!(divergence <= 1e-5)) fail_msg("divergence %g of a field up to %g", divergence, largest);
    }
    lk_tensor_free(out);
}

static void picae_is_free_of_divergence(void **state)
{
    (void)state;
    lk_manual_seed(0);
    lk_fields *fields = vector_fields(2);
    lk_estimator *picae = lk_picae(lk_fields_loaders(fields, .batch_size = 2), .n_epochs = 30, .lr = 1e-2,
                                   .patience = 100, .nfilters = 8, .logdir = lkt_scratch_folder("picae"));
    lkt_not_null(picae);
    assert_free_of_divergence(picae, fields);
    lkt_ok(lk_estimator_train(picae));
    assert_free_of_divergence(picae, fields);
    const double *losses;
    int64_t count = lk_estimator_history(picae, "train", &losses);
    assert_int_equal(count, 30);
    assert_true(losses[29] < 0.97 * losses[0]);
    lk_estimator_free(picae);
    lk_fields_free(fields);
}

/* A periodic shift of the input by 8 points, the network's stride, shifts the output. */
static void picae_is_periodic(void **state)
{
    (void)state;
    lk_manual_seed(0);
    lk_fields *fields = vector_fields(1);
    lk_estimator *picae = lk_picae(lk_fields_loaders(fields));
    const lk_tensor *x = lk_fields_features(fields);
    lk_tensor *moved = lk_tensor_create(LK_F32, x->shape);
    for (int64_t i = 0; i < lk_tensor_count(x); i++) {
        int64_t c = i / (N * N * N), p = i % (N * N * N);
        int64_t to = place(p / (N * N) + 8, p / N % N, p % N + 8);
        lk_tensor_set(moved, c * N * N * N + to, lk_tensor_get(x, i));
    }
    lk_tensor *a = lk_estimator_predict(picae, x), *b = lk_estimator_predict(picae, moved);
    lkt_not_null(a);
    lkt_not_null(b);
    for (int64_t i = 0; i < lk_tensor_count(a); i++) {
        int64_t c = i / (N * N * N), p = i % (N * N * N);
        int64_t to = place(p / (N * N) + 8, p / N % N, p % N + 8);
        lkt_close(lk_tensor_get(b, c * N * N * N + to), lk_tensor_get(a, i), 1e-5);
    }
    lk_tensor_free(a);
    lk_tensor_free(b);
    lk_tensor_free(moved);
    lk_estimator_free(picae);
    lk_fields_free(fields);
}

/* Targets that are never negative: the square of the field, smoothed. */
static lk_fields *positive_fields(int dims)
{
    const int64_t size[] = {8, 8, 8};
    lk_shape shape = {.rank = 2 + dims, .dim = {4, 2, 8, 8, 8}}, target = shape;
    target.dim[1] = 1;
    lk_tensor *x = lk_tensor_create(LK_F32, shape), *y = lk_tensor_create(LK_F32, target);
    lk_tensor *noise = lk_synthetic_turbulence(8, dims, size, 0, NULL);
    lkt_not_null(noise);
    memcpy(x->data, noise->data, lk_tensor_nbytes(x));
    int64_t points = lk_tensor_count(y) / 4;
    for (int64_t i = 0; i < lk_tensor_count(y); i++) {
        double value = lk_tensor_get(x, i / points * 2 * points + i % points);
        lk_tensor_set(y, i, value * value);
    }
    lk_tensor_free(noise);
    return lk_tensor_fields(x, y);
}

static void piml_is_positive_and_learns(void **state)
{
    (void)state;
    for (int dims = 1; dims <= 3; dims += 2) {
        lk_manual_seed(0);
        lk_fields *fields = positive_fields(dims);
        lkt_not_null(fields);
        lk_estimator_config config = {LK_SIZE(lk_estimator_config),
                                      .n_epochs = 60,
                                      .lr = 1e-2,
                                      .patience = 100,
                                      .activation = "tanh",
                                      .logdir = lkt_scratch_folder("piml")};
        lk_loader_list loaders = lk_fields_loaders(fields, .batch_size = 4);
        lk_estimator *piml =
            dims == 1 ? lk_pimlturb1d_with(loaders, &config) : lk_pimlturb3d_with(loaders, &config);
        lkt_not_null(piml);
        lkt_ok(lk_estimator_train(piml));
        const double *losses;
        int64_t count = lk_estimator_history(piml, "train", &losses);
        assert_int_equal(count, 60);
        assert_true(losses[59] < 0.7 * losses[0]);
        lk_tensor *out = lk_estimator_predict(piml, lk_fields_features(fields));
        lkt_not_null(out);
        for (int64_t i = 0; i < lk_tensor_count(out); i++) assert_true(lk_tensor_get(out, i) >= 0);
        const char *folder = lkt_scratch_folder("piml_saved");
        lkt_ok(lk_estimator_save(piml, folder));
        lk_estimator *opened = lk_estimator_open(folder);
        lkt_not_null(opened);
        lk_tensor *again = lk_estimator_predict(opened, lk_fields_features(fields));
        assert_memory_equal(out->data, again->data, lk_tensor_nbytes(out));
        lk_tensor_free(again);
        lk_tensor_free(out);
        lk_estimator_free(opened);
        lk_estimator_free(piml);
        lk_fields_free(fields);
    }
}

/* The KS term of the loss is near the statistic itself. */
static void ks_term_is_near_the_statistic(void **state)
{
    (void)state;
    lk_manual_seed(2);
    lk_tensor *a = lk_randn(LK_SHAPE(4000, 1)), *b = lk_randn(LK_SHAPE(4000, 1));
    for (int64_t i = 0; i < 4000; i++) lk_tensor_set(b, i, lk_tensor_get(b, i) + 0.8);
    double exact = lk_ks_statistic(a, b);
    lk_fields *fields = lk_tensor_fields(lkt_wavy(LK_SHAPE(1, 1, 8)), NULL);
    lk_estimator *piml = lk_pimlturb1d(lk_fields_loaders(fields), .ks_frac = 1);
    lk_criterion *criterion = lk_estimator_get_config(piml)->criterion;
    assert_non_null(criterion);
    lk_module *identity = lk_identity();
    lk_step *step = lk_step(.model = identity, .criterion = criterion);
    lkt_not_null(step);
    lkt_ok(lk_step_evaluate(step, (lk_input[]){{"features", a}, {"targets", b}}, 2));
    assert_true(fabs(lk_step_loss(step) - exact) < 0.05);
    lk_step_free(step);
    lk_module_free(identity);
    lk_estimator_free(piml);
    lk_fields_free(fields);
    lk_tensor_free(a);
    lk_tensor_free(b);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    lk_fields *fields = lk_tensor_fields(lkt_wavy(LK_SHAPE(1, 3, 8, 8, 12)), NULL);
    assert_null(lk_picae(lk_fields_loaders(fields)));
    lkt_contains(lk_error(),
                 "PICAE: features of shape (3, 8, 8, 12): expected (3, x, y, z), each size a multiple of 8");
    assert_null(lk_pimlturb1d(lk_fields_loaders(fields)));
    lkt_contains(lk_error(), "PIMLturb1D: features of shape (3, 8, 8, 12)");
    assert_null(lk_pimlturb3d(lk_fields_loaders(fields), .activation = "swish"));
    lkt_contains(lk_error(), "activation: expected relu, tanh, silu or leaky_relu, found \"swish\"");
    assert_null(lk_pimlturb3d(lk_fields_loaders(fields), .ks_frac = 2));
    lkt_contains(lk_error(), "ks_frac: expected a number between 0 and 1, found 2");
    lk_fields_free(fields);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picae_is_free_of_divergence), cmocka_unit_test(picae_is_periodic),
        cmocka_unit_test(piml_is_positive_and_learns), cmocka_unit_test(ks_term_is_near_the_statistic),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
