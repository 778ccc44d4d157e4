/* The callbacks that come with the library, with Catalyst's names and arguments.
 *
 * Life: a constructor returns NULL on failure, and lk_train then fails with its error. A callback
 * belongs to the run that it is given to. Threads: callbacks run on the thread that trains.
 *
 * If no loader_key or metric_key is given, a callback uses valid_loader and valid_metric of the
 * run. */
#ifndef LOCKSTEP_CALLBACK_H
#define LOCKSTEP_CALLBACK_H

#include <lockstep/arguments.h>
#include <lockstep/metric.h>
#include <lockstep/runner.h>
#include <lockstep/sys/callback.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Metrics of the outputs. Keys default to the runner's: "logits" and "targets". ---- */

/* One struct for all callbacks that compute a metric. Keys default to those of the runner:
 * "logits" and "targets". metric.h describes the other fields. */
typedef struct lk_metric_callback_options {
    size_t struct_size;
    const char *input_key, *target_key;
    const char *prefix, *suffix;
    bool no_log_on_batch; /* leaves its values out of the metrics of batches */
    int num_classes;
    int topk[LK_MAX_TOPK];          /* accuracy, recommendations, CMC */
    double threshold;               /* multilabel, IoU, Dice */
    bool from_logits;               /* multilabel, IoU, Dice: sigmoid first */
    double zero_division;           /* precision, recall, F1, hitrate */
    bool compute_per_class_metrics; /* precision, recall, F1, support, AUC */
    const char *const *class_names; /* confusion matrix */
    bool normalize;                 /* confusion matrix */
    const double *class_weights;    /* IoU, Dice, Trevsky: num_classes weights */
    int num_bins;                   /* calibration error */
    double ignore_index;            /* perplexity, BLEU */
    double alpha, beta;             /* Trevsky */
    int max_order;                  /* BLEU */
    bool smooth;                    /* BLEU */
} lk_metric_callback_options;

