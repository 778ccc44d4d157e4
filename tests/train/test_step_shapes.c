/* Batches of many shapes: one that does not fit into memory, a thousand of them, and empty ones. */
#include "engines.h"
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "base/memory.h"
#include "step/step.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FEATURES = 6, CLASSES = 3 };

typedef struct job {
    lk_engine *engine;
    lk_module *model;
    lk_criterion *criterion;
    lk_optimizer *optimizer;
    lk_step *step;
} job;

static job make_job(int which)
{
    lk_manual_seed(3);
    job j = {.engine = open_engine(which),
             .model = lk_sequential(lk_linear(FEATURES, 32), lk_relu(), lk_linear(32, CLASSES)),
             .criterion = lk_cross_entropy_loss(),
             .optimizer = lk_adam(.lr = 0.01)};
    j.step =
        lk_step(.model = j.model, .criterion = j.criterion, .optimizer = j.optimizer, .engine = j.engine);
    lkt_not_null(j.step);
    return j;
}

static void free_job(job *j)
{
    lk_step_free(j->step);
    lk_module_free(j->model);
    lk_criterion_free(j->criterion);
    lk_optimizer_free(j->optimizer);
    lk_engine_close(j->engine);
}

static lk_status train_batch(job *j, int64_t rows, bool training)
{
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(rows, FEATURES)),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(rows));
    lkt_not_null(x);
    lkt_not_null(y);
    for (int64_t i = 0; i < lk_tensor_count(x); i++) lk_tensor_set(x, i, (double)(i * 37 % 17) / 8 - 1);
    for (int64_t i = 0; i < rows; i++) lk_tensor_set(y, i, (double)(i % CLASSES));
    lk_input fields[] = {{"features", x}, {"targets", y}};
    lk_status status = training ? lk_step_train(j->step, fields, 2) : lk_step_evaluate(j->step, fields, 2);
    lk_tensor_free(x);
    lk_tensor_free(y);
    return status;
}

static void expect_same_weights(job *a, job *b)
{
    lkt_ok(lk_step_pull(a->step));
    lkt_ok(lk_step_pull(b->step));
    const lk_tensor *x = lk_module_param(a->model, "0.weight")->value,
                    *y = lk_module_param(b->model, "0.weight")->value;
    for (int64_t i = 0; i < lk_tensor_count(x); i++) lkt_close(lk_tensor_get(x, i), lk_tensor_get(y, i), 0);
}

/* The limit is that of the library's own allocations: a workspace of the large batch is above it. */
static void a_batch_too_large_for_memory(void **state)
{
    (void)state;
    static const int engines[] = {REF, CPU, FAR};
    for (int k = 0; k < 3; k++) {
        job plain = make_job(engines[k]), short_of = make_job(engines[k]);
        for (int i = 0; i < 3; i++) {
            lkt_ok(train_batch(&plain, 8, true));
            lkt_ok(train_batch(&short_of, 8, true));
        }
        for (int round = 0; round < 2; round++) {
            lki_set_allocation_limit(400000);
            lkt_fails(train_batch(&short_of, 4000, round == 0), LK_ERR_NOMEM, "out of memory");
            lk_step_output(short_of.step, "logits"); /* gone, or there: never a crash */
            lki_set_allocation_limit(0);
            for (int i = 0; i < 3; i++) {
                int64_t rows = i == 1 ? 5 : 8;
                lkt_ok(train_batch(&plain, rows, true));
                lkt_ok(train_batch(&short_of, rows, true));
                lkt_close(lk_step_loss(plain.step), lk_step_loss(short_of.step), 0);
            }
        }
        lkt_ok(train_batch(&plain, 4000, true));
        lkt_ok(train_batch(&short_of, 4000, true));
        expect_same_weights(&plain, &short_of);
        free_job(&plain);
        free_job(&short_of);
    }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static rlim_t address_space(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}
#endif

/* The same with a real limit: of the process's address space, in a child. */
static void address_space_ends(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* a sanitizer's own memory is most of the address space */
#else
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        job j = make_job(REF);
        struct rlimit limit;
        if (train_batch(&j, 8, true)) _exit(2);
        getrlimit(RLIMIT_AS, &limit);
        limit.rlim_cur = address_space() + ((rlim_t)64 << 20);
        if (setrlimit(RLIMIT_AS, &limit)) _exit(3);
        /* Its batch is 5 MB, its activations 60 times as large. */
        lk_status status = train_batch(&j, 200000 * 4, true);
        if (status != LK_ERR_NOMEM) _exit(4);
        for (int i = 0; i < 3; i++)
            if (train_batch(&j, 8, true) || !isfinite(lk_step_loss(j.step))) _exit(5);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
#endif
}

static void a_thousand_shapes(void **state)
{
    (void)state;
    int which = gpu_is_asked_for() ? GPU : CPU, shapes = gpu_is_asked_for() ? 70 : 1000;
    job many = make_job(which), again = make_job(which);
    for (int i = 0; i < shapes; i++) lkt_ok(train_batch(&many, 1 + i % 500, i < 500));
    assert_true(many.step->plan_count <= LKI_MAX_STEP_PLANS);
    /* Plans that were dropped and made again compute the same. */
    for (int i = 0; i < shapes && i < 500; i++) lkt_ok(train_batch(&again, 1 + i % 500, true));
    expect_same_weights(&many, &again);
    lkt_ok(train_batch(&many, 1, true));
    lkt_ok(train_batch(&again, 1, true));
    lkt_close(lk_step_loss(many.step), lk_step_loss(again.step), 0);
    free_job(&many);
    free_job(&again);
}

/* The last used stays, however many others come. */
static void the_plan_in_use_stays(void **state)
{
    (void)state;
    job j = make_job(gpu_is_asked_for() ? GPU : CPU);
    lkt_ok(train_batch(&j, 7, true));
    const lki_plan *first = j.step->current->plan;
    for (int i = 0; i < 80; i++) {
        lkt_ok(train_batch(&j, 10 + i, false));
        lkt_ok(train_batch(&j, 7, true));
        assert_ptr_equal(j.step->current->plan, first);
    }
    free_job(&j);
}

/* A mean over nothing is not a number, as PyTorch's. */
static void empty_batches(void **state)
{
    (void)state;
    static const int engines[] = {REF, CPU, FAR, GPU};
    for (int k = gpu_is_asked_for() ? 3 : 0; k < (gpu_is_asked_for() ? 4 : 3); k++) {
        job j = make_job(engines[k]);
        lkt_ok(train_batch(&j, 0, false));
        assert_true(isnan(lk_step_loss(j.step)));
        lkt_fails(train_batch(&j, 0, true), LK_ERR_NAN, "");
        lkt_ok(train_batch(&j, 4, true));
        free_job(&j);
    }
}

int main(void)
{
    const struct CMUnitTest host[] = {
        cmocka_unit_test(a_batch_too_large_for_memory),
        cmocka_unit_test(address_space_ends),
        cmocka_unit_test(a_thousand_shapes),
        cmocka_unit_test(the_plan_in_use_stays),
        cmocka_unit_test(empty_batches),
    };
    const struct CMUnitTest gpu[] = {cmocka_unit_test(a_thousand_shapes),
                                     cmocka_unit_test(the_plan_in_use_stays),
                                     cmocka_unit_test(empty_batches)};
    if (gpu_is_asked_for()) return cmocka_run_group_tests(gpu, NULL, NULL);
    return cmocka_run_group_tests(host, NULL, NULL);
}
