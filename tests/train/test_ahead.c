/* Runs on an engine whose work is done later: with callbacks that may lag the host is a batch ahead, and
 * everything is as if it had waited for each batch: what callbacks see and in which order, metrics, weights,
 * what goes wrong and what is said of it, stopping and resuming. */
#include "case.h"
#include "far_engine.h"

#include "base/status.h"
#include "run/run.h"
#include "step/device/device.h"

#include <signal.h>

enum { WIDTH = 80, SAMPLES = 150, VALID = 70, BATCH = 16, BATCHES = 10, VALID_BATCHES = 5, EPOCHS = 3 };
enum { MAX_SEEN = 256 };

/* What a callback has seen of a batch. */
typedef struct seen {
    int64_t batch_step, loader_step, sample_step, size, index;
    double loss, output, target;
} seen;

typedef struct witness {
    seen items[MAX_SEEN];
    int count;
    int aheads; /* batches that were looked at when the next one was under way */
    int act_at; /* the batch at which `act` is called */
    lk_status (*act)(lk_runner *runner);
} witness;

static bool is_ahead(const lk_step *step)
{
    return !step->backend->ops->on_host && lki_device_of(step)->flight_count > 0;
}

static lk_status look(lk_callback *callback, lk_runner *runner)
{
    witness *w = callback->context;
    const lk_tensor *logits = lk_runner_tensor(runner, "logits"), *y = lk_runner_tensor(runner, "targets");
    lkt_not_null(logits);
    lkt_not_null(y);
    assert_true(w->count < MAX_SEEN);
    assert_int_equal(logits->shape.dim[0], runner->batch_size);
    w->aheads += is_ahead(runner->step);
    seen *s = &w->items[w->count++];
    memset(s, 0, sizeof *s);
    s->batch_step = runner->batch_step;
    s->loader_step = runner->loader_batch_step;
    s->sample_step = runner->sample_step;
    s->size = runner->batch_size;
    s->index = runner->batch->indices[runner->batch_size - 1];
    s->loss = lk_metrics_get(runner->batch_metrics, "loss");
    s->output = lk_tensor_get(logits, lk_tensor_count(logits) - 1);
    s->target = lk_tensor_get(y, runner->batch_size - 1);
    return w->act && w->count == w->act_at ? w->act(runner) : LK_OK;
}

static lk_callback *witness_callback(witness *w, bool may_lag)
{
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops), .name = "Witness", .on_batch_end = look};
    lk_callback *callback = lk_callback_create(&ops, w, LK_ORDER_EXTERNAL);
    lkt_not_null(callback);
    callback->may_lag = may_lag;
    return callback;
}

/* What the batches are: small enough to be gathered by the loader, rows that are left to the engine to
 * gather, or rows of bytes. */
typedef enum samples { SMALL, WIDE, BYTES } samples;

static lk_dataset *points(int64_t count, samples kind, uint64_t seed)
{
    if (kind == SMALL) return lkt_points(count, seed);
    if (kind == BYTES) return lk_synthetic_digits(.count = count, .seed = seed);
    lk_generator generator;
    lk_generator_seed(&generator, seed);
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(count, WIDTH)),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(count));
    lkt_ok(lk_normal(x, 0, 1, &generator));
    for (int64_t i = 0; i < count; i++) ((int64_t *)y->data)[i] = lk_randint(LKT_CLASSES, &generator);
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

static int class_count(samples kind)
{
    return kind == BYTES ? 10 : LKT_CLASSES;
}

static lk_module *model_for(samples kind)
{
    if (kind == SMALL) return lkt_deep_model();
    lk_manual_seed(7);
    return lk_sequential(lk_flatten(), lk_linear(kind == BYTES ? 784 : WIDTH, 12), lk_batch_norm1d(12),
                         lk_relu(), lk_dropout(0.25), lk_linear(12, class_count(kind)));
}

typedef struct trial {
    lkt_far_options engine;
    bool gpu; /* instead of it */
    samples kind;
    bool waits, one_cycle;
    int workers, accumulation_steps;
    lk_dataset *train; /* instead of the usual */
    const char *logdir, *autoresume;
    witness *witness;
    /* What came of it. */
    char hash[80];
    double train_loss, valid_loss, accuracy, auc;
} trial;

