/* A char-LSTM: learns a rhyme letter by letter, then goes on writing by itself.
 *
 *     build/examples/11_char_lstm [STEPS] [--nproc N]
 *
 * Training and writing are two steps over one model. Writing carries the states of the LSTM from letter to letter. */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char text[] =
    "this is the house that jack built. this is the malt that lay in the house that jack built. "
    "this is the rat that ate the malt that lay in the house that jack built. "
    "this is the cat that killed the rat that ate the malt that lay in the house that jack built. ";
static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz. ";
enum { LENGTH = sizeof text - 1, LETTERS = sizeof alphabet - 1, HIDDEN = 64, LAYERS = 2, WINDOW = 32, BATCH = 8 };

static int64_t letter(int64_t place)
{
    return strchr(alphabet, text[place % LENGTH]) - alphabet;
}

/* windows (BATCH, WINDOW) -> the loss of the letter behind each of them. */
static lk_value *learn(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count, void *model)
{
    (void)graph, (void)names, (void)count;
    lk_value *logits = lk_op_transpose(lk_module_forward(model, inputs[0]), 1, 2);
    return lk_op_cross_entropy(logits, inputs[1], NULL, LK_REDUCTION_MEAN, -100, 0);
}

/* One letter (1, 1) and the states before it -> the logits of the next one and the states after it. */
static lk_value *read_letter(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count, void *model)
{
    lk_value *h, *c, *x = lk_module_forward(lk_module_child(model, "embedding"), inputs[0]);
    (void)names, (void)count;
    x = lk_recurrent_forward(lk_module_child(model, "lstm"), x, .h_0 = inputs[1], .c_0 = inputs[2], .h_n = &h, .c_n = &c);
    lk_graph_output(graph, "logits", lk_module_forward(lk_module_child(model, "head"), x));
    lk_graph_output(graph, "h", h), lk_graph_output(graph, "c", c);
    return NULL;
}

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    lk_step *step = lk_runner_step(runner, "char_lstm",
        LK_OPTIONS(lk_step_options, .model = runner->model, .optimizer = runner->optimizer, .function = learn,
                   .context = runner->model, .clip_norm = 5));
    lk_input fields[] = {{"windows", lk_batch_get(batch, "windows")}, {"next", lk_batch_get(batch, "next")}};
    lk_status status = step ? lk_step_train(step, fields, 2) : lk_error_status();
    if (!status && runner->is_master && (runner->batch_step <= 20 || runner->batch_step % 100 == 0))
        printf("step %d: loss %.6f\n", (int)runner->batch_step, lk_step_loss(step));
    return status ? status : lk_metrics_set(runner->batch_metrics, "loss", lk_step_loss(step));
}

static lk_dataset *windows_of_text(int64_t count)
{
    lk_tensor *windows = lk_tensor_create(LK_I64, LK_SHAPE(count, WINDOW)),
              *next = lk_tensor_create(LK_I64, LK_SHAPE(count, WINDOW));
    for (int64_t k = 0; windows && next && k < count * WINDOW; k++) {
        int64_t sample = k / WINDOW, place = sample / BATCH * 17 + sample % BATCH * 23 + k % WINDOW;
        lk_tensor_set(windows, k, (double)letter(place));
        lk_tensor_set(next, k, (double)letter(place + 1));
    }
    return lk_tensor_dataset({"windows", windows}, {"next", next});
}

/* Draws a letter from the softmax of its logits. */
static int64_t draw(const lk_tensor *logits)
{
    double weight[LETTERS], left = 0;
    for (int i = 0; i < LETTERS; i++) left += weight[i] = exp(lk_tensor_get(logits, i) / 0.5);
    left *= lk_generator_f64(lk_default_generator());
    int64_t drawn = 0;
    while (drawn < LETTERS - 1 && (left -= weight[drawn]) > 0) drawn++;
    return drawn;
}

static lk_status write_on(lk_module *model, int64_t now, int count)
{
    lk_step *step = lk_step(.model = model, .function = read_letter, .context = model);
    lk_tensor *in = lk_tensor_create(LK_I64, LK_SHAPE(1, 1)), *h = lk_tensor_create(LK_F32, LK_SHAPE(LAYERS, 1, HIDDEN)),
              *c = lk_tensor_create(LK_F32, LK_SHAPE(LAYERS, 1, HIDDEN)); /* zeros */
    lk_status status = step && in && h && c ? LK_OK : lk_error_status();
    for (int i = 0; !status && i < count; i++) {
        lk_tensor_set(in, 0, (double)now), putchar(alphabet[now]);
        status = lk_step_evaluate(step, (const lk_input[]){{"letter", in}, {"h", h}, {"c", c}}, 3);
        if (status) break;
        memcpy(h->data, lk_step_output(step, "h")->data, lk_tensor_nbytes(h));
        memcpy(c->data, lk_step_output(step, "c")->data, lk_tensor_nbytes(c));
        now = draw(lk_step_output(step, "logits"));
    }
    putchar('\n');
    lk_step_free(step), lk_tensor_free(in), lk_tensor_free(h), lk_tensor_free(c);
    return status;
}

int main(int argc, char **argv)
{
    static const lk_runner_ops ops = {.handle_batch = handle_batch};
    int code = take_arguments(&argc, argv, 1, "[STEPS]");
    if (code >= 0) return code;
    lk_manual_seed(42);
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lk_status status = lk_train(runner,
        .model = lk_named_sequential(
            {"embedding", lk_embedding(LETTERS, 16)},
            {"lstm", lk_lstm(16, HIDDEN, .num_layers = LAYERS, .batch_first = true)},
            {"head", lk_linear(HIDDEN, LETTERS)}),
        .optimizer = lk_adam(.lr = 0.01),
        .loaders = lk_loaders({"train", lk_loader(windows_of_text((int64_t)BATCH * (argc > 1 ? atoi(argv[1]) : 300)),
                                                  .batch_size = BATCH, .no_shuffle = true)}));
    if (!status) status = write_on(runner->model, letter(0), 120);
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_runner_free(runner);
    return status != LK_OK;
}
