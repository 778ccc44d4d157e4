/* The reference engine against PyTorch: every call of tests/golden/engine/ref.txt (written by
 * tests/oracle/engine_ref.py, which describes the format), in f64 and again in f32; and what golden values
 * cannot show: errors and empty tensors. */
#include "case.h"

#include "lktest.h"

#include "base/memory.h"
#include "base/status.h"

enum { MAX_LINE = 1 << 16 };

/* X(family, key, field, kind, how many): what an "attr" line of an op can set. */
#define ATTRIBUTES(X)                                                                                        \
    X(SCALAR, "number", attr.scalar.number, REAL, 1)                                                         \
    X(SCALAR, "slope", attr.scalar.slope, REAL, 1)                                                           \
    X(SCALAR, "alpha", attr.scalar.alpha, REAL, 1)                                                           \
    X(SCALAR, "by_tanh", attr.scalar.by_tanh, FLAG, 1)                                                       \
    X(SCALAR, "softplus.beta", attr.scalar.softplus.beta, REAL, 1)                                           \
    X(SCALAR, "softplus.threshold", attr.scalar.softplus.threshold, REAL, 1)                                 \
    X(SCALAR, "clamp.min", attr.scalar.clamp.min, REAL, 1)                                                   \
    X(SCALAR, "clamp.max", attr.scalar.clamp.max, REAL, 1)                                                   \
    X(FILL, "value", attr.fill.value, REAL, 1)                                                               \
    X(FILL, "dtype", attr.fill.dtype, INT, 1)                                                                \
    X(CAST, "dtype", attr.cast.dtype, INT, 1)                                                                \
    X(REDUCE, "axes", attr.reduce.axes, INT, 1)                                                              \
    X(REDUCE, "keep_dims", attr.reduce.keep_dims, FLAG, 1)                                                   \
    X(REDUCE, "correction", attr.reduce.correction, LONG, 1)                                                 \
    X(AXIS, "axis", attr.axis.axis, INT, 1)                                                                  \
    X(AXIS, "keep_dims", attr.axis.keep_dims, FLAG, 1)                                                       \
    X(PERMUTE, "order", attr.permute.order, INT, LK_MAX_DIMS)                                                \
    X(SLICE, "begin", attr.slice.begin, LONG, LK_MAX_DIMS)                                                   \
    X(SLICE, "end", attr.slice.end, LONG, LK_MAX_DIMS)                                                       \
    X(SLICE, "step", attr.slice.step, LONG, LK_MAX_DIMS)                                                     \
    X(PAD, "before", attr.pad.before, LONG, LK_MAX_DIMS)                                                     \
    X(PAD, "after", attr.pad.after, LONG, LK_MAX_DIMS)                                                       \
    X(PAD, "mode", attr.pad.mode, INT, 1)                                                                    \
    X(PAD, "value", attr.pad.value, REAL, 1)                                                                 \
    X(GATHER, "axis", attr.gather.axis, INT, 1)                                                              \
    X(EMBEDDING, "padding_index", attr.embedding.padding_index, LONG, 1)                                     \
    X(MATMUL, "transpose_a", attr.matmul.transpose_a, FLAG, 1)                                               \
    X(MATMUL, "transpose_b", attr.matmul.transpose_b, FLAG, 1)                                               \
    X(SCAN, "axis", attr.scan.axis, INT, 1)                                                                  \
    X(SCAN, "reverse", attr.scan.reverse, FLAG, 1)                                                           \
    X(SORT, "axis", attr.sort.axis, INT, 1)                                                                  \
    X(SORT, "descending", attr.sort.descending, FLAG, 1)                                                     \
    X(SORT, "count", attr.sort.count, LONG, 1)                                                               \
    X(LINEAR, "activation", attr.linear.activation, INT, 1)                                                  \
    X(LINEAR, "wants_bias", attr.linear.wants_bias, FLAG, 1)                                                 \
    X(CONV, "activation", attr.conv.activation, INT, 1)                                                      \
    X(CONV, "wants_bias", attr.conv.wants_bias, FLAG, 1)                                                     \
    X(CONV, "window.rank", attr.conv.window.rank, INT, 1)                                                    \
    X(CONV, "window.kernel", attr.conv.window.kernel, LONG, 3)                                               \
    X(CONV, "window.stride", attr.conv.window.stride, LONG, 3)                                               \
    X(CONV, "window.padding", attr.conv.window.padding, LONG, 3)                                             \
    X(CONV, "window.dilation", attr.conv.window.dilation, LONG, 3)                                           \
    X(CONV, "window.output_padding", attr.conv.window.output_padding, LONG, 3)                               \
    X(CONV, "window.groups", attr.conv.window.groups, LONG, 1)                                               \
    X(POOL, "window.rank", attr.pool.window.rank, INT, 1)                                                    \
    X(POOL, "window.kernel", attr.pool.window.kernel, LONG, 3)                                               \
    X(POOL, "window.stride", attr.pool.window.stride, LONG, 3)                                               \
    X(POOL, "window.padding", attr.pool.window.padding, LONG, 3)                                             \
    X(POOL, "window.dilation", attr.pool.window.dilation, LONG, 3)                                           \
    X(POOL, "window.groups", attr.pool.window.groups, LONG, 1)                                               \
    X(POOL, "window.ceil_mode", attr.pool.window.ceil_mode, FLAG, 1)                                         \
    X(POOL, "window.exclude_pad", attr.pool.window.exclude_pad, FLAG, 1)                                     \
    X(POOL, "window.divisor", attr.pool.window.divisor, LONG, 1)                                             \
    X(UPSAMPLE, "rank", attr.upsample.rank, INT, 1)                                                          \
    X(UPSAMPLE, "mode", attr.upsample.mode, INT, 1)                                                          \
    X(UPSAMPLE, "align_corners", attr.upsample.align_corners, FLAG, 1)                                       \
    X(UPSAMPLE, "scale", attr.upsample.scale, REAL, 3)                                                       \
    X(NORM, "eps", attr.norm.eps, REAL, 1)                                                                   \
    X(NORM, "momentum", attr.norm.momentum, REAL, 1)                                                         \
    X(NORM, "training", attr.norm.training, FLAG, 1)                                                         \
    X(NORM, "axis_count", attr.norm.axis_count, INT, 1)                                                      \
    X(NORM, "group_count", attr.norm.group_count, LONG, 1)                                                   \
    X(DROPOUT, "p", attr.dropout.p, REAL, 1)                                                                 \
    X(ATTENTION, "layout", attr.attention.layout, INT, 1)                                                    \
    X(ATTENTION, "heads", attr.attention.heads, LONG, 1)                                                     \
    X(ATTENTION, "kv_heads", attr.attention.kv_heads, LONG, 1)                                               \
    X(ATTENTION, "scale", attr.attention.scale, REAL, 1)                                                     \
    X(ATTENTION, "p", attr.attention.p, REAL, 1)                                                             \
    X(ATTENTION, "is_causal", attr.attention.is_causal, FLAG, 1)                                             \
    X(ATTENTION, "mask_forbids", attr.attention.mask_forbids, FLAG, 1)                                       \
    X(CLASS_LOSS, "reduction", attr.class_loss.reduction, INT, 1)                                            \
    X(CLASS_LOSS, "ignore_index", attr.class_loss.ignore_index, LONG, 1)                                     \
    X(CLASS_LOSS, "label_smoothing", attr.class_loss.label_smoothing, REAL, 1)                               \
    X(POINTWISE_LOSS, "kind", attr.pointwise_loss.kind, INT, 1)                                              \
    X(POINTWISE_LOSS, "reduction", attr.pointwise_loss.reduction, INT, 1)                                    \
    X(POINTWISE_LOSS, "parameter", attr.pointwise_loss.parameter, REAL, 1)                                   \
    X(UPDATE, "rule", attr.update.rule, INT, 1)                                                              \
    X(UPDATE, "hyper.lr", hyper.lr, REAL, 1)                                                                 \
    X(UPDATE, "hyper.momentum", hyper.momentum, REAL, 1)                                                     \
    X(UPDATE, "hyper.dampening", hyper.dampening, REAL, 1)                                                   \
    X(UPDATE, "hyper.weight_decay", hyper.weight_decay, REAL, 1)                                             \
    X(UPDATE, "hyper.beta1", hyper.beta1, REAL, 1)                                                           \
    X(UPDATE, "hyper.beta2", hyper.beta2, REAL, 1)                                                           \
    X(UPDATE, "hyper.eps", hyper.eps, REAL, 1)                                                               \
    X(UPDATE, "hyper.alpha", hyper.alpha, REAL, 1)                                                           \
    X(UPDATE, "hyper.lr_decay", hyper.lr_decay, REAL, 1)                                                     \
    X(UPDATE, "hyper.nesterov", hyper.nesterov, FLAG, 1)                                                     \
    X(UPDATE, "hyper.amsgrad", hyper.amsgrad, FLAG, 1)                                                       \
    X(UPDATE, "hyper.centered", hyper.centered, FLAG, 1)                                                     \
    X(UPDATE, "hyper.maximize", hyper.maximize, FLAG, 1)                                                     \
    X(UPDATE, "hyper.no_debias", hyper.no_debias, FLAG, 1)                                                   \
    X(UPDATE, "hyper.no_trust", hyper.no_trust, FLAG, 1)                                                     \
    X(UPDATE, "hyper.first", hyper.first, FLAG, 1)                                                           \
    X(UPDATE, "hyper.step", hyper.step, LONG, 1)                                                             \
    X(UPDATE, "hyper.clip", hyper.clip, REAL, 1)                                                             \
    X(UPDATE, "hyper.grad_scale", hyper.grad_scale, REAL, 1)                                                 \
    X(UPDATE, "hyper.grad_norm", hyper.grad_norm, REAL, 1)