static lk_runner *far_runner(const trial *t)
{
    lk_runner *runner = lk_supervised_runner();
    lkt_not_null(runner);
    lk_engine *engine = t->gpu ? lk_engine_open("cuda", NULL) : lkt_far_engine_create(t->engine);
    lkt_not_null(engine);
    runner->run->engine.handle = runner->engine = engine;
    strcpy(runner->run->engine.device, "auto"); /* as if it were what the run asks for */
    return runner;
}

static lk_status run(trial *t)
{
    lk_runner *runner = far_runner(t);
    lk_dataset *train = t->train ? t->train : points(SAMPLES, t->kind, 1);
    lk_named_loader loaders[] = {
        {"train", lk_loader(train, .batch_size = BATCH, .shuffle = true, .num_workers = t->workers)},
        {"valid", lk_loader(points(VALID, t->kind, 2), .batch_size = BATCH, .num_workers = t->workers)}};
    lk_status status = lk_train(
        runner, .model = model_for(t->kind), .criterion = lk_cross_entropy_loss(),
        .optimizer = lk_adam(.lr = 0.02), .seed = 5, .num_epochs = EPOCHS, .logdir = t->logdir,
        .autoresume = t->autoresume,
        .scheduler = t->one_cycle ? lk_one_cycle_lr(0.1, .total_steps = 100) : NULL, .loaders = {loaders, 2},
        .callbacks =
            lk_callbacks(lk_accuracy_callback(.num_classes = class_count(t->kind)), lk_auc_callback(),
                         lk_optimizer_callback(.accumulation_steps = t->accumulation_steps),
                         witness_callback(t->witness, !t->waits)));
    snprintf(t->hash, sizeof t->hash, "%s", runner->model ? lkt_hash(runner->model) : "");
    const lk_metrics *train_metrics = lk_runner_loader_metrics(runner, "train"),
                     *valid_metrics = lk_runner_loader_metrics(runner, "valid");
    t->train_loss = lk_metrics_get(train_metrics, "loss");
    t->valid_loss = lk_metrics_get(valid_metrics, "loss");
    t->accuracy = lk_metrics_get(valid_metrics, "accuracy01");
    t->auc = lk_metrics_get(valid_metrics, "auc");
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%s", lk_error());
    lk_runner_free(runner);
    if (status) lki_fail(status, "%s", sentence);
    return status;
}

static void same_trials(const trial *a, const trial *b)
{
    assert_string_equal(a->hash, b->hash);
    assert_int_equal(a->witness->count, b->witness->count);
    assert_memory_equal(a->witness->items, b->witness->items, sizeof(seen) * (size_t)a->witness->count);
    assert_true(a->train_loss == b->train_loss && a->valid_loss == b->valid_loss);
    assert_true(a->accuracy == b->accuracy && !isnan(a->accuracy) && a->auc == b->auc && !isnan(a->auc));
}

/* Runs it waiting, then ahead, lazily and eagerly. */
static void compare(trial like)
{
    static witness seen_waiting, seen_ahead;
    seen_waiting = (witness){0};
    trial waiting = like;
    waiting.waits = true;
    waiting.witness = &seen_waiting;
    lkt_ok(run(&waiting));
    assert_int_equal(seen_waiting.aheads, 0);
    assert_int_equal(seen_waiting.count, EPOCHS * (BATCHES + VALID_BATCHES));
    for (int eager = 0; eager < (like.gpu ? 1 : 2); eager++) {
        trial ahead = like;
        ahead.engine.eager = eager;
        ahead.witness = &seen_ahead;
        seen_ahead = (witness){0};
        lkt_ok(run(&ahead));
        same_trials(&ahead, &waiting);
        /* All but the first and the last batch of a pass, and the last one's own shape once. */
        if (!like.engine.memory_nbytes)
            assert_true(seen_ahead.aheads >= EPOCHS * (BATCHES + VALID_BATCHES - 4) - 4);
    }
}

