/* The scaling model by itself: limits that can be written down, and what it is made from. */
#include "lktest.h"

#include "cli/bench/network_model.h"
#include "cli/bench/scaling.h"
#include "comm/all_reduce_choice.h"

#include <string.h>

/* A network that costs nothing but what the test gives it. */
static lki_network network_of(double latency_s, double bandwidth)
{
    return (lki_network){.latency_s = latency_s,
                         .bandwidth = bandwidth,
                         .overhead_s = 1e-12,
                         .queue_s = 1e-12,
                         .reduce_rate = 1e18,
                         .shm_latency_s = 1e-12,
                         .copy_rate = 1e18,
                         .memory_rate = 1e18};
}

/* Whichever is chosen: the ring for large shares, the cube for small ones. */
static void gloo_moves_the_data_twice(void **state)
{
    (void)state;
    lki_network n = network_of(1e-9, 1e9);
    for (int hosts = 2; hosts <= 4096; hosts *= 2)
        lkt_close(lki_model_gloo(&n, hosts, 64e6), 2.0 * (hosts - 1) / hosts * 64e6 / 1e9, 0.01);
    assert_true(lki_model_gloo(&n, 1, 64e6) == 0);
    assert_true(lki_model_gloo(&n, 8, 0) == 0);
}

/* Each message takes the receiver's word that it is ready, and its own way: 2 ms. A ring has 2 (P - 1) of
 * them one after the other, a cube two for each factor of P. */
static void small_messages_take_their_hops(void **state)
{
    (void)state;
    lki_network n = network_of(1e-3, 1e15);
    lkt_close(1e3 * lki_model_gloo(&n, 2, 31400), 2 * 2, 1e-6);
    lkt_close(1e3 * lki_model_gloo(&n, 4, 8e6), 2 * 3 * 2, 1e-6); /* large enough for a ring */
    for (int hosts = 4, steps = 2; hosts <= 4096; hosts *= 2, steps++)
        lkt_close(1e3 * lki_model_gloo(&n, hosts, 31400), 2 * steps * 2, 1e-6);
    lkt_close(1e3 * lki_model_gloo(&n, 3, 31400), 2 * 2, 1e-6);
    lkt_close(1e3 * lki_model_gloo(&n, 12, 31400), 2 * 3 * 2, 1e-6);
    assert_false(lki_gloo_takes_cube(2, 4));
    assert_true(lki_gloo_takes_cube(3, 4));
    assert_false(lki_gloo_takes_cube(8, 8 << 20));
}

/* Powers of two go by pairs: small data in one message a round, large data halved and doubled. Others go up a
 * tree and down again, or are halved once they fit. */
static void pairs_and_trees_take_their_rounds(void **state)
{
    (void)state;
    lki_network n = network_of(1e-3, 1e9);
    lkt_close(1e3 * lki_model_mpi(&n, 8, 1e4), 3 * (1 + 0.01), 1e-6);
    lkt_close(1e3 * lki_model_mpi(&n, 8, 4e4), 2 * (3 + 0.035), 1e-6);
    lkt_close(1e3 * lki_model_mpi(&n, 9, 5e4), 2 * 4 * (1 + 0.05), 1e-6);
    lkt_close(1e3 * lki_model_mpi(&n, 2, 1e6), 2 * (1 + 0.5), 1e-6);
    lkt_close(1e3 * lki_model_mpi(&n, 3, 1e6), 2 * 2 * (3 + 1), 1e-6); /* announced, and asked for */
    lkt_close(1e3 * lki_model_mpi(&n, 8, 8e6), 2 * (3 + 7), 1e-6);
    lkt_close(1e3 * lki_model_mpi(&n, 9, 8e6), 2 * (3 + 8) + 2 * (3 * 3 + 7), 1e-6);
    assert_true(lki_model_mpi(&n, 1, 1e6) == 0);
}

static void more_data_or_latency_never_takes_less(void **state)
{
    (void)state;
    static double (*const models[])(const lki_network *, int, double) = {
        lki_model_gloo, lki_model_mpi, lki_model_shm_all_reduce, lki_model_shm_broadcast};
    lki_network fast = {.latency_s = 10e-6}, slow = {.latency_s = 50e-6};
    lki_network_defaults(&fast);
    lki_network_defaults(&slow);
    assert_true(fast.latency_s == 10e-6);
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int ranks = 2; ranks < 300; ranks += 7)
            for (double nbytes = 1000; nbytes < 1e8; nbytes *= 3) {
                double seconds = models[m](&fast, ranks, nbytes);
                assert_true(seconds > 0);
                assert_true(models[m](&fast, ranks, 1.5 * nbytes) >= seconds);
                assert_true(models[m](&slow, ranks, nbytes) >= seconds);
            }
}

/* Ten layers of 1 MB whose gradients come 10 ms apart. */
static lki_workload layers(lki_gradient *gradients)
{
    lki_workload w = {.batch_size = 16, .forward_s = 0.05, .backward_s = 0.1, .update_s = 0.01};
    w.gradients = gradients;
    w.gradient_count = 10;
    for (int i = 0; i < 10; i++) gradients[i] = (lki_gradient){1 << 20, 0.1 - 0.01 * i};
    return w;
}