enum { REAL, INT, LONG, FLAG };

static const struct attribute {
    lk_op_family family;
    const char *key;
    size_t offset;
    int kind, capacity;
} attributes[] = {
#define X(family, key, field, kind, capacity)                                                                \
    {LK_FAMILY_##family, key, offsetof(lkt_case, field), kind, capacity},
    ATTRIBUTES(X)
#undef X
};

/* A call and what PyTorch made of it. */
typedef struct golden {
    lkt_case *call;
    lk_tensor *after[LKT_MAX_INPUTS]; /* NULL where not compared */
    bool compared[LK_MAX_OUTPUTS];    /* call->out[i] holds the expected values */
    int line;
} golden;

static void set_attribute(lkt_case *c, const char *key, char *values)
{
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        const struct attribute *a = &attributes[i];
        if (a->family != lk_op_family_of(c->op) || strcmp(a->key, key)) continue;
        char *field = (char *)c + a->offset, *save = NULL;
        int count = 0;
        for (char *word = strtok_r(values, " ", &save); word; word = strtok_r(NULL, " ", &save), count++) {
            assert_true(count < a->capacity);
            double value = strtod(word, NULL);
            if (a->kind == REAL) ((double *)field)[count] = value;
            if (a->kind == INT) ((int *)field)[count] = (int)value;
            if (a->kind == LONG) ((int64_t *)field)[count] = (int64_t)value;
            if (a->kind == FLAG) ((bool *)field)[count] = value != 0;
        }
        return;
    }
    fail_msg("%s has no attribute %s", lkt_op_name(c->op), key);
}

