/* Callbacks that report metrics of the outputs. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"

#include <lockstep/callback.h>

#include <string.h>

typedef struct metric {
    lk_callback *(*create)(const lk_metric_callback_options *options);
} metric;

static bool has(const lk_component *self, const char *name)
{
    for (const lk_parameter *p = self->parameters; p->name; p++)
        if (!strcmp(p->name, name)) return true;
    return false;
}

static lk_status read_topk(lk_args *args, int topk[LK_MAX_TOPK])
{
    int count = lk_arg_count(args, "topk");
    if (count > LK_MAX_TOPK) return lki_fail(LK_ERR_CONFIG, "topk: at most %d, found %d", LK_MAX_TOPK, count);
    for (int i = 0; i < count; i++) {
        topk[i] = lk_arg_int_at(args, "topk", i);
        if (topk[i] < 1) return lki_fail(LK_ERR_CONFIG, "topk: expected at least 1, found %d", topk[i]);
    }
    return LK_OK;
}

/* num_classes names; the caller frees the array, not the texts. */
static lk_status read_class_names(lk_args *args, lk_metric_callback_options *options, const char ***names)
{
    int count = lk_arg_count(args, "class_names");
    if (count == 0) return LK_OK;
    if (options->num_classes && options->num_classes != count)
        return lki_fail(LK_ERR_CONFIG, "class_names: %d names for %d classes", count, options->num_classes);
    *names = LKI_NEW_ARRAY(const char *, count + 1);
    if (!*names) return LK_ERR_NOMEM;
    for (int i = 0; i < count; i++) (*names)[i] = lk_arg_string_at(args, "class_names", i);
    options->class_names = *names;
    options->num_classes = count;
    return LK_OK;
}

static lk_status build_metric(const lk_component *self, lk_args *args, void **out)
{
    const metric *kind = self->context;
    LKI_SCOPED const char **names = NULL;
    lk_metric_callback_options options = {
        LK_SIZE(lk_metric_callback_options),
        .input_key = lk_arg_string(args, "input_key"),
        .target_key = lk_arg_string(args, "target_key"),
        .prefix = lk_arg_string(args, "prefix"),
        .suffix = lk_arg_string(args, "suffix"),
    };
    if (has(self, "log_on_batch")) options.no_log_on_batch = !lk_arg_bool(args, "log_on_batch");
    if (has(self, "num_classes")) options.num_classes = lk_arg_int(args, "num_classes");
    if (has(self, "topk")) LKI_TRY(read_topk(args, options.topk));
    if (has(self, "zero_division")) options.zero_division = lk_arg_float(args, "zero_division");
    if (has(self, "compute_per_class_metrics"))
        options.compute_per_class_metrics = lk_arg_bool(args, "compute_per_class_metrics");
    if (has(self, "threshold") && lk_arg_given(args, "threshold"))
        options.threshold = lki_number_meant(lk_arg_float(args, "threshold"));
    if (has(self, "from_logits")) options.from_logits = lk_arg_bool(args, "from_logits");
    if (has(self, "class_names")) LKI_TRY(read_class_names(args, &options, &names));
    if (has(self, "num_bins")) {
        options.num_bins = lk_arg_int(args, "num_bins");
        if (options.num_bins < 1)
            return lki_fail(LK_ERR_CONFIG, "num_bins: expected at least 1, found %d", options.num_bins);
    }
    if (has(self, "ignore_index") && lk_arg_given(args, "ignore_index"))
        options.ignore_index = lki_number_meant(lk_arg_int(args, "ignore_index"));
    if (has(self, "max_order")) {
        options.max_order = lk_arg_int(args, "max_order");
        if (options.max_order < 1)
            return lki_fail(LK_ERR_CONFIG, "max_order: expected at least 1, found %d", options.max_order);
    }
    if (has(self, "smooth")) options.smooth = lk_arg_bool(args, "smooth");
    if (has(self, "alpha")) options.alpha = lki_number_meant(lk_arg_float(args, "alpha"));
    if (has(self, "beta") && lk_arg_given(args, "beta"))
        options.beta = lki_number_meant(lk_arg_float(args, "beta"));
    if (has(self, "normalize")) options.normalize = lk_arg_bool(args, "normalize");
    return lki_built(kind->create(&options), out);
}

static lk_status build_cmc(const lk_component *self, lk_args *args, void **out)
{
    bool has_cameras = has(self, "cids_key");
    lk_cmc_score_callback_options options = {
        LK_SIZE(lk_cmc_score_callback_options),
        .embeddings_key = lk_arg_string(args, "embeddings_key"),
        .labels_key = lk_arg_string(args, has_cameras ? "pids_key" : "labels_key"),
        .is_query_key = lk_arg_string(args, "is_query_key"),
        .cids_key = has_cameras ? lk_arg_string(args, "cids_key") : NULL,
        .prefix = lk_arg_string(args, "prefix"),
        .suffix = lk_arg_string(args, "suffix"),
    };
    LKI_TRY(read_topk(args, options.topk));
    return lki_built(lk_cmc_score_callback_with(&options), out);
}

