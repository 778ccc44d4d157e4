/* Steps whose ranks have different numbers of rows, rows with weights, schedules by update, and steps that
 * are saved and restored. Values are PyTorch's of one process with all rows (tests/oracle/uneven_batches.py).
 */
#include "../comm/ranks.h"

#include <lockstep/lockstep.h>
#include <lockstep/sys/comm.h>

enum { ROWS = 38, BATCHES = 6, PARAMS = 8 * 3 + 8 + 2 * 8 + 2, NUMBERS = BATCHES + PARAMS, RANKS = 4 };

static const char *const names[] = {"0.weight", "0.bias", "2.weight", "2.bias"};

/* What the ranks do; shared by them. */
typedef struct plan {
    const char *kind;
    bool weighted;
    lk_dtype dtype;
    int begin[RANKS + 1]; /* rank r has the rows [begin[r], begin[r + 1]) */
    int ranks;
    char file[600], saved[600];
    double tolerance, expected[NUMBERS];
    bool collective;
} plan;

static double pattern(int64_t start, int64_t i)
{
    return (double)((start + 7 * i) % 11 - 5) / 8;
}

static void fill(lk_tensor *tensor, int64_t start)
{
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++) lk_tensor_set(tensor, i, pattern(start, i));
}

static lk_tensor *rows(lk_dtype dtype, int64_t width, int64_t start, int begin, int end)
{
    lk_tensor *tensor = lk_tensor_create(dtype, LK_SHAPE(end - begin, width));
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++)
        lk_tensor_set(tensor, i, pattern(start, begin * width + i));
    return tensor;
}

static lk_step *make_step(const plan *p, lk_comm *comm, bool dropout, lk_module **out)
{
    lk_module *model = *out =
        dropout ? lk_sequential(lk_linear(3, 8), lk_tanh(), lk_linear(8, 2), lk_dropout(0.3))
                : lk_sequential(lk_linear(3, 8), lk_tanh(), lk_linear(8, 2));
    if (lk_module_to(model, p->dtype)) return NULL;
    for (int i = 0; i < 4; i++) fill(lk_module_param(model, names[i])->value, i);
    return lk_step(.model = model, .comm = comm, .owned = true, .uneven_batches = true,
                   .criterion = !strcmp(p->kind, "mse") ? lk_mse_loss() : lk_cross_entropy_loss(),
                   .optimizer = lk_adam(.lr = 0.01), .scheduler = lk_step_lr(2, .gamma = 0.5),
                   .weight_key = p->weighted ? "weights" : NULL);
}

static lk_status train_batch(lk_step *step, const plan *p, int number, int begin, int end)
{
    bool is_mse = !strcmp(p->kind, "mse");
    lk_tensor *x = rows(p->dtype, 3, 3 * number, begin, end), *weights = NULL, *y;
    y = is_mse ? rows(p->dtype, 2, 5 * number + 1, begin, end)
               : lk_tensor_create(LK_I64, LK_SHAPE(end - begin));
    for (int i = begin; i < end && !is_mse; i++) lk_tensor_set(y, i - begin, (number + i) % 2);
    weights = lk_tensor_create(p->dtype, LK_SHAPE(end - begin));
    for (int i = begin; i < end; i++) lk_tensor_set(weights, i - begin, i % 5 / 4.0);
    lk_input batch[] = {{"features", x}, {"targets", y}, {"weights", weights}};
    lk_status status = lk_step_train(step, batch, p->weighted ? 3 : 2);
    lk_tensor_free(x);
    lk_tensor_free(y);
    lk_tensor_free(weights);
    return status;
}

static lk_comm *connect_ranks(const plan *p, int rank)
{
    return lk_comm_connect(rank, p->ranks, .file = p->file, .join_timeout_ms = 60000);
}

static const char *equals_one_process(int rank, int size, void *context)
{
    const plan *p = context;
    lk_comm *comm = connect_ranks(p, rank);
    lk_module *model;
    lk_step *step = comm ? make_step(p, comm, false, &model) : NULL;
    double values[NUMBERS];
    int at = 0;
    (void)size;
    rank_check(step != NULL);
    for (int i = 0; i < BATCHES; i++) {
        rank_ok(train_batch(step, p, i, p->begin[rank], p->begin[rank + 1]));
        values[at++] = lk_step_loss(step);
    }
    for (int i = 0; i < 4; i++) {
        const lk_tensor *value = lk_module_param(model, names[i])->value;
        for (int64_t k = 0; k < lk_tensor_count(value); k++) values[at++] = lk_tensor_get(value, k);
    }
    for (int i = 0; i < NUMBERS; i++)
        if (!(fabs(values[i] - p->expected[i]) <= p->tolerance)) {
            static _Thread_local char text[200];
            snprintf(text, sizeof text, "%s rank %d: number %d is %.17g, expected %.17g", p->kind, rank, i,
                     values[i], p->expected[i]);
            return text;
        }
    lk_step_free(step);
    lk_comm_free(comm);
    return NULL;
}

