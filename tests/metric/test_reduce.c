/* The reduction across ranks: four ranks as threads, with uneven shards, one of them empty. Every rank must
 * end with the very values of one rank that saw all batches. */
#include "lktest.h"

#include <lockstep/metric.h>
#include <lockstep/random.h>

#include "metric/across_ranks.h"

#include <pthread.h>

enum { WORLD = 4, SAMPLES = 90, CLASSES = 6, KINDS = 24 };

typedef struct world {
    pthread_barrier_t barrier;
    const void *blocks[WORLD];
    float scores[SAMPLES * CLASSES];
    int64_t targets[SAMPLES];
    float indicators[SAMPLES * CLASSES];
} world;

typedef struct rank {
    world *world;
    int number;
    char report[16384]; /* name=value lines, with all digits */
} rank;

static const int shard_begin[WORLD + 1] = {0, 50, 50, 83, SAMPLES};

static lk_status gather(void *context, void *out, const void *in, size_t nbytes)
{
    rank *self = context;
    self->world->blocks[self->number] = in;
    pthread_barrier_wait(&self->world->barrier);
    for (int r = 0; r < WORLD; r++) memcpy((char *)out + (size_t)r * nbytes, self->world->blocks[r], nbytes);
    pthread_barrier_wait(&self->world->barrier);
    return LK_OK;
}

static lk_status sum(void *context, int64_t *data, int64_t count)
{
    int64_t *all = malloc(sizeof *all * (size_t)(count * WORLD));
    lk_status status = gather(context, all, data, sizeof *data * (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        data[i] = 0;
        for (int r = 0; r < WORLD; r++) data[i] += all[r * count + i];
    }
    free(all);
    return status;
}

static void make_metrics(lk_metric **metrics)
{
    metrics[0] = lk_accuracy_metric(.prefix = ""); /* neither topk nor classes: known from the first batch */
    metrics[1] = lk_precision_recall_f1_support_metric(.compute_per_class_metrics = true);
    metrics[2] = lk_auc_metric(.compute_per_class_metrics = true);
    metrics[3] = lk_mean_metric("loss", .prefix = "");
    metrics[4] = lk_confusion_matrix_metric(.normalize = true);
    metrics[5] = lk_iou_metric(.threshold = .5);
    metrics[6] = lk_multilabel_precision_recall_f1_support_metric(.prefix = "multi_");
    metrics[7] = lk_r2_metric(.prefix = "");
    metrics[8] = lk_multilabel_accuracy_metric(.prefix = "multi_");
    metrics[9] = lk_dice_metric(.from_logits = true); /* soft scores: sums of fractions */
    metrics[10] = lk_mse_metric(.prefix = "");
    metrics[11] = lk_mae_metric(.prefix = "");
    metrics[12] = lk_hitrate_metric(.topk = {1, 3});
    metrics[13] = lk_mrr_metric(.topk = {1, 3});
    metrics[14] = lk_map_metric(.topk = {1, 3});
    metrics[15] = lk_ndcg_metric(.topk = {1, 3});
    metrics[16] = lk_trevsky_metric(.alpha = 0.3, .from_logits = true);
    metrics[17] = lk_average_precision_metric(.compute_per_class_metrics = true);
    metrics[18] = lk_cohen_kappa_metric(.prefix = "");
    metrics[19] = lk_matthews_metric(.prefix = "");
    metrics[20] = lk_calibration_error_metric(.from_logits = true);
    metrics[21] = lk_perplexity_metric(.ignore_index = 2);
    metrics[22] = lk_accuracy_metric(.topk = {1, 2}, .compute_per_class_metrics = true);
    metrics[23] = lk_bleu_metric(.max_order = 2);
}

static void feed(lk_metric **metrics, world *world, int begin, int end)
{
    for (int at = begin; at < end; at += 10) {
        int64_t count = at + 10 < end ? 10 : end - at;
        lk_tensor *outputs = lk_tensor_borrow(LK_F32, LK_SHAPE(count, CLASSES), world->scores + at * CLASSES);
        lk_tensor *targets = lk_tensor_borrow(LK_I64, LK_SHAPE(count), world->targets + at);
        lk_tensor *indicators =
            lk_tensor_borrow(LK_F32, LK_SHAPE(count, CLASSES), world->indicators + at * CLASSES);
        for (int i = 0; i < KINDS; i++) {
            if (i == 3)
                lkt_ok(lk_metric_update_value(metrics[i], world->scores[at * CLASSES], count));
            else
                lkt_ok(lk_metric_update(metrics[i], outputs,
                                        i >= 5 && (i < 18 || i == 23) ? indicators : targets));
        }
        lk_tensor_free(outputs);
        lk_tensor_free(targets);
        lk_tensor_free(indicators);
    }
}

static void report(lk_metric **metrics, char *text, size_t capacity, int digits)
{
    size_t used = 0;
    for (int i = 0; i < KINDS; i++) {
        lk_metric_values values;
        lkt_ok(lk_metric_compute(metrics[i], &values));
        for (int v = 0; v < values.count; v++) {
            bool is_spread = strstr(values.items[v].name, "/std"); /* merged in rank order: to 12 digits */
            used += (size_t)snprintf(text + used, capacity - used, "%s=%.*g\n", values.items[v].name,
                                     is_spread ? 12 : digits, values.items[v].value);
        }
    }
    lk_tensor *matrix = lk_confusion_matrix(metrics[4]);
    for (int64_t i = 0; i < CLASSES * CLASSES; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%.*g ", digits, lk_tensor_get(matrix, i));
    lk_tensor_free(matrix);
    assert_true(used < capacity);
}

static void *rank_main(void *argument)
{
    rank *self = argument;
    lk_metric *metrics[KINDS];
    lki_metric_collectives with = {self->number, WORLD, self, sum, gather};
    make_metrics(metrics);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < KINDS; i++) lk_metric_reset(metrics[i]);
        feed(metrics, self->world, shard_begin[self->number], shard_begin[self->number + 1]);
        lkt_ok(lki_metric_reduce(metrics, KINDS, &with));
        lkt_ok(lki_metric_reduce(metrics, KINDS, &with)); /* a second time changes nothing */
    }
    report(metrics, self->report, sizeof self->report, 17);
    for (int i = 0; i < KINDS; i++) lk_metric_free(metrics[i]);
    return NULL;
}

