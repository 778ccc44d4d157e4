/* Recurrent layers in use: what they refuse, lengths that do not fit, several precisions and threads. */
#include "golden.h"
#include "lktest.h"

#include <lockstep/lockstep.h>

#include <math.h>

enum { STEPS = 5, BATCH = 6, WIDTH = 7, HIDDEN = 19 };

/* ---- refusals ---- */

static lk_value *input(lk_graph *graph, lk_shape shape)
{
    return lk_graph_input(graph, "x", LK_F32, shape);
}

#define REFUSED(fragment, layer, shape, ...)                                                                 \
    do {                                                                                                     \
        lk_graph *graph = lk_graph_create(true);                                                             \
        lk_module *module = layer;                                                                           \
        lkt_not_null(module);                                                                                \
        assert_null(lk_recurrent_forward(module, input(graph, shape), __VA_ARGS__));                         \
        lkt_contains(lk_error(), fragment);                                                                  \
        lk_graph_free(graph);                                                                                \
        lk_module_free(module);                                                                              \
    } while (0)

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    lk_value *nothing = NULL;
    REFUSED("LSTM: input (5, 6, 8): expected 3 dimensions, or 2 without a batch, the last of 7",
            lk_lstm(7, 4), LK_SHAPE(5, 6, 8), .h_n = NULL);
    REFUSED("expected 2 dimensions, or 1 without a batch", lk_gru_cell(7, 4), LK_SHAPE(5, 6, 7), .h_n = NULL);
    REFUSED("h_0 (6, 4): expected (1, 6, 4)", lk_gru(7, 4), LK_SHAPE(5, 6, 7),
            .h_0 = lk_graph_input(graph, "h", LK_F32, LK_SHAPE(6, 4)));
    REFUSED("c_0 (2, 6, 3): expected (2, 6, 4)", lk_lstm(7, 4, .proj_size = 3, .bidirectional = true),
            LK_SHAPE(5, 6, 7), .c_0 = lk_graph_input(graph, "c", LK_F32, LK_SHAPE(2, 6, 3)));
    REFUSED("only an LSTM has a cell state", lk_rnn(7, 4), LK_SHAPE(5, 6, 7), .c_n = &nothing);
    REFUSED("lengths: a cell takes one step", lk_rnn_cell(7, 4), LK_SHAPE(6, 7),
            .lengths = lk_graph_input(graph, "lengths", LK_I64, LK_SHAPE(6)));
    REFUSED("lengths (5,): expected one per sequence, (6,)", lk_gru(7, 4), LK_SHAPE(5, 6, 7),
            .lengths = lk_graph_input(graph, "lengths", LK_I64, LK_SHAPE(5)));
    REFUSED("expected i64", lk_gru(7, 4), LK_SHAPE(5, 6, 7),
            .lengths = lk_graph_input(graph, "lengths", LK_F32, LK_SHAPE(6)));
    REFUSED("Linear is not a recurrent layer", lk_linear(7, 4), LK_SHAPE(5, 6, 7), .h_n = NULL);
}

/* ---- one job in several ways ---- */

typedef struct job {
    const char *engine;
    lk_dtype precision, dtype;
    int threads;
    const int64_t *lengths; /* NULL: without */
    double losses[8];
    int steps;
} job;

/* x and lengths -> the mean square of all outputs and last states. */
static lk_value *loss_of(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                         void *layer)
{
    lk_value *h, *c;
    (void)graph, (void)names;
    lk_value *y =
        lk_recurrent_forward(layer, inputs[0], .lengths = count > 1 ? inputs[1] : NULL, .h_n = &h, .c_n = &c);
    lk_value *loss = lk_op_mean(lk_op_mul(y, y), LK_ALL_AXES, false);
    loss = lk_op_sub(loss, lk_op_mean(h, LK_ALL_AXES, false));
    return lk_op_sub(loss, lk_op_mean(c, LK_ALL_AXES, false));
}

