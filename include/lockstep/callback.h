/* The callbacks that come with the library, under Catalyst's names and with its arguments.
 *
 * A constructor returns NULL with the reason in lk_error(); lk_train then fails with it. Callbacks belong to
 * the run that they are given to. Where a loader_key or metric_key is not given, the run's valid_loader and
 * valid_metric are meant. */
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

typedef struct lk_metric_callback_options {
    size_t struct_size;
    const char *input_key, *target_key;
    const char *prefix, *suffix;
    bool no_log_on_batch; /* keep its values out of the metrics of batches */
    int num_classes;
    int topk[LK_MAX_TOPK];          /* accuracy */
    double threshold;               /* multilabel, IoU, Dice */
    bool from_logits;               /* multilabel, IoU, Dice: sigmoid first */
    double zero_division;           /* precision, recall, F1 */
    bool compute_per_class_metrics; /* precision, recall, F1, support, AUC */
    const char *const *class_names; /* confusion matrix */
    bool normalize;                 /* confusion matrix */
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
#define lk_auc_callback(...)  LK_CALL0_(lk_auc_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_r2_callback(...)   LK_CALL0_(lk_r2_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_mse_callback(...)  LK_CALL0_(lk_mse_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_mae_callback(...)  LK_CALL0_(lk_mae_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_iou_callback(...)  LK_CALL0_(lk_iou_callback_with, lk_metric_callback_options, __VA_ARGS__)
#define lk_dice_callback(...) LK_CALL0_(lk_dice_callback_with, lk_metric_callback_options, __VA_ARGS__)
/* A picture and a CSV file of each loader and epoch under logdir/confusion_matrix, and a drawing where
 * verbose. */
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
/* Any metric, also one of your own (lk_custom_metric in <lockstep/sys/metric.h>); it belongs to the callback.
 * NULL keys are the runner's. */
lk_callback *lk_metric_callback(lk_metric *metric, const char *input_key, const char *target_key);

/* Several metrics into one: "sum", "mean", "weighted_sum" or "weighted_mean" of the named batch or loader
 * metrics. */
typedef struct lk_metric_aggregation_callback_options {
    size_t struct_size;
    const char *metric_key;     /* the name of the result */
    const char *const *metrics; /* their names; NULL-terminated; NULL: all of them */
    const double *weights;      /* one a name, for the weighted modes */
    const char *mode;           /* "mean" */
    const char *scope;          /* "batch": of each batch, and then their mean over the samples; "loader" */
} lk_metric_aggregation_callback_options;
#define lk_metric_aggregation_callback(...)                                                                  \
    LK_CALL0_(lk_metric_aggregation_callback_with, lk_metric_aggregation_callback_options, __VA_ARGS__)
lk_callback *lk_metric_aggregation_callback_with(const lk_metric_aggregation_callback_options *options);

/* ---- Training. lk_train adds the first three by itself where they are not given. ---- */

/* A criterion of the batch: criterion(input, target), reported as NAME, NAME/mean and NAME/std over a loader.
 * A run may have several; the one whose metric_key is minimised (lk_backward_callback) trains the model. */
typedef struct lk_criterion_callback_options {
    size_t struct_size;
    const char *input_key;     /* an output or a field of the batch; the runner's output_key */
    const char *target_key;    /* the runner's target_key */
    const char *metric_key;    /* NAME; the runner's loss_key */
    const char *criterion_key; /* one that was added with lk_runner_add_criterion; the run's own */
} lk_criterion_callback_options;
/* The loss of a loader is that of all samples as one batch: the sum
 * of the samples' own losses over the sum of their weights (class weights; samples of ignore_index weigh
 * nothing), with the same bits however the samples were cut into batches and dealt to ranks. So it is in
 * evaluation, for every loss of the library with the reduction mean or batch mean, and in training on the CPU
 * in fp32 for a CrossEntropyLoss without label smoothing. Else (training otherwise, another reduction, a
 * criterion or handle_batch of your own, one of several criteria) it is the mean of the batches' losses, each
 * weighted by its samples that count, and shows the batches in its last digits. The loss of a batch with
 * padding is then the mean over its samples that count, if the loss is the library's with the reduction mean
 * or batch mean. */
#define lk_criterion_callback(...)                                                                           \
    LK_CALL0_(lk_criterion_callback_with, lk_criterion_callback_options, __VA_ARGS__)
lk_callback *lk_criterion_callback_with(const lk_criterion_callback_options *options);

typedef struct lk_backward_callback_options {
    size_t struct_size;
    const char *metric_key; /* what is minimised: a CriterionCallback's, or a sum of such (scope "batch") that
                               a MetricAggregationCallback makes; the runner's loss_key */
    double clip_norm;       /* grad_clip_fn: torch.nn.utils.clip_grad_norm_, after every backward */
    double clip_value;      /* ... or clip_grad_value_ */
    bool log_gradient;      /* with clip_norm: its norm before clipping, as gradient/LOSS/norm */
} lk_backward_callback_options;
#define lk_backward_callback(...)                                                                            \
    LK_CALL0_(lk_backward_callback_with, lk_backward_callback_options, __VA_ARGS__)
lk_callback *lk_backward_callback_with(const lk_backward_callback_options *options);

typedef struct lk_optimizer_callback_options {
    size_t struct_size;
    /* Batches per update; 1. Their gradients are summed, as in Catalyst. The count runs on from epoch to
     * epoch: batches at the end of one that fill no group belong to the first group of the next. */
    int accumulation_steps;
    /* Count from each epoch's first batch, as `(i + 1) % k == 0` in a loop of your own does. The gradients of
     * an incomplete group stay, and are added to the next group's. */
    bool restart_each_epoch;
    double clip_norm;          /* grad_clip_fn: torch.nn.utils.clip_grad_norm_ */
    double clip_value;         /* ... or clip_grad_value_ */
    const char *metric_key;    /* what is minimised, as in lk_backward_callback */
    const char *optimizer_key; /* report lr/KEY and momentum/KEY of lk_runner_optimizer(KEY) instead */
} lk_optimizer_callback_options;
/* Says how the update is made, and reports lr and momentum of the first parameter group. */
#define lk_optimizer_callback(...)                                                                           \
    LK_CALL0_(lk_optimizer_callback_with, lk_optimizer_callback_options, __VA_ARGS__)
lk_callback *lk_optimizer_callback_with(const lk_optimizer_callback_options *options);

typedef struct lk_scheduler_callback_options {
    size_t struct_size;
    /* "epoch" or "batch". By default batches where a OneCycleLR or CyclicLR is in it, alone or behind a
     * warm-up (LinearLR, ConstantLR); beside other schedules it must be said. */
    const char *mode;
    const char *loader_key, *metric_key; /* for schedulers that look at a metric */
} lk_scheduler_callback_options;
#define lk_scheduler_callback(...)                                                                           \
    LK_CALL0_(lk_scheduler_callback_with, lk_scheduler_callback_options, __VA_ARGS__)
lk_callback *lk_scheduler_callback_with(const lk_scheduler_callback_options *options);

typedef struct lk_early_stopping_callback_options {
    size_t struct_size;
    int patience; /* required: this many epochs without a better one end the run */
    const char *loader_key, *metric_key;
    bool minimize, maximize; /* by default as the run's valid metric */
    double min_delta;        /* 1e-6 */
} lk_early_stopping_callback_options;
#define lk_early_stopping_callback(...)                                                                      \
    LK_CALL0_(lk_early_stopping_callback_with, lk_early_stopping_callback_options, __VA_ARGS__)
lk_callback *lk_early_stopping_callback_with(const lk_early_stopping_callback_options *options);

typedef struct lk_checkpoint_callback_options {
    size_t struct_size;
    const char *logdir; /* the run's */
    const char *loader_key, *metric_key;
    bool minimize, maximize;
    int topk;                        /* 1 */
    const char *mode;                /* "model" (weights) or "runner" (everything) in the numbered files */
    bool no_save_last, no_save_best; /* do not keep model.last / model.best */
    bool no_save_runner;             /* do not keep runner.last: the run cannot be resumed */
    int save_every_batches;          /* also keep runner.last inside an epoch, every so many batches */
    const char *resume_model, *resume_runner; /* loaded at the start */
    bool load_best_on_end;
} lk_checkpoint_callback_options;
#define lk_checkpoint_callback(...)                                                                          \
    LK_CALL0_(lk_checkpoint_callback_with, lk_checkpoint_callback_options, __VA_ARGS__)
lk_callback *lk_checkpoint_callback_with(const lk_checkpoint_callback_options *options);
/* No checkpoint at the epochs; lk_train then adds none. */
lk_callback *lk_skip_checkpoint_callback(void);

/* ---- Around a run ---- */

/* _timer/_fps, _timer/batch_time, _timer/data_time, _timer/model_time. */
lk_callback *lk_timer_callback(void);

typedef struct lk_lr_finder_callback_options {
    size_t struct_size;
    double final_lr;   /* required */
    const char *scale; /* "log" or "linear"; "log" */
    int num_steps;     /* the batches of the loader */
    const char *optimizer_key;
} lk_lr_finder_callback_options;
/* Raises the learning rate from its value to final_lr over the batches, writes logdir/lr_finder.csv and
 * stops. */
#define lk_lr_finder_callback(...)                                                                           \
    LK_CALL0_(lk_lr_finder_callback_with, lk_lr_finder_callback_options, __VA_ARGS__)
lk_callback *lk_lr_finder_callback_with(const lk_lr_finder_callback_options *options);

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
    int epochs;            /* active in every so many epochs ... */
    const int *epoch_list; /* ... or in these; 0-terminated */
    int ignore_epochs;     /* not active in every so many ... */
    const int *ignore_epoch_list;
    const char *const *loaders; /* active for these loaders; NULL-terminated */
    const char *const *ignore_loaders;
    bool (*filter_fn)(const char *stage, int64_t epoch, const char *loader_key, void *context);
    void *context;
} lk_control_flow_callback_options;
/* Wraps a callback, which belongs to it, so that it is only called where the options say. */
#define lk_control_flow_callback(...)                                                                        \
    LK_CALL1_(lk_control_flow_callback_with, lk_control_flow_callback_options, __VA_ARGS__, )
