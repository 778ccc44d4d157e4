/* A small GPT: learns a rhyme letter by letter, then writes by itself.
 *
 *     build/examples/18_gpt [STEPS] [--nproc N]
 *
 * Two layers of a transformer with a mask that hides what comes later. Writing samples from the likeliest letters. */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char text[] =
    "this is the house that jack built. this is the malt that lay in the house that jack built. "
    "this is the rat that ate the malt that lay in the house that jack built. "
    "this is the cat that killed the rat that ate the malt that lay in the house that jack built. ";
static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz. ";
enum { TEXT = sizeof text - 1, LETTERS = sizeof alphabet - 1, WIDTH = 48, HEADS = 4, WINDOW = 32, BATCH = 8, BEST = 3 };

static int64_t letter(int64_t place)
{
    return strchr(alphabet, text[place % TEXT]) - alphabet;
}

/* letters (B, WINDOW) -> the loss of the letter behind each, and the likeliest letters with their chances. */
static lk_value *read_on(lk_graph *graph, const char *const *names, lk_value *const *in, int count, void *model)
{
    lk_value *places = lk_op_arange(graph, 0, WINDOW, 1, LK_I64);
    lk_value *x = lk_op_add(lk_module_forward(lk_module_child(model, "letters"), in[0]),
                            lk_module_forward(lk_module_child(model, "places"), places));
    lk_value *later = lk_op_triu(lk_op_ones(graph, LK_SHAPE(WINDOW, WINDOW), LK_F32), 1);
    (void)names;
    x = lk_transformer_encoder_forward(lk_module_child(model, "blocks"), x, lk_op_cast(later, LK_BOOL), NULL);
    lk_value *logits = lk_module_forward(lk_module_child(model, "head"), x);
    lk_value *best, *chance = lk_op_topk(lk_op_softmax(logits, 2), BEST, 2, true, &best);
    lk_graph_output(graph, "best", best), lk_graph_output(graph, "chance", chance);
    if (count < 2) return NULL;
    return lk_op_cross_entropy(lk_op_transpose(logits, 1, 2), in[1], NULL, LK_REDUCTION_MEAN, -100, 0);
}

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    lk_step *step = lk_runner_step(runner, "gpt",
        LK_OPTIONS(lk_step_options, .model = runner->model, .optimizer = runner->optimizer, .function = read_on,
                   .context = runner->model, .clip_norm = 1));
    lk_input fields[] = {{"letters", lk_batch_get(batch, "letters")}, {"next", lk_batch_get(batch, "next")}};
    lk_status status = step ? lk_step_train(step, fields, 2) : lk_error_status();
    if (status) return status;
    if (runner->is_master && (runner->batch_step <= 20 || runner->batch_step % 100 == 0))
        printf("step %d: loss %.9g\n", (int)runner->batch_step, lk_step_loss(step));
    return lk_metrics_set(runner->batch_metrics, "loss", lk_step_loss(step));
}

static lk_dataset *windows(int64_t count)
{
    lk_tensor *letters = lk_tensor_create(LK_I64, LK_SHAPE(count, WINDOW)),
              *next = lk_tensor_create(LK_I64, LK_SHAPE(count, WINDOW));
    for (int64_t i = 0; letters && next && i < count * WINDOW; i++) {
        int64_t place = i / WINDOW * 23 + i % WINDOW;
        lk_tensor_set(letters, i, (double)letter(place));
        lk_tensor_set(next, i, (double)letter(place + 1));
    }
    return lk_tensor_dataset({"letters", letters}, {"next", next});
}

/* Draws one of the BEST likeliest letters behind a place. */
static int64_t draw(const lk_tensor *best, const lk_tensor *chance, int64_t place)
{
    double left = 0;
    for (int k = 0; k < BEST; k++) left += lk_tensor_get(chance, place * BEST + k);
    left *= lk_generator_f64(lk_default_generator());
    for (int k = 0; k < BEST; k++)
        if ((left -= lk_tensor_get(chance, place * BEST + k)) <= 0) return (int64_t)lk_tensor_get(best, place * BEST + k);
    return (int64_t)lk_tensor_get(best, place * BEST);
}

/* The window is filled from the left, and moves on when it is full. What stands behind a letter does not count. */
static lk_status write_on(lk_module *model, int count)
{
    lk_tensor *window = lk_tensor_create(LK_I64, LK_SHAPE(1, WINDOW));
    lk_step *step = window ? lk_step(.model = model, .function = read_on, .context = model) : NULL;
    lk_status status = step ? LK_OK : lk_error_status();
    int64_t *letters = window ? window->data : NULL, used = 1;
    if (window) letters[0] = letter(0);
    for (int i = 0; !status && i < count; i++) {
        putchar(alphabet[letters[used - 1]]);
        status = lk_step_evaluate(step, (lk_input[]){{"letters", window}}, 1);
        if (status) break;
        int64_t next = draw(lk_step_output(step, "best"), lk_step_output(step, "chance"), used - 1);
        if (used == WINDOW) memmove(letters, letters + 1, --used * sizeof *letters);
        letters[used++] = next;
    }
    putchar('\n');
    lk_step_free(step), lk_tensor_free(window);
    return status;
}

int main(int argc, char **argv)
{
    static const lk_runner_ops ops = {.handle_batch = handle_batch};
    int code = take_arguments(&argc, argv, 1, "[STEPS]");
    if (code >= 0) return code;
    lk_manual_seed(42);
    lk_module *letters = lk_embedding(LETTERS, WIDTH), *places = lk_embedding(WINDOW, WIDTH);
    lk_module *block = lk_transformer_encoder_layer(WIDTH, HEADS, .dim_feedforward = 4 * WIDTH, .dropout = LK_ZERO,
        .activation = LK_TRANSFORMER_GELU, .batch_first = true, .norm_first = true);
    lk_module *blocks = lk_transformer_encoder(block, 2, .norm = lk_layer_norm(WIDTH)), *head = lk_linear(WIDTH, LETTERS);
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lk_status status = lk_train(runner,
        .model = lk_module_dict({"letters", letters}, {"places", places}, {"blocks", blocks}, {"head", head}),
        .optimizer = lk_adamw(.lr = 3e-3),
        .loaders = lk_loaders({"train", lk_loader(windows((int64_t)BATCH * (argc > 1 ? atoi(argv[1]) : 300)),
                                                  .batch_size = BATCH, .no_shuffle = true)}));
    if (!status) status = write_on(runner->model, 160);
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_runner_free(runner);
    return status != LK_OK;
}