#define KEYS                                                                                                 \
    LKI_STRING("input_key", LKI_OPTIONAL, "the output to look at; the runner's where left out"),             \
        LKI_STRING("target_key", LKI_OPTIONAL, "what it should be; the runner's where left out")
#define AFFIXES                                                                                              \
    LKI_STRING("prefix", LKI_OPTIONAL, "put before the names"),                                              \
        LKI_STRING("suffix", LKI_OPTIONAL, "put behind the names")
/* Of metrics that a batch alone has, too. */
#define NAMES       LKI_BOOL("log_on_batch", "true", "among the metrics of batches too"), AFFIXES
#define CLASSES     LKI_INT("num_classes", LKI_OPTIONAL, "the classes; as many as the outputs where left out")
#define PER_CLASS   LKI_BOOL("compute_per_class_metrics", "false", "report each class too")
#define FROM_LOGITS LKI_BOOL("from_logits", "false", "pass the outputs through a sigmoid first")
#define CLASS_NAMES LKI_STRINGS("class_names", LKI_OPTIONAL, "the names of the classes")

static const lk_parameter accuracy_parameters[] = {
    KEYS,      LKI_INTS("topk", LKI_OPTIONAL, "among the best how many; 1, 3 and 5 as the classes allow"),
    CLASSES,   NAMES,
    PER_CLASS, {0}};
static const lk_parameter multilabel_accuracy_parameters[] = {
    KEYS, LKI_FLOAT("threshold", LKI_OPTIONAL, "above it a label is meant; 0.5"), NAMES, FROM_LOGITS, {0}};
static const lk_parameter precision_parameters[] = {
    KEYS, CLASSES, LKI_FLOAT("zero_division", "0", "the value of 0 / 0"), NAMES, PER_CLASS, {0},
};
static const lk_parameter multilabel_precision_parameters[] = {
    KEYS,        CLASSES,   LKI_FLOAT("zero_division", "0", "the value of 0 / 0"),
    NAMES,       PER_CLASS, LKI_FLOAT("threshold", LKI_OPTIONAL, "above it a label is meant; 0.5"),
    FROM_LOGITS, {0},
};
static const lk_parameter auc_parameters[] = {KEYS, PER_CLASS, AFFIXES, CLASSES, {0}};
static const lk_parameter regression_parameters[] = {KEYS, AFFIXES, {0}};
static const lk_parameter region_parameters[] = {
    KEYS,
    CLASS_NAMES,
    LKI_FLOAT("threshold", LKI_OPTIONAL, "above it a pixel is in; soft scores where left out"),
    FROM_LOGITS,
    NAMES,
    {0},
};

static const lk_parameter trevsky_parameters[] = {
    KEYS,
    LKI_FLOAT("alpha", LKI_REQUIRED, "the weight of false negatives, between 0 and 1"),
    LKI_FLOAT("beta", LKI_OPTIONAL, "the weight of false positives; 1 - alpha"),
    CLASS_NAMES,
    LKI_FLOAT("threshold", LKI_OPTIONAL, "above it a pixel is in; soft scores where left out"),
    FROM_LOGITS,
    NAMES,
    {0},
};
static const lk_parameter agreement_parameters[] = {KEYS, AFFIXES, CLASSES, {0}};
static const lk_parameter calibration_parameters[] = {
    KEYS,
    LKI_INT("num_bins", "15", "bins of probabilities"),
    LKI_BOOL("from_logits", "false", "pass the outputs through a softmax first"),
    AFFIXES,
    CLASSES,
    {0}};
#define IGNORE_INDEX LKI_INT("ignore_index", LKI_OPTIONAL, "the token that does not count")
static const lk_parameter perplexity_parameters[] = {KEYS, IGNORE_INDEX, AFFIXES, {0}};
static const lk_parameter bleu_parameters[] = {
    KEYS,
    LKI_INT("max_order", "4", "the longest n-grams"),
    LKI_BOOL("smooth", "false", "one more n-gram of each order above 1"),
    IGNORE_INDEX,
    AFFIXES,
    {0}};

static const lk_parameter confusion_parameters[] = {
    KEYS, CLASS_NAMES, CLASSES, LKI_BOOL("normalize", "false", "rows sum to one"), AFFIXES, {0},
};

static const lk_parameter hitrate_parameters[] = {
    KEYS,
    LKI_INTS("topk", "[1]", "for the first how many items"),
    LKI_FLOAT("zero_division", "0", "the value for a sample without relevant items"),
    NAMES,
    {0}};
static const lk_parameter ranking_parameters[] = {
    KEYS, LKI_INTS("topk", "[1]", "for the first how many items"), NAMES, {0}};
static const lk_parameter cmc_parameters[] = {
    LKI_STRING("embeddings_key", LKI_REQUIRED, "the output with a vector for each sample"),
    LKI_STRING("labels_key", LKI_REQUIRED, "the classes"),
    LKI_STRING("is_query_key", LKI_REQUIRED, "not 0 for queries, 0 for the gallery"),
    LKI_INTS("topk", "[1]", "among the nearest how many"),
    AFFIXES,
    {0}};
