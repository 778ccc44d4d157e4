/* Predicting and evaluating: on the CPU unless asked otherwise, a few samples at a time. */
#include "estimator/estimator.h"

#include "base/clock.h"
#include "base/status.h"

#include <string.h>

enum { SAMPLES_AT_ONCE = 16 };

/* Without a look at the GPUs, which a later run could not fork with. */
static lk_engine *open_cpu(void)
{
    lk_engine *engine = lk_engine_open("cpu", NULL);
    return engine ? engine : lk_engine_open("ref", NULL);
}

static lk_status check_features(const lk_estimator *estimator, const lk_tensor *features)
{
    char found[128], wanted[128];
    lk_shape sample = features->shape;
    bool fits = sample.rank == estimator->features.rank + 1 && sample.dim[0] > 0;
    for (int i = 0; fits && i < estimator->features.rank; i++)
        fits = sample.dim[i + 1] == estimator->features.dim[i];
    if (fits) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "%s: features of shape %s, expected samples of %s", estimator->name,
                    lk_shape_format(found, sizeof found, features->shape),
                    lk_shape_format(wanted, sizeof wanted, estimator->features));
}

/* The model over samples [begin, end), into `out` at that place. */
static lk_status predict_some(lk_step *step, const lk_tensor *features, int64_t begin, int64_t end,
                              lk_tensor *out)
{
    lk_tensor *some = lk_tensor_slice(features, 0, begin, end);
    lk_tensor *place = lk_tensor_slice(out, 0, begin, end);
    const lk_tensor *output = NULL;
    lk_tensor *shaped = NULL;
    lk_status status = some && place ? LK_OK : LK_ERR_NOMEM;
    if (!status) status = lk_step_evaluate(step, &(lk_input){"features", some}, 1);
    if (!status && !(output = lk_step_output(step, "logits"))) status = lki_last_status();
    if (!status && lk_tensor_count(output) != lk_tensor_count(place)) {
        char text[128];
        status = lki_fail(LK_ERR_SHAPE, "the model's output %s has not as many numbers as the targets",
                          lk_shape_format(text, sizeof text, output->shape));
    }
    if (!status && !(shaped = lk_tensor_reshape(output, place->shape))) status = lki_last_status();
    if (!status) status = lk_tensor_copy(place, shaped);
    lk_tensor_free(shaped);
    lk_tensor_free(place);
    lk_tensor_free(some);
    return status;
}

/* An engine has threads, which a later run could not fork with: it is opened for this call alone. */
static lk_status predict_all(lk_estimator *estimator, const lk_tensor *features, const char *device,
                             lk_tensor *out)
{
    lk_status status = LK_OK;
    int64_t count = features->shape.dim[0];
    lk_engine *engine = strcmp(device, "cpu") == 0 ? open_cpu() : lk_engine_open(device, NULL);
    lk_step *step = engine ? lk_step(.model = estimator->model, .engine = engine) : NULL;
    if (!step) status = lki_last_status();
    for (int64_t begin = 0; begin < count && !status; begin += SAMPLES_AT_ONCE) {
        int64_t end = begin + SAMPLES_AT_ONCE < count ? begin + SAMPLES_AT_ONCE : count;
        status = predict_some(step, features, begin, end, out);
    }
    lk_step_free(step);
    lk_engine_close(engine);
    return status;
}

lk_tensor *lk_estimator_predict(lk_estimator *estimator, const lk_tensor *features)
{
    return lk_estimator_predict_on(estimator, features, "cpu");
}

lk_tensor *lk_estimator_predict_on(lk_estimator *estimator, const lk_tensor *features, const char *device)
{
    if (!estimator || !features || check_features(estimator, features)) return NULL;
    if (estimator->is_krr) return lki_krr_predict(estimator, features);
    bool ready = features->dtype == LK_F32 && lk_tensor_is_contiguous(features);
    lk_tensor *values = ready ? lk_tensor_view(features) : lk_tensor_cast(features, LK_F32);
    lk_shape shape = {.rank = estimator->targets.rank + 1, .dim = {features->shape.dim[0]}};
    memcpy(shape.dim + 1, estimator->targets.dim, sizeof *shape.dim * (size_t)estimator->targets.rank);
    lk_tensor *out = values ? lk_tensor_create(LK_F32, shape) : NULL;
    if (out && predict_all(estimator, values, device, out)) {
        lki_fail_prefix(lki_last_status(), "%s", estimator->name);
        lk_tensor_free(out);
        out = NULL;
    }
    lk_tensor_free(values);
    return out;
}

/* Under Sapsan's names. */
static lk_status track(lk_estimator *estimator, const lk_evaluation *result)
{
    if (!estimator->tracking) return LK_OK;
    LKI_TRY(lki_tracking_metric(estimator->tracking, "eval - MSE Loss", result->mse, estimator->epoch));
    LKI_TRY(lki_tracking_metric(estimator->tracking, "eval - KS Stat", result->ks, estimator->epoch));
    return lki_tracking_metric(estimator->tracking, "eval - runtime", result->runtime_s, estimator->epoch);
}

lk_status lki_estimator_score(lk_estimator *estimator, const lk_tensor *prediction, const lk_tensor *targets,
                              lk_evaluation *out)
{
    if (lk_tensor_count(prediction) != lk_tensor_count(targets))
        return lki_fail(LK_ERR_SHAPE, "%s: %lld targets for %lld predictions", estimator->name,
                        (long long)lk_tensor_count(targets), (long long)lk_tensor_count(prediction));
    out->mse = lk_mean_squared_error(prediction, targets);
    out->ks = lk_ks_statistic(prediction, targets);
    return track(estimator, out);
}

lk_status lk_estimator_evaluate(lk_estimator *estimator, const lk_tensor *features, const lk_tensor *targets,
                                lk_evaluation *out)
{
    if (!estimator || !features || !targets) return lki_last_status();
    double start = lki_now_s();
    lk_tensor *prediction = lk_estimator_predict(estimator, features);
    if (!prediction) return lki_last_status();
    out->runtime_s = lki_now_s() - start;
    lk_status status = lki_estimator_score(estimator, prediction, targets, out);
    lk_tensor_free(prediction);
    return status;
}
