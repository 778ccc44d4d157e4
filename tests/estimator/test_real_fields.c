/* KS statistic, densities and spectra of every real field at hand: in two and three dimensions, of odd and
 * even sizes, f32 and f64. Against numbers that NumPy and SciPy gave, and against them live. */
#include "case.h"

#include "tensor/npy.h"

#include <sys/wait.h>
#include <unistd.h>

#define GOLDEN LK_SOURCE_DIR "/tests/golden/estimator/real_fields.txt"

typedef struct measures {
    double ks;
    lk_distribution pdf;
    lk_tensor *energy;
} measures;

static measures measure(const char *path, int dims)
{
    measures m;
    lk_tensor *wave_numbers, *field = lk_hdf5_read(path, NULL);
    lkt_not_null(field);
    lk_tensor *first = lk_tensor_slice(field, 0, 0, 1), *second = lk_tensor_slice(field, 0, 1, 2);
    m.ks = lk_ks_statistic(first, second);
    lkt_ok(lk_pdf(field, 0, &m.pdf));
    lkt_ok(lk_power_spectrum(field, dims, &wave_numbers, &m.energy));
    lk_tensor_free(wave_numbers);
    lk_tensor_free(first);
    lk_tensor_free(second);
    lk_tensor_free(field);
    return m;
}

static void forget(measures *m)
{
    lk_distribution_free(&m->pdf);
    lk_tensor_free(m->energy);
}

/* Within 1e-6 of the number itself. */
static void check_number(const char *file, const char *what, double actual, double expected)
{
    if (!(fabs(actual - expected) <= 1e-6 * fabs(expected) + 1e-30))
        fail_msg("%s: %s is %.12g, expected %.12g", file, what, actual, expected);
}

/* Calls `check` with each line of the golden file. */
static int each_file(const char *folder,
                     void (*check)(const char *file, int number, measures *m, const char *rest))
{
    char line[1024], path[2048];
    int number = 0;
    FILE *golden = fopen(GOLDEN, "r");
    assert_non_null(golden);
    while (fgets(line, sizeof line, golden)) {
        if (*line == '#') continue;
        char *rest = NULL, *file = strtok_r(line, " ", &rest);
        int dims = atoi(strtok_r(NULL, " ", &rest));
        snprintf(path, sizeof path, "%s/%s", folder, file);
        measures m = measure(path, dims);
        check(file, number++, &m, rest);
        forget(&m);
    }
    fclose(golden);
    return number;
}

static void check_golden(const char *file, int number, measures *m, const char *rest)
{
    double expected[8];
    int64_t last = lk_tensor_count(m->energy) - 1;
    (void)number;
    for (int i = 0; i < 8; i++) expected[i] = strtod(rest, (char **)&rest);
    check_number(file, "the KS statistic", m->ks, expected[0]);
    check_number(file, "the first edge", lk_tensor_get(m->pdf.edges, 0), expected[1]);
    check_number(file, "the last edge", lk_tensor_get(m->pdf.edges, 100), expected[2]);
    check_number(file, "density 49", lk_tensor_get(m->pdf.density, 49), expected[3]);
    check_number(file, "density 50", lk_tensor_get(m->pdf.density, 50), expected[4]);
    check_number(file, "E(1)", lk_tensor_get(m->energy, 0), expected[5]);
    check_number(file, "E(2)", lk_tensor_get(m->energy, 1), expected[6]);
    check_number(file, "the last E(k)", lk_tensor_get(m->energy, last), expected[7]);
}

static void test_golden_values(void **state)
{
    (void)state;
    NEEDS_SAPSAN(folder);
    assert_int_equal(each_file(folder, check_golden), 68);
}

/* ---- Live ---- */

static char answers[1024];

static void same(const char *file, int number, const char *name, const lk_tensor *actual)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%d_%s.npy", answers, number, name);
    lk_tensor *expected = lki_npy_read(path);
    lkt_not_null(expected);
    assert_int_equal(lk_tensor_count(actual), lk_tensor_count(expected));
    for (int64_t i = 0; i < lk_tensor_count(expected); i++)
        check_number(file, name, lk_tensor_get(actual, i), lk_tensor_get(expected, i));
    lk_tensor_free(expected);
}

static void check_live(const char *file, int number, measures *m, const char *rest)
{
    lk_tensor *ks = lk_tensor_from(LK_F64, LK_SHAPE(1), &m->ks);
    (void)rest;
    same(file, number, "ks", ks);
    same(file, number, "edges", m->pdf.edges);
    same(file, number, "density", m->pdf.density);
    same(file, number, "energy", m->energy);
    lk_tensor_free(ks);
}

static void test_numpy_and_scipy(void **state)
{
    (void)state;
    char command[4096];
    NEEDS_SAPSAN(folder);
    snprintf(answers, sizeof answers, "%s", lkt_scratch_folder("real_fields"));
    snprintf(command, sizeof command, "/usr/bin/python3 '%s/tests/oracle/estimator_real.py' '%s' '%s' >&2",
             LK_SOURCE_DIR, folder, answers);
    int code = system(command);
    if (WEXITSTATUS(code) == 77 || WEXITSTATUS(code) == 127) {
        print_message("NumPy, SciPy or h5py is not at hand\n");
        skip();
    }
    assert_int_equal(code, 0);
    assert_int_equal(each_file(folder, check_live), 68);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden_values),
                                       cmocka_unit_test(test_numpy_and_scipy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
