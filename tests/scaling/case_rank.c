/* A rank of a job whose gradients are all there is: the buckets start when a backward half would have filled
 * them, which is slept through, with the looks at what is under way that a plan takes between its ops. */
#define _GNU_SOURCE
#include "parts.h"

#include "base/clock.h"
#include "launch/connect.h"
#include "launch/role.h"

#include <lockstep/status.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#define OP_S 1e-3
enum { MAX_BUCKETS = 32, MAX_REPEATS = 64, FIRST_BUCKET = 9 };

typedef struct bucket {
    int64_t count;
    double ready_s;
    float *data;
    lk_comm_request *request;
} bucket;

typedef struct work {
    bucket buckets[MAX_BUCKETS];
    int bucket_count;
    double backward_s;
} work;

static void sleep_until(double at_s)
{
    struct timespec at = {(time_t)at_s, (long)((at_s - (double)(time_t)at_s) * 1e9)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

/* As the ops of a backward half: `latest` is the bucket that was started last, or NULL. */
static lk_status compute_until(double end_s, lk_comm *comm, bucket *latest)
{
    for (double now = lki_now_s(); now < end_s; now = lki_now_s()) {
        bool done = false;
        sleep_until(now + OP_S < end_s ? now + OP_S : end_s);
        if (!latest || !latest->request) continue;
        lk_status status = lk_comm_test(comm, latest->request, &done);
        if (status != LK_OK || done) latest->request = NULL;
        if (status != LK_OK) return status;
    }
    return LK_OK;
}

static lk_status step(lk_comm *comm, work *w, double *seconds)
{
    double begin = lki_now_s();
    lk_status status = LK_OK;
    for (int i = 0; i < w->bucket_count && status == LK_OK; i++) {
        bucket *b = &w->buckets[i];
        lk_comm_op op = {.kind = LK_COMM_ALL_REDUCE,
                         .reduce = LK_REDUCE_AVG,
                         .dtype = LK_F32,
                         .send = b->data,
                         .recv = b->data,
                         .count = b->count};
        status = compute_until(begin + b->ready_s, comm, i > 0 ? b - 1 : NULL);
        if (status == LK_OK) status = lk_comm_start(comm, &op, &b->request);
    }
    if (status == LK_OK)
        status = compute_until(begin + w->backward_s, comm, &w->buckets[w->bucket_count - 1]);
    for (int i = 0; i < w->bucket_count && status == LK_OK; i++)
        if (w->buckets[i].request) status = lk_comm_wait(comm, w->buckets[i].request);
    *seconds = lki_now_s() - begin;
    return status;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static lk_status connect_rank(lk_comm **comm, char **argv)
{
    lki_role role;
    lki_launch_flags flags = {.has_rank = true,
                              .rank = atoi(argv[2]),
                              .world_size = atoi(argv[3]),
                              .host = argv[4],
                              .port = atoi(argv[5])};
    lki_connect_options options = {.backend = argv[6], .join_timeout_ms = 30000, .no_pinning = true};
    lk_status status = lki_launch_role(&role, &flags, NULL, 0);
    return status == LK_OK ? lki_comm_connect(comm, &role, &options) : status;
}

int be_a_rank(int argc, char **argv)
{
    static work w;
    lk_comm *comm = NULL;
    double seconds[MAX_REPEATS], warm_up;
    int repeats = atoi(argv[7]);
    prctl(PR_SET_TIMERSLACK, 1000UL);
    w.backward_s = atof(argv[8]) * 1e-6;
    w.bucket_count = argc - FIRST_BUCKET;
    for (int i = 0; i < w.bucket_count; i++) {
        double nbytes = 0, ready_us = 0;
        sscanf(argv[FIRST_BUCKET + i], "%lf@%lf", &nbytes, &ready_us);
        w.buckets[i] = (bucket){.count = (int64_t)nbytes / 4, .ready_s = ready_us * 1e-6};
        w.buckets[i].data = calloc((size_t)w.buckets[i].count, sizeof(float));
    }
    lk_status status = connect_rank(&comm, argv);
    for (int i = 0; i < 2 && status == LK_OK; i++) status = step(comm, &w, &warm_up);
    for (int i = 0; i < repeats && status == LK_OK; i++) status = step(comm, &w, &seconds[i]);
    if (status != LK_OK) fprintf(stderr, "rank %s: %s\n", argv[2], lk_error());
    qsort(seconds, (size_t)repeats, sizeof *seconds, ascending);
    if (status == LK_OK && comm->rank == 0) printf("%.9f\n", seconds[repeats / 2]);
    fflush(stdout);
    for (int i = 0; i < w.bucket_count; i++) free(w.buckets[i].data);
    lk_comm_free(comm);
    return status != LK_OK;
}
