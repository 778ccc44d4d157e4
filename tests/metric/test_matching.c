/* Cumulative matching characteristics against counts made by hand and by brute force. */
#include "lktest.h"

#include <lockstep/random.h>

#include "metric/matching.h"

enum { SAMPLES = 40, WIDTH = 3, CLASSES = 4, CAMERAS = 3 };

static lk_metric *make(bool has_cameras)
{
    lk_metric_options options = {LK_SIZE(lk_metric_options), .topk = {1, 3}};
    lk_metric *metric = lki_matching_metric(has_cameras, &options);
    lkt_not_null(metric);
    return metric;
}

static void feed(lk_metric *metric, const float *x, const int64_t *labels, const int64_t *cameras,
                 const uint8_t *is_query, int begin, int end, int width)
{
    int64_t count = end - begin;
    lk_tensor *tensors[] = {lk_tensor_borrow(LK_F32, LK_SHAPE(count, width), (void *)(x + begin * width)),
                            lk_tensor_borrow(LK_I64, LK_SHAPE(count), (void *)(labels + begin)),
                            lk_tensor_borrow(LK_I64, LK_SHAPE(count), (void *)(cameras + begin)),
                            lk_tensor_borrow(LK_BOOL, LK_SHAPE(count), (void *)(is_query + begin))};
    lkt_ok(
        lki_matching_update(metric, &(lki_matching_batch){tensors[0], tensors[1], tensors[2], tensors[3]}));
    for (int i = 0; i < 4; i++) lk_tensor_free(tensors[i]);
}

/* The example of Catalyst's documentation of the metric with cameras: 0.75 and 1. */
static void known_values(void **state)
{
    (void)state;
    static const float x[] = {1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0,
                              1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 0};
    static const int64_t labels[] = {0, 0, 1, 1, 0, 1, 1}, cameras[] = {0, 1, 1, 2, 0, 1, 3};
    static const uint8_t is_query[] = {1, 1, 1, 1, 0, 0, 0};
    lk_metric *metric = make(true);
    assert_true(isnan(lk_metric_get(metric, "cmc01")));
    feed(metric, x, labels, cameras, is_query, 0, 7, 4);
    lkt_close(lk_metric_get(metric, "cmc01"), 0.75, 0);
    lkt_close(lk_metric_get(metric, "cmc03"), 1, 0);
    lk_metric_free(metric);
}

static double distance(const float *x, int a, int b)
{
    double sum = 0;
    for (int i = 0; i < WIDTH; i++) sum += pow((double)x[a * WIDTH + i] - x[b * WIDTH + i], 2);
    return sum;
}

/* Whether a sample of the gallery with fewer than k nearer ones has the query's class. */
static bool is_hit(const float *x, const int64_t *labels, const uint8_t *is_query, int query, int k)
{
    for (int g = 0; g < SAMPLES; g++) {
        if (is_query[g] || labels[g] != labels[query]) continue;
        int nearer = 0;
        for (int other = 0; other < SAMPLES; other++) {
            double mine = distance(x, query, g), theirs = distance(x, query, other);
            nearer += !is_query[other] && (theirs < mine || (theirs == mine && other < g));
        }
        if (nearer < k) return true;
    }
    return false;
}

/* Coordinates of 0, 1 and 2 make many ties. Batches of any size give the same. */
static void equals_brute_force(void **state)
{
    (void)state;
    float x[SAMPLES * WIDTH];
    int64_t labels[SAMPLES], cameras[SAMPLES] = {0};
    uint8_t is_query[SAMPLES];
    lk_generator numbers;
    lk_generator_seed(&numbers, 7);
    for (int i = 0; i < SAMPLES * WIDTH; i++) x[i] = (float)(lk_generator_u32(&numbers) % 3);
    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = lk_generator_u32(&numbers) % CLASSES;
        is_query[i] = lk_generator_u32(&numbers) % 2;
    }
    int queries = 0, hits[2] = {0};
    for (int q = 0; q < SAMPLES; q++) {
        if (!is_query[q]) continue;
        queries++;
        hits[0] += is_hit(x, labels, is_query, q, 1);
        hits[1] += is_hit(x, labels, is_query, q, 3);
    }
    for (int batch = 1; batch <= SAMPLES; batch += 13) {
        lk_metric *metric = make(false);
        for (int at = 0; at < SAMPLES; at += batch)
            feed(metric, x, labels, cameras, is_query, at, at + batch < SAMPLES ? at + batch : SAMPLES,
                 WIDTH);
        lkt_close(lk_metric_get(metric, "cmc01"), (double)hits[0] / queries, 0);
        lkt_close(lk_metric_get(metric, "cmc03"), (double)hits[1] / queries, 0);
        lk_metric_free(metric);
    }
}

static void refusals(void **state)
{
    (void)state;
    lk_metric_options options = {LK_SIZE(lk_metric_options), .topk = {-1}};
    assert_null(lki_matching_metric(false, &options));
    lkt_contains(lk_error(), "topk: expected at least 1, found -1");
    lk_metric *metric = make(false);
    lk_tensor *x = lk_rand(LK_SHAPE(3, 2)), *labels = lk_rand(LK_SHAPE(2));
    lkt_fails(lk_metric_update(metric, x, labels), LK_ERR_INVALID, "use the callback");
    lkt_fails(lki_matching_update(metric, &(lki_matching_batch){x, labels, NULL, labels}), LK_ERR_SHAPE,
              "one number per sample for the labels: 3, found 2");
    lkt_fails(lki_matching_update(metric, &(lki_matching_batch){labels, labels, NULL, labels}), LK_ERR_SHAPE,
              "expected embeddings of shape (samples, width)");
    lk_tensor_free(x);
    lk_tensor_free(labels);
    lk_metric_free(metric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_values), cmocka_unit_test(equals_brute_force),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
