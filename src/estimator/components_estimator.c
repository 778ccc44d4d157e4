/* Estimators by name, and the call that trains one: `_call_: train_estimator`. */
#include "estimator/estimator.h"

#include "base/arguments.h"
#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "config/build.h"
#include "config/components/components.h"

#include <string.h>

enum { MAX_CALLBACKS = 16 };

/* ---- What every estimator has ---- */

typedef struct parts {
    lk_named_loader loaders[LKI_MAX_ESTIMATOR_LOADERS];
    lk_callback *callbacks[MAX_CALLBACKS];
    lk_loader_list loader_list;
    lk_estimator_config config;
} parts;

static lk_status check_counts(lk_args *args, int callbacks)
{
    int loaders = lk_arg_count(args, "loaders");
    if (loaders < 1 || loaders > LKI_MAX_ESTIMATOR_LOADERS)
        return lki_fail(LK_ERR_CONFIG, "loaders: expected 1 to %d, found %d", LKI_MAX_ESTIMATOR_LOADERS,
                        loaders);
    if (callbacks > MAX_CALLBACKS)
        return lki_fail(LK_ERR_CONFIG, "callbacks: at most %d are possible", MAX_CALLBACKS);
    for (int i = 0; i < loaders; i++)
        if (!lk_arg_key_at(args, "loaders", i))
            return lki_fail(LK_ERR_CONFIG, "loaders: expected a map of loaders, as in train: {...}");
    return LK_OK;
}

/* What an estimator has that is solved instead of trained. */
static void read_plain(lk_args *args, lk_estimator_config *config)
{
    config->logdir = lk_arg_string(args, "logdir");
    config->device = lk_arg_string(args, "device");
    config->verbose = lk_arg_bool(args, "verbose");
    config->tracking = lk_arg_string(args, "tracking");
    config->experiment = lk_arg_string(args, "experiment");
}

static void read_numbers(lk_args *args, lk_estimator_config *config)
{
    config->n_epochs = lk_arg_int(args, "n_epochs");
    config->patience = lk_arg_int(args, "patience");
    config->min_delta = lki_number_meant(lk_arg_float(args, "min_delta"));
    config->lr = lki_number_meant(lk_arg_float(args, "lr"));
    if (lk_arg_given(args, "min_lr")) config->min_lr = lki_number_meant(lk_arg_float(args, "min_lr"));
    config->ddp = lk_arg_bool(args, "ddp");
    config->nproc = lk_arg_int(args, "nproc");
}

/* Zero is a default in a config struct; one in a file is a mistake or is meant. */
static lk_status read_training(lk_args *args, parts *p)
{
    lk_estimator_config *config = &p->config;
    read_numbers(args, config);
    if (config->n_epochs < 1)
        return lki_fail(LK_ERR_CONFIG, "n_epochs: expected at least 1, found %d", config->n_epochs);
    if (config->patience < 1)
        return lki_fail(LK_ERR_CONFIG, "patience: expected at least 1, found %d", config->patience);
    config->criterion = lk_arg_take(args, "criterion");
    config->optimizer = lk_arg_take(args, "optimizer");
    config->scheduler = lk_arg_take(args, "scheduler");
    config->callbacks = (lk_callback_list){p->callbacks, lk_arg_count(args, "callbacks")};
    for (int i = 0; i < config->callbacks.count; i++) p->callbacks[i] = lk_arg_take_at(args, "callbacks", i);
    return LK_OK;
}

static lk_status read_parts(lk_args *args, bool is_trained, parts *p)
{
    LKI_TRY(check_counts(args, is_trained ? lk_arg_count(args, "callbacks") : 0));
    read_plain(args, &p->config);
    if (lk_arg_given(args, "experiment") && !p->config.tracking)
        return lki_fail(LK_ERR_CONFIG, "experiment: nothing is recorded: write tracking: mlruns");
    if (is_trained) LKI_TRY(read_training(args, p));
    p->loader_list = (lk_loader_list){p->loaders, lk_arg_count(args, "loaders")};
    for (int i = 0; i < p->loader_list.count; i++)
        p->loaders[i] =
            (lk_named_loader){lk_arg_key_at(args, "loaders", i), lk_arg_take_at(args, "loaders", i)};
    return LK_OK;
}

