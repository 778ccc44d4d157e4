/* The cpu engine's convolutions and pooling against the reference, at the edges of their tiles: where
 * Winograd's algorithm takes over, where channels fill several panels, where a sample takes several blocks,
 * where rows are cut. */
#include "cpu_harness.h"

typedef struct size {
    int64_t batch, in, out, kernel, stride, padding, height, width;
} size;

static const size sizes[] = {
    {3, 16, 20, 3, 1, 0, 13, 17}, /* tiles cut at both ends */
    {2, 17, 16, 3, 1, 1, 8, 8},   /* whole tiles */
    {2, 16, 31, 3, 1, 2, 5, 9},   /* more padding than a gradient would have */
    {1, 16, 16, 3, 1, 1, 70, 66}, /* a sample of several blocks */
    {9, 16, 16, 3, 1, 0, 6, 6},   /* one tile a sample, many samples a block */
    {2, 40, 70, 3, 1, 1, 22, 30}, /* several panels of channels, the last not full */
    {2, 3, 6, 2, 2, 1, 33, 70},   /* pairs of taps, rows longer than a vector */
    {2, 3, 6, 2, 2, 1, 16, 300},  /* rows longer than the masks kept */
    {2, 4, 16, 2, 2, 0, 9, 36},   /* a row of 18: two columns beyond the vector, three groups of channels */
    {2, 2, 17, 2, 2, 1, 9, 32},   /* too many channels for pairs */
    {1, 4, 5, 2, 2, 0, 7, 5},     {2, 5, 7, 3, 2, 1, 19, 21}, {2, 3, 4, 5, 3, 2, 20, 23},
    {1, 40, 50, 1, 1, 0, 12, 11}, {1, 2, 3, 7, 1, 3, 9, 40},
};

static lk_window window_of(const size *s)
{
    return (lk_window){.rank = 2,
                       .kernel = {s->kernel, s->kernel},
                       .stride = {s->stride, s->stride},
                       .padding = {s->padding, s->padding},
                       .dilation = {1, 1},
                       .groups = 1};
}

static int64_t output_size(const size *s, int64_t in)
{
    return (in + 2 * s->padding - s->kernel) / s->stride + 1;
}

static void convolutions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size *s = &sizes[i];
        lk_shape x = LK_SHAPE(s->batch, s->in, s->height, s->width),
                 w = LK_SHAPE(s->out, s->in, s->kernel, s->kernel);
        lk_shape y = LK_SHAPE(s->batch, s->out, output_size(s, s->height), output_size(s, s->width));
        trial forward = {.op = LK_OP_CONV, .input_count = 3, .output_count = 1, .tolerance = 3e-6};
        forward.attr.conv.window = window_of(s);
        forward.attr.conv.activation = i % 2 ? LK_ACTIVATION_RELU : LK_ACTIVATION_NONE;
        forward.in[0] = random_tensor(LK_F32, x, -1, 1);
        forward.in[1] = random_tensor(LK_F32, w, -1, 1);
        forward.in[2] = random_tensor(LK_F32, LK_SHAPE(s->out), -1, 1);
        forward.out_shape[0] = y;
        finish_trial(&forward);

        trial input = {.op = LK_OP_CONV_GRAD_INPUT, .input_count = 2, .output_count = 1, .tolerance = 3e-6};
        input.attr.conv.window = window_of(s);
        input.in[0] = random_tensor(LK_F32, y, -1, 1);
        input.in[1] = random_tensor(LK_F32, w, -1, 1);
        input.out_shape[0] = x;
        finish_trial(&input);

        trial weight = {.op = LK_OP_CONV_GRAD_WEIGHT, .input_count = 2, .output_count = 2, .tolerance = 3e-6};
        weight.attr.conv.window = window_of(s);
        weight.attr.conv.wants_bias = true;
        weight.in[0] = random_tensor(LK_F32, y, -1, 1);
        weight.in[1] = random_tensor(LK_F32, x, -1, 1);
        weight.out_shape[0] = w;
        weight.out_shape[1] = LK_SHAPE(s->out);
        finish_trial(&weight);
    }
}

/* The same in 16 bits, against the reference on the same operands. */
static void convolutions_of_bf16(void **state)
{
    (void)state;
    trial t = {.op = LK_OP_CONV, .input_count = 3, .output_count = 1, .tolerance = 1e-5};
    t.attr.conv.window = window_of(&sizes[1]);
    t.in[0] = random_tensor(LK_BF16, LK_SHAPE(2, 17, 8, 8), -1, 1);
    t.in[1] = random_tensor(LK_BF16, LK_SHAPE(16, 17, 3, 3), -1, 1);
    t.in[2] = random_tensor(LK_F32, LK_SHAPE(16), -1, 1);
    t.out_shape[0] = LK_SHAPE(2, 16, 8, 8);
    finish_trial(&t);
}

