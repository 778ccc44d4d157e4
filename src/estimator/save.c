/* Estimators on disk: model.safetensors (weights under PyTorch's names, the optimizer's state, epoch, loss)
 * and params.json (name, shapes, config). */
#include "estimator/estimator.h"

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/json_file.h"
#include "graph/home.h"
#include "nn/module.h"
#include "resume/model_state.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Writing ---- */

static lk_status copy_strings(const lk_state_dict *from, lk_state_dict *to)
{
    for (int64_t i = 0; i < lk_state_dict_string_count(from); i++) {
        const char *name = lk_state_dict_string_name(from, i);
        if (strncmp(name, "optimizer.", 10) != 0) continue;
        LKI_TRY(lk_state_dict_put_string(to, name, lk_state_dict_get_string(from, name)));
    }
    return LK_OK;
}

/* The tensors of the last run's optimizer beside the weights; both dicts hold views of the same memory. */
static lk_status add_optimizer(const lk_estimator *estimator, lk_state_dict *state)
{
    const lk_state_dict *from = estimator->optimizer_state;
    if (from) LKI_TRY(copy_strings(from, state));
    for (int64_t i = 0; from && i < lk_state_dict_count(from); i++)
        LKI_TRY(lk_state_dict_put(state, lk_state_dict_name(from, i),
                                  lk_tensor_view(lk_state_dict_tensor(from, i))));
    LKI_TRY(lk_state_dict_put_i64(state, "epoch", estimator->epoch));
    return lk_state_dict_put_f64(state, "loss", estimator->loss);
}

static lk_status add_weights(const lk_module *model, lk_state_dict *state)
{
    lk_param_list params;
    LKI_TRY(lki_module_params(model, &params));
    lk_status status = LK_OK;
    for (int i = 0; i < params.count && !status; i++) {
        status = lki_param_pull(params.items[i].param);
        if (!status)
            status =
                lk_state_dict_put(state, params.items[i].path, lk_tensor_view(params.items[i].param->value));
    }
    lk_param_list_free(&params);
    return status;
}

/* In both files: which params.json the weights were saved with. A save that ended between the two files has
 * left weights beside another config, under which they mean something else. */
#define SAVE_KEY "save"

static lk_status save_tensors(const lk_estimator *estimator, const char *save, const char *path)
{
    lk_state_dict *state = lk_state_dict_create();
    if (!state) return lki_last_status();
    lk_status status =
        estimator->is_krr ? lki_krr_save(&estimator->krr, state) : add_weights(estimator->model, state);
    if (!status) status = add_optimizer(estimator, state);
    if (!status) status = lk_state_dict_put_string(state, SAVE_KEY, save);
    if (!status) status = lk_save_safetensors(path, state);
    lk_state_dict_free(state);
    return status;
}

static json_t *shape_json(lk_shape shape)
{
    json_t *sizes = json_array();
    for (int i = 0; i < shape.rank; i++) json_array_append_new(sizes, json_integer(shape.dim[i]));
    return sizes;
}

/* X(type, name): what params.json keeps of a config. A count is an integer of at least 1. */
#define CONFIG_LIST(X)                                                                                       \
    X(count, n_epochs)                                                                                       \
    X(count, patience)                                                                                       \
    X(real, min_delta)                                                                                       \
    X(text, logdir)                                                                                          \
    X(real, lr)                                                                                              \
    X(real, min_lr)                                                                                          \
    X(text, device)                                                                                          \
    X(boolean, ddp)                                                                                          \
    X(integer, nproc)                                                                                        \
    X(text, tracking)                                                                                        \
    X(text, experiment)                                                                                      \
    X(count, nfilters)                                                                                       \
    X(text, activation)                                                                                      \
    X(real, sigma)                                                                                           \
    X(real, ks_frac)                                                                                         \
    X(real, l1_scale)                                                                                        \
    X(real, ks_scale)                                                                                        \
    X(real, l1_beta)                                                                                         \
    X(real, alpha)                                                                                           \
    X(real, gamma)

#define put_integer(value) json_integer(value)
#define put_count(value)   json_integer(value)
#define put_real(value)    json_real(value)
#define put_boolean(value) json_boolean(value)
#define put_text(value)    json_string(value)

