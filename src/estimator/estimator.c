/* Making, filling and freeing estimators, and what can be asked of them. */
#include "estimator/estimator.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/dataset.h"
#include "base/take.h"

#include <math.h>
#include <string.h>

/* ---- The config ---- */

static void set_default(double *number, double value)
{
    if (!lki_number_given(*number)) *number = value;
}

static lk_status copy_text(const char **text, const char *fallback)
{
    *text = lki_strdup(*text ? *text : fallback);
    return *text ? LK_OK : LK_ERR_NOMEM;
}

static lk_status check_from_zero(const char *name, double value)
{
    if (value >= 0 && !isinf(value)) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: expected a number of at least 0, found %g", name, value);
}

static lk_status check_numbers(const lk_estimator_config *config)
{
    if (config->n_epochs < 1)
        return lki_fail(LK_ERR_INVALID, "n_epochs: expected at least 1, found %d", config->n_epochs);
    if (config->patience < 1)
        return lki_fail(LK_ERR_INVALID, "patience: expected at least 1, found %d", config->patience);
    if (!(config->lr > 0)) return lki_fail(LK_ERR_INVALID, "lr: expected more than 0, found %g", config->lr);
    if (!(config->min_lr >= 0))
        return lki_fail(LK_ERR_INVALID, "min_lr: expected at least 0, found %g", config->min_lr);
    if (!isfinite(config->lr + config->min_lr))
        return lki_fail(LK_ERR_INVALID, "lr and min_lr: expected finite numbers, found %g and %g", config->lr,
                        config->min_lr);
    if (config->nproc < 0)
        return lki_fail(LK_ERR_INVALID, "nproc: expected 0 for the default, or a number above it, found %d",
                        config->nproc);
    if (config->nfilters < 1)
        return lki_fail(LK_ERR_INVALID, "nfilters: expected at least 1, found %d", config->nfilters);
    LKI_TRY(check_from_zero("min_delta", config->min_delta));
    LKI_TRY(check_from_zero("sigma", config->sigma));
    LKI_TRY(check_from_zero("l1_scale", config->l1_scale));
    LKI_TRY(check_from_zero("ks_scale", config->ks_scale));
    LKI_TRY(check_from_zero("l1_beta", config->l1_beta));
    LKI_TRY(check_from_zero("alpha", config->alpha));
    LKI_TRY(check_from_zero("gamma", config->gamma));
    if (!(config->ks_frac >= 0 && config->ks_frac <= 1))
        return lki_fail(LK_ERR_INVALID, "ks_frac: expected a number between 0 and 1, found %g",
                        config->ks_frac);
    return LK_OK;
}

lk_status lki_config_resolve(lk_estimator_config *config)
{
    lk_status first = copy_text(&config->logdir, "./logs/");
    lk_status second = copy_text(&config->device, "auto");
    lk_status third = copy_text(&config->activation, "relu");
    lk_status fourth = copy_text(&config->tracking, "");
    lk_status fifth = copy_text(&config->experiment, "Default");
    if (first || second || third || fourth || fifth) return LK_ERR_NOMEM;
    if (config->n_epochs == 0) config->n_epochs = 1;
    if (config->patience == 0) config->patience = 10;
    if (config->nfilters == 0) config->nfilters = 6;
    set_default(&config->min_delta, 1e-5);
    set_default(&config->lr, 1e-3);
    set_default(&config->min_lr, config->lr * 1e-2);
    set_default(&config->sigma, 1);
    set_default(&config->ks_frac, 0.5);
    set_default(&config->l1_scale, 1);
    set_default(&config->ks_scale, 1);
    set_default(&config->l1_beta, 1);
    set_default(&config->alpha, 1);
    return check_numbers(config);
}

void lki_config_free(lk_estimator_config *config)
{
    lki_free((char *)config->logdir);
    lki_free((char *)config->device);
    lki_free((char *)config->activation);
    lki_free((char *)config->tracking);
    lki_free((char *)config->experiment);
    lk_criterion_free(config->criterion);
    lk_optimizer_free(config->optimizer);
    lk_scheduler_free(config->scheduler);
    *config = (lk_estimator_config){LK_SIZE(lk_estimator_config)};
}

/* ---- Loaders ---- */

void lki_free_loader_list(lk_loader_list loaders)
{
    for (int i = 0; i < loaders.count; i++) lk_loader_free(loaders.items[i].loader);
}

static void free_loaders(lk_estimator *estimator)
{
    for (int i = 0; i < estimator->loader_count; i++) {
        lki_free((char *)estimator->loaders[i].key);
        lk_loader_free(estimator->loaders[i].loader);
    }
    estimator->loader_count = 0;
}

