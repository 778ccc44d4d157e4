/* Sequence to sequence with attention: writes a row of digits backwards.
 *
 *     build/examples/17_seq2seq [STEPS] [--nproc N]
 *
 * One GRU reads the row, another writes the answer digit by digit and looks at all that the first one made of the row. */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 8, DIGITS = 10, BEGIN = DIGITS, HIDDEN = 48, BATCH = 32 };
enum { SOURCE, WRITTEN, TARGET, FIELDS };
static const char *const names_of_fields[FIELDS] = {"source", "written", "target"};

/* source (B, LENGTH) and what is written before each place -> the loss of the target, which may be left out. */
static lk_value *translate(lk_graph *graph, const char *const *names, lk_value *const *in, int count, void *model)
{
    lk_module *embedding = lk_module_child(model, "embedding");
    lk_value *state, *read, *wrote;
    (void)names;
    read = lk_recurrent_forward(lk_module_child(model, "reader"), lk_module_forward(embedding, in[SOURCE]), .h_n = &state);
    wrote = lk_recurrent_forward(lk_module_child(model, "writer"), lk_module_forward(embedding, in[WRITTEN]), .h_0 = state);
    lk_value *seen = lk_op_scaled_dot_product_attention(wrote, read, read);
    lk_value *both = lk_op_concat((lk_value *[]){wrote, seen}, 2, 2);
    lk_value *logits = lk_module_forward(lk_module_child(model, "head"), both);
    lk_graph_output(graph, "digits", lk_op_argmax(logits, 2, false));
    if (count <= TARGET) return NULL;
    return lk_op_cross_entropy(lk_op_transpose(logits, 1, 2), in[TARGET], NULL, LK_REDUCTION_MEAN, -100, 0);
}

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    lk_step *step = lk_runner_step(runner, "translate",
        LK_OPTIONS(lk_step_options, .model = runner->model, .optimizer = runner->optimizer, .function = translate,
                   .context = runner->model, .clip_norm = 1));
    lk_input fields[FIELDS];
    for (int i = 0; i < FIELDS; i++)
        fields[i] = (lk_input){names_of_fields[i], lk_batch_get(batch, names_of_fields[i])};
    lk_status status = step ? lk_step_train(step, fields, FIELDS) : lk_error_status();
    if (status) return status;
    if (runner->is_master && (runner->batch_step <= 20 || runner->batch_step % 100 == 0))
        printf("step %d: loss %.9g\n", (int)runner->batch_step, lk_step_loss(step));
    return lk_metrics_set(runner->batch_metrics, "loss", lk_step_loss(step));
}

static lk_dataset *rows(int64_t count)
{
    lk_tensor *fields[FIELDS] = {NULL};
    for (int i = 0; i < FIELDS; i++) fields[i] = lk_tensor_create(LK_I64, LK_SHAPE(count, LENGTH));
    for (int64_t i = 0; fields[SOURCE] && fields[WRITTEN] && fields[TARGET] && i < count * LENGTH; i++) {
        int64_t backwards = i / LENGTH * LENGTH + LENGTH - 1 - i % LENGTH;
        double digit = (double)lk_randint(DIGITS, lk_default_generator());
        lk_tensor_set(fields[SOURCE], i, digit);
        lk_tensor_set(fields[TARGET], backwards, digit);
        if (i % LENGTH > 0) lk_tensor_set(fields[WRITTEN], backwards + 1, digit);
        else lk_tensor_set(fields[WRITTEN], i, BEGIN);
    }
    return lk_tensor_dataset({"source", fields[SOURCE]}, {"written", fields[WRITTEN]}, {"target", fields[TARGET]});
}

/* Writes a row backwards, each digit after those before it. What stands behind a place does not change its digit. */
static lk_status show(lk_module *model, int first, int stride)
{
    lk_tensor *source = lk_tensor_create(LK_I64, LK_SHAPE(1, LENGTH)),
              *written = lk_tensor_full(LK_I64, LK_SHAPE(1, LENGTH), BEGIN);
    lk_step *step = source && written ? lk_step(.model = model, .function = translate, .context = model) : NULL;
    lk_status status = step ? LK_OK : lk_error_status();
    for (int i = 0; !status && i < LENGTH; i++) {
        lk_tensor_set(source, i, (first + i * stride) % DIGITS);
        printf("%d", (first + i * stride) % DIGITS);
    }
    printf(" -> ");
    for (int i = 0; !status && i < LENGTH; i++) {
        status = lk_step_evaluate(step, (lk_input[]){{"source", source}, {"written", written}}, 2);
        if (status) break;
        double digit = lk_tensor_get(lk_step_output(step, "digits"), i);
        if (i + 1 < LENGTH) lk_tensor_set(written, i + 1, digit);
        printf("%d", (int)digit);
    }
    printf("\n");
    lk_step_free(step);
    lk_tensor_free(source), lk_tensor_free(written);
    return status;
}

int main(int argc, char **argv)
{
    static const lk_runner_ops ops = {.handle_batch = handle_batch};
    int code = take_arguments(&argc, argv, 1, "[STEPS]");
    if (code >= 0) return code;
    lk_manual_seed(42);
    lk_dataset *dataset = rows((int64_t)BATCH * (argc > 1 ? atoi(argv[1]) : 500));
    lk_module *embedding = lk_embedding(DIGITS + 1, 16), *reader = lk_gru(16, HIDDEN, .batch_first = true),
              *writer = lk_gru(16, HIDDEN, .batch_first = true), *head = lk_linear(2 * HIDDEN, DIGITS);
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lk_status status = lk_train(runner,
        .model = lk_module_dict({"embedding", embedding}, {"reader", reader}, {"writer", writer}, {"head", head}),
        .optimizer = lk_adam(.lr = 5e-3),
        .loaders = lk_loaders({"train", lk_loader(dataset, .batch_size = BATCH, .no_shuffle = true)}));
    for (int stride = 1; !status && stride <= 3; stride++) status = show(runner->model, 2, stride);
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_runner_free(runner);
    return status != LK_OK;
}
