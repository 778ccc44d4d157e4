/* Training handed to a launcher, as in the last of Catalyst's distributed tutorials: the data are made where they are
 * needed, the function runs in every rank.
 *
 *     06_distributed_run [--nproc N]        one rank a core by default; under srun and mpirun the roles come from there */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <stdio.h>

enum { SAMPLES = 10000, FEATURES = 10 };

static int make_datasets(lk_named_dataset *out, int capacity, void *context)
{
    (void)capacity;
    (void)context;
    lk_tensor *x = lk_rand(LK_SHAPE(SAMPLES, FEATURES)), *y = lk_rand(LK_SHAPE(SAMPLES, 1));
    lk_dataset *dataset = lk_tensor_dataset({"features", x}, {"targets", y});
    if (!dataset) return -1;
    out[0] = (lk_named_dataset){"train", dataset};
    out[1] = (lk_named_dataset){"valid", lk_dataset_share(dataset)};
    return 2;
}

static lk_status train(void *context)
{
    (void)context;
    lk_manual_seed(42);
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(runner,
        .model = lk_linear(FEATURES, 1),
        .criterion = lk_mse_loss(),
        .optimizer = lk_adam(),
        .scheduler = lk_multi_step_lr(.milestones = lk_milestones(3, 6)),
        .datasets = {.batch_size = 32, .num_workers = 1, .get_datasets_fn = make_datasets},
        .num_epochs = 8, .logdir = "./logs/example_3", .verbose = true);
    lk_runner_free(runner);
    return status;
}

int main(int argc, char **argv)
{
    lk_set_log_sink(lk_log_to_stderr, NULL);
    int code = take_arguments(&argc, argv, 0, "");
    if (code >= 0) return code;
    lk_status status = lk_distributed_run(train, NULL);
    if (status) fprintf(stderr, "%s\n", lk_error());
    return status != LK_OK;
}
