/* What <lockstep/callback.h>, <lockstep/runner.h> and <lockstep/launch.h> refuse. */
#include "case.h"
#include "refusals.h"

#include <lockstep/launch.h>

#define REFUSED_CALLBACK(fragment, ...) REFUSED(fragment, lk_callback_free, __VA_ARGS__)

static void metrics(void **state)
{
    (void)state;
    REFUSED_CALLBACK("topk", lk_accuracy_callback(.num_classes = 3, .topk = {4}));
    REFUSED_CALLBACK("num_classes", lk_auc_callback(.num_classes = -1));
    REFUSED_CALLBACK("threshold", lk_multilabel_accuracy_callback(.threshold = NAN));
    REFUSED_CALLBACK("threshold", lk_iou_callback(.threshold = INFINITY));
    REFUSED_CALLBACK("zero_division", lk_precision_recall_f1_support_callback(.zero_division = 3));
    REFUSED_CALLBACK("topk", lk_auc_callback(.topk = {1}));
    REFUSED_CALLBACK("threshold", lk_accuracy_callback(.threshold = 0.5));
    REFUSED_CALLBACK("from_logits", lk_mse_callback(.from_logits = true));
    REFUSED_CALLBACK("zero_division", lk_accuracy_callback(.zero_division = 1));
    REFUSED_CALLBACK("compute_per_class_metrics", lk_mse_callback(.compute_per_class_metrics = true));
    REFUSED_CALLBACK("normalize", lk_accuracy_callback(.normalize = true));
    REFUSED_CALLBACK("class_names", lk_accuracy_callback(.class_names = (const char *const[]){"a"}));
    REFUSED_CALLBACK("num_classes", lk_mae_callback(.num_classes = 3));
    REFUSED_CALLBACK("metric_key", lk_metric_aggregation_callback());
    REFUSED_CALLBACK(
        "metrics", lk_metric_aggregation_callback(.metric_key = "x", .metrics = (const char *const[]){NULL}));
    REFUSED_CALLBACK("mode", lk_metric_aggregation_callback(.metric_key = "x", .mode = "median"));
    REFUSED_CALLBACK("scope", lk_metric_aggregation_callback(.metric_key = "x", .scope = "epoch"));
    REFUSED_CALLBACK("weights", lk_metric_aggregation_callback(.metric_key = "x", .mode = "weighted_sum"));
    lkt_all_refused();
}

static void training(void **state)
{
    (void)state;
    REFUSED_CALLBACK("clipping", lk_backward_callback(.clip_norm = -1));
    REFUSED_CALLBACK("clipping", lk_backward_callback(.clip_value = NAN));
    REFUSED_CALLBACK("log_gradient", lk_backward_callback(.log_gradient = true));
    REFUSED_CALLBACK("accumulation_steps", lk_optimizer_callback(.accumulation_steps = -1));
    REFUSED_CALLBACK("restart_each_epoch", lk_optimizer_callback(.restart_each_epoch = true));
    REFUSED_CALLBACK("clipping", lk_optimizer_callback(.clip_norm = NAN));
    REFUSED_CALLBACK("clipping", lk_optimizer_callback(.clip_value = -1));
    REFUSED_CALLBACK("mode", lk_scheduler_callback(.mode = "step"));
    REFUSED_CALLBACK("patience", lk_early_stopping_callback());
    REFUSED_CALLBACK("patience", lk_early_stopping_callback(.patience = -1));
    REFUSED_CALLBACK("min_delta", lk_early_stopping_callback(.patience = 1, .min_delta = INFINITY));
    REFUSED_CALLBACK("topk", lk_checkpoint_callback(.topk = -1));
    REFUSED_CALLBACK("mode", lk_checkpoint_callback(.mode = "modle"));
    REFUSED_CALLBACK("rate", lk_l1_weight_decay_callback(-1));
    REFUSED_CALLBACK("rate", lk_l2_weight_decay_callback(NAN));
    REFUSED_CALLBACK("decay", lk_ema_callback(.decay = 1.5));
    REFUSED_CALLBACK("decay", lk_ema_callback(.decay = -0.5));
    REFUSED_CALLBACK("update_every", lk_ema_callback(.update_every = -1));
    REFUSED_CALLBACK("swa_start", lk_swa_callback(-1));
    lkt_all_refused();
}