static lk_shape parse_dims(char *text)
{
    lk_shape shape = lk_scalar_shape();
    char *save = NULL;
    if (!strcmp(text, ".")) return shape;
    for (char *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save))
        shape.dim[shape.rank++] = strtol(word, NULL, 10);
    return shape;
}

/* "f64/16 2,3 : 1 2 3 4 5 6" */
static lk_tensor *parse_tensor(char *text)
{
    char *save = NULL, *name = strtok_r(text, " ", &save), *dims = strtok_r(NULL, " ", &save),
         *unit = strchr(name, '/');
    double scale = 1;
    if (unit) {
        scale = 1 / strtod(unit + 1, NULL);
        *unit = '\0';
    }
    lk_dtype dtype;
    lkt_ok(lk_dtype_parse(&dtype, name));
    lk_tensor *tensor = lk_tensor_create(dtype, parse_dims(dims));
    lkt_not_null(tensor);
    assert_string_equal(strtok_r(NULL, " ", &save), ":");
    int64_t count = lk_tensor_count(tensor);
    for (int64_t i = 0; i < count; i++) {
        char *word = strtok_r(NULL, " ", &save);
        assert_non_null(word);
        lk_tensor_set(tensor, i, strtod(word, NULL) * scale);
    }
    assert_null(strtok_r(NULL, " ", &save));
    return tensor;
}