#define lk_accuracy_callback(...)                                                                            \
    LK_CALL0_(lk_accuracy_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_multilabel_accuracy_callback(...)                                                                 \
    LK_CALL0_(lk_multilabel_accuracy_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_precision_recall_f1_support_callback(...)                                                         \
    LK_CALL0_(lk_precision_recall_f1_support_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_multilabel_precision_recall_f1_support_callback(...)                                              \
    LK_CALL0_(lk_multilabel_precision_recall_f1_support_callback_with, lk_metric_callback_options,           \
              __VA_ARGS__)
#define lk_auc_callback(...)     LK_CALL0_(lk_auc_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_r2_callback(...)      LK_CALL0_(lk_r2_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_mse_callback(...)     LK_CALL0_(lk_mse_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_mae_callback(...)     LK_CALL0_(lk_mae_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_iou_callback(...)     LK_CALL0_(lk_iou_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_dice_callback(...)    LK_CALL0_(lk_dice_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_trevsky_callback(...) LK_CALL0_(lk_trevsky_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_average_precision_callback(...)                                                                   \
    LK_CALL0_(lk_average_precision_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_cohen_kappa_callback(...)                                                                         \
    LK_CALL0_(lk_cohen_kappa_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_matthews_callback(...)                                                                            \
    LK_CALL0_(lk_matthews_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_calibration_error_callback(...)                                                                   \
    LK_CALL0_(lk_calibration_error_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_perplexity_callback(...)                                                                          \
    LK_CALL0_(lk_perplexity_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_bleu_callback(...) LK_CALL0_(lk_bleu_callback_with, lk_metric_callback_options, __VA_ARGS__)
lk_callback *lk_trevsky_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_average_precision_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_cohen_kappa_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_matthews_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_calibration_error_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_perplexity_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_bleu_callback_with(const lk_metric_callback_options *options);
/* Writes a picture and a CSV file per loader and epoch to logdir/confusion_matrix, and prints the
 * matrix if the run is verbose. */
#define lk_confusion_matrix_callback(...)                                                                    \
    LK_CALL0_(lk_confusion_matrix_callback_with, lk_metric_callback_options, __VA_ARGS__)
lk_callback *lk_accuracy_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_multilabel_accuracy_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_precision_recall_f1_support_callback_with(const lk_metric_callback_options *options);
lk_callback *
lk_multilabel_precision_recall_f1_support_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_auc_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_r2_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_mse_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_mae_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_iou_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_dice_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_confusion_matrix_callback_with(const lk_metric_callback_options *options);
/* Recommendations: hitrate01, mrr01, map01, ndcg01, ... */
#define lk_hitrate_callback(...) LK_CALL0_(lk_hitrate_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_mrr_callback(...)     LK_CALL0_(lk_mrr_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_map_callback(...)     LK_CALL0_(lk_map_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_ndcg_callback(...)    LK_CALL0_(lk_ndcg_callback_with, lk_metric_callback_options, __VA_ARGS__)
lk_callback *lk_hitrate_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_mrr_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_map_callback_with(const lk_metric_callback_options *options);
lk_callback *lk_ndcg_callback_with(const lk_metric_callback_options *options);

/* cmc01, cmc03, ...: the share of the queries that have a sample of their own class among the k
 * nearest of the gallery, by Euclidean distance. All embeddings of a loader are kept, those of all
 * ranks together. A batch needs one number per sample for each key. */
typedef struct lk_cmc_score_callback_options {
    size_t struct_size;
    const char *embeddings_key; /* an output; the runner's output_key */
    const char *labels_key;     /* the runner's target_key */
    const char *is_query_key;   /* "is_query": not 0 for queries, 0 for the gallery */
    /* With cameras (Catalyst's ReidCMCScoreCallback), what shares class and camera with a query
     * counts as the farthest of its gallery. NULL: no cameras. */
    const char *cids_key;
    int topk[LK_MAX_TOPK]; /* 1 */
    const char *prefix, *suffix;
} lk_cmc_score_callback_options;
#define lk_cmc_score_callback(...)                                                                           \
    LK_CALL0_(lk_cmc_score_callback_with, lk_cmc_score_callback_options, __VA_ARGS__)
lk_callback *lk_cmc_score_callback_with(const lk_cmc_score_callback_options *options);
/* Reports any metric, also one of your own (lk_custom_metric in <lockstep/sys/metric.h>). Owns
 * the metric. NULL keys are those of the runner. */
lk_callback *lk_metric_callback(lk_metric *metric, const char *input_key, const char *target_key);

/* Combines several metrics into one: the "sum", "mean", "weighted_sum" or "weighted_mean" of
 * named batch or loader metrics. */
typedef struct lk_metric_aggregation_callback_options {
    size_t struct_size;
    const char *metric_key;     /* the name of the result */
    const char *const *metrics; /* their names, NULL-terminated; NULL: all metrics */
    const double *weights;      /* one per name, for the weighted modes */
    const char *mode;           /* "mean" */
    /* "batch": of each batch, then averaged over the samples; or "loader". */
    const char *scope;
} lk_metric_aggregation_callback_options;
#define lk_metric_aggregation_callback(...)                                                                  \
    LK_CALL0_(lk_metric_aggregation_callback_with, lk_metric_aggregation_callback_options, __VA_ARGS__)
lk_callback *lk_metric_aggregation_callback_with(const lk_metric_aggregation_callback_options *options);

/* ---- Training. lk_train adds the first three if they are not given. ---- */

/* Computes criterion(input, target) of a batch and reports it as NAME, NAME/mean and NAME/std of
 * the loader. A run may have several. The model is trained with the one whose metric_key
 * lk_backward_callback minimises. A loss of several values gets those of input_key and then those
 * of target_key, each with commas between the names:
 *
 *     lk_criterion_callback(.input_key = "logits, positive", .target_key = "negative") */
typedef struct lk_criterion_callback_options {
    size_t struct_size;
    /* An output or a field of the batch; the runner's output_key. */
    const char *input_key;
    const char *target_key; /* the runner's target_key */
    const char *metric_key; /* NAME; the runner's loss_key */
    /* One that lk_runner_add_criterion added; the criterion of the run. */
    const char *criterion_key;
} lk_criterion_callback_options;
/* The loss of a loader is the loss of all its samples as one batch: the sum of the losses of the
 * samples over the sum of their weights. (Class weights count; samples of ignore_index have
 * weight zero.) It has the same bits however the samples are divided into batches and ranks.
 *
 * That is so in evaluation, for CrossEntropy, NLL, BCE, BCEWithLogits, MSE, L1, SmoothL1, Huber and
 * KLDiv with the reduction mean or batch mean, and in training on the CPU in fp32 for a
 * CrossEntropyLoss without label smoothing. In all other cases (training otherwise, another
 * reduction, another loss, your own criterion or handle_batch, one of several criteria) it is the
 * mean of the losses of the batches, each weighted by its samples that count, and its last digits
 * depend on the batches. The loss of a batch with padding is then the mean over its samples that
 * count for the losses that are named here, and the mean over all its samples for others. */
#define lk_criterion_callback(...)                                                                           \
    LK_CALL0_(lk_criterion_callback_with, lk_criterion_callback_options, __VA_ARGS__)
lk_callback *lk_criterion_callback_with(const lk_criterion_callback_options *options);

typedef struct lk_backward_callback_options {
    size_t struct_size;
    /* What is minimised: the metric of a criterion callback, or a sum of such (scope "batch")
     * that a metric aggregation callback makes. The default is the runner's loss_key. */
    const char *metric_key;
    double clip_norm;  /* torch.nn.utils.clip_grad_norm_, after every backward */
    double clip_value; /* torch.nn.utils.clip_grad_value_ */
    /* With clip_norm: reports the norm before clipping as gradient/LOSS/norm. */
    bool log_gradient;
} lk_backward_callback_options;
#define lk_backward_callback(...)                                                                            \
    LK_CALL0_(lk_backward_callback_with, lk_backward_callback_options, __VA_ARGS__)
lk_callback *lk_backward_callback_with(const lk_backward_callback_options *options);

typedef struct lk_optimizer_callback_options {
    size_t struct_size;
    /* Batches per update; 1. Their gradients are summed, as in Catalyst. The count continues
     * across epochs: batches at the end of an epoch that do not complete a group belong to the
     * first group of the next epoch. */
    int accumulation_steps;
    /* Counts from the first batch of each epoch, as `(i + 1) % k == 0` does in a loop of your
     * own. The gradients of an incomplete group remain and are added to those of the next group. */
    bool restart_each_epoch;
    double clip_norm;       /* torch.nn.utils.clip_grad_norm_ */
    double clip_value;      /* torch.nn.utils.clip_grad_value_ */
    const char *metric_key; /* what is minimised, as in lk_backward_callback */
    /* Reports lr/KEY and momentum/KEY of lk_runner_optimizer(KEY) instead. */
    const char *optimizer_key;
    /* Other batches per update from some epochs on: "5: 2, 10: 4" is 2 from epoch 5 and 4 from
     * epoch 10 on. Before the first of them, accumulation_steps counts. */
    const char *accumulation_schedule;
} lk_optimizer_callback_options;
/* Configures the update, and reports lr and momentum of the first parameter group. */
#define lk_optimizer_callback(...)                                                                           \
    LK_CALL0_(lk_optimizer_callback_with, lk_optimizer_callback_options, __VA_ARGS__)
lk_callback *lk_optimizer_callback_with(const lk_optimizer_callback_options *options);

typedef struct lk_scheduler_callback_options {
    size_t struct_size;
    /* "epoch" or "batch". The default is "batch" if the scheduler is a OneCycleLR or CyclicLR,
     * alone or after a warm-up (LinearLR, ConstantLR). If other schedules are combined with one
     * of these, give the mode. */
    const char *mode;
    const char *loader_key, *metric_key; /* for schedulers that watch a metric */
} lk_scheduler_callback_options;
#define lk_scheduler_callback(...)                                                                           \
    LK_CALL0_(lk_scheduler_callback_with, lk_scheduler_callback_options, __VA_ARGS__)
lk_callback *lk_scheduler_callback_with(const lk_scheduler_callback_options *options);

typedef struct lk_early_stopping_callback_options {
    size_t struct_size;
    /* Required: the run ends after this many epochs without improvement. */
    int patience;
    const char *loader_key, *metric_key;
    bool minimize, maximize; /* the direction of the run's valid metric */
    double min_delta;        /* 1e-6 */
} lk_early_stopping_callback_options;
#define lk_early_stopping_callback(...)                                                                      \
    LK_CALL0_(lk_early_stopping_callback_with, lk_early_stopping_callback_options, __VA_ARGS__)
lk_callback *lk_early_stopping_callback_with(const lk_early_stopping_callback_options *options);

/* In a trial of `lockstep tune`: tells the study after each epoch what the best value so far is,
 * and ends the run if the study prunes the trial. A run that is no trial fails when it starts, with
 * LK_ERR_CONFIG. */
typedef struct lk_optuna_pruning_callback_options {
    size_t struct_size;
    const char *loader_key, *metric_key; /* the study's metric; else the run's valid metric */
    bool minimize, maximize;             /* the direction of the study */
    double min_delta;                    /* 1e-6: how much better counts */
} lk_optuna_pruning_callback_options;
#define lk_optuna_pruning_callback(...)                                                                      \
    LK_CALL0_(lk_optuna_pruning_callback_with, lk_optuna_pruning_callback_options, __VA_ARGS__)
lk_callback *lk_optuna_pruning_callback_with(const lk_optuna_pruning_callback_options *options);

typedef struct lk_checkpoint_callback_options {
    size_t struct_size;
    const char *logdir; /* the run's */
    const char *loader_key, *metric_key;
    bool minimize, maximize;
    int topk; /* 1 */
    /* What numbered files hold: "model" (weights) or "runner" (everything). */
    const char *mode;
    bool no_save_last, no_save_best; /* do not write model.last or model.best */
    bool no_save_runner;             /* do not write runner.last; the run cannot be resumed */
    /* Also writes runner.last within an epoch, after this many batches. */
    int save_every_batches;
    const char *resume_model, *resume_runner; /* loaded at the start */
    bool load_best_on_end;
    /* Of resume_model: load only the weights whose names match one of these shell patterns, which
     * commas separate. no_strict: leave names alone that are missing in the file or the model. What
     * did not fit is logged. */
    const char *resume_names;
    bool no_strict;
    /* How many files can be resumed from: runner.last, and before it runner.last.1 and so on. If
     * one is damaged, the run continues from the one before it. 2 */
    int keep_runners;
} lk_checkpoint_callback_options;
#define lk_checkpoint_callback(...)                                                                          \
    LK_CALL0_(lk_checkpoint_callback_with, lk_checkpoint_callback_options, __VA_ARGS__)
lk_callback *lk_checkpoint_callback_with(const lk_checkpoint_callback_options *options);
/* Keeps lk_train from adding a checkpoint callback. */
lk_callback *lk_skip_checkpoint_callback(void);

/* ---- Around a run ---- */

/* Reports _timer/_fps, _timer/batch_time, _timer/data_time and _timer/model_time. */
lk_callback *lk_timer_callback(void);

typedef struct lk_lr_finder_callback_options {
    size_t struct_size;
    double final_lr;   /* required */
    const char *scale; /* "log" or "linear"; "log" */
    int num_steps;     /* the number of batches of the loader */
    const char *optimizer_key;
} lk_lr_finder_callback_options;
/* Raises the learning rate to final_lr over the batches, writes logdir/lr_finder.csv and stops
 * the run. */
#define lk_lr_finder_callback(...)                                                                           \
    LK_CALL0_(lk_lr_finder_callback_with, lk_lr_finder_callback_options, __VA_ARGS__)
lk_callback *lk_lr_finder_callback_with(const lk_lr_finder_callback_options *options);

/* Runs a loader only in some epochs: lk_periodic_loader_callback({"valid", 2}). */
typedef struct lk_loader_period {
    const char *loader_key;
    int period; /* the loader runs in every period-th epoch; 0: never */
} lk_loader_period;
lk_callback *lk_periodic_loader_callback_with(const lk_loader_period *periods, int count);
LK_CALL_TO_END_(lk_callback *, lk_periodic_loader_callback, lk_loader_period)
#define lk_periodic_loader_callback(...)                                                                     \
    lk_periodic_loader_callback_to_end((const lk_loader_period[]){__VA_ARGS__, {.loader_key = LK_END}})

typedef struct lk_control_flow_callback_options {
    size_t struct_size;
    int epochs;                   /* active in every epochs-th epoch ... */
    const int *epoch_list;        /* ... or in these; 0-terminated */
    int ignore_epochs;            /* inactive in every ignore_epochs-th epoch ... */
    const int *ignore_epoch_list; /* ... or in these; 0-terminated */
    const char *const *loaders;   /* active for these loaders; NULL-terminated */
    const char *const *ignore_loaders;
    bool (*filter_fn)(const char *stage, int64_t epoch, const char *loader_key, void *context);
    void *context;
} lk_control_flow_callback_options;
/* Wraps a callback, which it owns, and calls it only when the options allow it. */
#define lk_control_flow_callback(...)                                                                        \
    LK_CALL1_(lk_control_flow_callback_with, lk_control_flow_callback_options, __VA_ARGS__, )
lk_callback *lk_control_flow_callback_with(lk_callback *callback,
                                           const lk_control_flow_callback_options *options);

/* Torchbearer's once_per_epoch and only_if: call the wrapped callback, which they own, at its
 * first batch of an epoch, or when `condition` returns true. */
lk_callback *lk_once_per_epoch(lk_callback *callback);
lk_callback *lk_only_if(lk_callback *callback, bool (*condition)(lk_runner *runner, void *context),
                        void *context);

/* Changes a tensor of each batch. */
typedef struct lk_batch_transform_callback_options {
    size_t struct_size;
    /* Works in place. */
    lk_status (*transform)(lk_tensor *tensor, lk_runner *runner, void *context);
    void *context;
    const char *scope; /* "on_batch_start" or "on_batch_end" */
    const char *input_key;
    /* The name of the result, if the input is to stay as it is. By default the input is changed. */
    const char *output_key;
} lk_batch_transform_callback_options;
#define lk_batch_transform_callback(...)                                                                     \
    LK_CALL0_(lk_batch_transform_callback_with, lk_batch_transform_callback_options, __VA_ARGS__)
lk_callback *lk_batch_transform_callback_with(const lk_batch_transform_callback_options *options);

/* Uses only this many batches of each named loader, or, below 1, this fraction of them. */
typedef struct lk_loader_portion {
    const char *loader_key;
    double portion;
} lk_loader_portion;
lk_callback *lk_batch_overfit_callback_with(const lk_loader_portion *portions, int count);
LK_CALL_TO_END_(lk_callback *, lk_batch_overfit_callback, lk_loader_portion)
#define lk_batch_overfit_callback(...)                                                                       \
    lk_batch_overfit_callback_to_end((const lk_loader_portion[]){__VA_ARGS__, {.loader_key = LK_END}})

typedef struct lk_ema_callback_options {
    size_t struct_size;
    double decay;     /* 0.999 */
    int update_every; /* 1 */
} lk_ema_callback_options;
/* Averages the weights: an exponential moving average (EMA), or the mean over the epochs from
 * swa_start on (SWA). Evaluation and checkpoints use the average; training continues with the
 * weights themselves. Statistics of batch norms are not averaged. */
#define lk_ema_callback(...) LK_CALL0_(lk_ema_callback_with, lk_ema_callback_options, __VA_ARGS__)
lk_callback *lk_ema_callback_with(const lk_ema_callback_options *options);
lk_callback *lk_swa_callback(int swa_start);

/* Torchbearer's: add rate * |w|_1 or rate * |w|_2 of every parameter to the loss, through the
 * gradients. Ordinary weight decay is an option of the optimizers. */
lk_callback *lk_l1_weight_decay_callback(double rate);
lk_callback *lk_l2_weight_decay_callback(double rate);
typedef struct lk_running_mean_callback_options {
    size_t struct_size;
    const char *metric_key; /* "loss" */
    int batch_size;         /* 50: the window, in batches */
    int step_size;          /* 10 */
} lk_running_mean_callback_options;
/* Torchbearer's: "running_NAME", the mean of a metric of the last batch_size batches of a loader.
 * Among the metrics of a batch it is that of every step_size-th batch; that of the loader is the
 * mean at its end, averaged over the ranks. */
#define lk_running_mean_callback(...)                                                                        \
    LK_CALL0_(lk_running_mean_callback_with, lk_running_mean_callback_options, __VA_ARGS__)
lk_callback *lk_running_mean_callback_with(const lk_running_mean_callback_options *options);

/* Reports the norm of all gradients of each update, before clipping: grad_norm, grad_norm/mean
 * and grad_norm/std. */
lk_callback *lk_gradient_norm_callback(void);

typedef struct lk_histogram_callback_options {
    size_t struct_size;
    int every; /* epochs; 1. The first epoch has its histograms, too */
    int bins;  /* 64, at most 1024 */
    /* Of the last update of the epoch, before clipping. On a GPU no batch then runs ahead. */
    bool gradients;
    bool no_weights; /* gradients only */
} lk_histogram_callback_options;
/* Gives the loggers a histogram of each parameter after training in an epoch: "weights/NAME", and
 * "gradients/NAME" if wanted. TensorBoard's files and the live page show them. */
#define lk_histogram_callback(...)                                                                           \
    LK_CALL0_(lk_histogram_callback_with, lk_histogram_callback_options, __VA_ARGS__)
lk_callback *lk_histogram_callback_with(const lk_histogram_callback_options *options);

/* Ends the run when a loss or a metric of a batch is NaN. */
lk_callback *lk_terminate_on_nan_callback(void);
/* A progress bar that stays on the terminal after each loader. lk_train draws one of its own, which
 * does not stay, unless you give it this one (see lk_show). */
lk_callback *lk_progress_callback(void);
/* Limits the run to so many batches per loader and so many epochs, both at least 1. The `check` of
 * lk_train is lk_check_run_callback(3, 3). */
lk_callback *lk_check_run_callback(int batch_count, int epoch_count);

/* ---- Catalyst's: models, batches, metrics and files ---- */

typedef struct lk_soft_update_callback_options {
    size_t struct_size;
    /* Keys of lk_runner_add_model, or paths of children of the run's model; required. */
    const char *target_model, *source_model;
    double tau; /* required; above 0 and at most 1 */
    /* "on_batch_end" or "on_batch_start" of train batches, "on_epoch_end" or "on_epoch_start";
     * required. */
    const char *scope;
} lk_soft_update_callback_options;
/* Moves the parameters of one model towards those of another, which must be of the same shapes:
 * target = (1 - tau) target + tau source. Buffers stay as they are. */
#define lk_soft_update_callback(...)                                                                         \
    LK_CALL0_(lk_soft_update_callback_with, lk_soft_update_callback_options, __VA_ARGS__)
lk_callback *lk_soft_update_callback_with(const lk_soft_update_callback_options *options);

typedef struct lk_mix_callback_options {
    size_t struct_size;
    const char *keys[LK_MAX_FIELDS]; /* f32 fields of the batch; "features" and "targets" */
    double alpha;                    /* of the Beta distribution; 0.2 for mixup, 1 for cutmix */
    bool no_on_train_only;           /* batches of all loaders, not of those for training alone */
} lk_mix_callback_options;
/* What lk_mixup and lk_cutmix do as transforms of a loader, with the same random numbers. */
#define lk_mixup_callback(...)  LK_CALL0_(lk_mixup_callback_with, lk_mix_callback_options, __VA_ARGS__)
#define lk_cutmix_callback(...) LK_CALL0_(lk_cutmix_callback_with, lk_mix_callback_options, __VA_ARGS__)
lk_callback *lk_mixup_callback_with(const lk_mix_callback_options *options);
lk_callback *lk_cutmix_callback_with(const lk_mix_callback_options *options);

/* Writes the metric of the outputs and targets of a batch to *value. The tensors are in the host's
 * memory and belong to the batch. */
typedef lk_status (*lk_metric_function)(double *value, const lk_tensor *outputs, const lk_tensor *targets,
                                        void *context);
typedef struct lk_functional_metric_callback_options {
    size_t struct_size;
    lk_metric_function metric_fn; /* required */
    void *context;                /* passed to it */
    const char *metric_key;       /* the name; required */
    const char *input_key, *target_key;
    const char *prefix, *suffix;
    bool no_log_on_batch;
} lk_functional_metric_callback_options;
/* Reports the values of a function of your own, averaged over the samples of the loader and all
 * ranks, as NAME, NAME/mean and NAME/std. Padding does not count. */
#define lk_functional_metric_callback(...)                                                                   \
    LK_CALL0_(lk_functional_metric_callback_with, lk_functional_metric_callback_options, __VA_ARGS__)
lk_callback *lk_functional_metric_callback_with(const lk_functional_metric_callback_options *options);

typedef struct lk_batch_metric_callback_options {
    size_t struct_size;
    const char *input_key, *target_key;
    bool no_log_on_batch; /* leaves its values out of the metrics of batches */
} lk_batch_metric_callback_options;
/* Reports any metric, of each batch and of the loader, or of the loader alone. Owns the metric. */
#define lk_batch_metric_callback(...)                                                                        \
    LK_CALL1_(lk_batch_metric_callback_with, lk_batch_metric_callback_options, __VA_ARGS__, )
lk_callback *lk_batch_metric_callback_with(lk_metric *metric,
                                           const lk_batch_metric_callback_options *options);
lk_callback *lk_loader_metric_callback(lk_metric *metric, const char *input_key, const char *target_key);

typedef struct lk_onnx_callback_options {
    size_t struct_size;
    const char *input_key; /* the field that gives the shape of the input; the runner's */
    const char *logdir;    /* the run's */
    const char *filename;  /* "model.onnx" */
} lk_onnx_callback_options;
/* Writes the model as an ONNX file (lk_export_onnx): after the first batch, so that a layer that
 * ONNX does not have ends the run at once, and when the run ends. */
#define lk_onnx_callback(...) LK_CALL0_(lk_onnx_callback_with, lk_onnx_callback_options, __VA_ARGS__)
lk_callback *lk_onnx_callback_with(const lk_onnx_callback_options *options);

typedef struct lk_quantization_callback_options {
    size_t struct_size;
    const char *logdir;   /* the run's */
    const char *filename; /* "quantized.safetensors" */
    const char *dtype;    /* "qint8" or "bfloat16"; "qint8" */
} lk_quantization_callback_options;
/* Writes the weights with fewer bits when the run ends (lk_state_dict_shrink). The model itself
 * stays as it is. */
#define lk_quantization_callback(...)                                                                        \
    LK_CALL0_(lk_quantization_callback_with, lk_quantization_callback_options, __VA_ARGS__)
lk_callback *lk_quantization_callback_with(const lk_quantization_callback_options *options);

typedef struct lk_pruning_callback_options {
    size_t struct_size;
    /* Required: "l1_unstructured" (the smallest weights), "random_unstructured", "ln_structured"
     * (the slices along `dim` with the smallest norm) or "random_structured". */
    const char *pruning_fn;
    /* Required: below 1 the share of what is left, from 1 on how many. */
    double amount;
    const char *const *keys_to_prune;   /* last parts of names, NULL-terminated; "weight" */
    const char *const *layers_to_prune; /* names of layers, NULL-terminated; NULL: all */
    double dim;                         /* of structured methods, required; may be LK_ZERO */
    double l_norm;                      /* of ln_structured, required; may be LK_ZERO */
    bool prune_on_epoch_end;            /* at the end of each epoch but the last one */
    bool no_prune_on_end;
} lk_pruning_callback_options;
/* Sets weights to 0, and keeps them there while the run goes on. When it ends, the pruned weights
 * are in the model and in LOGDIR/pruned.safetensors. */
#define lk_pruning_callback(...) LK_CALL0_(lk_pruning_callback_with, lk_pruning_callback_options, __VA_ARGS__)
lk_callback *lk_pruning_callback_with(const lk_pruning_callback_options *options);

typedef struct lk_profiler_callback_options {
    size_t struct_size;
    const char *loader_key; /* the first loader */
    int epoch;              /* 1 */
    int num_batches;        /* of the loader; 0: all of them */
    /* Where the trace goes, instead of LOGDIR/trace.json. */
    const char *export_chrome_trace_path;
} lk_profiler_callback_options;
/* Traces batches of one loader in one epoch, as .profile of lk_train does for the first epoch: a
 * trace for Perfetto, and a summary in LOGDIR/profile.txt. */
#define lk_profiler_callback(...)                                                                            \
    LK_CALL0_(lk_profiler_callback_with, lk_profiler_callback_options, __VA_ARGS__)
lk_callback *lk_profiler_callback_with(const lk_profiler_callback_options *options);

/* ---- Your own, from single functions ---- */

/* A callback with one slot: lk_on(batch_end, my_function, my_context). */
#define lk_on(moment, function, context)                                                                     \
    lk_function_callback(LK_OPTIONS(lk_callback_ops, .name = "on_" #moment, .on_##moment = (function)),      \
                         (context))
/* A callback from slots, which are copied and need no size. `context` is passed to the slots as
 * callback->context. */
lk_callback *lk_function_callback(const lk_callback_ops *ops, void *context);
#ifndef __cplusplus
static inline lk_callback *lk_function_callback_sized_(const lk_callback_ops *ops, void *context)
{
    lk_callback_ops room;
    return lk_function_callback(lk_callback_ops_at_(ops, &room), context);
}
#define lk_function_callback lk_function_callback_sized_
#endif

#ifdef __cplusplus
}
#endif
#endif
