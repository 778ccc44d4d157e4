/* A model behind one function that any thread may call. */
#include <lockstep/predictor.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "config/model_of_config.h"

#include <lockstep/runner.h>
#include <lockstep/step.h>
#include <lockstep/sys/comm.h>
#include <lockstep/sys/engine.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_MAX_BATCH = 256 };

struct lk_predictor {
    pthread_mutex_t turn; /* a step belongs to one thread */
    lk_engine *engine;
    lk_module *model;
    lk_step *step;
    int64_t max_batch;
    char input_key[64], output_key[64];
};

/* ---- Opening ---- */

static lk_status check(const char *weights, const lk_predictor_options *o)
{
    if (!weights) return lki_fail(LK_ERR_INVALID, "predictor: there is no file of weights");
    if (!o->model == !o->config)
        return lki_fail(LK_ERR_INVALID,
                        "predictor: it needs either .model, which must not be NULL, or .config");
    if (o->max_batch < 0)
        return lki_fail(LK_ERR_RANGE, "predictor: max_batch: %lld is below 0", (long long)o->max_batch);
    if (o->thread_count < 0)
        return lki_fail(LK_ERR_RANGE, "predictor: thread_count: %d is below 0", o->thread_count);
    return LK_OK;
}

static void copy_key(char key[64], const char *given, const char *otherwise)
{
    snprintf(key, 64, "%s", given ? given : *key ? key : otherwise);
}

static lk_status open_parts(lk_predictor *p, const char *weights, const lk_predictor_options *o)
{
    if (o->config) {
        lki_config_model found;
        LKI_TRY(lki_model_of_config(o->config, false, &found));
        p->model = found.module;
        strcpy(p->input_key, found.input_key);
        strcpy(p->output_key, found.output_key);
    }
    if (o->input_key) copy_key(p->input_key, o->input_key, NULL);
    if (o->output_key) copy_key(p->output_key, o->output_key, NULL);
    LKI_TRY(lk_load_weights(p->model, weights));
    p->engine =
        lk_engine_open(o->device ? o->device : "auto", &(lk_engine_options){.thread_count = o->thread_count});
    if (!p->engine) return lki_last_status();
    p->step = lk_step(.model = p->model, .engine = p->engine, .precision = o->precision,
                      .input_key = p->input_key, .output_key = p->output_key, .comm = lk_comm_alone());
    return p->step ? LK_OK : lki_last_status();
}

lk_predictor *lk_predictor_with(const char *weights, const lk_predictor_options *given)
{
    lk_predictor_options options;
    lk_status taken = lki_take(&options, sizeof options, given, "lk_predictor_options");
    lk_predictor *p = taken || check(weights, &options) ? NULL : LKI_NEW(lk_predictor);
    if (!p) {
        lk_module_free(options.model);
        return NULL;
    }
    pthread_mutex_init(&p->turn, NULL);
    p->model = options.model;
    p->max_batch = options.max_batch ? options.max_batch : DEFAULT_MAX_BATCH;
    strcpy(p->input_key, "features");
    strcpy(p->output_key, "logits");
    if (open_parts(p, weights, &options) == LK_OK) return p;
    lk_predictor_free(p);
    return NULL;
}

void lk_predictor_free(lk_predictor *p)
{
    if (!p) return;
    lk_step_free(p->step);
    lk_module_free(p->model);
    if (p->engine) lk_engine_close(p->engine);
    pthread_mutex_destroy(&p->turn);
    lki_free(p);
}

/* ---- Answering ---- */

static lk_status evaluate(lk_predictor *p, const lk_tensor *features)
{
    lk_input input = {p->input_key, features};
    lk_status status = lk_step_evaluate(p->step, &input, 1);
    if (status != LK_ERR_DTYPE) return status;
    /* What the model does not take as it is: plain numbers, else indices. */
    const lk_dtype others[] = {LK_F32, LK_I64};
    for (int i = 0; i < 2 && status == LK_ERR_DTYPE; i++) {
        if (features->dtype == others[i]) continue;
        lk_tensor *fitted = lk_tensor_cast(features, others[i]);
        if (!fitted) return lki_last_status();
        input.tensor = fitted;
        status = lk_step_evaluate(p->step, &input, 1);
        lk_tensor_free(fitted);
    }
    return status;
}

/* The outputs of all parts, one behind the other; the first part tells their shape. */
static lk_status keep(lk_predictor *p, lk_tensor **all, int64_t samples, int64_t begin, int64_t end)
{
    const lk_tensor *part = lk_step_output(p->step, p->output_key);
    if (!part) return lki_last_status();
    if (part->shape.rank < 1 || part->shape.dim[0] != end - begin)
        return lki_fail(LK_ERR_SHAPE, "predictor: the output \"%s\" has no axis of samples", p->output_key);
    lk_shape shape = part->shape;
    shape.dim[0] = samples;
    if (!*all) *all = lk_tensor_create(part->dtype, shape);
    lk_tensor *place = *all ? lk_tensor_slice(*all, 0, begin, end) : NULL;
    if (!place) return lki_last_status();
    lk_status status = lk_tensor_copy(place, part);
    lk_tensor_free(place);
    return status;
}

static lk_status run_parts(lk_predictor *p, const lk_tensor *features, lk_tensor **all)
{
    int64_t samples = features->shape.dim[0];
    for (int64_t begin = 0; begin < samples; begin += p->max_batch) {
        int64_t end = samples - begin < p->max_batch ? samples : begin + p->max_batch;
        lk_tensor *part = lk_tensor_slice(features, 0, begin, end);
        if (!part) return lki_last_status();
        lk_status status = evaluate(p, part);
        lk_tensor_free(part);
        LKI_TRY(status);
        LKI_TRY(keep(p, all, samples, begin, end));
    }
    return LK_OK;
}

lk_tensor *lk_predictor_run(lk_predictor *p, const lk_tensor *features)
{
    lk_tensor *all = NULL, *rows = NULL;
    if (!p || !features) return lki_fail_null(LK_ERR_INVALID, "predictor: NULL was passed");
    if (features->shape.rank < 1 || features->shape.dim[0] < 1)
        return lki_fail_null(LK_ERR_SHAPE, "predictor: the batch has no samples: its first axis counts them");
    if (!lk_tensor_is_contiguous(features) && !(rows = lk_tensor_clone(features))) return NULL;
    pthread_mutex_lock(&p->turn);
    lk_status status = run_parts(p, rows ? rows : features, &all);
    pthread_mutex_unlock(&p->turn);
    lk_tensor_free(rows);
    if (status) lk_tensor_free(all);
    return status ? NULL : all;
}