static lk_op parse_op(const char *name)
{
    for (int op = 0; op < LK_OP_COUNT; op++)
        if (!strcmp(lkt_op_name((lk_op)op), name)) return (lk_op)op;
    fail_msg("unknown op %s", name);
    return LK_OP_COUNT;
}

static void parse_line(golden *g, char *line)
{
    char *save = NULL, *word = strtok_r(line, " ", &save);
    if (!strcmp(word, "attr")) {
        char *key = strtok_r(NULL, " ", &save);
        set_attribute(g->call, key, save);
    } else if (!strcmp(word, "in")) {
        g->call->in[g->call->input_count++] = strcmp(save, "-") ? parse_tensor(save) : NULL;
    } else if (!strcmp(word, "out")) {
        g->compared[g->call->output_count] = strcmp(save, "-") != 0;
        if (strcmp(save, "-")) g->call->out[g->call->output_count] = parse_tensor(save);
        g->call->output_count++;
    } else if (!strcmp(word, "after")) {
        int index = atoi(strtok_r(NULL, " ", &save));
        g->after[index] = parse_tensor(save);
    } else {
        fail_msg("unknown line %s", word);
    }
}

/* Reads up to the next "end"; false at the end of the file. */
static bool read_golden(FILE *file, char *line, int *number, golden *g)
{
    *g = (golden){0};
    while (fgets(line, MAX_LINE, file)) {
        ++*number;
        line[strcspn(line, "\n")] = '\0';
        if (*line == '#' || !*line) continue;
        if (!strcmp(line, "end")) return true;
        if (!strncmp(line, "case ", 5)) {
            char text[112], *save = NULL;
            snprintf(text, sizeof text, "%.100s", line + 5);
            g->line = *number;
            g->call = lkt_case_create(parse_op(strtok_r(text, " ", &save)));
            snprintf(g->call->name, sizeof g->call->name, "%.100s", line + 5);
        } else {
            parse_line(g, line);
        }
    }
    return false;
}

static void check_tensor(const golden *g, const char *what, int index, lk_tensor *actual, lk_tensor *expected,
                         double tolerance)
{
    if (!lk_shape_equal(actual->shape, expected->shape))
        fail_msg("ref.txt:%d: %s %d has another shape", g->line, what, index);
    const char *difference = lkt_difference(actual, expected, tolerance);
    if (difference) fail_msg("ref.txt:%d: %s: %s %d: %s", g->line, g->call->name, what, index, difference);
}

static void check_golden(lk_engine *engine, const golden *g, lk_dtype dtype, double tolerance)
{
    lkt_result result;
    lkt_variant variant = {.cast = true, .dtype = dtype, .out_dtype = dtype};
    lk_status status = lkt_run(engine, g->call, variant, &result);
    if (status) fail_msg("ref.txt:%d: %s: %s", g->line, g->call->name, lk_error());
    for (int i = 0; i < g->call->output_count; i++)
        if (g->compared[i]) check_tensor(g, "result", i, result.out[i], g->call->out[i], tolerance);
    for (int i = 0; i < g->call->input_count; i++)
        if (g->after[i]) check_tensor(g, "operand", i, result.in[i], g->after[i], tolerance);
    if (g->call->op == LK_OP_CLIP_NORM)
        lkt_close(result.hyper.grad_norm, g->call->hyper.grad_norm, tolerance);
    lkt_result_free(&result);
}

static void every_golden_case(void **state)
{
    (void)state;
    FILE *file = fopen(LK_SOURCE_DIR "/tests/golden/engine/ref.txt", "r");
    assert_non_null(file);
    char *line = lki_calloc(MAX_LINE, "a line");
    lk_engine *engine = lk_engine_open("ref", NULL);
    lkt_not_null(engine);
    golden g;
    int number = 0, count = 0;
    while (read_golden(file, line, &number, &g)) {
        check_golden(engine, &g, LK_F64, 6e-7);
        check_golden(engine, &g, LK_F32, 1e-5);
        for (int i = 0; i < LKT_MAX_INPUTS; i++) lk_tensor_free(g.after[i]);
        lkt_case_free(g.call);
        count++;
    }
    assert_true(count > 500);
    lk_engine_close(engine);
    lki_free(line);
    fclose(file);
}

