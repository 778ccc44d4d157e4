/* Runs over streams: 3 ranks with 4 workers each see every sample once per epoch, and what PadCollate adds to
 * a batch is what recurrent layers and attention expect. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "base/atomic_file.h"
#include "base/memory.h"

#include <fcntl.h>
#include <unistd.h>

enum { SAMPLES = 20000, LONGEST = 24, RANKS = 3, WORKERS = 4, EPOCHS = 2, WIDTH = 4 };

/* ---- A stream of texts "1234 ", whose first number is that of the line ---- */

static char folder[1024];

static void write_lines(void)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/lines.txt", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < SAMPLES; i++) fprintf(file, "%d %.*s\n", i, i * 7 % 18, "..................");
    fclose(file);
}

static lk_loader *lines(int batch_size)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/lines.txt", folder);
    return lk_loader(lk_text_stream(path, lk_byte_tokenizer(), LONGEST, .shuffle_buffer = 300),
                     .batch_size = batch_size, .num_workers = WORKERS,
                     .batch_transforms = lk_transforms(lk_pad_collate()));
}

static int64_t number_of(const int64_t *tokens)
{
    int64_t number = 0;
    for (; *tokens >= '0' && *tokens <= '9'; tokens++) number = 10 * number + *tokens - '0';
    return number;
}

/* Each rank appends the numbers of its samples, without padding, to the file of its loader. */
static lk_status note_batch(lk_runner *runner, const lk_batch *batch)
{
    int fd = *(int *)runner->context;
    const lk_tensor *features = lk_batch_get(batch, "features");
    if (runner->is_valid_loader) return LK_OK;
    for (int64_t i = 0; i < batch->count - batch->padding; i++) {
        int32_t number = (int32_t)number_of((int64_t *)features->data + i * features->shape.dim[1]);
        if (write(fd, &number, sizeof number) != sizeof number) return LK_ERR_IO;
    }
    return LK_OK;
}

static void every_sample_once_per_epoch(void **state)
{
    static int seen[SAMPLES];
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .handle_batch = note_batch};
    char path[1200], *found;
    size_t nbytes;
    (void)state;
    snprintf(path, sizeof path, "%s/seen", folder);
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_APPEND, 0600);
    lk_runner *runner = lk_custom_runner(&ops, &fd);
    lkt_ok(lk_train(runner, .loaders = lk_loaders({"train", lines(32)}, {"valid", lines(50)}), .nproc = RANKS,
                    .num_epochs = EPOCHS, .device = "cpu"));
    lk_runner_free(runner);
    close(fd);
    lkt_ok(lki_read_file(&found, &nbytes, path));
    assert_int_equal(nbytes, (size_t)SAMPLES * EPOCHS * sizeof(int32_t));
    for (size_t i = 0; i < nbytes / sizeof(int32_t); i++) seen[((int32_t *)found)[i]]++;
    for (int i = 0; i < SAMPLES; i++) assert_int_equal(seen[i], EPOCHS);
    lki_free(found);
}

/* ---- Lengths and masks ---- */

typedef enum net { RECURRENT, ATTENTION } net;
static net kind;

/* features (B, T) -> (B, T, WIDTH), of which the places behind a sample's end mean nothing. */
static lk_value *forward(lk_graph *graph, const char *const *names, lk_value *const *in, int count,
                         void *model)
{
    (void)names;
    lk_value *x = lk_module_forward(lk_module_child(model, "words"), in[0]), *y;
    lk_module *net = lk_module_child(model, "net");
    if (kind == RECURRENT)
        y = lk_recurrent_forward(net, x, .lengths = count > 1 ? in[1] : NULL);
    else
        y = lk_multihead_attention_forward(net, x, x, x, .key_padding_mask = count > 1 ? in[2] : NULL);
    lk_graph_output(graph, "y", y);
    return NULL;
}

static lk_module *make_model(void)
{
    lk_manual_seed(3);
    lk_module *net = kind == RECURRENT ? lk_lstm(WIDTH, WIDTH, .batch_first = true)
                                       : lk_multihead_attention(WIDTH, 2, .batch_first = true);
    return lk_module_dict({"words", lk_embedding(256, WIDTH)}, {"net", net});
}

/* A sample in a padded batch gives what it gives alone, without padding. */
static void assert_same_alone(lk_step *step, const lk_batch *batch)
{
    lk_tensor *features = lk_batch_get(batch, "features"), *lengths = lk_batch_get(batch, "features_lengths");
    lk_input inputs[] = {
        {"features", features}, {"lengths", lengths}, {"mask", lk_batch_get(batch, "features_mask")}};
    lkt_ok(lk_step_evaluate(step, inputs, 3));
    lk_tensor *together = lk_tensor_clone(lk_step_output(step, "y"));
    int64_t width = features->shape.dim[1];
    for (int64_t i = 0; i < batch->count; i++) {
        int64_t length = ((int64_t *)lengths->data)[i];
        lk_tensor *alone = lk_tensor_create(LK_I64, LK_SHAPE(1, length));
        memcpy(alone->data, (int64_t *)features->data + i * width, (size_t)length * sizeof(int64_t));
        lkt_ok(lk_step_evaluate(step, (lk_input[]){{"features", alone}}, 1));
        const lk_tensor *y = lk_step_output(step, "y");
        for (int64_t k = 0; k < length * WIDTH; k++)
            lkt_close(lk_tensor_get(together, i * width * WIDTH + k), lk_tensor_get(y, k), 1e-5);
        lk_tensor_free(alone);
    }
    lk_tensor_free(together);
}