static void one_ahead_is_as_waiting(void **state)
{
    (void)state;
    compare((trial){0});
    compare((trial){.workers = 2});
    compare((trial){.accumulation_steps = 3});
}

static void rows_one_ahead(void **state)
{
    (void)state;
    compare((trial){.kind = WIDE});
    compare((trial){.kind = WIDE, .workers = 2});
    compare((trial){.kind = BYTES});
}

/* Neither the data set nor a second batch needs to fit. */
static void little_memory(void **state)
{
    (void)state;
    for (size_t nbytes = 38 << 10; nbytes <= 96 << 10; nbytes += 10 << 10)
        compare((trial){.kind = WIDE, .engine.memory_nbytes = nbytes});
    for (size_t nbytes = 340 << 10; nbytes <= 640 << 10; nbytes += 40 << 10)
        compare((trial){.kind = BYTES, .engine.memory_nbytes = nbytes});
}

/* A schedule that moves with each batch is one that must not be late. */
static void a_schedule_of_batches_waits(void **state)
{
    (void)state;
    static witness seen_waiting, seen_ahead;
    trial waiting = {.one_cycle = true, .waits = true, .witness = &seen_waiting};
    trial ahead = {.one_cycle = true, .witness = &seen_ahead};
    lkt_ok(run(&waiting));
    lkt_ok(run(&ahead));
    assert_int_equal(seen_ahead.aheads, 0);
    same_trials(&ahead, &waiting);
}

/* ---- What goes wrong ---- */

static lk_dataset *spoiled(samples kind, bool by_target)
{
    lk_dataset *dataset = points(SAMPLES, kind, 1);
    lk_storage x, y;
    assert_true(lk_dataset_storage(dataset, 0, &x) && lk_dataset_storage(dataset, 1, &y));
    if (by_target)
        ((int64_t *)y.data)[77] = LKT_CLASSES + 4;
    else
        ((float *)x.data)[77 * (kind == WIDE ? WIDTH : LKT_FEATURES) + 2] = NAN;
    return dataset;
}

/* The batch fails as it does when it is waited for: the same sentence, and the weights as they were. */
static void compare_bad(trial like, bool by_target)
{
    static witness seen_waiting, seen_ahead;
    trial waiting = like, ahead = like;
    waiting.waits = true;
    waiting.witness = &seen_waiting;
    ahead.witness = &seen_ahead;
    seen_waiting = seen_ahead = (witness){0};
    waiting.train = spoiled(like.kind, by_target);
    ahead.train = spoiled(like.kind, by_target);
    lk_status expected = by_target ? LK_ERR_RANGE : LK_ERR_NAN;
    const char *fragment = by_target ? "7 at position" : "the input \"features\" is not finite";
    lkt_fails(run(&waiting), expected, fragment);
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%s", lk_error());
    lkt_fails(run(&ahead), expected, fragment);
    assert_string_equal(lk_error(), sentence);
    assert_int_equal(seen_ahead.count, seen_waiting.count);
    assert_memory_equal(seen_ahead.items, seen_waiting.items, sizeof(seen) * (size_t)seen_ahead.count);
}

static void a_bad_batch_is_found(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        compare_bad((trial){.kind = i & 2 ? WIDE : SMALL, .engine.eager = i & 4}, i & 1);
}

static lk_engine *open_gpu(void)
{
    lk_engine *engine = lk_engine_open("cuda", NULL);
    if (engine) return engine;
    print_message("%s\n", lk_error());
    skip();
    return NULL;
}

static void on_a_gpu(void **state)
{
    (void)state;
    lk_engine_close(open_gpu());
    compare((trial){.gpu = true});
    compare((trial){.gpu = true, .kind = WIDE, .workers = 2});
    compare((trial){.gpu = true, .kind = BYTES, .accumulation_steps = 2});
    for (int i = 0; i < 4; i++) compare_bad((trial){.gpu = true, .kind = i & 2 ? WIDE : SMALL}, i & 1);
}

/* What is done to a batch's memory after its rows were asked for and before anything runs. */
typedef enum afterthought { NOTHING, FED_AHEAD, FED_AT_ONCE, STORED_AHEAD, AFTERTHOUGHTS } afterthought;