/* Runs a case that must fail. */
static void expect_range_error(lkt_case *c, const char *sentence)
{
    lk_engine *engine = lk_engine_open("ref", NULL);
    lkt_not_null(engine);
    lkt_result result;
    lkt_fails(lkt_run(engine, c, (lkt_variant){0}, &result), LK_ERR_RANGE, sentence);
    assert_null(strchr(lk_error(), '\n'));
    lkt_result_free(&result);
    lkt_case_free(c);
    lk_engine_close(engine);
}

static void a_target_out_of_range(void **state)
{
    (void)state;
    static const int64_t targets[] = {11, -1, 10};
    static const char *const sentences[] = {"target 11 at position 3 is outside of 0..9",
                                            "target -1 at position 3 is outside of 0..9",
                                            "target 10 at position 3 is outside of 0..9"};
    for (int i = 0; i < 3; i++) {
        lkt_case *c = lkt_case_create(i == 2 ? LK_OP_NLL : LK_OP_CROSS_ENTROPY);
        c->attr.class_loss.ignore_index = -100;
        lkt_in_f32(c, LK_SHAPE(5, 10), LKT_NORMAL);
        lk_tensor_set(lkt_in_index(c, LK_SHAPE(5), 10), 3, (double)targets[i]);
        lkt_out_f32(c, lk_scalar_shape());
        if (i != 2) lkt_out_f32(c, LK_SHAPE(5, 10));
        expect_range_error(c, sentences[i]);
    }
}

static void an_index_out_of_range(void **state)
{
    (void)state;
    lkt_case *c = lkt_case_create(LK_OP_EMBEDDING);
    c->attr.embedding.padding_index = -1;
    lkt_in_f32(c, LK_SHAPE(6, 3), LKT_NORMAL);
    lk_tensor_set(lkt_in_index(c, LK_SHAPE(2, 2), 6), 1, 6);
    lkt_out_f32(c, LK_SHAPE(2, 2, 3));
    expect_range_error(c, "index 6 at position 1 is outside of 0..5");
    c = lkt_case_create(LK_OP_GATHER);
    lkt_in_f32(c, LK_SHAPE(2, 3), LKT_NORMAL);
    c->attr.gather.axis = 1;
    lk_tensor_set(lkt_in_index(c, LK_SHAPE(2, 2), 3), 2, -4);
    lkt_out_f32(c, LK_SHAPE(2, 2));
    expect_range_error(c, "index -4 at position 2 is outside of 0..2");
}

static void a_probability_out_of_range(void **state)
{
    (void)state;
    lkt_case *c = lkt_case_create(LK_OP_POINTWISE_LOSS);
    c->attr.pointwise_loss.kind = LK_LOSS_BCE;
    lk_tensor_set(lkt_in_f32(c, LK_SHAPE(4), LKT_UNIT), 2, 1.5);
    lkt_in_f32(c, LK_SHAPE(4), LKT_UNIT);
    lkt_out_f32(c, lk_scalar_shape());
    expect_range_error(c, "probability 1.5 at position 2 is outside of 0..1");
}

static void an_op_without_kernel(void **state)
{
    (void)state;
    lk_engine *engine = lk_engine_open("ref", NULL);
    lkt_not_null(engine);
    static const lk_op without[] = {LK_OP_INPUT, LK_OP_PARAM, LK_OP_CONSTANT, LK_OP_RESHAPE, LK_OP_DETACH};
    for (int i = 0; i < 5; i++) {
        lk_attr attr = {0};
        lk_call call = {.op = without[i], .attr = &attr, .engine = engine};
        lkt_fails(engine->ops->prepare(engine, &call), LK_ERR_UNSUPPORTED, "ref");
    }
    lk_engine_close(engine);
}