static void begin_plan(plan *p, const char *name)
{
    snprintf(p->file, sizeof p->file, "%s/tests/uneven-%s-%d", LK_BUILD_DIR, name, (int)getpid());
    p->ranks = p->ranks ? p->ranks : RANKS;
}

static void any_partition_equals_pytorch(void **state)
{
    static const int partitions[][RANKS + 1] = {{0, 1, 8, 38, 38}, {0, 0, 38, 38, 38}, {0, 10, 19, 28, 38}};
    FILE *golden = fopen(LK_SOURCE_DIR "/tests/golden/train/uneven.txt", "r");
    static char line[8192];
    (void)state;
    assert_non_null(golden);
    for (int number = 0; fgets(line, sizeof line, golden); number++) {
        plan p = {.kind = "ce"};
        char *rest, *kind = strtok_r(line, " ", &rest);
        if (!strcmp(kind, "mse")) p.kind = "mse";
        p.weighted = strtok_r(NULL, " ", &rest)[0] == '1';
        p.dtype = strcmp(strtok_r(NULL, " ", &rest), "f64") ? LK_F32 : LK_F64;
        p.tolerance = p.dtype == LK_F64 ? 1e-12 : 2e-6;
        for (int i = 0; i < NUMBERS; i++) p.expected[i] = strtod(strtok_r(NULL, " \n", &rest), NULL);
        memcpy(p.begin, partitions[number % 3], sizeof p.begin);
        begin_plan(&p, "parts");
        run_processes(RANKS, equals_one_process, &p);
        p.ranks = 1;
        p.begin[0] = 0;
        p.begin[1] = ROWS;
        run_processes(1, equals_one_process, &p);
    }
    fclose(golden);
}

/* With dropout on: the generators go on as they would have. */
static const char *goes_on_with_the_same_bits(int rank, int size, void *context)
{
    const plan *p = context;
    char path[700];
    double straight[BATCHES];
    lk_module *model;
    (void)size;
    snprintf(path, sizeof path, "%s%s%d", p->saved, p->collective ? "" : ".", p->collective ? 0 : rank);
    lk_manual_seed(3 + (uint64_t)rank);
    lk_comm *comm = connect_ranks(p, rank);
    lk_step *step = comm ? make_step(p, comm, true, &model) : NULL;
    rank_check(step != NULL);
    for (int i = 0; i < BATCHES; i++) {
        if (i == 3) rank_ok(lk_step_save(step, path, .collective = p->collective));
        rank_ok(train_batch(step, p, i, p->begin[rank], p->begin[rank + 1]));
        straight[i] = lk_step_loss(step);
    }
    lk_step_free(step);
    rank_ok(lk_comm_barrier(comm));
    lk_manual_seed(99);
    step = make_step(p, comm, true, &model);
    rank_check(step != NULL);
    rank_ok(lk_step_restore(step, path, .collective = p->collective));
    for (int i = 3; i < BATCHES; i++) {
        rank_ok(train_batch(step, p, i, p->begin[rank], p->begin[rank + 1]));
        rank_check(lk_step_loss(step) == straight[i]);
    }
    if (!p->collective) {
        snprintf(path, sizeof path, "%s.%d", p->saved, 1 - rank);
        rank_check(lk_step_restore(step, path) == LK_ERR_FORMAT);
        rank_check(strstr(lk_error(), rank ? "the file is that of rank 0" : "the file is that of rank 1"));
    }
    lk_step_free(step);
    lk_comm_free(comm);
    return NULL;
}

static void steps_are_saved_and_restored(void **state)
{
    const char *folder = lkt_scratch_folder("uneven_saved");
    (void)state;
    for (int collective = 0; collective < 2; collective++) {
        plan p = {.kind = "mse", .dtype = LK_F32, .begin = {0, 9, 38}, .ranks = 2, .collective = collective};
        snprintf(p.saved, sizeof p.saved, "%s/step-%d", folder, collective);
        begin_plan(&p, "saved");
        run_processes(2, goes_on_with_the_same_bits, &p);
        if (!collective) continue;
        plan alone = {.kind = "mse", .dtype = LK_F32, .ranks = 1};
        lk_module *model;
        char path[700];
        lk_step *step = make_step(&alone, NULL, true, &model);
        snprintf(path, sizeof path, "%s0", p.saved);
        lkt_fails(lk_step_restore(step, path), LK_ERR_FORMAT, "saved by 2 ranks and cannot be restored by 1");
        lkt_fails(lk_step_restore(step, "/nowhere"), LK_ERR_NOT_FOUND, "/nowhere");
        lk_step_free(step);
    }
}

