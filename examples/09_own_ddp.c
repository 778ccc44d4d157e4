/* Distributed training by hand: Torchbearer's two callbacks, one that shares the first weights and one that averages
 * the gradients after each backward pass. The run's own averaging is off (.local_gradients). Both runs end with the
 * same weights.
 *
 *     build/examples/09_own_ddp [--nproc N]      two ranks on this machine unless N says otherwise */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <stdio.h>
#include <string.h>

/* Torchbearer's SyncOnInit: every rank begins with rank 0's weights. */
static lk_status sync_on_init(lk_callback *callback, lk_runner *runner)
{
    lk_param_list params;
    (void)callback;
    lk_status status = lk_module_params(runner->model, &params);
    for (int i = 0; !status && i < params.count; i++) {
        lk_tensor *value = params.items[i].param->value;
        status = lk_runner_broadcast(runner, value->data, lk_tensor_count(value), value->dtype, 0);
        lk_param_changed(params.items[i].param);
    }
    lk_param_list_free(&params);
    return status;
}

/* Torchbearer's GradientAverage: all gradients of the step lie in one buffer. */
static lk_status average_gradients(lk_callback *callback, lk_runner *runner)
{
    int64_t count;
    (void)callback;
    void *grads = lk_step_flat_grads(runner->step, &count);
    if (!grads) return lk_error_status();
    lk_status status = lk_runner_all_reduce(runner, grads, count, LK_F32, LK_REDUCE_AVG);
    return status ? status : lk_step_grads_changed(runner->step);
}

static lk_status train(bool by_hand, int nproc, char hash[65])
{
    lk_callback *callbacks[] = {lk_accuracy_callback(.num_classes = 10),
                                by_hand ? lk_on(experiment_start, sync_on_init, NULL) : NULL,
                                by_hand ? lk_on(backward, average_gradients, NULL) : NULL};
    lk_manual_seed(42);
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(runner,
        .model = lk_sequential(lk_flatten(), lk_linear(784, 10)),
        .criterion = lk_cross_entropy_loss(),
        .optimizer = lk_adam(.lr = 0.01),
        .loaders = lk_loaders({"train", lk_loader(lk_synthetic_digits(.train = true), .batch_size = 32)},
                              {"valid", lk_loader(lk_synthetic_digits(), .batch_size = 32)}),
        .callbacks = {callbacks, by_hand ? 3 : 1},
        .num_epochs = 1,
        .valid_loader = "valid",
        .device = "cpu",
        .nproc = nproc,
        .local_gradients = by_hand);
    lk_state_dict *weights = status ? NULL : lk_module_state_dict(runner->model);
    if (!status) status = weights ? lk_weights_hash(weights, hash) : lk_error_status();
    if (!status && lk_rank() == 0)
        printf("%s: accuracy %.4f, weights %.16s\n", by_hand ? "by hand " : "built in",
               lk_metrics_get(lk_runner_loader_metrics(runner, "valid"), "accuracy01"), hash);
    lk_state_dict_free(weights);
    lk_runner_free(runner);
    return status;
}

int main(int argc, char **argv)
{
    char built_in[65], by_hand[65];
    bool is_local = argc == 1; /* without flags; else they say how many ranks there are */
    lk_set_log_sink(lk_log_to_stderr, NULL);
    int code = take_arguments(&argc, argv, 0, "");
    if (code >= 0) return code;
    lk_status status = train(false, is_local ? 2 : 0, built_in);
    if (!status) status = train(true, is_local ? 2 : 0, by_hand);
    if (status) fprintf(stderr, "%s\n", lk_error());
    return status != LK_OK || strcmp(built_in, by_hand) != 0;
}