/* Integers that no double holds survive a copy and a cast between integers. */
static void large_integers_are_exact(void **state)
{
    (void)state;
    lk_engine *engine = lk_engine_open("ref", NULL);
    lkt_not_null(engine);
    static const lk_op moving[] = {LK_OP_COPY, LK_OP_PERMUTE, LK_OP_CAST, LK_OP_EXPAND, LK_OP_SLICE};
    for (int i = 0; i < 5; i++) {
        lkt_case *c = lkt_case_create(moving[i]);
        if (moving[i] == LK_OP_SLICE) c->attr.slice.step[0] = 1;
        lk_tensor *in = lkt_in_index(c, LK_SHAPE(2), 9);
        ((int64_t *)in->data)[0] = ((int64_t)1 << 62) + 1;
        lkt_out(c, LK_I64, LK_SHAPE(2));
        lkt_result result;
        lkt_ok(lkt_run(engine, c, (lkt_variant){0}, &result));
        assert_memory_equal(result.out[0]->data, in->data, 16);
        lkt_result_free(&result);
        lkt_case_free(c);
    }
    lk_engine_close(engine);
}

/* ---- Ops that do the work of several, against those ---- */

static lk_tensor *run_one(lk_engine *engine, lkt_case *c, int output)
{
    lkt_result result;
    lkt_ok(lkt_run(engine, c, (lkt_variant){0}, &result));
    lk_tensor *out = result.out[output];
    result.out[output] = NULL;
    lkt_result_free(&result);
    return out;
}

/* The result of an op of two operands of the shape of the first; takes them over. */
static lk_tensor *run_pair(lk_engine *engine, lk_op op, lk_tensor *a, lk_tensor *b)
{
    lkt_case *c = lkt_case_create(op);
    c->in[c->input_count++] = a;
    if (b) c->in[c->input_count++] = b;
    lkt_out(c, LK_F64, a->shape);
    lk_tensor *out = run_one(engine, c, 0);
    lkt_case_free(c);
    return out;
}

static lkt_case *norm_case(lk_op op, lk_shape shape)
{
    lkt_case *c = lkt_case_create(op);
    lk_shape channels = LK_SHAPE(shape.dim[1]);
    c->attr.norm = (lk_norm_attr){.eps = 1e-5, .momentum = 0.1, .training = true};
    lkt_in(c, LK_F64, shape, LKT_NORMAL);
    lkt_in(c, LK_F64, channels, LKT_NORMAL);
    lkt_in(c, LK_F64, channels, LKT_NORMAL);
    lkt_in_absent(c);
    lkt_in_absent(c);
    lkt_out(c, LK_F64, shape);
    lkt_out(c, LK_F64, channels);
    lkt_out(c, LK_F64, channels);
    return c;
}

static void expect_same(lk_tensor *actual, lk_tensor *expected)
{
    const char *difference = lkt_difference(actual, expected, 1e-12);
    if (difference) fail_msg("%s", difference);
    lk_tensor_free(actual);
    lk_tensor_free(expected);
}

/* relu(batch_norm(x) + addend), where the addend is nothing, a tensor, or another batch norm's result. */
static void a_batch_norm_with_relu_is_its_parts(void **state)
{
    (void)state;
    lk_shape shape = LK_SHAPE(3, 4, 5);
    lk_engine *engine = lk_engine_open("ref", NULL);
    lkt_not_null(engine);
    for (int form = 0; form < 3; form++) {
        lkt_case *norm = norm_case(LK_OP_BATCH_NORM, shape), *both = norm_case(LK_OP_BATCH_NORM_RELU, shape);
        lkt_case *other = norm_case(LK_OP_BATCH_NORM, shape);
        for (int64_t i = 0; i < lk_tensor_count(other->in[0]); i++)
            lk_tensor_set(other->in[0], i, sin((double)i) - lk_tensor_get(other->in[0], i));
        lk_tensor *sum = run_one(engine, norm, 0);
        if (form == 1) sum = run_pair(engine, LK_OP_ADD, sum, lk_tensor_clone(other->in[0]));
        if (form == 2) sum = run_pair(engine, LK_OP_ADD, sum, run_one(engine, other, 0));
        if (form) lkt_in_operand(both, other, 0);
        if (form == 2) {
            lkt_in_result(both, other, 1);
            lkt_in_result(both, other, 2);
            lkt_in_operand(both, other, 1);
            lkt_in_operand(both, other, 2);
        }
        expect_same(run_one(engine, both, 0), run_pair(engine, LK_OP_RELU, sum, NULL));
        for (int i = 1; i < 3; i++) expect_same(run_one(engine, both, i), run_one(engine, norm, i));
        lkt_case_free(norm);
        lkt_case_free(both);
        lkt_case_free(other);
    }
    lk_engine_close(engine);
}