/* NULL where a text is not UTF-8. */
static json_t *make_params(const lk_estimator *estimator)
{
    const lk_estimator_config *config = &estimator->config;
    json_t *params = json_object();
    int failures = json_object_set_new(params, "estimator", json_string(estimator->name)) != 0;
    json_object_set_new(params, "features", shape_json(estimator->features));
    json_object_set_new(params, "targets", shape_json(estimator->targets));
#define X(type, name) failures += json_object_set_new(params, #name, put_##type(config->name)) != 0;
    CONFIG_LIST(X)
#undef X
    if (!failures) return params;
    json_decref(params);
    return NULL;
}

/* The same for the same params, so that the same estimator gives the same files. */
static lk_status name_save(json_t *params, char *save, size_t capacity)
{
    char *text = json_dumps(params, JSON_COMPACT);
    if (!text) return lki_fail(LK_ERR_NOMEM, "out of memory for params.json");
    snprintf(save, capacity, "%08x", (unsigned)lki_crc32c(0, text, strlen(text)));
    free(text);
    json_object_set_new(params, SAVE_KEY, json_string(save));
    return LK_OK;
}

lk_status lk_estimator_save(lk_estimator *estimator, const char *folder)
{
    if (!estimator) return lki_last_status();
    char save[16];
    LKI_SCOPED char *model = lki_format("%s/model.safetensors", folder);
    LKI_SCOPED char *path = lki_format("%s/params.json", folder);
    if (!model || !path) return LK_ERR_NOMEM;
    json_t *params = make_params(estimator);
    if (!params) return lki_fail(LK_ERR_INVALID, "%s: the config holds text that is not UTF-8", path);
    lk_status status = name_save(params, save, sizeof save);
    if (!status) status = lki_make_folders(folder);
    if (!status) status = save_tensors(estimator, save, model);
    if (status) {
        json_decref(params);
        return status;
    }
    LKI_TRY(lki_json_save(path, params));
    if (!estimator->tracking) return LK_OK;
    LKI_TRY(lki_tracking_artifact(estimator->tracking, model));
    return lki_tracking_artifact(estimator->tracking, path);
}

/* ---- Reading ---- */

static lk_status bad_param(const char *path, const char *name)
{
    return lki_fail(LK_ERR_FORMAT, "%s: \"%s\" is missing or of the wrong kind", path, name);
}

static bool read_at_least(const json_t *value, int minimum, int *out)
{
    json_int_t number = json_integer_value(value);
    *out = (int)number;
    return json_is_integer(value) && number >= minimum && number <= INT_MAX;
}

static bool read_integer(const json_t *value, int *out)
{
    return read_at_least(value, 0, out);
}

static bool read_count(const json_t *value, int *out)
{
    return read_at_least(value, 1, out);
}

static bool read_real(const json_t *value, double *out)
{
    *out = lki_number_meant(json_number_value(value));
    return json_is_number(value);
}

static bool read_boolean(const json_t *value, bool *out)
{
    *out = json_is_true(value);
    return json_is_boolean(value);
}

static bool read_text(const json_t *value, const char **out)
{
    *out = json_string_value(value);
    return json_is_string(value);
}

