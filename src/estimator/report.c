/* After a run: the model saved, measured on samples, and the pictures of what it predicts. */
#include "estimator/estimator.h"

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

/* What was measured: (samples, ...) each. */
typedef struct samples {
    lk_tensor *features, *targets, *prediction;
} samples;

static void free_samples(samples *s)
{
    lk_tensor_free(s->features);
    lk_tensor_free(s->targets);
    lk_tensor_free(s->prediction);
}

static lk_status measure(lk_estimator *estimator, lk_dataset *dataset, samples *s)
{
    lk_evaluation eval;
    LKI_TRY(lki_gather_samples(dataset, &s->features, &s->targets));
    double start = lki_now_s();
    s->prediction = lk_estimator_predict(estimator, s->features);
    if (!s->prediction) return lki_last_status();
    eval.runtime_s = lki_now_s() - start;
    LKI_TRY(lki_estimator_score(estimator, s->prediction, s->targets, &eval));
    if (estimator->runtime_s > 0)
        lki_fprintf(stdout, "train - loss: %.4e, train - runtime: %.2f s\n", estimator->loss,
                    estimator->runtime_s);
    lki_fprintf(stdout, "eval - MSE Loss: %.4e, eval - KS Stat: %.4f, eval - runtime: %.2f s\n", eval.mse,
                eval.ks, eval.runtime_s);
    return LK_OK;
}

/* ---- Pictures ---- */

typedef enum picture { DISTRIBUTIONS, SLICES, PROFILES, SPECTRA, LOSSES, PICTURE_COUNT } picture;
static const char *const picture_names[] = {"distributions", "slices", "profiles", "spectra", "losses"};

/* The first sample as (channels, size...) of the features' points; NULL where its numbers do not lie on them.
 */
static lk_tensor *first_field(const lk_estimator *estimator, const lk_tensor *all)
{
    lk_shape shape = estimator->features;
    int64_t points = lk_shape_count(shape) / shape.dim[0];
    int64_t count = lk_tensor_count(all) / all->shape.dim[0];
    shape.dim[0] = count / points;
    if (shape.dim[0] * points != count) return NULL;
    lk_tensor *first = lk_tensor_slice(all, 0, 0, 1);
    lk_tensor *field = first ? lk_tensor_reshape(first, shape) : NULL;
    lk_tensor_free(first);
    return field;
}

static lk_status draw(const lk_estimator *estimator, picture which, const char *path, const samples *s)
{
    int dims = estimator->features.rank - 1;
    bool has_losses = !estimator->is_krr && estimator->history_count > 0;
    if (which == LOSSES) return has_losses ? lk_plot_losses(path, estimator) : LK_OK;
    if (which == DISTRIBUTIONS) return lk_plot_distributions(path, s->prediction, s->targets);
    if (dims < 1 || dims > LK_MAX_SPATIAL) return LK_OK;
    lk_tensor *prediction = first_field(estimator, s->prediction),
              *target = first_field(estimator, s->targets);
    lk_status status = LK_OK;
    if (prediction && target) {
        if (which == SLICES) status = lk_plot_slices(path, prediction, target, dims, 0);
        if (which == PROFILES) status = lk_plot_profiles(path, prediction, target, dims, 0);
        if (which == SPECTRA) status = lk_plot_spectra(path, prediction, target, dims);
    }
    lk_tensor_free(prediction);
    lk_tensor_free(target);
    return status;
}

static lk_status draw_all(const lk_estimator *estimator, const lki_report_options *options, const samples *s)
{
    LKI_TRY(lki_make_folders(options->pictures));
    for (int which = 0; which < PICTURE_COUNT; which++) {
        LKI_SCOPED char *path =
            lki_format("%s/%s.%s", options->pictures, picture_names[which], options->format);
        if (!path) return LK_ERR_NOMEM;
        LKI_TRY(draw(estimator, which, path, s));
        if (estimator->tracking) LKI_TRY(lki_tracking_artifact(estimator->tracking, path));
    }
    return LK_OK;
}

lk_status lki_estimator_report(lk_estimator *estimator, lk_dataset *dataset,
                               const lki_report_options *options)
{
    samples s = {0};
    if (options->save) LKI_TRY(lk_estimator_save(estimator, options->save));
    lk_status status = measure(estimator, dataset, &s);
    if (!status && options->pictures) status = draw_all(estimator, options, &s);
    free_samples(&s);
    return status;
}
