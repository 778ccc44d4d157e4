/* A config from its text to its last call. */
#include "config/run_config.h"

#include "base/log.h"
#include "base/status.h"
#include "config/call_parts.h"
#include "config/config.h"
#include "config/write_outputs.h"

#include <lockstep/launch.h>
#include <lockstep/random.h>

#include <string.h>

enum { DEFAULT_SEED = 42 };

static lki_node *calls_of(const lk_config *config)
{
    return lki_node_get(config->tree.root, "run");
}

lki_object *lki_config_find_call(const lk_config *config, const char *name)
{
    const lki_node *calls = calls_of(config);
    for (int i = 0; calls && i < calls->count; i++) {
        lki_object *call = lki_node_object(calls->entries[i].value);
        if (call && !strcmp(call->component->name, name)) return call;
    }
    return NULL;
}

/* As torch.manual_seed at the top of a script: what is built draws from there on. */
static lk_status seed_generator(lk_config *config, lki_plan *plan)
{
    const lki_node *calls = calls_of(config);
    int64_t seed = DEFAULT_SEED;
    for (int i = 0; i < calls->count && !plan->seeded_by; i++) {
        const lki_node *node = lki_node_get(calls->entries[i].value, "seed");
        if (!lki_node_is_null(node)) {
            LKI_TRY(lki_node_int(node, "seed", &seed));
            plan->seeded_by = lki_node_object(calls->entries[i].value);
        }
    }
    lk_manual_seed((uint64_t)seed);
    return LK_OK;
}

lk_status lki_config_build(lk_config *config, lki_plan *plan)
{
    LKI_TRY(lki_config_plan(config, plan));
    lki_plan_note_keys(plan);
    LKI_TRY(seed_generator(config, plan));
    return lki_plan_build(plan);
}

lk_status lki_config_call(lk_config *config, lki_plan *plan)
{
    const lki_node *calls = calls_of(config);
    for (int i = 0; i < calls->count; i++)
        LKI_TRY(lki_object_build(plan, lki_node_object(calls->entries[i].value)));
    return LK_OK;
}

lk_status lk_config_run(lk_config *config)
{
    lki_plan plan;
    lk_status status = lki_config_build(config, &plan);
    if (status == LK_OK) status = lki_config_call(config, &plan);
    lki_plan_fini(&plan);
    return status;
}

void lki_config_report(const lk_metrics *metrics)
{
    for (int i = 0; lk_rank() == 0 && i < lk_metrics_count(metrics); i++)
        lki_log(LKI_LOG_INFO, "%s: %.9g", lk_metrics_name(metrics, i), lk_metrics_value(metrics, i));
}

/* ---- Predictions to a file ---- */

typedef struct predictions {
    lk_tensor *all; /* (samples, ...) */
    int64_t count, capacity, batches;
} predictions;

static lk_status grow(predictions *p, const lk_tensor *output)
{
    lk_shape shape = output->shape;
    int64_t needed = p->count + output->shape.dim[0];
    if (needed <= p->capacity) return LK_OK;
    shape.dim[0] = needed > 2 * p->capacity ? needed : 2 * p->capacity;
    lk_tensor *larger = lk_tensor_create(output->dtype, shape);
    if (!larger) return lki_last_status();
    if (p->all) memcpy(larger->data, p->all->data, lk_tensor_nbytes(p->all));
    lk_tensor_free(p->all);
    p->all = larger;
    p->capacity = shape.dim[0];
    return LK_OK;
}

/* One file has one shape. Batches that are cut to their longest sample may differ. */
static lk_status check_same_shape(const predictions *p, const lk_tensor *output)
{
    if (!p->all) return LK_OK;
    lk_shape expected = p->all->shape;
    expected.dim[0] = output->shape.dim[0];
    if (lk_shape_equal(expected, output->shape)) return LK_OK;
    return lki_fail(
        LK_ERR_SHAPE,
        "batch %lld gives predictions of another shape than those before it: they cannot be one array. "
        "If the loader has a PadCollate, leave it out",
        (long long)p->batches);
}

static lk_status keep_prediction(const lk_tensor *output, const lk_batch *batch, void *context)
{
    predictions *p = context;
    (void)batch;
    if (output->shape.rank < 1) return lki_fail(LK_ERR_SHAPE, "the model's output has no axis of samples");
    LKI_TRY(check_same_shape(p, output));
    LKI_TRY(grow(p, output));
    p->batches++;
    lk_tensor *place = lk_tensor_slice(p->all, 0, p->count, p->count + output->shape.dim[0]);
    if (!place) return lki_last_status();
    lk_status status = lk_tensor_copy(place, output);
    lk_tensor_free(place);
    p->count += output->shape.dim[0];
    return status;
}

static lk_status drop_prediction(const lk_tensor *output, const lk_batch *batch, void *context)
{
    (void)output, (void)batch, (void)context;
    return LK_OK;
}

/* The ranks of a job stay alike by predicting too, but there is one file. */
lk_status lki_predict_to_file(lk_runner *runner, lk_loader *loader, lk_evaluate_options options,
                              lki_prediction_target target)
{
    predictions p = {0};
    lk_tensor *written = NULL;
    lk_status status = target.path ? lki_check_predictions_path(target.path) : LK_OK;
    if (status) {
        lki_call_drop_evaluation(loader, &options);
        return status;
    }
    if (lk_rank() != 0) return lk_predict_loader_with(runner, loader, drop_prediction, NULL, &options);
    LKI_TRY_OUT(lk_predict_loader_with(runner, loader, keep_prediction, &p, &options));
    LKI_TRY_OUT(p.all ? LK_OK : lki_fail(LK_ERR_INVALID, "the loader has no samples"));
    written = lk_tensor_slice(p.all, 0, 0, p.count);
    LKI_TRY_OUT(written ? LK_OK : lki_last_status());
    if (target.path) LKI_TRY_OUT(lki_write_predictions(target.path, written, runner->output_key));
    if (target.json) lki_print_predictions_json(stdout, written);
out:
    lk_tensor_free(written);
    lk_tensor_free(p.all);
    return status;
}