static void pooling(void **state)
{
    (void)state;
    static const size pools[] = {{2, 3, 3, 2, 2, 0, 24, 24},
                                 {2, 3, 3, 2, 2, 1, 17, 70},
                                 {1, 2, 2, 3, 2, 1, 40, 41},
                                 {1, 2, 2, 3, 1, 1, 9, 33},
                                 {1, 1, 1, 9, 4, 4, 30, 50}};
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        const size *s = &pools[i];
        lk_shape x = LK_SHAPE(s->batch, s->in, s->height, s->width);
        lk_shape y = LK_SHAPE(s->batch, s->in, output_size(s, s->height), output_size(s, s->width));
        trial most = {.op = LK_OP_MAX_POOL, .input_count = 1, .output_count = 2, .tolerance = 0};
        most.attr.pool.window = window_of(s);
        most.in[0] = random_tensor(LK_F32, x, -1, 1);
        for (int64_t j = 0; j < lk_tensor_count(most.in[0]); j += 7)
            lk_tensor_set(most.in[0], j, j % 2 ? NAN : 0.5);
        most.out_shape[0] = most.out_shape[1] = y;
        most.out_dtype[1] = LK_I32;
        finish_trial(&most);
        trial mean = {.op = LK_OP_AVG_POOL, .input_count = 1, .output_count = 1, .tolerance = 1e-6};
        mean.attr.pool.window = window_of(s);
        mean.attr.pool.window.exclude_pad = i % 2;
        mean.in[0] = random_tensor(LK_F32, x, -1, 1);
        mean.out_shape[0] = y;
        finish_trial(&mean);
    }
}

static void dropout_draws_as_the_reference(void **state)
{
    (void)state;
    for (int64_t n = 1; n < 5000; n = n * 3 + 1) {
        trial t = {
            .op = LK_OP_DROPOUT, .input_count = 1, .output_count = 2, .tolerance = 0, .seed = (uint64_t)n};
        t.attr.dropout.p = 0.3;
        t.in[0] = random_tensor(LK_F32, LK_SHAPE(n), -1, 1);
        t.out_shape[0] = t.out_shape[1] = LK_SHAPE(n);
        t.out_dtype[1] = LK_U8;
        t.tolerance = 1e-7;
        finish_trial(&t);
    }
}

/* Draws before and after must fit together: the generator is left where the reference leaves it. */
static void dropout_leaves_the_generator_where_the_reference_does(void **state)
{
    (void)state;
    float x[1001] = {0}, y[1001];
    uint8_t mask[1001];
    lk_generator left[2];
    static const char *const names[] = {"ref", "cpu"};
    for (int e = 0; e < 2; e++) {
        lk_engine *engine = lk_engine_open(names[e], LK_OPTIONS(lk_engine_options, .thread_count = 1));
        lkt_not_null(engine);
        lk_attr attr = {.dropout.p = 0.5};
        lk_generator_seed(&left[e], 3);
        lk_generator_u32(&left[e]); /* an odd start: a draw's two words come from different blocks */
        for (int i = 0; i < 5; i++) {
            lk_tensor in = {.dtype = LK_F32, .shape = LK_SHAPE(1001), .stride = {1}, .data = x};
            int layout = 0;
            lk_call call = {
                .op = LK_OP_DROPOUT, .attr = &attr, .input_count = 1, .output_count = 2, .in = &in};
            call.in_layout = &layout;
            call.engine = engine;
            call.generator = &left[e];
            call.out[0] = (lk_tensor){.dtype = LK_F32, .shape = LK_SHAPE(1001), .stride = {1}, .data = y};
            call.out[1] = (lk_tensor){.dtype = LK_U8, .shape = LK_SHAPE(1001), .stride = {1}, .data = mask};
            lkt_ok(engine->ops->prepare(engine, &call));
            call.scratch = lki_calloc_aligned(call.scratch_nbytes, "scratch");
            lkt_ok(call.run(&call));
            lki_free(call.scratch);
            if (call.free_state) call.free_state(call.state);
        }
        lk_engine_close(engine);
    }
    for (int i = 0; i < 2000; i++) assert_int_equal(lk_generator_u32(&left[0]), lk_generator_u32(&left[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),
        cmocka_unit_test(convolutions_of_bf16),
        cmocka_unit_test(pooling),
        cmocka_unit_test(dropout_draws_as_the_reference),
        cmocka_unit_test(dropout_leaves_the_generator_where_the_reference_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
