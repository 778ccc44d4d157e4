/* VQ-VAE: short waves as a few words of a codebook that is learnt.
 *
 *     build/examples/14_vq_vae [STEPS] [--nproc N]
 *
 * Choosing the nearest word has no gradient. The straight-through estimator gives the encoder that of the word:
 * z + detach(word - z) has the value of the word and the gradient of z. */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 32, WORDS = 16, WIDTH = 4, BATCH = 32 };

static lk_value *mean_square(lk_value *a, lk_value *b)
{
    return lk_op_pointwise_loss(a, b, NULL, NULL, LK_LOSS_MSE, 0, LK_REDUCTION_MEAN);
}

/* The number of the nearest word of each row of z: the smallest |word|^2 - 2 z word. */
static lk_value *nearest(lk_value *z, lk_value *words)
{
    lk_value *squares = lk_op_sum(lk_op_mul(words, words), LK_AXES(1), false);
    lk_value *products = lk_op_matmul(z, lk_op_transpose(words, 0, 1));
    return lk_op_argmin(lk_op_sub(squares, lk_op_mul_scalar(products, 2)), 1, false);
}

static lk_value *learn(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count, void *model)
{
    (void)names, (void)count;
    lk_value *words = lk_graph_param(graph, lk_module_param(model, "codebook.weight"));
    lk_value *encoded = lk_module_forward(lk_module_child(model, "encoder"), inputs[0]); /* (B, WIDTH, LENGTH / 4) */
    lk_value *places = lk_op_transpose(encoded, 1, 2);
    lk_value *z = lk_op_reshape(places, LK_SHAPE(-1, WIDTH));
    lk_value *index = nearest(lk_op_detach(z), lk_op_detach(words));
    lk_value *word = lk_module_forward(lk_module_child(model, "codebook"), index);
    lk_value *through = lk_op_add(z, lk_op_detach(lk_op_sub(word, z)));
    through = lk_op_transpose(lk_op_reshape(through, lk_value_shape(places)), 1, 2);
    lk_value *wave = lk_module_forward(lk_module_child(model, "decoder"), through);
    lk_value *error = mean_square(wave, inputs[0]);
    lk_graph_output(graph, "index", index), lk_graph_output(graph, "error", error);
    lk_value *words_to_z = mean_square(word, lk_op_detach(z)), *z_to_words = mean_square(z, lk_op_detach(word));
    return lk_op_add(error, lk_op_add(words_to_z, lk_op_mul_scalar(z_to_words, 0.25)));
}

static int words_in_use(const lk_tensor *index)
{
    unsigned seen = 0;
    for (int64_t i = 0; i < lk_tensor_count(index); i++) seen |= 1U << (int)lk_tensor_get(index, i);
    return __builtin_popcount(seen);
}

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    lk_step *step = lk_runner_step(runner, "vq_vae",
        LK_OPTIONS(lk_step_options, .model = runner->model, .optimizer = runner->optimizer, .function = learn,
                   .context = runner->model));
    lk_input fields[] = {{"features", lk_batch_get(batch, "features")}};
    lk_status status = step ? lk_step_train(step, fields, 1) : lk_error_status();
    if (status) return status;
    if (runner->is_master && runner->batch_step <= 20)
        printf("step %d: loss %.9g\n", (int)runner->batch_step, lk_step_loss(step));
    if (runner->is_master && runner->batch_step % 100 == 0)
        printf("step %d: error %.5f with %d words\n", (int)runner->batch_step,
               lk_tensor_get(lk_step_output(step, "error"), 0), words_in_use(lk_step_output(step, "index")));
    return lk_metrics_set(runner->batch_metrics, "loss", lk_step_loss(step));
}

/* Sines of two lengths, which begin anywhere. */
static lk_dataset *waves(int64_t count)
{
    lk_tensor *waves = lk_tensor_create(LK_F32, LK_SHAPE(count, 1, LENGTH));
    for (int64_t i = 0; waves && i < count * LENGTH; i++) {
        double sample = (double)(i / LENGTH), place = (double)(i % LENGTH) / LENGTH;
        lk_tensor_set(waves, i, sin(6.2831853 * place * (1 + i / LENGTH % 2) + 2.4 * sample));
    }
    return lk_tensor_dataset({"features", waves});
}

int main(int argc, char **argv)
{
    static const lk_runner_ops ops = {.handle_batch = handle_batch};
    int code = take_arguments(&argc, argv, 1, "[STEPS]");
    if (code >= 0) return code;
    lk_manual_seed(42);
    lk_module *encoder = lk_sequential(lk_conv1d(1, 16, 4, .stride = 2, .padding = 1), lk_relu(),
                                       lk_conv1d(16, WIDTH, 4, .stride = 2, .padding = 1));
    lk_module *codebook = lk_embedding(WORDS, WIDTH);
    lk_module *decoder = lk_sequential(lk_conv_transpose1d(WIDTH, 16, 4, .stride = 2, .padding = 1), lk_relu(),
                                       lk_conv_transpose1d(16, 1, 4, .stride = 2, .padding = 1));
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lk_status status = lk_train(runner,
        .model = lk_module_dict({"encoder", encoder}, {"codebook", codebook}, {"decoder", decoder}),
        .optimizer = lk_adam(.lr = 3e-3),
        .loaders = lk_loaders({"train", lk_loader(waves((int64_t)BATCH * (argc > 1 ? atoi(argv[1]) : 1000)),
                                                  .batch_size = BATCH, .no_shuffle = true)}));
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_runner_free(runner);
    return status != LK_OK;
}