static void the_gradient_with_relu_is_its_parts(void **state)
{
    (void)state;
    lk_shape shape = LK_SHAPE(3, 4, 5), channels = LK_SHAPE(4);
    lk_engine *engine = lk_engine_open("ref", NULL);
    lkt_not_null(engine);
    lkt_case *norm = norm_case(LK_OP_BATCH_NORM, shape), *parts = lkt_case_create(LK_OP_BATCH_NORM_GRAD),
             *both = lkt_case_create(LK_OP_BATCH_NORM_RELU_GRAD), *both_or_parts[] = {parts, both};
    lk_tensor *dy = lk_tensor_clone(norm->in[0]);
    for (int64_t i = 0; i < lk_tensor_count(dy); i++) lk_tensor_set(dy, i, cos((double)i));
    both->in[both->input_count++] = dy;
    parts->in[parts->input_count++] =
        run_pair(engine, LK_OP_RELU_GRAD, lk_tensor_clone(dy), run_one(engine, norm, 0));
    for (int k = 0; k < 2; k++) {
        lkt_case *c = both_or_parts[k];
        c->attr = norm->attr;
        lkt_in_operand(c, norm, 0);
        lkt_in_operand(c, norm, 1);
        lkt_in_result(c, norm, 1);
        lkt_in_result(c, norm, 2);
        if (k) lkt_in_operand(c, norm, 2);
        lkt_out(c, LK_F64, shape);
        lkt_out(c, LK_F64, channels);
        lkt_out(c, LK_F64, channels);
    }
    for (int i = 0; i < 3; i++) expect_same(run_one(engine, both, i), run_one(engine, parts, i));
    lkt_case_free(norm);
    lkt_case_free(parts);
    lkt_case_free(both);
    lk_engine_close(engine);
}

static void a_loss_with_its_gradient_is_its_parts(void **state)
{
    (void)state;
    lk_shape shape = LK_SHAPE(5, 7);
    lk_engine *engine = lk_engine_open("ref", NULL);
    lkt_not_null(engine);
    for (int kind = LK_LOSS_MSE; kind <= LK_LOSS_KL_DIV; kind++) {
        lkt_case *loss = lkt_case_create(LK_OP_POINTWISE_LOSS),
                 *grad = lkt_case_create(LK_OP_POINTWISE_LOSS_GRAD),
                 *both = lkt_case_create(LK_OP_POINTWISE_LOSS_WITH_GRAD);
        loss->attr.pointwise_loss =
            (lk_pointwise_loss_attr){.kind = (lk_pointwise_loss)kind, .parameter = 0.5};
        both->attr = grad->attr = loss->attr;
        lkt_in(loss, LK_F64, shape, LKT_UNIT);
        lkt_in(loss, LK_F64, shape, LKT_UNIT);
        lkt_in(grad, LK_F64, lk_scalar_shape(), LKT_ONE);
        for (int i = 0; i < 2; i++) {
            lkt_in_operand(both, loss, i);
            lkt_in_operand(grad, loss, i);
        }
        lkt_out(loss, LK_F64, lk_scalar_shape());
        lkt_out(grad, LK_F64, shape);
        lkt_out(both, LK_F64, lk_scalar_shape());
        lkt_out(both, LK_F64, shape);
        expect_same(run_one(engine, both, 0), run_one(engine, loss, 0));
        expect_same(run_one(engine, both, 1), run_one(engine, grad, 0));
        lkt_case_free(loss);
        lkt_case_free(grad);
        lkt_case_free(both);
    }
    lk_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden_case),
        cmocka_unit_test(a_target_out_of_range),
        cmocka_unit_test(an_index_out_of_range),
        cmocka_unit_test(a_probability_out_of_range),
        cmocka_unit_test(an_op_without_kernel),
        cmocka_unit_test(a_batch_norm_with_relu_is_its_parts),
        cmocka_unit_test(the_gradient_with_relu_is_its_parts),
        cmocka_unit_test(a_loss_with_its_gradient_is_its_parts),
        cmocka_unit_test(large_integers_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