/* Bytes become numbers by way of `stored`, as when a dataset is not on the GPU; then the afterthought. */
static void feed_bytes(lk_engine *engine, int count, afterthought then)
{
    const lk_engine_ops *ops = engine->ops;
    size_t nbytes = (size_t)count, wide_nbytes = sizeof(int64_t) * nbytes;
    unsigned char *slot = ops->alloc_host(engine, nbytes, "bytes");
    int64_t *given = ops->alloc_host(engine, wide_nbytes, "numbers");
    void *stored = ops->alloc(engine, nbytes, "bytes"), *out = ops->alloc(engine, wide_nbytes, "numbers");
    int64_t *indices = malloc(wide_nbytes), *found = malloc(wide_nbytes);
    assert_true(slot && given && stored && out && indices && found);
    lk_rows rows = {.data = slot, .stored = LK_U8, .length = count, .width = 1, .divisor = 1, .std = 1};
    lk_generator generator;
    lk_generator_seed(&generator, 0);
    for (int batch = 1; batch <= 3; batch++) {
        for (int i = 0; i < count; i++) {
            indices[i] = count - 1 - i;
            slot[i] = (unsigned char)(20 * batch + i);
            given[i] = 1000 * batch + i;
        }
        lkt_ok(ops->feed_ahead(engine, stored, slot, nbytes));
        lkt_ok(ops->gather_rows(engine, out, LK_I64, &rows, stored, indices, count));
        if (then == FED_AHEAD) lkt_ok(ops->feed_ahead(engine, out, given, wide_nbytes));
        if (then == FED_AT_ONCE) lkt_ok(ops->feed(engine, out, given, wide_nbytes));
        if (then == STORED_AHEAD) lkt_ok(ops->feed_ahead(engine, stored, given, nbytes));
        lkt_ok(ops->begin_step(engine, &generator));
        lkt_ok(ops->synchronize(engine, NULL));
        lkt_ok(ops->download(engine, found, out, wide_nbytes));
        bool replaced = then == FED_AHEAD || then == FED_AT_ONCE;
        for (int i = 0; i < count; i++) assert_int_equal(found[i], replaced ? given[i] : slot[indices[i]]);
    }
    ops->release(engine, stored);
    ops->release(engine, out);
    ops->release_host(engine, slot);
    ops->release_host(engine, given);
    free(indices);
    free(found);
}

/* Everything is as if it were done when it is asked for: what was fed is there to be gathered, and what was
 * written last stays. */
static void batches_are_fed_in_order(void **state)
{
    (void)state;
    lk_engine *engine = open_gpu();
    for (int then = NOTHING; then < AFTERTHOUGHTS; then++) {
        feed_bytes(engine, 40, (afterthought)then);
        feed_bytes(engine, 600, (afterthought)then); /* numbers that are too many for a launch */
    }
    lk_engine_close(engine);
}

/* A batch whose rows were asked for and never gathered leaves nothing behind in an engine that others use. */
static void a_step_ends_before_its_batch_began(void **state)
{
    (void)state;
    enum { ROWS = 8 };
    float values[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) values[i] = (float)i / 64;
    lk_rows rows = {.data = values, .stored = LK_F32, .length = ROWS, .width = WIDTH, .divisor = 1, .std = 1};
    const int64_t indices[] = {3, 4};
    lk_tensor x = {.dtype = LK_F32, .shape = LK_SHAPE(2, WIDTH), .stride = {WIDTH, 1}};
    lk_input fields[] = {{"features", &x}};
    lk_engine *engine = open_gpu();
    float outputs[2];
    for (int k = 0; k < 2; k++) {
        lk_step *step = lk_step(.model = model_for(WIDE), .engine = engine, .owned = true);
        lkt_not_null(step);
        for (int i = 0; i < 3; i++) {
            lkt_ok(lk_step_take_rows(step, "features", &rows, indices));
            lkt_ok(lk_step_evaluate(step, fields, 1));
        }
        const lk_tensor *logits = lk_step_output(step, "logits");
        lkt_not_null(logits);
        outputs[k] = ((const float *)logits->data)[0];
        lkt_ok(lk_step_take_rows(step, "features", &rows, indices));
        lkt_ok(lk_step_begin(step, fields, 1, false));
        lk_step_free(step);
    }
    assert_true(outputs[0] == outputs[1]);
    lk_engine_close(engine);
}