lk_estimator *lk_estimator_from_args(const char *name, lk_module *model, lk_args *args)
{
    parts p = {.config = {LK_SIZE(lk_estimator_config)}};
    if (!model) return NULL;
    if (read_parts(args, true, &p)) {
        lk_module_free(model);
        return NULL;
    }
    return lk_estimator_with(name, model, p.loader_list, &p.config);
}

/* ---- The library's own ---- */

typedef lk_estimator *(*maker)(lk_loader_list loaders, const lk_estimator_config *config);

typedef struct known_estimator {
    maker create;
    bool picae, pimlturb, krr; /* which numbers of its own it has */
} known_estimator;

static lk_status read_own(lk_args *args, const known_estimator *known, lk_estimator_config *config)
{
    if (known->picae) {
        config->nfilters = lk_arg_int(args, "nfilters");
        if (config->nfilters < 1) return lki_fail(LK_ERR_CONFIG, "nfilters: expected at least 1");
    }
    if (known->pimlturb) {
        config->activation = lk_arg_string(args, "activation");
        config->sigma = lki_number_meant(lk_arg_float(args, "sigma"));
        config->ks_frac = lki_number_meant(lk_arg_float(args, "ks_frac"));
        config->l1_scale = lki_number_meant(lk_arg_float(args, "l1_scale"));
        config->ks_scale = lki_number_meant(lk_arg_float(args, "ks_scale"));
        config->l1_beta = lki_number_meant(lk_arg_float(args, "l1_beta"));
    }
    if (known->krr) {
        config->alpha = lki_number_meant(lk_arg_float(args, "alpha"));
        if (lk_arg_given(args, "gamma")) config->gamma = lk_arg_float(args, "gamma");
        if (config->alpha < 0) return lki_fail(LK_ERR_CONFIG, "alpha: expected at least 0");
        if (lk_arg_given(args, "gamma") && !(config->gamma > 0))
            return lki_fail(LK_ERR_CONFIG, "gamma: expected more than 0");
    }
    return LK_OK;
}

static lk_status build_known(const lk_component *self, lk_args *args, void **out)
{
    const known_estimator *known = self->context;
    parts p = {.config = {LK_SIZE(lk_estimator_config)}};
    LKI_TRY(read_own(args, known, &p.config));
    LKI_TRY(read_parts(args, !known->krr, &p));
    return lki_built(known->create(p.loader_list, &p.config), out);
}

static lk_status build_own(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_estimator_from_args(lk_arg_string(args, "name"), lk_arg_take(args, "model"), args),
                     out);
}

/* ---- train_estimator ---- */

static lk_status check_format(lk_args *args)
{
    if (!lk_arg_given(args, "format") || lk_arg_given(args, "pictures")) return LK_OK;
    return lki_fail(LK_ERR_CONFIG, "format: no pictures are drawn: write pictures: FOLDER");
}

/* The samples to measure with, held beyond the run, which uses the loaders up. */
static lk_status find_dataset(const lk_estimator *estimator, const char *key, lk_dataset **out)
{
    for (int i = estimator->loader_count - 1; i >= 0; i--) {
        if (key && strcmp(estimator->loaders[i].key, key) != 0) continue;
        *out = lk_dataset_share(lk_loader_dataset(estimator->loaders[i].loader));
        return *out ? LK_OK : lki_last_status();
    }
    return lki_fail(LK_ERR_CONFIG, "evaluate: there is no loader \"%.60s\"", key ? key : "");
}