static const lk_parameter reid_cmc_parameters[] = {
    LKI_STRING("embeddings_key", LKI_REQUIRED, "the output with a vector for each sample"),
    LKI_STRING("pids_key", LKI_REQUIRED, "the classes: persons"),
    LKI_STRING("cids_key", LKI_REQUIRED, "the cameras"),
    LKI_STRING("is_query_key", LKI_REQUIRED, "not 0 for queries, 0 for the gallery"),
    LKI_INTS("topk", "[1]", "among the nearest how many"),
    AFFIXES,
    {0}};

/* `class_` is what Catalyst calls the metric, for BatchMetric and LoaderMetric. */
#define METRIC(name_, class_, help_, table_, create_)                                                        \
    {                                                                                                        \
        .name = name_, .aliases = LKI_CALLBACK_NAMES(name_) " " class_ " catalyst.metrics." class_,          \
        .kind = LK_KIND_CALLBACK, .help = help_, .parameters = table_##_parameters, .build = build_metric,   \
        .context = &(const metric)                                                                           \
        {                                                                                                    \
            create_                                                                                          \
        }                                                                                                    \
    }
#define ENTRY(name_, help_, table_, create_) METRIC(name_, name_ "Metric", help_, table_, create_)

const lk_component lki_metric_components[] = {
    ENTRY("Accuracy", "How often the target is among the best k: accuracy01, accuracy03, ...", accuracy,
          lk_accuracy_callback_with),
    ENTRY("MultilabelAccuracy", "How many labels are right.", multilabel_accuracy,
          lk_multilabel_accuracy_callback_with),
    METRIC("PrecisionRecallF1Support", "MulticlassPrecisionRecallF1SupportMetric",
           "precision, recall and f1: macro, micro, weighted, and per class.", precision,
           lk_precision_recall_f1_support_callback_with),
    ENTRY("MultilabelPrecisionRecallF1Support", "precision, recall and f1 of labels.", multilabel_precision,
          lk_multilabel_precision_recall_f1_support_callback_with),
    ENTRY("AUC", "The area under the ROC curve: macro, micro, weighted, and per class.", auc,
          lk_auc_callback_with),
    {.name = "R2Squared",
     .aliases = LKI_CALLBACK_NAMES("R2Squared") " catalyst.metrics.R2Squared",
     .kind = LK_KIND_CALLBACK,
     .help = "The coefficient of determination.",
     .parameters = regression_parameters,
     .build = build_metric,
     .context = &(const metric){lk_r2_callback_with}},
    ENTRY("MSE", "The mean squared error.", regression, lk_mse_callback_with),
    ENTRY("MAE", "The mean absolute error.", regression, lk_mae_callback_with),
    ENTRY("IOU", "Intersection over union of regions.", region, lk_iou_callback_with),
    ENTRY("Dice", "Twice the intersection over the sum of regions.", region, lk_dice_callback_with),
    ENTRY("Hitrate", "The share of the relevant items that are among the first k: hitrate01, ...", hitrate,
          lk_hitrate_callback_with),
    ENTRY("MRR", "One over the rank of the most relevant item among the first k: mrr01, ...", ranking,
          lk_mrr_callback_with),
    ENTRY("MAP", "The mean average precision among the first k: map01, ...", ranking, lk_map_callback_with),
    ENTRY("NDCG", "The discounted gain of the first k, of the highest possible: ndcg01, ...", ranking,
          lk_ndcg_callback_with),
    ENTRY("Trevsky", "The intersection over itself and the weighted errors of regions.", trevsky,
          lk_trevsky_callback_with),
    ENTRY("AveragePrecision",
          "The area under the precision-recall curve: macro, micro, weighted, and per class.", auc,
          lk_average_precision_callback_with),
    ENTRY("CohenKappa", "How far classes agree beyond chance.", agreement, lk_cohen_kappa_callback_with),
    ENTRY("Matthews", "The correlation of predicted and true classes.", agreement, lk_matthews_callback_with),
    ENTRY("CalibrationError", "How far probabilities are from how often they are right: ece, mce.",
          calibration, lk_calibration_error_callback_with),
    ENTRY("Perplexity", "exp of the mean cross-entropy of tokens.", perplexity, lk_perplexity_callback_with),
    ENTRY("BLEU", "How many n-grams of the outputs are in the targets.", bleu, lk_bleu_callback_with),
    {.name = "CMCScore",
     .aliases = LKI_CALLBACK_NAMES("CMCScore"),
     .kind = LK_KIND_CALLBACK,
     .help = "How often a query has one of its class among the k nearest of the gallery: cmc01, ...",
     .parameters = cmc_parameters,
     .build = build_cmc},
    {.name = "ReidCMCScore",
     .aliases = LKI_CALLBACK_NAMES("ReidCMCScore"),
     .kind = LK_KIND_CALLBACK,
     .help = "The same; what the query's own camera has seen of its class counts as the farthest.",
     .parameters = reid_cmc_parameters,
     .build = build_cmc},
    ENTRY("ConfusionMatrix", "Which class is taken for which: a picture and a CSV file per epoch.", confusion,
          lk_confusion_matrix_callback_with),
    {0},
};
