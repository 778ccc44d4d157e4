/* Which trials end early: cases worked out by hand. */
#include "memory_study.h"

#include "tune/pruner.h"

static const lki_parameter_space space[] = {{"x", {LKI_RANGE_FLOAT, 0, 1, false, 0, 0}}};
static const double at_half[] = {0.5};

static bool asks(const lki_pruner *pruner, const lki_study *study, const lki_trial *trial, int64_t epoch,
                 double value)
{
    bool prune;
    lkt_ok(lki_pruner_asks(pruner, study, trial, epoch, value, &prune));
    return prune;
}

static void test_median(void **state)
{
    (void)state;
    lki_pruner pruner = {.kind = LKI_PRUNER_MEDIAN, .startup_trials = 3, .interval_epochs = 1};
    lki_study study = {.parameters = space, .parameter_count = 1, .minimize = true};
    lkt_ok(lki_study_open(&study, NULL, NULL));
    add_trial(&study, at_half, (double[]){5, 4, 3}, 3, LKI_TRIAL_COMPLETE);
    add_trial(&study, at_half, (double[]){9, 2, 1}, 3, LKI_TRIAL_COMPLETE);
    add_trial(&study, at_half, (double[]){0, 0, 0}, 3, LKI_TRIAL_FAILED); /* does not count */
    lki_trial *trial = add_trial(&study, at_half, NULL, 0, LKI_TRIAL_OPEN);
    assert_false(asks(&pruner, &study, trial, 1, 100)); /* two complete trials are too few */
    add_trial(&study, at_half, (double[]){7, 6}, 2, LKI_TRIAL_COMPLETE);
    assert_false(asks(&pruner, &study, trial, 1, 7)); /* the median of 5, 7 and 9 */
    assert_true(asks(&pruner, &study, trial, 1, 7.1));
    assert_false(asks(&pruner, &study, trial, 3, 2)); /* of 1 and 3 */
    assert_true(asks(&pruner, &study, trial, 3, 2.1));
    assert_true(asks(&pruner, &study, trial, 3, NAN));
    assert_false(asks(&pruner, &study, trial, 4, 100)); /* nobody came that far */
    pruner.warmup_epochs = 1;
    pruner.interval_epochs = 2;
    assert_false(asks(&pruner, &study, trial, 1, 100));
    assert_true(asks(&pruner, &study, trial, 2, 100));
    assert_false(asks(&pruner, &study, trial, 3, 100));
    study.minimize = false;
    assert_true(asks(&pruner, &study, trial, 2, 3.9)); /* of 2, 4 and 6 */
    assert_false(asks(&pruner, &study, trial, 2, 4));
    pruner.kind = LKI_PRUNER_NONE;
    assert_false(asks(&pruner, &study, trial, 2, 0));
    lki_study_close(&study);
}

static void test_halving(void **state)
{
    (void)state;
    lki_pruner pruner = {.kind = LKI_PRUNER_HALVING, .min_epochs = 1, .reduction_factor = 2};
    lki_study study = {.parameters = space, .parameter_count = 1, .minimize = true};
    lkt_ok(lki_study_open(&study, NULL, NULL));
    lki_trial *first = add_trial(&study, at_half, NULL, 0, LKI_TRIAL_OPEN);
    assert_false(asks(&pruner, &study, first, 1, 8)); /* the first at a rung goes on */
    lkt_ok(lki_study_report(&study, first, 1, 8, false));
    lki_trial *second = add_trial(&study, at_half, NULL, 0, LKI_TRIAL_OPEN);
    assert_true(asks(&pruner, &study, second, 1, 9)); /* one place for two */
    assert_false(asks(&pruner, &study, second, 1, 7));
    add_trial(&study, at_half, (double[]){6}, 1, LKI_TRIAL_PRUNED); /* counts at its rung */
    add_trial(&study, at_half, (double[]){5}, 1, LKI_TRIAL_COMPLETE);
    assert_true(asks(&pruner, &study, second, 1, 6.5)); /* two places for 5, 6, 6.5 and 8 */
    assert_false(asks(&pruner, &study, second, 1, 5.5));
    assert_false(asks(&pruner, &study, second, 3, 100)); /* no rung: they are 1, 2, 4, 8 */
    assert_false(asks(&pruner, &study, second, 2, 100)); /* the first at the next one */
    pruner.early_stopping_rate = 2;                      /* from 4 on */
    assert_false(asks(&pruner, &study, second, 1, 100));
    lkt_ok(lki_study_report(&study, first, 4, 1, false));
    assert_true(asks(&pruner, &study, second, 4, 2));
    pruner = (lki_pruner){.kind = LKI_PRUNER_HALVING, .min_epochs = 3, .reduction_factor = 4};
    lkt_ok(lki_study_report(&study, first, 12, 1, false));
    assert_true(asks(&pruner, &study, second, 12, 2));
    assert_false(asks(&pruner, &study, second, 6, 2));
    lki_study_close(&study);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_halving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