/* The run with all that was said for it, beside its logs: a config again. */
static lk_status keep_config(lk_args *args, lk_estimator *estimator)
{
    LKI_SCOPED char *text = NULL;
    LKI_TRY(lki_tree_to_yaml(args->plan->tree, &text));
    LKI_SCOPED char *path = lki_format("%s/config.yml", estimator->config.logdir);
    if (!path) return LK_ERR_NOMEM;
    LKI_TRY(lki_make_folders(estimator->config.logdir));
    LKI_TRY(lki_write_file_atomic(path, text, strlen(text)));
    return estimator->tracking ? lki_tracking_artifact(estimator->tracking, path) : LK_OK;
}

static lk_status call_train(const lk_component *self, lk_args *args, void **out)
{
    lk_estimator *estimator = lk_arg_peek(args, "estimator");
    lk_dataset *dataset = NULL;
    lki_report_options options = {.save = lk_arg_string(args, "save"),
                                  .pictures = lk_arg_string(args, "pictures"),
                                  .format = lk_arg_string(args, "format")};
    (void)self, (void)out;
    if (args->status) return args->status;
    LKI_TRY(check_format(args));
    LKI_TRY(find_dataset(estimator, lk_arg_string(args, "evaluate"), &dataset));
    lk_status status = lk_estimator_train(estimator);
    if (!status && lki_estimator_is_master()) {
        status = keep_config(args, estimator);
        if (!status) status = lki_estimator_report(estimator, dataset, &options);
    }
    lk_dataset_free(dataset);
    return status;
}

/* A saved one on a loader of the config that it was trained with. */
static lk_status call_evaluate(const lk_component *self, lk_args *args, void **out)
{
    lk_estimator *estimator = lk_arg_peek(args, "estimator");
    lk_dataset *dataset = NULL;
    lki_report_options options = {.pictures = lk_arg_string(args, "pictures"),
                                  .format = lk_arg_string(args, "format")};
    (void)self, (void)out;
    if (args->status) return args->status;
    LKI_TRY(check_format(args));
    LKI_TRY(find_dataset(estimator, lk_arg_string(args, "evaluate"), &dataset));
    lk_status status = LK_OK;
    if (lki_estimator_is_master()) {
        status = lk_estimator_load(estimator, lk_arg_string(args, "load"));
        if (!status) status = lki_estimator_report(estimator, dataset, &options);
    }
    lk_dataset_free(dataset);
    return status;
}

/* ---- The tables ---- */

#define NUMBER(name_, default_, help_) LK_ESTIMATOR_PARAMETER_(name_, FLOAT, default_, help_)

static const lk_parameter cnn3d_parameters[] = {LK_ESTIMATOR_PARAMETERS, {0}};
static const lk_parameter picae_parameters[] = {
    LK_ESTIMATOR_PARAMETERS,
    LK_ESTIMATOR_PARAMETER_("nfilters", INT, "6", "Channels between its layers."),
    {0}};
static const lk_parameter pimlturb_parameters[] = {
    LK_ESTIMATOR_PARAMETERS,
    {.name = "activation",
     .type = LK_PARAMETER_STRING,
     .default_value = "relu",
     .choices = "relu|tanh|silu|leaky_relu",
     .help = "Between the convolutions."},
    NUMBER("sigma", "1", "Of the Gaussian layer, in points."),
    NUMBER("ks_frac", "0.5", "The share of the KS term."),
    NUMBER("l1_scale", "1", "Multiplies the SmoothL1 term."),
    NUMBER("ks_scale", "1", "Multiplies the KS term."),
    NUMBER("l1_beta", "1", "Where SmoothL1 turns from square to line."),
    {0}};