static lk_status transform(lk_tensor *tensor, lk_runner *runner, void *context)
{
    (void)tensor, (void)runner, (void)context;
    return LK_OK;
}

static void around_a_run(void **state)
{
    (void)state;
    static const int none[] = {0}, negative[] = {1, -1, 0};
    static const char *const empty[] = {NULL};
    REFUSED_CALLBACK("final_lr", lk_lr_finder_callback());
    REFUSED_CALLBACK("final_lr", lk_lr_finder_callback(.final_lr = -1));
    REFUSED_CALLBACK("scale", lk_lr_finder_callback(.final_lr = 1, .scale = "exp"));
    REFUSED_CALLBACK("num_steps", lk_lr_finder_callback(.final_lr = 1, .num_steps = -1));
    REFUSED_CALLBACK("loader", lk_periodic_loader_callback_with(NULL, 0));
    REFUSED_CALLBACK("loader", lk_periodic_loader_callback({NULL, 2}));
    REFUSED_CALLBACK("period", lk_periodic_loader_callback({"valid", -1}));
    REFUSED_CALLBACK("ControlFlow", lk_control_flow_callback(lk_timer_callback()));
    REFUSED_CALLBACK("epochs", lk_control_flow_callback(lk_timer_callback(), .epochs = -1));
    REFUSED_CALLBACK("epoch", lk_control_flow_callback(lk_timer_callback(), .epoch_list = none));
    REFUSED_CALLBACK("epoch", lk_control_flow_callback(lk_timer_callback(), .ignore_epoch_list = negative));
    REFUSED_CALLBACK("loaders", lk_control_flow_callback(lk_timer_callback(), .loaders = empty));
    REFUSED_CALLBACK("condition", lk_only_if(lk_timer_callback(), NULL, NULL));
    REFUSED_CALLBACK("transform", lk_batch_transform_callback(.scope = "on_batch_end"));
    REFUSED_CALLBACK("scope", lk_batch_transform_callback(.transform = transform, .scope = "on_epoch_end"));
    REFUSED_CALLBACK("batches", lk_batch_overfit_callback({"train", -1}));
    REFUSED_CALLBACK("batches", lk_batch_overfit_callback({"train", NAN}));
    REFUSED_CALLBACK("loader", lk_batch_overfit_callback({NULL, 1}));
    REFUSED_CALLBACK("loader", lk_batch_overfit_callback_with(NULL, 0));
    REFUSED_CALLBACK("CheckRun", lk_check_run_callback(0, 0));
    REFUSED_CALLBACK("CheckRun", lk_check_run_callback(-1, 3));
    REFUSED_CALLBACK("CheckRun", lk_check_run_callback(3, -1));
    REFUSED_CALLBACK("slot", lk_function_callback(LK_OPTIONS(lk_callback_ops, .name = "nothing"), NULL));
    REFUSED_CALLBACK("function", lk_on(batch_end, NULL, NULL));
    REFUSED_CALLBACK("ops", lk_callback_create(NULL, NULL, 0));
    lkt_all_refused();
}

static lk_status nothing(void *context)
{
    (void)context;
    return LK_OK;
}

static void launching(void **state)
{
    (void)state;
    REFUSED_CALL("nproc", lk_distributed_run(nothing, NULL, .nproc = -1));
    REFUSED_CALL("function", lk_distributed_run(NULL, NULL, .nproc = 1));
    lkt_all_refused();
}