lk_callback *lk_control_flow_callback_with(lk_callback *callback,
                                           const lk_control_flow_callback_options *options);

/* Torchbearer's once_per_epoch and only_if: the wrapped callback is called at its first batch of an epoch, or
 * where `condition` is true. */
lk_callback *lk_once_per_epoch(lk_callback *callback);
lk_callback *lk_only_if(lk_callback *callback, bool (*condition)(lk_runner *runner, void *context),
                        void *context);

typedef struct lk_batch_transform_callback_options {
    size_t struct_size;
    lk_status (*transform)(lk_tensor *tensor, lk_runner *runner, void *context); /* in place */
    void *context;
    const char *scope; /* "on_batch_start" or "on_batch_end" */
    const char *input_key;
    const char *output_key; /* the name of the result, which leaves the input as it is; by default the input
                               is changed */
} lk_batch_transform_callback_options;
#define lk_batch_transform_callback(...)                                                                     \
    LK_CALL0_(lk_batch_transform_callback_with, lk_batch_transform_callback_options, __VA_ARGS__)
lk_callback *lk_batch_transform_callback_with(const lk_batch_transform_callback_options *options);

/* Only so many batches of each named loader (a fraction below 1 of them). */
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
/* Averages of the weights: moving (EMA), or over the epochs from swa_start on (SWA). Evaluation and
 * checkpoints see the average; training goes on with the weights themselves. Statistics of a batch norm are
 * not averaged. */