static lk_status field_shape(const lk_loader *loader, const char *key, lk_shape *out)
{
    const lk_dataset *dataset = lk_loader_dataset(loader);
    int position = lk_dataset_find_field(dataset, key);
    if (position < 0) return lki_fail(LK_ERR_NOT_FOUND, "the samples have no field \"%s\"", key);
    *out = lk_dataset_field(dataset, position)->shape;
    return LK_OK;
}

static lk_status check_loaders(const lk_estimator *estimator, lk_loader_list loaders)
{
    if (loaders.count < 1 || loaders.count > LKI_MAX_ESTIMATOR_LOADERS)
        return lki_fail(LK_ERR_INVALID, "expected 1 to %d loaders, found %d", LKI_MAX_ESTIMATOR_LOADERS,
                        loaders.count);
    for (int i = 0; i < loaders.count; i++) {
        lk_shape features, targets;
        if (!loaders.items[i].loader) /* the last error may be of another one: it goes without the key */
            return lki_last_status()
                       ? lki_last_status()
                       : lki_fail(LK_ERR_INVALID, "loader \"%s\" is NULL", loaders.items[i].key);
        LKI_TRY(field_shape(loaders.items[i].loader, "features", &features));
        LKI_TRY(field_shape(loaders.items[i].loader, "targets", &targets));
        bool known = estimator->features.rank > 0;
        if (known && (!lk_shape_equal(features, estimator->features) ||
                      lk_shape_count(targets) != lk_shape_count(estimator->targets)))
            return lki_fail(LK_ERR_SHAPE, "loader \"%s\": its samples have other shapes than the estimator's",
                            loaders.items[i].key);
    }
    return LK_OK;
}

lk_status lk_estimator_set_loaders(lk_estimator *estimator, lk_loader_list loaders)
{
    lk_status status = estimator ? check_loaders(estimator, loaders) : lki_last_status();
    if (status) {
        lki_free_loader_list(loaders);
        return status;
    }
    free_loaders(estimator);
    for (int i = 0; i < loaders.count; i++) {
        const char *key = lki_strdup(loaders.items[i].key);
        estimator->loaders[estimator->loader_count++] = (lk_named_loader){key, loaders.items[i].loader};
        if (!key) status = LK_ERR_NOMEM;
    }
    if (status) return status;
    LKI_TRY(field_shape(loaders.items[0].loader, "features", &estimator->features));
    return field_shape(loaders.items[0].loader, "targets", &estimator->targets);
}

static lk_tensor *tensor_for(const lk_dataset *dataset, int field)
{
    const lk_field *info = lk_dataset_field(dataset, field);
    lk_shape shape = {.rank = info->shape.rank + 1, .dim = {lk_dataset_length(dataset)}};
    memcpy(shape.dim + 1, info->shape.dim, sizeof *shape.dim * (size_t)info->shape.rank);
    return lk_tensor_create(info->dtype, shape);
}

lk_status lki_gather_samples(lk_dataset *dataset, lk_tensor **features, lk_tensor **targets)
{
    LKI_TRY(lki_dataset_check_length(dataset, "samples"));
    int64_t count = lk_dataset_length(dataset);
    int x = lk_dataset_find_field(dataset, "features"), y = lk_dataset_find_field(dataset, "targets");
    void *destinations[LK_MAX_FIELDS] = {0};
    LKI_SCOPED int64_t *indices = LKI_NEW_ARRAY(int64_t, count);
    if (lk_dataset_field_count(dataset) != 2 || x < 0 || y < 0)
        return lki_fail(LK_ERR_INVALID, "the samples have other fields than features and targets");
    *features = tensor_for(dataset, x);
    *targets = *features ? tensor_for(dataset, y) : NULL;
    if (!indices || !*targets) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < count; i++) indices[i] = i;
    destinations[x] = (*features)->data;
    destinations[y] = (*targets)->data;
    return lk_dataset_gather(dataset, NULL, indices, count, destinations);
}

/* ---- Life ---- */