/* One rank has a loss that is not finite: all stop at that batch. */
static const char *all_hear_of_a_nan(int rank, int size, void *context)
{
    const plan *p = context;
    lk_comm *comm = connect_ranks(p, rank);
    lk_module *model;
    lk_step *step = comm ? make_step(p, comm, false, &model) : NULL;
    (void)size;
    rank_check(step != NULL);
    lk_tensor *x = rows(LK_F32, 3, 1, 0, rank + 1), *y = rows(LK_F32, 2, 1, 0, rank + 1);
    if (rank == 1) lk_tensor_set(x, 0, NAN);
    rank_check(lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}}, 2) == LK_ERR_NAN);
    rank_check(strstr(lk_error(), rank == 1 ? "input \"features\"" : "the loss of another rank") != NULL);
    lk_tensor_free(x);
    lk_tensor_free(y);
    x = rows(LK_F32, 3, 1, 0, 0);
    y = rows(LK_F32, 2, 1, 0, 0);
    rank_check(lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}}, 2) == LK_ERR_INVALID);
    rank_check(strstr(lk_error(), "no rank has a row") != NULL);
    rank_check(!lk_step_output(step, "logits") && strstr(lk_error(), "had no rows"));
    lk_tensor_free(x);
    lk_tensor_free(y);
    lk_step_free(step);
    lk_comm_free(comm);
    return NULL;
}

static void failures_are_common(void **state)
{
    plan p = {.kind = "mse", .dtype = LK_F32, .ranks = 2};
    (void)state;
    begin_plan(&p, "nan");
    run_processes(2, all_hear_of_a_nan, &p);
}

/* Columns of a larger array, and a column-major one: the same bits as from contiguous copies. */
static void memory_of_any_layout(void **state)
{
    plan p = {.kind = "mse", .dtype = LK_F64, .ranks = 1};
    double wide[10 * 7], major[2 * 10], losses[2];
    int64_t by_column[] = {1, 10}, every_other[] = {7, 2};
    (void)state;
    for (int i = 0; i < 70; i++) wide[i] = pattern(1, i);
    for (int i = 0; i < 20; i++) major[i] = pattern(2, i);
    lk_tensor *x = lk_tensor_borrow_strided(LK_F64, LK_SHAPE(10, 3), every_other, wide + 1);
    lk_tensor *y = lk_tensor_borrow_strided(LK_F64, LK_SHAPE(10, 2), by_column, major);
    assert_true(lk_tensor_get(x, 4) == wide[1 + 7 + 2] && lk_tensor_get(y, 3) == major[11]);
    lk_tensor *x_copy = lk_tensor_clone(x), *y_copy = lk_tensor_clone(y);
    for (int copied = 0; copied < 2; copied++) {
        lk_module *model;
        lk_step *step = make_step(&p, NULL, false, &model);
        lk_input batch[] = {{"features", copied ? x_copy : x}, {"targets", copied ? y_copy : y}};
        for (int i = 0; i < 3; i++) lkt_ok(lk_step_train(step, batch, 2));
        losses[copied] = lk_step_loss(step);
        lk_step_free(step);
    }
    assert_true(losses[0] == losses[1]);
    lk_tensor_free(x);
    lk_tensor_free(y);
    lk_tensor_free(x_copy);
    lk_tensor_free(y_copy);
}

static void mistakes(void **state)
{
    plan p = {.kind = "mse", .dtype = LK_F32, .weighted = true};
    lk_module *model;
    lk_step *step = make_step(&p, NULL, false, &model);
    lk_tensor *x = rows(LK_F32, 3, 1, 0, 4), *y = rows(LK_F32, 2, 1, 0, 4),
              *w = lk_tensor_create(LK_F32, LK_SHAPE(4)), *few = lk_tensor_create(LK_F32, LK_SHAPE(3));
    (void)state;
    lkt_not_null(step);
    lkt_fails(lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}}, 2), LK_ERR_NOT_FOUND,
              "no field \"weights\" of weights");
    lkt_fails(lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}, {"weights", w}}, 3),
              LK_ERR_INVALID, "all weights of the batch are 0");
    lkt_fails(lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}, {"weights", few}}, 3),
              LK_ERR_SHAPE, "expected a weight for each of the 4 rows, found shape (3,)");
    lk_tensor_set(w, 2, -1);
    lkt_fails(lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}, {"weights", w}}, 3),
              LK_ERR_RANGE, "weight 2 is -1");
    lk_step_free(step);
    lk_tensor_free(x);
    lk_tensor_free(y);
    lk_tensor_free(w);
    lk_tensor_free(few);
    lk_scheduler *plateau = lk_reduce_lr_on_plateau();
    model = lk_linear(2, 2);
    lk_optimizer *adam = lk_adam();
    assert_null(lk_step(.model = model, .optimizer = adam, .scheduler = plateau));
    lkt_contains(lk_error(), "watches a metric: leave .scheduler out");
    assert_null(lk_step(.model = model, .scheduler = plateau));
    assert_null(lk_step(.model = model, .uneven_batches = true, .sync_batch_norm = true));
    lkt_contains(lk_error(), "no sync_batch_norm");
    lk_scheduler_free(plateau);
    lk_optimizer_free(adam);
    lk_module_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_partition_equals_pytorch),
        cmocka_unit_test(steps_are_saved_and_restored),
        cmocka_unit_test(failures_are_common),
        cmocka_unit_test(memory_of_any_layout),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
