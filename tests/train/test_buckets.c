/* Gradients that travel in many buckets while the backward half goes on: the weights of one rank with the
 * whole batch, whatever carries them, and the buckets that the scaling model counts. */
#include "../comm/ranks.h"

#include <lockstep/step.h>

#include "cli/bench/scaling.h"
#include "comm/comm.h"
#include "comm/net.h"
#include "launch/connect.h"
#include "step/step.h"

enum { WIDTH = 32, LAYERS = 6, MANY_LAYERS = 90, BATCH = 8, STEPS = 5, BUCKET_NBYTES = 8192 };

typedef struct plan {
    int port;
    const char *backend, *hosts; /* by rank: a letter for its host */
    const char *expected;        /* the comm's name */
    int layers;                  /* 0: LAYERS */
    int64_t bucket_nbytes;       /* 0: BUCKET_NBYTES */
} plan;

static lk_module *deep(int layer_count)
{
    lk_manual_seed(7);
    lk_module *layers[2 * MANY_LAYERS];
    for (int i = 0; i < layer_count; i++) {
        layers[2 * i] = lk_linear(WIDTH, WIDTH);
        layers[2 * i + 1] = lk_tanh();
    }
    return lk_sequential_with(layers, (size_t)(2 * layer_count));
}

static lk_step *make_step(lk_engine *engine, lk_comm *comm, const plan *p)
{
    return lk_step(.model = deep(p->layers), .criterion = lk_mse_loss(),
                   .optimizer = lk_sgd(.lr = 0.1, .momentum = 0.9), .engine = engine, .comm = comm,
                   .bucket_nbytes = p->bucket_nbytes, .owned = true);
}

/* The rows [begin, begin + count) of a batch that every rank can make. */
static lk_tensor *rows(int seed, int begin, int count)
{
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(count, WIDTH));
    for (int64_t i = 0; x && i < count * WIDTH; i++)
        lk_tensor_set(x, i, sin(0.7 * seed + 0.13 * (double)(begin * WIDTH + i)));
    return x;
}

static const char *train(lk_step *step, int rank, int begin, int count)
{
    for (int i = 0; i < STEPS; i++) {
        lk_tensor *x = rows(i, begin, count), *y = rows(i + 100, begin, count);
        rank_check(x && y);
        rank_ok(lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}}, 2));
        lk_tensor_free(x);
        lk_tensor_free(y);
    }
    return NULL;
}

static const char *compare(lk_step *several, lk_step *one, int rank)
{
    int64_t count, other;
    const float *ours = lk_step_flat_params(several, &count), *theirs = lk_step_flat_params(one, &other);
    rank_check(count == other);
    for (int64_t i = 0; i < count; i++) rank_check(fabsf(ours[i] - theirs[i]) <= 1e-6f);
    return NULL;
}

/* The model cuts the same gradients into as many buckets. */
static const char *count_buckets(const lk_step *step, int rank, const plan *of)
{
    lki_gradient gradients[2 * MANY_LAYERS];
    lki_workload w = {.gradients = gradients, .gradient_count = step->flat.slice_count, .backward_s = 1};
    lki_prediction p;
    rank_check(w.gradient_count == 2 * of->layers);
    for (int i = 0; i < w.gradient_count; i++)
        gradients[i] = (lki_gradient){step->flat.slices[i].count * (int64_t)sizeof(float), 1};
    lki_predict(&w, &(lki_cluster){.bucket_nbytes = of->bucket_nbytes}, 2, &p);
    rank_check(p.buckets == step->replicas.ddp.bucket_count);
    rank_check(p.buckets > (of->layers == MANY_LAYERS ? LK_COMM_MAX_REQUESTS : 2));
    return NULL;
}

static const char *rank_body_of(int rank, int size, void *context)
{
    const plan *p = context;
    lki_role role;
    lk_comm *comm = NULL;
    lki_launch_flags flags = {
        .world_size = size, .has_rank = true, .rank = rank, .host = "127.0.0.1", .port = p->port};
    setenv("LOCKSTEP_HOST_ID", (char[]){p->hosts[rank], 0}, 1);
    rank_ok(lki_launch_role(&role, &flags, NULL, 0));
    rank_ok(lki_comm_connect(
        &comm, &role,
        &(lki_connect_options){.backend = p->backend, .join_timeout_ms = 60000, .no_pinning = true}));
    rank_check(strcmp(comm->ops->name, p->expected) == 0);
    lk_engine *engine = lk_engine_open("auto", LK_OPTIONS(lk_engine_options, .thread_count = 1));
    lk_step *several = make_step(engine, comm, p), *one = make_step(engine, NULL, p);
    rank_check(engine && several && one);
    const char *failure = train(several, rank, rank * BATCH, BATCH);
    if (!failure) failure = train(one, rank, 0, size * BATCH);
    if (!failure) failure = compare(several, one, rank);
    if (!failure) failure = count_buckets(several, rank, p);
    lk_step_free(several);
    lk_step_free(one);
    lk_engine_close(engine);
    lk_comm_free(comm);
    return failure;
}

static void run(int size, plan p)
{
    int fd;
    if (!p.layers) p.layers = LAYERS;
    if (!p.bucket_nbytes) p.bucket_nbytes = BUCKET_NBYTES;
    lkt_ok(lki_net_listen(&fd, &p.port));
    close(fd);
    run_processes(size, rank_body_of, &p);
}

static void on_one_host(void **state)
{
    (void)state;
    run(3, (plan){.hosts = "aaa", .expected = "shm"});
}

static void between_hosts(void **state)
{
    (void)state;
    if (!lki_comm_has_gloo()) {
        print_message("built without Gloo\n");
        skip();
    }
    run(2, (plan){.hosts = "ab", .expected = "hierarchy"});
    run(3, (plan){.hosts = "abc", .expected = "hierarchy"});
    run(4, (plan){.hosts = "aabb", .expected = "hierarchy"});
}

/* More buckets than a comm has requests: those that are over are given back on the way. */
static void more_than_a_comm_carries_at_a_time(void **state)
{
    plan many = {.hosts = "aa", .expected = "shm", .layers = MANY_LAYERS, .bucket_nbytes = WIDTH * WIDTH * 4};
    (void)state;
    run(2, many);
    many.hosts = "ab";
    many.expected = "hierarchy";
    if (lki_comm_has_gloo()) run(2, many);
    many.hosts = "aab";
    if (lki_comm_has_gloo()) run(3, many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_host),
        cmocka_unit_test(between_hosts),
        cmocka_unit_test(more_than_a_comm_carries_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
