/* A self-test of an installation: each engine trains the same small estimator, ranks agree with one process,
 * and what is saved comes back. Takes seconds and leaves nothing behind. */
#include "cli/commands.h"

#include "base/memory.h"
#include "base/status.h"

#include <lockstep/lockstep.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct test_options {
    int none;
} test_options;

/* Two waves in each of four samples: the same numbers everywhere. */
static lk_fields *waves(void)
{
    lk_tensor *field = lk_tensor_create(LK_F32, LK_SHAPE(4, 1, 8, 8, 8));
    for (int64_t i = 0; field && i < lk_tensor_count(field); i++)
        lk_tensor_set(field, i, sin(0.37 * (double)i) + 0.2 * cos(1.7 * (double)i));
    return lk_tensor_fields(field, NULL);
}

/* Trains a CNN3d for three epochs of one batch of four; its last loss, and where asked its folder. */
static lk_status train(const char *device, int ranks, const char *folder, double *loss)
{
    LKI_SCOPED char *logdir = lki_format("%s/logs", folder);
    lk_fields *fields = waves();
    lk_manual_seed(0);
    lk_estimator *estimator =
        lk_cnn3d(lk_fields_loaders(fields, .batch_size = 4 / ranks), .n_epochs = 3, .lr = 1e-2,
                 .device = device, .ddp = ranks > 1, .nproc = ranks, .logdir = logdir);
    lk_status status = lk_estimator_train(estimator);
    if (!status) {
        *loss = lk_estimator_loss(estimator);
        status = lk_estimator_save(estimator, folder);
    }
    lk_estimator_free(estimator);
    lk_fields_free(fields);
    return status;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-3 * fabs(b);
}

static bool say(const char *what, lk_status status, bool right)
{
    if (status)
        printf("%-44s FAILED: %s\n", what, lk_error());
    else
        printf("%-44s %s\n", what, right ? "ok" : "FAILED: another result than the reference engine's");
    return !status && right;
}

static lk_status reopen(const char *folder, double *mse)
{
    lk_evaluation result = {0};
    lk_fields *fields = waves();
    lk_estimator *estimator = lk_estimator_open(folder);
    lk_status status = estimator ? lk_estimator_evaluate(estimator, lk_fields_features(fields),
                                                         lk_fields_targets(fields), &result)
                                 : lki_last_status();
    *mse = result.mse;
    lk_estimator_free(estimator);
    lk_fields_free(fields);
    return status;
}

static int test_in(const char *folder)
{
    double reference = NAN, loss = NAN, mse = NAN;
    lk_status status = train("ref", 1, folder, &reference);
    bool good = say("the reference engine trains", status, isfinite(reference));
    status = train("auto", 2, folder, &loss);
    good = say("two ranks train as one does", status, near(loss, reference)) && good;
    for (const char *const *engine = lk_engine_names(); *engine; engine++) {
        char what[64];
        if (strcmp(*engine, "ref") == 0) continue;
        snprintf(what, sizeof what, "engine %s trains", *engine);
        status = train(*engine, 1, folder, &loss);
        good = say(what, status, near(loss, reference)) && good;
    }
    status = reopen(folder, &mse);
    good = say("what was saved is read and evaluated", status, isfinite(mse)) && good;
    return good ? LKI_EXIT_DONE : LKI_EXIT_FAILED;
}

/* Only what was written above. */
static void clean_up(const char *folder)
{
    LKI_SCOPED char *command = lki_format("rm -rf '%s'", folder);
    if (command && system(command)) fprintf(stderr, "lockstep: %s could not be removed\n", folder);
}

static int run(const void *options)
{
    (void)options;
    const char *place = getenv("TMPDIR");
    LKI_SCOPED char *folder = lki_format("%s/lockstep-test-XXXXXX", place && *place ? place : "/tmp");
    if (!folder || strchr(folder, '\'') || !mkdtemp(folder)) {
        lki_fail(LK_ERR_IO, "test: no folder can be made for the test's files");
        return lki_report(LKI_EXIT_FAILED);
    }
    int code = test_in(folder);
    clean_up(folder);
    return code;
}

const lki_command lki_command_test = {
    .name = "test",
    .usage = "",
    .summary = "Tests this installation: engines, ranks, saving and loading.",
    .options_nbytes = sizeof(test_options),
    .run = run,
};