static lk_status run_job(job *j)
{
    lk_manual_seed(3);
    lk_module *layer = lk_lstm(WIDTH, HIDDEN, .num_layers = 2, .bidirectional = true, .batch_first = true);
    lk_tensor *drawn = lk_randn(LK_SHAPE(BATCH, STEPS, WIDTH)), *x = lk_tensor_cast(drawn, j->dtype);
    lk_tensor *lengths = j->lengths ? lk_tensor_from(LK_I64, LK_SHAPE(BATCH), j->lengths) : NULL;
    lkt_not_null(layer);
    lkt_ok(lk_module_to(layer, j->dtype));
    lk_optimizer *optimizer = lk_sgd(.lr = 0.1);
    lk_engine *engine = lk_engine_open(j->engine, LK_OPTIONS(lk_engine_options, .thread_count = j->threads));
    lkt_not_null(engine);
    lk_step *step = lk_step(.model = layer, .function = loss_of, .context = layer, .optimizer = optimizer,
                            .engine = engine, .precision = j->precision);
    lkt_not_null(step);
    lk_status status = LK_OK;
    for (j->steps = 0; j->steps < 8 && status == LK_OK; j->steps++) {
        lk_input fields[] = {{"x", x}, {"lengths", lengths}};
        status = lk_step_train(step, fields, lengths ? 2 : 1);
        j->losses[j->steps] = status ? 0 : lk_step_loss(step);
    }
    lk_step_free(step);
    lk_engine_close(engine);
    lk_optimizer_free(optimizer);
    lk_module_free(layer);
    lk_tensor_free(lengths);
    lk_tensor_free(drawn);
    lk_tensor_free(x);
    return status;
}

static const int64_t lengths[BATCH] = {5, 0, 3, 1, 5, 4};

static void compare(const job *a, const job *b, double tolerance)
{
    for (int i = 0; i < 8; i++)
        if (!(fabs(a->losses[i] - b->losses[i]) <= tolerance))
            fail_msg("loss %d on %s is %.9g, expected %.9g", i, a->engine, a->losses[i], b->losses[i]);
    assert_true(a->losses[7] < a->losses[0]);
}

/* The inputs' products take 16 bits, the walk through the steps is f32. */
static void precisions_agree(void **state)
{
    (void)state;
    for (int e = 0; lk_engine_names()[e]; e++) {
        const char *engine = lk_engine_names()[e];
        job exact = {engine, LK_F32, LK_F64, 1, lengths, {0}, 0};
        job single = {engine, LK_F32, LK_F32, 1, lengths, {0}, 0};
        job brain = {engine, LK_BF16, LK_F32, 1, lengths, {0}, 0};
        job half = {engine, LK_F16, LK_F32, 1, lengths, {0}, 0};
        lkt_ok(run_job(&exact));
        lkt_ok(run_job(&single));
        lkt_ok(run_job(&brain));
        lkt_ok(run_job(&half));
        compare(&single, &exact, 1e-6);
        compare(&brain, &exact, 1e-2);
        compare(&half, &exact, 2e-3);
    }
}

static void threads_do_not_change_bits(void **state)
{
    (void)state;
    job one = {"cpu", LK_F32, LK_F32, 1, NULL, {0}, 0}, three = {"cpu", LK_F32, LK_F32, 3, NULL, {0}, 0};
    lkt_ok(run_job(&one));
    lkt_ok(run_job(&three));
    compare(&three, &one, 0);
}

static void a_length_beyond_the_steps_is_an_error(void **state)
{
    (void)state;
    static const int64_t wrong[] = {6, -1};
    for (int e = 0; lk_engine_names()[e]; e++)
        for (int k = 0; k < 2; k++) {
            int64_t numbers[BATCH] = {5, 0, 3, wrong[k], 5, 4};
            char sentence[64];
            job bad = {lk_engine_names()[e], LK_F32, LK_F32, 1, numbers, {0}, 0};
            lkt_fails(run_job(&bad), LK_ERR_RANGE, "is outside of 0..5");
            snprintf(sentence, sizeof sentence, "%lld", (long long)wrong[k]);
            lkt_contains(lk_error(), sentence);
            lkt_contains(lk_error(), "LSTM");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(precisions_agree),
        cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(a_length_beyond_the_steps_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