/* ---- What is known only when the run starts, still before the first batch ---- */

static int batches_seen;

static lk_status count_batch(lk_callback *callback, lk_runner *runner)
{
    (void)callback, (void)runner;
    batches_seen++;
    return LK_OK;
}

static lk_status train(lk_callback *callback, lk_train_options options)
{
    lk_runner *runner = lk_supervised_runner();
    lk_callback *callbacks[] = {lk_on(batch_end, count_batch, NULL), callback};
    options.model = lkt_linear_model();
    options.criterion = lk_cross_entropy_loss();
    options.optimizer = lk_sgd(.lr = 0.1);
    const lk_named_loader usual[] = {{"train", NULL}, {"valid", NULL}};
    lk_named_loader loaders[2];
    for (int i = 0; i < 2 && !options.loaders.count; i++)
        loaders[i] = (lk_named_loader){usual[i].key, lk_loader(lkt_points(24, 1), .batch_size = 8)};
    if (!options.loaders.count) options.loaders = (lk_loader_list){loaders, 2};
    options.callbacks = (lk_callback_list){callbacks, callback ? 2 : 1};
    batches_seen = 0;
    lk_status status = lk_train_with(runner, &options);
    lk_runner_free(runner);
    if (batches_seen) lkt_unrefused++, print_error("%d batches before %s\n", batches_seen, lk_error());
    return status;
}

#define REFUSED_RUN(fragment, callback, ...)                                                                 \
    REFUSED_CALL(fragment, train((callback), (lk_train_options){LK_SIZE(lk_train_options), __VA_ARGS__}))

static void runs(void **state)
{
    (void)state;
    static const char *const nope[] = {"nope", NULL}, *const valid[] = {"valid", "vald", NULL};
    REFUSED_RUN("\"nope\"", lk_control_flow_callback(lk_timer_callback(), .loaders = nope), );
    REFUSED_RUN("did you mean \"valid\"?",
                lk_control_flow_callback(lk_timer_callback(), .ignore_loaders = valid), );
    REFUSED_RUN("\"nope\"", lk_batch_overfit_callback({"nope", 1}), );
    REFUSED_RUN("\"nope\"", lk_periodic_loader_callback({"nope", 2}), );
    REFUSED_RUN("\"nope\"", lk_criterion_callback(.criterion_key = "nope"), );
    REFUSED_RUN("\"nope\"", lk_optimizer_callback(.optimizer_key = "nope"), );
    REFUSED_RUN("comm", NULL, .comm = "gloom", .nproc = 2);
    REFUSED_RUN("device", NULL, .device = "cudaa");
    REFUSED_RUN("loader", NULL, .loaders = lk_loaders({NULL, lk_loader(lkt_points(24, 1), .batch_size = 8)}));
    REFUSED_RUN("loader", NULL, .loaders = lk_loaders({"", lk_loader(lkt_points(24, 1), .batch_size = 8)}));
    REFUSED_RUN("loader", NULL,
                .loaders = lk_loaders({"train/a", lk_loader(lkt_points(24, 1), .batch_size = 8)}));
    REFUSED_RUN("\"train\"", NULL,
                .loaders = lk_loaders({"train", lk_loader(lkt_points(24, 1), .batch_size = 8)},
                                      {"train", lk_loader(lkt_points(24, 1), .batch_size = 8)}));
    REFUSED_RUN("loader \"valid\" is empty", NULL,
                .loaders =
                    lk_loaders({"train", lk_loader(lkt_points(24, 1), .batch_size = 8)},
                               {"valid", lk_loader(lkt_points(5, 1), .batch_size = 8, .drop_last = true)}));
    REFUSED_RUN("hparams", NULL, .hparams = lk_hparams({NULL, "1"}));
    lkt_all_refused();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics),   cmocka_unit_test(training), cmocka_unit_test(around_a_run),
        cmocka_unit_test(launching), cmocka_unit_test(runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