static void communication_hides_behind_the_backward_half(void **state)
{
    (void)state;
    lki_gradient gradients[10];
    lki_workload w = layers(gradients);
    lki_prediction alone, p;
    lki_cluster cluster = {.network = network_of(1e-9, 1e12)};
    lki_predict(&w, &cluster, 1, &alone);
    lkt_close(alone.step_s, 0.16, 1e-9);
    lkt_close(alone.efficiency, 1, 1e-9);
    lkt_close(alone.samples_per_s, 100, 1e-9);
    lki_predict(&w, &cluster, 64, &p);
    lkt_close(p.step_s, 0.16, 1e-3);
    lkt_close(p.samples_per_s, 6400, 1e-2);
    assert_int_equal(p.hosts, 64);
    assert_int_equal(p.buckets, 4); /* 1 MB, then 4, 4 and the 1 that is left */
    /* 3.9 ms a MB: the third bucket begins at 90 ms and takes 15.6, the last one follows it. */
    double ms_a_mb = 3.9, bandwidth = 2.0 * 127 / 128 * (1 << 20) / (ms_a_mb * 1e-3);
    cluster.network = network_of(1e-9, bandwidth);
    lki_predict(&w, &cluster, 128, &p);
    lkt_close(1e3 * p.exposed_s, 90 + 5 * ms_a_mb - 100, 0.01);
    lkt_close(1e3 * p.communication_s, 10 * ms_a_mb, 0.01);
    /* Ten times slower, the first one ends at 49 ms, and from 50 on the network is never idle. */
    cluster.network = network_of(1e-9, bandwidth / 10);
    lki_predict(&w, &cluster, 128, &p);
    lkt_close(1e3 * p.exposed_s, 50 + 90 * ms_a_mb - 100, 0.01);
}

static void fewer_and_smaller_messages_cost_less(void **state)
{
    (void)state;
    lki_gradient gradients[10];
    lki_workload w = layers(gradients);
    lki_prediction plain, accumulated, compressed, local;
    lki_cluster cluster = {.network = {.latency_s = 50e-6, .bandwidth = 1e9 / 8}};
    lki_predict(&w, &cluster, 16, &plain);
    cluster.accumulation = 8;
    lki_predict(&w, &cluster, 16, &accumulated);
    cluster.accumulation = 1;
    cluster.compress = true;
    lki_predict(&w, &cluster, 16, &compressed);
    cluster.compress = false;
    cluster.ranks_per_host = 4;
    lki_predict(&w, &cluster, 16, &local);
    assert_true(accumulated.efficiency > plain.efficiency);
    assert_true(compressed.communication_s < plain.communication_s);
    assert_true(local.exposed_s < plain.exposed_s);
    assert_int_equal(local.hosts, 4);
    cluster.backend = LKI_SCALING_GLOO; /* every rank in one ring */
    lki_predict(&w, &cluster, 16, &local);
    lkt_close(local.step_s, plain.step_s, 1e-9);
}

static void networks_by_name(void **state)
{
    (void)state;
    static const int64_t parameters[] = {7850, 79510, 1199882, 2458944, 25557032};
    const char *const *names = lki_workload_names();
    lki_workload w;
    for (int i = 0; names[i]; i++) {
        int64_t sum = 0;
        lkt_ok(lki_workload_named(&w, names[i]));
        assert_string_equal(w.name, names[i]);
        for (int k = 0; k < w.gradient_count; k++) {
            sum += w.gradients[k].nbytes / 4;
            assert_true(w.gradients[k].ready_s >= 0 && w.gradients[k].ready_s <= w.backward_s * 1.000001);
        }
        assert_int_equal(sum, w.parameter_count);
        assert_int_equal(sum, parameters[i]);
        lki_workload_scale(&w, 1);
        lkt_close(w.forward_s + w.backward_s + w.update_s, 1, 1e-9);
        lki_workload_fini(&w);
    }
    lkt_fails(lki_workload_named(&w, "alexnet"), LK_ERR_NOT_FOUND, "no network \"alexnet\"");
}

static void a_step_is_measured(void **state)
{
    (void)state;
    lki_trial trial;
    lki_workload w, named;
    static const char *const small[] = {"mnist-linear", "mlp", NULL};
    for (const char *const *name = small; *name; name++) {
        lkt_ok(lki_trial_init(&trial, *name, 1));
        lkt_ok(lki_workload_measure(&w, trial.step, *name, 0.01));
        lkt_ok(lki_workload_named(&named, *name));
        assert_int_equal(w.parameter_count, named.parameter_count);
        assert_int_equal(w.gradient_count, named.gradient_count);
        assert_int_equal(w.batch_size, named.batch_size);
        assert_true(w.forward_s > 0 && w.backward_s > 0 && w.update_s > 0);
        for (int i = 0; i < w.gradient_count; i++) {
            assert_int_equal(w.gradients[i].nbytes, named.gradients[i].nbytes);
            assert_true(w.gradients[i].ready_s > 0 && w.gradients[i].ready_s <= w.backward_s * 1.000001);
        }
        lki_workload_fini(&w);
        lki_workload_fini(&named);
        lki_trial_fini(&trial);
    }
    lkt_fails(lki_trial_init(&trial, "resnet-50", 1), LK_ERR_UNSUPPORTED, "cannot be run");
    lkt_fails(lki_trial_init(&trial, "alexnet", 1), LK_ERR_NOT_FOUND, "no network");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gloo_moves_the_data_twice),
        cmocka_unit_test(small_messages_take_their_hops),
        cmocka_unit_test(pairs_and_trees_take_their_rounds),
        cmocka_unit_test(more_data_or_latency_never_takes_less),
        cmocka_unit_test(communication_hides_behind_the_backward_half),
        cmocka_unit_test(fewer_and_smaller_messages_cost_less),
        cmocka_unit_test(networks_by_name),
        cmocka_unit_test(a_step_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