/* Of the estimators in whose place it may stand. */
#define SOLVED(name_) LKI_NO_EFFECT(name_, NULL, "it is solved, not trained")
static const lk_parameter krr_parameters[] = {
    LK_SOLVED_ESTIMATOR_PARAMETERS_,
    NUMBER("alpha", "1", "The ridge."),
    NUMBER("gamma", "", "The kernel's; 1 / channels."),
    SOLVED("n_epochs"),
    SOLVED("patience"),
    SOLVED("min_delta"),
    SOLVED("lr"),
    SOLVED("min_lr"),
    SOLVED("ddp"),
    SOLVED("nproc"),
    SOLVED("criterion"),
    SOLVED("optimizer"),
    SOLVED("scheduler"),
    SOLVED("callbacks"),
    {0},
};
static const lk_parameter own_parameters[] = {
    LK_ESTIMATOR_PARAMETER_("name", STRING, NULL, "What it is called in logs and files."),
    LK_ESTIMATOR_PART_("model", OBJECT, MODULE, NULL, "Its output has as many numbers as the targets."),
    LK_ESTIMATOR_PARAMETERS,
    {0}};
#define CALL_PARAMETERS                                                                                      \
    LK_ESTIMATOR_PART_("estimator", OBJECT, ESTIMATOR, NULL, "Which one."),                                  \
        LK_ESTIMATOR_PARAMETER_("seed", INT64, "42", "Of all random numbers."),                              \
        LK_ESTIMATOR_PARAMETER_("evaluate", STRING, "", "The loader to measure it on; the last one."),       \
        LK_ESTIMATOR_PARAMETER_("pictures", STRING, "", "A folder for pictures of what it predicts."),       \
    {                                                                                                        \
        .name = "format", .type = LK_PARAMETER_STRING, .default_value = "png", .choices = "png|svg",         \
        .help = "Of the pictures."                                                                           \
    }
static const lk_parameter train_parameters[] = {
    CALL_PARAMETERS, LK_ESTIMATOR_PARAMETER_("save", STRING, "", "A folder for the model."), {0}};
static const lk_parameter evaluate_parameters[] = {
    CALL_PARAMETERS, LK_ESTIMATOR_PARAMETER_("load", STRING, NULL, "The folder that it was saved in."), {0}};

static const known_estimator cnn3d = {.create = lk_cnn3d_with};
static const known_estimator picae = {.create = lk_picae_with, .picae = true};
static const known_estimator pimlturb1d = {.create = lk_pimlturb1d_with, .pimlturb = true};
static const known_estimator pimlturb3d = {.create = lk_pimlturb3d_with, .pimlturb = true};
static const known_estimator krr = {.create = lk_krr_with, .krr = true};

#define KNOWN(name_, aliases_, help_, table_, known_)                                                        \
    {                                                                                                        \
        .name = name_, .aliases = aliases_, .kind = LK_KIND_ESTIMATOR, .help = help_,                        \
        .parameters = table_##_parameters, .build = build_known, .context = &known_                          \
    }

const lk_component lki_estimator_table[] = {
    KNOWN("CNN3dEstimator", "sapsan.lib.estimators.CNN3d", "The convolutional network in three dimensions.",
          cnn3d, cnn3d),
    KNOWN("PICAEEstimator", "sapsan.lib.estimators.PICAE", "The autoencoder without divergence.", picae,
          picae),
    KNOWN("PIMLturb1DEstimator", "sapsan.lib.estimators.PIMLturb1D",
          "Positive turbulent quantities in one dimension.", pimlturb, pimlturb1d),
    KNOWN("PIMLturb3DEstimator", "sapsan.lib.estimators.PIMLturb",
          "Positive turbulent quantities in three dimensions.", pimlturb, pimlturb3d),
    KNOWN("KRR", "KRREstimator sapsan.lib.estimators.KRR",
          "Kernel ridge regression, point by point; it is solved, not trained.", krr, krr),
    {.name = "Estimator",
     .kind = LK_KIND_ESTIMATOR,
     .help = "Any model.",
     .parameters = own_parameters,
     .build = build_own},
    {.name = "train_estimator",
     .kind = LK_KIND_CALL,
     .help = "Trains an estimator, then measures it, saves it and draws what it predicts.",
     .parameters = train_parameters,
     .build = call_train},
    {.name = "evaluate_estimator",
     .kind = LK_KIND_CALL,
     .help = "Measures a saved estimator and draws what it predicts.",
     .parameters = evaluate_parameters,
     .build = call_evaluate},
    {0},
};
