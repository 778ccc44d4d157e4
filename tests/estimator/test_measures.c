/* Measures of fields against NumPy, SciPy and scikit-learn, on the real fields where they are at hand. */
#include "case.h"

#include "tensor/npy.h"

#include <sys/wait.h>
#include <unistd.h>

enum { N = 16 };

typedef struct fixture {
    char folder[1024];
    lk_tensor *a, *b; /* (3, N, N, N) */
    bool ready;
} fixture;

static fixture shared;

/* The real velocity and itself, filtered and scaled a little: two fields that resemble each other. */
static lk_tensor *first_field(void)
{
    const char *folder = lkt_sapsan_folder();
    if (!folder) return lk_synthetic_turbulence(3, 3, (int64_t[]){N, N, N}, 0, NULL);
    lk_fields *fields = lkt_velocity16(folder, *LK_OPTIONS(lk_fields_options));
    lkt_not_null(fields);
    lk_tensor *field = lk_tensor_reshape(lk_fields_features(fields), LK_SHAPE(3, N, N, N));
    lk_fields_free(fields);
    return field;
}

static void write_npy(const char *name, const lk_tensor *tensor)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s.npy", shared.folder, name);
    lkt_ok(lki_npy_write(path, tensor));
}

static int ask_oracle(void **state)
{
    (void)state;
    char command[4096];
    lk_manual_seed(1);
    snprintf(shared.folder, sizeof shared.folder, "%s", lkt_scratch_folder("measures"));
    shared.a = first_field();
    shared.b = lk_filter_gaussian(shared.a, 3, 0.7);
    lkt_not_null(shared.b);
    for (int64_t i = 0; i < lk_tensor_count(shared.b); i++)
        lk_tensor_set(shared.b, i, 1.1 * lk_tensor_get(shared.b, i) + 0.01);
    write_npy("a", shared.a);
    write_npy("b", shared.b);
    snprintf(command, sizeof command, "/usr/bin/python3 '%s/tests/oracle/estimator_fields.py' '%s' >&2",
             LK_SOURCE_DIR, shared.folder);
    int code = system(command);
    shared.ready = code == 0;
    if (code != 0 && WEXITSTATUS(code) != 77 && WEXITSTATUS(code) != 127) return -1;
    return 0;
}

static int forget(void **state)
{
    (void)state;
    lk_tensor_free(shared.a);
    lk_tensor_free(shared.b);
    return 0;
}

#define NEEDS_ORACLE                                                                                         \
    (void)state;                                                                                             \
    if (!shared.ready) {                                                                                     \
        print_message("NumPy, SciPy or scikit-learn is not at hand\n");                                      \
        skip();                                                                                              \
    }

/* Compares within 1e-6 of the largest magnitude, and frees the tensor. */
static void same_as(const char *name, lk_tensor *actual, double tolerance)
{
    char path[1200];
    double largest = 0;
    lkt_not_null(actual);
    snprintf(path, sizeof path, "%s/%s.npy", shared.folder, name);
    lk_tensor *expected = lki_npy_read(path);
    lkt_not_null(expected);
    assert_int_equal(lk_tensor_count(actual), lk_tensor_count(expected));
    for (int64_t i = 0; i < lk_tensor_count(expected); i++)
        largest = fmax(largest, fabs(lk_tensor_get(expected, i)));
    for (int64_t i = 0; i < lk_tensor_count(expected); i++) {
        double x = lk_tensor_get(actual, i), y = lk_tensor_get(expected, i);
        if (!(fabs(x - y) <= tolerance * largest))
            fail_msg("%s[%lld]: %.9g, expected %.9g", name, (long long)i, x, y);
    }
    lk_tensor_free(expected);
    lk_tensor_free(actual);
}

static lk_tensor *number(double value)
{
    return lk_tensor_from(LK_F64, LK_SHAPE(1), &value);
}

static void distributions(void **state)
{
    NEEDS_ORACLE
    lk_distribution pdf;
    lk_tensor *values, *fractions;
    same_as("mse", number(lk_mean_squared_error(shared.a, shared.b)), 1e-9);
    same_as("ks", number(lk_ks_statistic(shared.a, shared.b)), 1e-12);
    lkt_ok(lk_pdf(shared.a, 0, &pdf));
    same_as("pdf_edges", pdf.edges, 1e-12);
    same_as("pdf_density", pdf.density, 1e-9);
    lkt_ok(lk_pdf(shared.a, 7, &pdf));
    same_as("pdf7_edges", pdf.edges, 1e-12);
    same_as("pdf7_density", pdf.density, 1e-9);
    lkt_ok(lk_cdf(shared.a, &values, &fractions));
    same_as("cdf_values", values, 0);
    same_as("cdf_fractions", fractions, 1e-12);
}

static void profiles_and_spectra(void **state)
{
    NEEDS_ORACLE
    lk_tensor *k, *energy;
    same_as("profile0", lk_profile(shared.a, 3, 0), 1e-9);
    same_as("profile1", lk_profile(shared.a, 3, 1), 1e-9);
    same_as("profile2", lk_profile(shared.a, 3, 2), 1e-9);
    lkt_ok(lk_power_spectrum(shared.a, 3, &k, &energy));
    assert_true(lk_tensor_count(k) == N / 2 && lk_tensor_get(k, 0) == 1 &&
                lk_tensor_get(k, N / 2 - 1) == N / 2);
    lk_tensor_free(k);
    same_as("energy", energy, 1e-9);
}

