/* A char-LSTM: learns a rhyme letter by letter, then goes on writing by itself.
 *
 *     build/examples/11_char_lstm [STEPS]
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
    lk_value *h, *c;
    (void)names, (void)count;
    lk_value *x = lk_module_forward(lk_module_child(model, "embedding"), inputs[0]);
    lk_value *y = lk_recurrent_forward(lk_module_child(model, "lstm"), x, .h_0 = inputs[1], .c_0 = inputs[2],
                                       .h_n = &h, .c_n = &c);
    y = lk_module_forward(lk_module_child(model, "head"), y);
    lk_graph_output(graph, "logits", y), lk_graph_output(graph, "h", h), lk_graph_output(graph, "c", c);
    return NULL;
}

static lk_status train(lk_module *model, int steps)
{
    lk_optimizer *optimizer = lk_adam(.lr = 0.01);
    lk_step *step = lk_step(.model = model, .function = learn, .context = model, .optimizer = optimizer,
                            .clip_norm = 5);
    lk_tensor *windows = lk_tensor_create(LK_I64, LK_SHAPE(BATCH, WINDOW)),
              *next = lk_tensor_create(LK_I64, LK_SHAPE(BATCH, WINDOW));
    lk_status status = step && windows && next ? LK_OK : lk_error_status();
    for (int i = 0; !status && i < steps; i++) {
        for (int64_t k = 0; k < BATCH * WINDOW; k++) {
            int64_t place = (int64_t)i * 17 + k / WINDOW * 23 + k % WINDOW;
            lk_tensor_set(windows, k, (double)letter(place));
            lk_tensor_set(next, k, (double)letter(place + 1));
        }
        status = lk_step_train(step, (const lk_input[]){{"windows", windows}, {"next", next}}, 2);
        if (!status && (i < 20 || (i + 1) % 100 == 0)) printf("step %d: loss %.6f\n", i + 1, lk_step_loss(step));
    }
    lk_step_free(step);
    lk_optimizer_free(optimizer);
    lk_tensor_free(windows);
    lk_tensor_free(next);
    return status;
}

/* Draws a letter from the softmax of its logits. */
static int64_t draw(const lk_tensor *logits)
{
    double weight[LETTERS], left = 0;
    for (int i = 0; i < LETTERS; i++) left += weight[i] = exp(lk_tensor_get(logits, i) / 0.5);
    left *= lk_generator_f64(lk_default_generator());
    for (int i = 0; i < LETTERS - 1; i++)
        if ((left -= weight[i]) <= 0) return i;
    return LETTERS - 1;
}

static lk_status write_on(lk_module *model, int64_t now, int count)
{
    lk_step *step = lk_step(.model = model, .function = read_letter, .context = model);
    lk_tensor *in = lk_tensor_create(LK_I64, LK_SHAPE(1, 1)), *h = lk_tensor_create(LK_F32, LK_SHAPE(LAYERS, 1, HIDDEN)),
              *c = lk_tensor_create(LK_F32, LK_SHAPE(LAYERS, 1, HIDDEN)); /* zeros */
    lk_status status = step && in && h && c ? LK_OK : lk_error_status();
    for (int i = 0; !status && i < count; i++) {
        lk_tensor_set(in, 0, (double)now);
        putchar(alphabet[now]);
        status = lk_step_evaluate(step, (const lk_input[]){{"letter", in}, {"h", h}, {"c", c}}, 3);
        if (status) break;
        memcpy(h->data, lk_step_output(step, "h")->data, lk_tensor_nbytes(h));
        memcpy(c->data, lk_step_output(step, "c")->data, lk_tensor_nbytes(c));
        now = draw(lk_step_output(step, "logits"));
    }
    putchar('\n');
    lk_tensor_free(in), lk_tensor_free(h), lk_tensor_free(c);
    lk_step_free(step);
    return status;
}

int main(int argc, char **argv)
{
    int code = take_arguments(&argc, argv, 1, "[STEPS]");
    if (code >= 0) return code;
    lk_manual_seed(42);
    lk_module *model = lk_named_sequential(
        {"embedding", lk_embedding(LETTERS, 16)},
        {"lstm", lk_lstm(16, HIDDEN, .num_layers = LAYERS, .batch_first = true)},
        {"head", lk_linear(HIDDEN, LETTERS)});
    lk_status status = model ? train(model, argc > 1 ? atoi(argv[1]) : 300) : lk_error_status();
    if (!status) status = write_on(model, letter(0), 120);
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_module_free(model);
    return status != LK_OK;
}