static void fill(world *world)
{
    lk_generator generator;
    lk_generator_seed(&generator, 5);
    for (int i = 0; i < SAMPLES * CLASSES; i++) {
        world->scores[i] = roundf(lk_generator_f32(&generator) * 20) / 20;
        world->indicators[i] = lk_generator_f32(&generator) < .4f;
    }
    for (int i = 0; i < SAMPLES; i++) world->targets[i] = lk_randint(CLASSES - 1, &generator);
}

static void all_ranks_agree_with_one(void **state)
{
    (void)state;
    static world world;
    static rank ranks[WORLD];
    static char alone[16384];
    pthread_t threads[WORLD];
    lk_metric *metrics[KINDS];
    pthread_barrier_init(&world.barrier, NULL, WORLD);
    fill(&world);
    for (int r = 0; r < WORLD; r++) {
        ranks[r] = (rank){.world = &world, .number = r};
        assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < WORLD; r++) pthread_join(threads[r], NULL);
    make_metrics(metrics);
    for (int r = 0; r < WORLD; r++) feed(metrics, &world, shard_begin[r], shard_begin[r + 1]);
    report(metrics, alone, sizeof alone, 17);
    for (int r = 0; r < WORLD; r++) assert_string_equal(ranks[r].report, alone);
    for (int i = 0; i < KINDS; i++) lk_metric_free(metrics[i]);
    pthread_barrier_destroy(&world.barrier);
}

static void one_rank_needs_no_collective(void **state)
{
    (void)state;
    static world world;
    rank self = {.world = &world};
    lk_metric *metric = lk_mean_metric("loss", .prefix = "");
    lki_metric_collectives one = {0, 1, &self, sum, gather};
    lkt_ok(lki_metric_reduce(&metric, 1, &one)); /* one rank: nothing happens, no collective is called */
    lkt_ok(lk_metric_update_value(metric, 2, 1));
    lk_metric_free(metric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_agree_with_one),
        cmocka_unit_test(one_rank_needs_no_collective),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
