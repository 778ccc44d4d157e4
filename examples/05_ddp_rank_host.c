/* Training over several machines by hand, as in Torchbearer's note: start one process a rank, on any hosts.
 *
 *     05_ddp_rank_host --world-size 2 --rank 0 --host 192.168.0.10 [DATA [EPOCHS]]
 *     05_ddp_rank_host --world-size 2 --rank 1 --host 192.168.0.10 [DATA [EPOCHS]]
 *
 * --host is where rank 0 runs. Every rank prints the same hash of the trained weights. */
#define _POSIX_C_SOURCE 200809L /* gethostname */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* MNIST from a folder; NULL is data/, which need not be there. */
static lk_dataset *digits(const char *root, bool train)
{
    lk_dataset *mnist = lk_mnist(root ? root : "data", .train = train, .normalize = true, .mean = 0.1307f, .std = 0.3081f);
    if (mnist || root || lk_error_status() != LK_ERR_NOT_FOUND) return mnist;
    if (train && lk_rank() == 0) fprintf(stderr, "%s\ndigits are drawn instead\n", lk_error());
    return lk_synthetic_digits(.train = train);
}

static lk_status say_who_we_are(lk_callback *callback, lk_runner *runner)
{
    char host[256] = "";
    (void)callback;
    gethostname(host, sizeof host - 1);
    printf("Rank and node: %d-%s\n", runner->rank, host);
    fflush(stdout);
    return LK_OK;
}

static lk_status print_hash(lk_runner *runner)
{
    char hash[LK_HASH_LENGTH + 1];
    lk_state_dict *weights = lk_module_state_dict(runner->model);
    if (!weights) return LK_ERR_NOMEM;
    lk_status status = lk_weights_hash(weights, hash);
    if (status == LK_OK) printf("weights %s\ndone\n", hash);
    lk_state_dict_free(weights);
    return status;
}

int main(int argc, char **argv)
{
    lk_set_log_sink(lk_log_to_stderr, NULL);
    int code = take_arguments(&argc, argv, 2, "[DATA [EPOCHS]]");
    if (code >= 0) return code;
    const char *root = argc > 1 ? argv[1] : NULL;
    lk_manual_seed(0);

    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(runner,
        .model = lk_named_sequential(
            {"flatten", lk_flatten()},
            {"net1", lk_linear(784, 100)},
            {"relu", lk_relu()},
            {"net2", lk_linear(100, 10)}),
        .criterion = lk_cross_entropy_loss(),
        .optimizer = lk_sgd(.lr = 0.001),
        .loaders = lk_loaders(
            {"train", lk_loader(digits(root, true), .batch_size = 128)},
            {"valid", lk_loader(digits(root, false), .batch_size = 128)}),
        .callbacks = lk_callbacks(
            lk_accuracy_callback(.topk = {1}),
            lk_on(experiment_start, say_who_we_are, NULL)),
        .num_epochs = argc > 2 ? atoi(argv[2]) : 10, .valid_loader = "valid", .verbose = true);
    if (status == LK_OK) status = print_hash(runner);
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_runner_free(runner);
    return status != LK_OK;
}