static void filters(void **state)
{
    NEEDS_ORACLE
    same_as("filter_box", lk_filter_box(shared.a, 3, 3), 1e-6);
    same_as("filter_box4", lk_filter_box(shared.a, 3, 4), 1e-6);
    same_as("filter_gaussian", lk_filter_gaussian(shared.a, 3, 1.5), 1e-6);
    same_as("filter_spectral", lk_filter_spectral(shared.a, 3, 5), 1e-6);
}

static void stresses(void **state)
{
    NEEDS_ORACLE
    double c;
    same_as("reynolds", lk_reynolds_stress(shared.a, 3, lk_filter_gaussian, 1.5), 1e-6);
    same_as("smagorinsky", lk_smagorinsky_stress(shared.a, 3, .width = 0.5, .spacing = 0.25), 1e-6);
    same_as("dynamic", lk_dynamic_smagorinsky_stress(shared.a, 3, 2, 0.25, &c), 1e-6);
    same_as("dynamic_c", number(c), 1e-6);
}

static lk_fields *coarse_fields(void)
{
    lk_tensor *x = lk_tensor_reshape(shared.a, LK_SHAPE(1, 3, N, N, N));
    lk_tensor *y = lk_tensor_reshape(shared.b, LK_SHAPE(1, 3, N, N, N));
    return lk_tensor_fields(x, y, .sample_to = {N / 4, N / 4, N / 4});
}

static void kernel_ridge_regression(void **state)
{
    NEEDS_ORACLE
    const char *names[] = {"krr", "krr_sharp"};
    for (int i = 0; i < 2; i++) {
        lk_fields *fields = coarse_fields();
        lk_estimator *krr = lk_krr(lk_fields_loaders(fields), .alpha = i ? 0.1 : 0, .gamma = i ? 5 : 0);
        lkt_not_null(krr);
        lk_tensor *before = lk_estimator_predict(krr, lk_fields_features(fields));
        assert_null(before);
        lkt_contains(lk_error(), "KRR: it has not been trained");
        lkt_ok(lk_estimator_train(krr));
        lk_evaluation evaluation;
        lkt_ok(
            lk_estimator_evaluate(krr, lk_fields_features(fields), lk_fields_targets(fields), &evaluation));
        lkt_close(lk_estimator_loss(krr), evaluation.mse, 1e-6);
        const char *folder = lkt_scratch_folder("krr_saved");
        lkt_ok(lk_estimator_save(krr, folder));
        lk_estimator *opened = lk_estimator_open(folder);
        lkt_not_null(opened);
        same_as(names[i], lk_estimator_predict(opened, lk_fields_features(fields)), 1e-6);
        lk_estimator_free(opened);
        lk_estimator_free(krr);
        lk_fields_free(fields);
    }
}

/* The spectrum of what was made up has the slope that was asked for. */
static void made_up_turbulence(void **state)
{
    (void)state;
    lk_tensor *k, *energy;
    lk_manual_seed(5);
    lk_tensor *field = lk_synthetic_turbulence(3, 3, (int64_t[]){32, 32, 32}, 0, NULL);
    lkt_not_null(field);
    lkt_ok(lk_power_spectrum(field, 3, &k, &energy));
    double sx = 0, sy = 0, sxx = 0, sxy = 0, count = 0;
    for (int i = 2; i < 14; i++, count++) {
        double x = log(lk_tensor_get(k, i)), y = log(lk_tensor_get(energy, i));
        sx += x, sy += y, sxx += x * x, sxy += x * y;
    }
    double slope = (count * sxy - sx * sy) / (count * sxx - sx * sx);
    assert_true(fabs(slope + 5.0 / 3) < 0.2);
    lk_tensor_free(k);
    lk_tensor_free(energy);
    lk_tensor_free(field);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    lk_distribution pdf;
    lk_tensor *k, *energy, *field = lkt_wavy(LK_SHAPE(2, 4, 4)),
                           *empty = lk_tensor_create(LK_F32, LK_SHAPE(0));
    lkt_fails(lk_pdf(field, -1, &pdf), LK_ERR_INVALID, "pdf: expected at least one bin, found -1");
    lkt_fails(lk_pdf(empty, 0, &pdf), LK_ERR_SHAPE, "without values");
    assert_true(isnan(lk_ks_statistic(field, empty)));
    lkt_fails(lk_power_spectrum(field, 4, &k, &energy), LK_ERR_INVALID, "one to three dimensions, not 4");
    assert_null(lk_filter_box(field, 2, 2.5));
    lkt_contains(lk_error(), "box filter: expected a whole number of points, found 2.5");
    assert_null(lk_filter_gaussian(field, 2, 0));
    assert_null(lk_filter_spectral(field, 2, NAN));
    assert_null(lk_reynolds_stress(field, 1, lk_filter_gaussian, 1));
    lkt_contains(lk_error(), "a velocity in 1 dimensions has as many channels");
    assert_null(lk_profile(field, 2, 2));
    lk_tensor_set(field, 3, NAN);
    lkt_fails(lk_pdf(field, 0, &pdf), LK_ERR_NAN, "at element 3");
    lk_tensor_free(field);
    lk_tensor_free(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distributions),
        cmocka_unit_test(profiles_and_spectra),
        cmocka_unit_test(filters),
        cmocka_unit_test(stresses),
        cmocka_unit_test(kernel_ridge_regression),
        cmocka_unit_test(made_up_turbulence),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, ask_oracle, forget);
}