static lk_status refuse(lk_runner *runner)
{
    (void)runner;
    return lki_fail(LK_ERR_IO, "the disk is full");
}

/* The batch behind it is under way then: it is brought to its end. */
static void a_callback_that_fails(void **state)
{
    (void)state;
    static witness w = {.act_at = 5, .act = refuse};
    trial t = {.witness = &w};
    lkt_fails(run(&t), LK_ERR_IO, "the disk is full");
    assert_int_equal(w.count, 6);
    assert_int_equal(w.items[5].batch_step, 6);
}

static lk_status ask_late(lk_runner *runner)
{
    return lk_runner_tensor(runner, "loss") ? LK_OK : lki_last_status();
}

static lk_status train_inside(lk_runner *runner)
{
    lk_input fields[] = {{"features", lk_batch_get(runner->batch, "features")},
                         {"targets", lk_batch_get(runner->batch, "targets")}};
    return lk_step_train(runner->step, fields, 2);
}

/* Who says that it may lag and then looks at what has passed on is told. */
static void promises_are_kept(void **state)
{
    (void)state;
    static witness late = {.act_at = 5, .act = ask_late}, inside = {.act_at = 5, .act = train_inside};
    trial t = {.witness = &late};
    lkt_fails(run(&t), LK_ERR_INVALID, "was not asked for when the loader began");
    t.witness = &inside;
    lkt_fails(run(&t), LK_ERR_INVALID, "must not lag");
    late.count = 0;
    late.act_at = 1;
    t.witness = &late;
    lkt_ok(run(&t));
}

/* ---- Ends ---- */

static lk_status ask_to_stop(lk_runner *runner)
{
    (void)runner;
    return raise(SIGTERM) ? LK_ERR_IO : LK_OK;
}

static void stopped_and_resumed(void **state)
{
    (void)state;
    static witness whole_seen, seen_first, seen_second;
    trial whole = {.witness = &whole_seen};
    whole.logdir = lkt_scratch_folder("train_ahead_whole");
    lkt_ok(run(&whole));
    static const int places[] = {1, 7, BATCHES - 1, BATCHES, BATCHES + 2, BATCHES + VALID_BATCHES + 3};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        trial first = {.witness = &seen_first}, second = {.witness = &seen_second, .autoresume = "last"};
        seen_first = (witness){.act_at = places[i], .act = ask_to_stop};
        seen_second = (witness){0};
        char folder[1024];
        snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("train_ahead_stopped"));
        first.logdir = second.logdir = folder;
        lkt_fails(run(&first), LK_ERR_STOPPED, "stopped by a signal");
        assert_in_range(seen_first.count, places[i], places[i] + 1);
        lkt_ok(run(&second));
        assert_string_equal(second.hash, whole.hash);
        assert_int_equal(seen_first.count + seen_second.count, whole_seen.count);
        assert_memory_equal(seen_second.items, whole_seen.items + seen_first.count,
                            sizeof(seen) * (size_t)seen_second.count);
        assert_true(second.valid_loss == whole.valid_loss && second.train_loss == whole.train_loss);
    }
}

static lk_status stop_loader(lk_runner *runner)
{
    runner->need_loader_stop = runner->need_early_stop = true;
    return LK_OK;
}

/* A callback of which nothing is known may do anything: it is not late. */
static void a_callback_that_acts_is_in_time(void **state)
{
    (void)state;
    static witness w = {.act_at = 4, .act = stop_loader};
    trial t = {.witness = &w, .waits = true};
    lkt_ok(run(&t));
    assert_int_equal(w.count, 4 + VALID_BATCHES);
    assert_int_equal(w.aheads, 0);
}

/* ---- One run after another ---- */