#define lk_ema_callback(...) LK_CALL0_(lk_ema_callback_with, lk_ema_callback_options, __VA_ARGS__)
lk_callback *lk_ema_callback_with(const lk_ema_callback_options *options);
lk_callback *lk_swa_callback(int swa_start);

/* Torchbearer's: rate * |w|_1 or rate * |w|_2 of every parameter is added to what is minimised, through the
 * gradients. The plain decay is the optimizers' weight_decay. */
lk_callback *lk_l1_weight_decay_callback(double rate);
lk_callback *lk_l2_weight_decay_callback(double rate);
/* The norm of all gradients of each update, before clipping: grad_norm, grad_norm/mean, grad_norm/std. */
lk_callback *lk_gradient_norm_callback(void);

/* Ends the run where a loss or a metric of a batch is not a number. */
lk_callback *lk_terminate_on_nan_callback(void);
/* The progress bar; lk_train adds it where verbose. */
lk_callback *lk_progress_callback(void);
/* 3 batches and 3 epochs: lk_train's check. */
lk_callback *lk_check_run_callback(int batch_count, int epoch_count);

/* ---- One's own, from single functions ---- */

/* lk_on(batch_end, my_function, my_context): a callback of one slot. */
#define lk_on(moment, function, context)                                                                     \
    lk_function_callback(LK_OPTIONS(lk_callback_ops, .name = "on_" #moment, .on_##moment = (function)),      \
                         (context))
/* Copies `ops`. */
lk_callback *lk_function_callback(const lk_callback_ops *ops, void *context);

#ifdef __cplusplus
}
#endif
#endif