static void padding_changes_no_result(void **state)
{
    (void)state;
    for (kind = RECURRENT; kind <= ATTENTION; kind++) {
        lk_module *model = make_model();
        lkt_not_null(model);
        lk_step *step = lk_step(.model = model, .function = forward, .context = model);
        lkt_not_null(step);
        lk_loader *loader = lines(6);
        lk_batch *batch;
        lkt_ok(lk_loader_begin(loader, NULL, NULL));
        for (int b = 0; b < 3; b++) {
            lkt_ok(lk_loader_next(loader, &batch));
            assert_same_alone(step, batch);
        }
        lk_loader_free(loader);
        lk_step_free(step);
        lk_module_free(model);
    }
}

/* ---- Dtypes ---- */

static lk_status open_halves(void *context, const lk_pass *pass, int shard, int shard_count, void **cursor)
{
    int64_t *at = lki_calloc(2 * sizeof *at, "a cursor");
    (void)context, (void)pass;
    at[0] = shard, at[1] = shard_count;
    *cursor = at;
    return LK_OK;
}

/* Features are f64, and labels i32. */
static lk_status next_half(void *context, void *cursor, void *const *slots, bool *found)
{
    int64_t *at = cursor;
    (void)context;
    *found = at[0] < 40;
    if (!*found) return LK_OK;
    ((double *)slots[0])[0] = (double)(at[0] % 2), ((double *)slots[0])[1] = 0.5;
    *(int32_t *)slots[1] = (int32_t)(at[0] % 2);
    at[0] += at[1];
    return LK_OK;
}

static void close_halves(void *context, void *cursor)
{
    (void)context;
    lki_free(cursor);
}

static void dtypes_are_converted(void **state)
{
    (void)state;
    const lk_stream_ops ops = {LK_SIZE(lk_stream_ops), .open = open_halves, .next = next_half,
                               .close = close_halves};
    const lk_field fields[] = {{"features", LK_F64, LK_SHAPE(2)}, {"targets", LK_I32, {0}}};
    for (int ranks = 1; ranks <= 2; ranks++) {
        lk_runner *runner = lk_supervised_runner();
        lkt_ok(lk_train(runner, .model = lk_linear(2, 2), .criterion = lk_cross_entropy_loss(),
                        .optimizer = lk_adam(.lr = 0.1), .num_epochs = 30, .device = "cpu", .nproc = ranks,
                        .loaders = lk_loaders({"train", lk_loader(lk_stream_dataset(&ops, fields, 2, NULL),
                                                                  .batch_size = 8, .num_workers = 1)})));
        assert_true(lk_metrics_get(runner->loader_metrics, "loss") < 0.1);
        lk_runner_free(runner);
    }
}

/* ---- What needs a number of batches is refused before the first one ---- */

static void refused(const char *fragment, lk_train_options options)
{
    lk_runner *runner = lk_supervised_runner();
    options.struct_size = sizeof options;
    options.model = lk_sequential(lk_embedding(256, WIDTH), lk_linear(WIDTH, 2));
    options.criterion = lk_cross_entropy_loss();
    options.optimizer = lk_sgd(.lr = 0.1);
    options.loaders = lk_loaders({"train", lines(8)}, {"valid", lines(8)});
    options.device = "cpu";
    lkt_fails(lk_train_with(runner, &options), LK_ERR_UNSUPPORTED, fragment);
    assert_int_equal(runner->batch_step, 0);
    lk_runner_free(runner);
}

static void lengths_are_asked_for_in_vain(void **state)
{
    (void)state;
    refused("valid_every: the train loader reads a stream",
            (lk_train_options){.num_epochs = 1, .valid_every = 5});
    refused("shards: loader \"train\" reads a stream", (lk_train_options){.num_epochs = 1, .shards = 2});
    lk_callback *callbacks[] = {lk_batch_overfit_callback({"train", 0.5})};
    refused("a portion of a loader's batches: loader \"train\" reads a stream",
            (lk_train_options){.num_epochs = 1, .callbacks = {callbacks, 1}});
    callbacks[0] = lk_histogram_callback(.gradients = true);
    refused("Histogram: gradients: loader \"train\" reads a stream",
            (lk_train_options){.num_epochs = 1, .callbacks = {callbacks, 1}});
}

static int prepare(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("train_streams"));
    write_lines();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_once_per_epoch),
        cmocka_unit_test(padding_changes_no_result),
        cmocka_unit_test(dtypes_are_converted),
        cmocka_unit_test(lengths_are_asked_for_in_vain),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