static double loss_on(lk_runner *runner, lk_dataset *dataset, lk_module *model)
{
    lkt_ok(lk_evaluate_loader(runner, lk_loader(lk_dataset_share(dataset), .batch_size = BATCH),
                              .model = model, .criterion = model ? lk_cross_entropy_loss() : NULL));
    return lk_metrics_get(runner->loader_metrics, "loss");
}

/* The contents of an array may change between two runs: the second one sees them as they are then. */
static void a_run_sees_the_data_of_its_time(void **state)
{
    (void)state;
    for (int eager = 0; eager < 2; eager++) {
        trial t = {.engine.eager = eager};
        lk_runner *runner = far_runner(&t), *fresh = far_runner(&t);
        lk_dataset *dataset = points(VALID, WIDE, 2);
        lk_storage x;
        assert_true(lk_dataset_storage(dataset, 0, &x));
        double before = loss_on(runner, dataset, model_for(WIDE));
        for (int i = 0; i < VALID * WIDTH; i++) ((float *)x.data)[i] += (float)(i % 7);
        double after = loss_on(runner, dataset, NULL);
        assert_true(after != before);
        assert_true(after == loss_on(fresh, dataset, model_for(WIDE)));
        lk_dataset_free(dataset);
        lk_runner_free(runner);
        lk_runner_free(fresh);
    }
}

/* ---- Evaluation ---- */

static lk_status take(const lk_tensor *output, const lk_batch *batch, void *context)
{
    double *sums = context;
    for (int64_t i = 0; i < lk_tensor_count(output); i++)
        sums[0] += lk_tensor_get(output, i) * (double)(1 + batch->indices[i / LKT_CLASSES]);
    sums[1] += (double)batch->count;
    return LK_OK;
}

static void evaluated_one_ahead(void **state)
{
    (void)state;
    double losses[2], sums[2][2] = {{0}};
    for (int ahead = 0; ahead < 2; ahead++) {
        trial t = {.engine.waits_always = !ahead};
        lk_runner *runner = far_runner(&t);
        lkt_ok(
            lk_evaluate_loader(runner, lk_loader(points(VALID, WIDE, 2), .batch_size = BATCH),
                               .model = model_for(WIDE), .criterion = lk_cross_entropy_loss(),
                               .callbacks = lk_callbacks(lk_accuracy_callback(.num_classes = LKT_CLASSES))));
        losses[ahead] = lk_metrics_get(runner->loader_metrics, "loss");
        int evaluated = lkt_far_ahead_count(runner->engine);
        lkt_ok(lk_predict_loader(runner, lk_loader(points(VALID, WIDE, 2), .batch_size = BATCH), take,
                                 sums[ahead]));
        assert_true(ahead ? evaluated >= 2 : evaluated == 0);
        assert_true(ahead ? lkt_far_ahead_count(runner->engine) > evaluated : true);
        lk_runner_free(runner);
    }
    assert_true(losses[0] == losses[1] && isfinite(losses[0]));
    assert_true(sums[0][0] == sums[1][0] && sums[0][1] == VALID && sums[1][1] == VALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_ahead_is_as_waiting),
        cmocka_unit_test(rows_one_ahead),
        cmocka_unit_test(little_memory),
        cmocka_unit_test(a_schedule_of_batches_waits),
        cmocka_unit_test(a_bad_batch_is_found),
        cmocka_unit_test(a_callback_that_fails),
        cmocka_unit_test(promises_are_kept),
        cmocka_unit_test(stopped_and_resumed),
        cmocka_unit_test(a_callback_that_acts_is_in_time),
        cmocka_unit_test(a_run_sees_the_data_of_its_time),
        cmocka_unit_test(evaluated_one_ahead),
    };
    const struct CMUnitTest gpu_tests[] = {cmocka_unit_test(on_a_gpu),
                                           cmocka_unit_test(batches_are_fed_in_order),
                                           cmocka_unit_test(a_step_ends_before_its_batch_began)};
    const char *engine = getenv("LOCKSTEP_TEST_ENGINE");
    if (engine && strcmp(engine, "cuda") == 0) return cmocka_run_group_tests(gpu_tests, NULL, NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + cmocka_run_group_tests(gpu_tests, NULL, NULL);
}