/* Texts are borrowed from the document. */
static lk_status read_config(const json_t *params, const char *path, lk_estimator_config *config)
{
#define X(type, name)                                                                                        \
    if (!read_##type(json_object_get(params, #name), &config->name)) return bad_param(path, #name);
    CONFIG_LIST(X)
#undef X
    return LK_OK;
}

/* ---- A config alone ---- */

/* What lk_estimator_config_read gives: the config first, then the document that its texts belong to. */
typedef struct config_file {
    lk_estimator_config config;
    json_t *document;
} config_file;

#define expected_integer "an integer of at least 0"
#define expected_count   "an integer of at least 1"
#define expected_real    "a number"
#define expected_boolean "true or false"
#define expected_text    "a text"

static lk_status fail_value(const char *path, const char *key, const char *expected, const json_t *value)
{
    char *found = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    lk_status status = lki_fail(LK_ERR_CONFIG, "%s: \"%s\": expected %s, found %.60s", path, key, expected,
                                found ? found : "something else");
    free(found);
    return status;
}

/* Zero is a default in a config struct; one in a file is a mistake or is meant. */
static lk_status check_some(const json_t *document, const char *path, const lk_estimator_config *config)
{
    const json_t *alpha = json_object_get(document, "alpha"), *gamma = json_object_get(document, "gamma");
    if (alpha && config->alpha < 0) return fail_value(path, "alpha", "at least 0", alpha);
    if (gamma && !(config->gamma > 0)) return fail_value(path, "gamma", "more than 0", gamma);
    return LK_OK;
}

static lk_status read_some(const json_t *document, const char *path, lk_estimator_config *config)
{
    const char *key;
    json_t *value;
    if (!json_is_object(document)) return lki_fail(LK_ERR_FORMAT, "%s: expected an object", path);
    json_object_foreach((json_t *)document, key, value)
    {
        bool known = false;
#define X(type, name)                                                                                        \
    if (strcmp(key, #name) == 0) {                                                                           \
        known = true;                                                                                        \
        if (!read_##type(value, &config->name)) return fail_value(path, key, expected_##type, value);        \
    }
        CONFIG_LIST(X)
        X(boolean, verbose)
#undef X
        if (!known) return lki_fail(LK_ERR_CONFIG, "%s: \"%s\" is not a name of the config", path, key);
    }
    return check_some(document, path, config);
}

lk_estimator_config *lk_estimator_config_read(const char *path)
{
    config_file *file = LKI_NEW(config_file);
    if (!file) return NULL;
    file->config.struct_size = sizeof file->config;
    if (lki_json_load(&file->document, path) || read_some(file->document, path, &file->config)) {
        lk_estimator_config_free(&file->config);
        return NULL;
    }
    return &file->config;
}

void lk_estimator_config_free(lk_estimator_config *config)
{
    if (!config) return;
    config_file *file = (config_file *)config;
    json_decref(file->document);
    lki_free(file);
}

static lk_status read_shape(const json_t *params, const char *path, const char *name, lk_shape *shape)
{
    const json_t *sizes = json_object_get(params, name);
    size_t rank = json_array_size(sizes);
    if (!json_is_array(sizes) || rank < 1 || rank >= LK_MAX_DIMS) return bad_param(path, name);
    shape->rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *size = json_array_get(sizes, i);
        if (!json_is_integer(size) || json_integer_value(size) < 1) return bad_param(path, name);
        shape->dim[i] = json_integer_value(size);
    }
    return LK_OK;
}

static lk_status take_tensors(lk_estimator *estimator, const lk_state_dict *state, const char *path)
{
    if (estimator->is_krr)
        LKI_TRY(lki_krr_load(estimator, state));
    else
        LKI_TRY(lki_model_restore(estimator->model, state, path));
    LKI_TRY(lk_state_dict_get_i64(state, "epoch", &estimator->epoch));
    LKI_TRY(lk_state_dict_get_f64(state, "loss", &estimator->loss));
    lk_state_dict *optimizer = NULL;
    lk_status status = LK_OK;
    for (int64_t i = 0; i < lk_state_dict_count(state) && !status; i++) {
        const char *name = lk_state_dict_name(state, i);
        if (strncmp(name, "optimizer.", 10) != 0) continue;
        if (!optimizer && !(optimizer = lk_state_dict_create())) return LK_ERR_NOMEM;
        status = lk_state_dict_put(optimizer, name, lk_tensor_clone(lk_state_dict_tensor(state, i)));
    }
    if (optimizer && !status) status = copy_strings(state, optimizer);
    if (status) {
        lk_state_dict_free(optimizer);
        return status;
    }
    lk_state_dict_free(estimator->optimizer_state);
    estimator->optimizer_state = optimizer;
    return LK_OK;
}

/* The loaded numbers over the estimator's own; the parts it was made with stay. */
static lk_status take_config(lk_estimator *estimator, const json_t *params, const char *path)
{
    lk_estimator_config loaded = {LK_SIZE(lk_estimator_config)};
    LKI_TRY(read_config(params, path, &loaded));
    loaded.verbose = estimator->config.verbose;
    loaded.backend = estimator->config.backend;
    LKI_TRY(lki_config_resolve(&loaded));
    loaded.criterion = estimator->config.criterion;
    loaded.optimizer = estimator->config.optimizer;
    loaded.scheduler = estimator->config.scheduler;
    estimator->config.criterion = NULL;
    estimator->config.optimizer = NULL;
    estimator->config.scheduler = NULL;
    lki_config_free(&estimator->config);
    estimator->config = loaded;
    return LK_OK;
}

static lk_status check_params(const lk_estimator *estimator, const json_t *params, const char *path)
{
    lk_shape features, targets;
    const char *name = json_string_value(json_object_get(params, "estimator"));
    if (!name) return bad_param(path, "estimator");
    if (strcmp(name, estimator->name) != 0)
        return lki_fail(LK_ERR_INVALID, "%s: a %s, not a %s", path, name, estimator->name);
    LKI_TRY(read_shape(params, path, "features", &features));
    LKI_TRY(read_shape(params, path, "targets", &targets));
    if (!lk_shape_equal(features, estimator->features) ||
        lk_shape_count(targets) != lk_shape_count(estimator->targets))
        return lki_fail(LK_ERR_SHAPE, "%s: made for samples of other shapes", path);
    return LK_OK;
}

/* Files from before there was such a word have it in neither. */
static lk_status check_pair(const json_t *params, const lk_state_dict *state, const char *path)
{
    const char *of_params = json_string_value(json_object_get(params, SAVE_KEY));
    const char *of_tensors = lk_state_dict_get_string(state, SAVE_KEY);
    if (!of_params && !of_tensors) return LK_OK;
    if (of_params && of_tensors && !strcmp(of_params, of_tensors)) return LK_OK;
    return lki_fail(LK_ERR_FORMAT, "%s: it was not saved together with the params.json beside it", path);
}

lk_status lk_estimator_load(lk_estimator *estimator, const char *folder)
{
    if (!estimator) return lki_last_status();
    json_t *params = NULL;
    lk_state_dict *state = NULL;
    LKI_SCOPED char *model_path = lki_format("%s/model.safetensors", folder);
    LKI_SCOPED char *params_path = lki_format("%s/params.json", folder);
    if (!model_path || !params_path) return LK_ERR_NOMEM;
    LKI_TRY(lki_json_load(&params, params_path));
    lk_status status = check_params(estimator, params, params_path);
    if (!status && !(state = lk_load_safetensors(model_path))) status = lki_last_status();
    if (!status) status = check_pair(params, state, model_path);
    if (!status) status = take_tensors(estimator, state, model_path);
    if (!status) status = take_config(estimator, params, params_path);
    lk_state_dict_free(state);
    json_decref(params);
    return status;
}

/* ---- By name ---- */

lk_estimator *lki_estimator_by_name(const char *name, lk_shape features, lk_shape targets,
                                    lk_estimator_config config)
{
    lk_estimator *estimator = lki_estimator_new(name, (lk_loader_list){0}, &config);
    if (!estimator) return NULL;
    estimator->features = features;
    estimator->targets = targets;
    if (strcmp(name, "KRR") == 0) {
        estimator->is_krr = true;
        return estimator;
    }
    lk_module *model = NULL;
    bool piml1 = strcmp(name, "PIMLturb1D") == 0, piml3 = strcmp(name, "PIMLturb3D") == 0;
    if (strcmp(name, "CNN3d") == 0)
        model = lki_cnn3d_model(estimator);
    else if (strcmp(name, "PICAE") == 0)
        model = lki_picae_model(estimator);
    else if (piml1 || piml3)
        model = lki_pimlturb_model(estimator, piml1 ? 1 : 3);
    else
        lki_fail(LK_ERR_NOT_FOUND, "not one of the library's estimators: make it, then lk_estimator_load");
    if (model && (piml1 || piml3)) estimator->config.criterion = lki_pimlturb_criterion(&estimator->config);
    return lki_estimator_with_model(estimator, model);
}

lk_estimator *lk_estimator_open(const char *folder)
{
    json_t *params = NULL;
    lk_estimator *estimator = NULL;
    lk_estimator_config config = {LK_SIZE(lk_estimator_config)};
    lk_shape features, targets;
    LKI_SCOPED char *path = lki_format("%s/params.json", folder);
    if (!path || lki_json_load(&params, path)) return NULL;
    const char *name = json_string_value(json_object_get(params, "estimator"));
    if (!name)
        bad_param(path, "estimator");
    else if (read_config(params, path, &config) == LK_OK &&
             read_shape(params, path, "features", &features) == LK_OK &&
             read_shape(params, path, "targets", &targets) == LK_OK)
        estimator = lki_estimator_by_name(name, features, targets, config);
    json_decref(params);
    if (estimator && lk_estimator_load(estimator, folder)) {
        lk_estimator_free(estimator);
        estimator = NULL;
    }
    return estimator;
}