lk_estimator *lki_estimator_new(const char *name, lk_loader_list loaders, const lk_estimator_config *given)
{
    lk_estimator_config config;
    lk_status status = lki_take(&config, sizeof config, given, "lk_estimator_config");
    lk_estimator *estimator = LKI_NEW(lk_estimator);
    if (!estimator) {
        lki_free_loader_list(loaders);
        return NULL;
    }
    estimator->loss = NAN;
    estimator->config = config;
    estimator->config.callbacks = (lk_callback_list){0};
    for (int i = 0; i < config.callbacks.count; i++) {
        if (i < 16)
            estimator->callbacks[estimator->callback_count++] = config.callbacks.items[i];
        else
            lk_callback_free(config.callbacks.items[i]);
        if (!config.callbacks.items[i]) status = lki_last_status();
    }
    if (config.callbacks.count > 16) status = lki_fail(LK_ERR_INVALID, "callbacks: at most 16 are possible");
    estimator->name = lki_strdup(name);
    lk_status resolved = lki_config_resolve(&estimator->config);
    if (!status) status = estimator->name ? resolved : LK_ERR_NOMEM;
    /* Without loaders it is one that was opened from a file. */
    if (status)
        lki_free_loader_list(loaders);
    else if (loaders.items)
        status = lk_estimator_set_loaders(estimator, loaders);
    if (status == LK_OK) return estimator;
    lki_fail_prefix(status, "%s", name);
    lk_estimator_free(estimator);
    return NULL;
}

lk_estimator *lki_estimator_with_model(lk_estimator *estimator, lk_module *model)
{
    if (estimator && model) {
        estimator->model = model;
        return estimator;
    }
    if (estimator) lki_fail_prefix(lki_last_status(), "%s", estimator->name);
    lk_module_free(model);
    lk_estimator_free(estimator);
    return NULL;
}

lk_estimator *lk_estimator_with(const char *name, lk_module *model, lk_loader_list loaders,
                                const lk_estimator_config *config)
{
    /* The first error is the user's: a model that failed, before loaders that are fine. */
    lki_error first = {0};
    if (!model) lki_error_keep(&first, lki_last_status());
    lk_estimator *estimator = lki_estimator_new(name, loaders, config);
    if (estimator) lki_error_restore(&first);
    return lki_estimator_with_model(estimator, model);
}

void lk_estimator_free(lk_estimator *estimator)
{
    if (!estimator) return;
    lk_runner_free(estimator->runner);
    if (!estimator->runner_owns_model) lk_module_free(estimator->model);
    free_loaders(estimator);
    for (int i = 0; i < estimator->callback_count; i++) lk_callback_free(estimator->callbacks[i]);
    for (int i = 0; i < estimator->history_count; i++) {
        lki_free(estimator->histories[i].key);
        lki_free(estimator->histories[i].losses);
    }
    lki_config_free(&estimator->config);
    lki_krr_free(&estimator->krr);
    lk_state_dict_free(estimator->optimizer_state);
    lki_tracking_free(estimator->tracking);
    lki_free(estimator->name);
    lki_free(estimator);
}

/* ---- What can be asked ---- */

static lki_history *find_history(const lk_estimator *estimator, const char *key)
{
    for (int i = 0; i < estimator->history_count; i++)
        if (strcmp(estimator->histories[i].key, key) == 0) return (lki_history *)&estimator->histories[i];
    return NULL;
}

lk_status lki_history_add(lk_estimator *estimator, const char *key, double loss)
{
    lki_history *history = find_history(estimator, key);
    if (!history) {
        if (estimator->history_count == LKI_MAX_ESTIMATOR_LOADERS) return LK_OK;
        char *copy = lki_strdup(key);
        if (!copy) return LK_ERR_NOMEM;
        history = &estimator->histories[estimator->history_count++];
        *history = (lki_history){.key = copy};
    }
    if (history->count == history->capacity) {
        int64_t capacity = history->capacity ? history->capacity * 2 : 64;
        double *grown = lki_realloc(history->losses, sizeof(double) * (size_t)capacity, "losses");
        if (!grown) return LK_ERR_NOMEM;
        history->losses = grown;
        history->capacity = capacity;
    }
    history->losses[history->count++] = loss;
    return LK_OK;
}

int64_t lk_estimator_history(const lk_estimator *estimator, const char *loader_key, const double **losses)
{
    const lki_history *history = estimator ? find_history(estimator, loader_key) : NULL;
    *losses = history ? history->losses : NULL;
    return history ? history->count : 0;
}

const char *lk_estimator_name(const lk_estimator *estimator)
{
    return estimator->name;
}

lk_module *lk_estimator_model(const lk_estimator *estimator)
{
    return estimator->model;
}

const lk_estimator_config *lk_estimator_get_config(const lk_estimator *estimator)
{
    return &estimator->config;
}

int64_t lk_estimator_epoch(const lk_estimator *estimator)
{
    return estimator->epoch;
}

double lk_estimator_loss(const lk_estimator *estimator)
{
    return estimator->loss;
}

double lk_estimator_runtime(const lk_estimator *estimator)
{
    return estimator->runtime_s;
}
