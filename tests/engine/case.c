#include "case.h"

#include "lktest.h"

#include "base/memory.h"
#include "base/status.h"
#include "tensor/buffer.h"

enum { GUARD_NBYTES = 64, GUARD = 0xa5, POISON = 0xff };

const char *lkt_op_name(lk_op op)
{
    static const char *const names[] = {
#define X(symbol, name, output_count, family, flags) name,
        LK_OP_LIST(X)
#undef X
    };
    return names[op];
}

unsigned lkt_op_flags(lk_op op)
{
    static const unsigned flags_of[] = {
#define X(symbol, name, output_count, family, flags) flags,
        LK_OP_LIST(X)
#undef X
    };
    return flags_of[op];
}

lkt_case *lkt_case_create(lk_op op)
{
    lkt_case *c = LKI_NEW(lkt_case);
    assert_non_null(c);
    c->op = op;
    return c;
}

void lkt_case_free(lkt_case *c)
{
    if (!c) return;
    for (int i = 0; i < LKT_MAX_INPUTS; i++) lk_tensor_free(c->in[i]);
    for (int i = 0; i < LK_MAX_OUTPUTS; i++) lk_tensor_free(c->out[i]);
    lki_free(c);
}

lkt_case *lkt_case_add(lkt_case_list *list, lk_op op, const char *format, ...)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 64;
        list->items = lki_realloc(list->items, sizeof *list->items * (size_t)list->capacity, "cases");
        assert_non_null(list->items);
    }
    lkt_case *c = list->items[list->count++] = lkt_case_create(op);
    int used = snprintf(c->name, sizeof c->name, "%s ", lkt_op_name(op));
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->name + used, sizeof c->name - (size_t)used, format, arguments);
    va_end(arguments);
    return c;
}

void lkt_case_list_free(lkt_case_list *list)
{
    for (int i = 0; i < list->count; i++) lkt_case_free(list->items[i]);
    lki_free(list->items);
}

/* FNV-1a: the same numbers for a case whatever runs before it. */
static uint64_t seed_of(const lkt_case *c)
{
    uint32_t hash = 2166136261u;
    for (const char *p = c->name; *p; p++) hash = (hash ^ (uint8_t)*p) * 16777619u;
    return hash + (uint64_t)c->input_count;
}

static double draw(lkt_fill fill, lk_generator *generator)
{
    double u = lk_generator_f64(generator);
    switch (fill) {
    case LKT_NORMAL: return sqrt(-2 * log1p(-u)) * cos(2 * M_PI * lk_generator_f64(generator));
    case LKT_POSITIVE: return 0.1 + 1.9 * u;
    case LKT_UNIT: return 0.01 + 0.98 * u;
    case LKT_COARSE: return floor(u * 9) / 2 - 2;
    case LKT_ZERO: return 0;
    case LKT_ONE: return 1;
    case LKT_MASK: return u < 0.5;
    }
    return 0;
}

lk_tensor *lkt_in(lkt_case *c, lk_dtype dtype, lk_shape shape, lkt_fill fill)
{
    assert_true(c->input_count < LKT_MAX_INPUTS);
    lk_generator generator;
    lk_generator_seed(&generator, seed_of(c));
    lk_tensor *tensor = lk_tensor_create(dtype, shape);
    lkt_not_null(tensor);
    int64_t count = lk_tensor_count(tensor);
    for (int64_t i = 0; i < count; i++) lk_tensor_set(tensor, i, draw(fill, &generator));
    return c->in[c->input_count++] = tensor;
}

lk_tensor *lkt_in_f32(lkt_case *c, lk_shape shape, lkt_fill fill)
{
    return lkt_in(c, LK_F32, shape, fill);
}

lk_tensor *lkt_in_index(lkt_case *c, lk_shape shape, int64_t high)
{
    lk_generator generator;
    lk_generator_seed(&generator, seed_of(c));
    lk_tensor *tensor = lkt_in(c, LK_I64, shape, LKT_ZERO);
    int64_t count = lk_tensor_count(tensor);
    for (int64_t i = 0; i < count; i++) ((int64_t *)tensor->data)[i] = lk_randint(high, &generator);
    return tensor;
}

void lkt_in_absent(lkt_case *c)
{
    c->in[c->input_count++] = NULL;
}

/* Where the attributes say the shape of the result; NULL for ops that need not be told. */
static lk_shape *said_shape(lkt_case *c)
{
    switch (lk_op_family_of(c->op)) {
    case LK_FAMILY_FILL: return &c->attr.fill.shape;
    case LK_FAMILY_FUSED: return &c->attr.fused.shape;
    case LK_FAMILY_SHAPE: return &c->attr.shape.shape;
    case LK_FAMILY_SLICE: return &c->attr.slice.shape;
    case LK_FAMILY_SLICES: return &c->attr.slices.shape;
    case LK_FAMILY_RANDOM: return &c->attr.random.shape;
    case LK_FAMILY_PAD: return &c->attr.pad.shape;
    case LK_FAMILY_GATHER: return &c->attr.gather.shape;
    case LK_FAMILY_EMBEDDING: return &c->attr.embedding.shape;
    case LK_FAMILY_CONV: return &c->attr.conv.shape;
    case LK_FAMILY_POOL: return &c->attr.pool.shape;
    case LK_FAMILY_UPSAMPLE: return &c->attr.upsample.shape;
    default: return NULL;
    }
}

void lkt_out(lkt_case *c, lk_dtype dtype, lk_shape shape)
{
    c->out[c->output_count] = lk_tensor_create(dtype, shape);
    lkt_not_null(c->out[c->output_count]);
    if (c->output_count++) return;
    lk_shape *said = said_shape(c);
    if (said) *said = shape;
    if (c->op == LK_OP_CAST) c->attr.cast.dtype = dtype;
    if (c->op == LK_OP_FULL) c->attr.fill.dtype = dtype;
}

void lkt_out_f32(lkt_case *c, lk_shape shape)
{
    lkt_out(c, LK_F32, shape);
}

static lk_tensor *adopt(lkt_case *c, lk_tensor *tensor)
{
    assert_true(c->input_count < LKT_MAX_INPUTS);
    lkt_not_null(tensor);
    return c->in[c->input_count++] = tensor;
}

lk_tensor *lkt_in_result(lkt_case *c, const lkt_case *of, int output)
{
    lk_engine *engine = lk_engine_open("ref", NULL);
    lkt_not_null(engine);
    lkt_result result;
    lkt_ok(lkt_run(engine, of, (lkt_variant){0}, &result));
    lk_tensor *tensor = lk_tensor_clone(result.out[output]);
    lkt_result_free(&result);
    lk_engine_close(engine);
    return adopt(c, tensor);
}

lk_tensor *lkt_in_operand(lkt_case *c, const lkt_case *of, int input)
{
    if (of->in[input]) return adopt(c, lk_tensor_clone(of->in[input]));
    lkt_in_absent(c);
    return NULL;
}

/* Memory of one operand: on the host between guards, or the engine's own. */
typedef struct memory {
    lk_engine *engine;
    char *host; /* what the guards lie around; NULL for the engine's */
    char *base; /* as it was allocated */
    char *data;
    size_t nbytes;
} memory;

static memory memory_get(lk_engine *engine, size_t nbytes, int offset)
{
    memory m = {.engine = engine, .nbytes = nbytes};
    size_t whole = nbytes + (size_t)offset + 2 * GUARD_NBYTES;
    if (engine->ops->alloc) {
        m.base = engine->ops->alloc(engine, whole, "an operand");
        assert_non_null(m.base);
    } else {
        m.base = m.host = lki_calloc_aligned(whole, "an operand");
        assert_non_null(m.base);
        memset(m.base, GUARD, whole);
    }
    m.data = m.base + GUARD_NBYTES + offset;
    return m;
}

static void memory_write(memory *m, const void *data)
{
    if (m->engine->ops->upload)
        lkt_ok(m->engine->ops->upload(m->engine, m->data, data, m->nbytes));
    else
        memcpy(m->data, data, m->nbytes);
}

static void memory_read(const memory *m, void *data)
{
    if (m->engine->ops->download)
        lkt_ok(m->engine->ops->download(m->engine, data, m->data, m->nbytes));
    else
        memcpy(data, m->data, m->nbytes);
}

/* Frees; a kernel that wrote beyond its operand is found here. */
static void memory_put(memory *m, const char *name)
{
    if (!m->base) return;
    bool intact = true;
    for (int i = 0; m->host && i < GUARD_NBYTES; i++)
        intact =
            intact && (uint8_t)m->data[-1 - i] == GUARD && (uint8_t)m->data[m->nbytes + (size_t)i] == GUARD;
    if (m->engine->ops->release)
        m->engine->ops->release(m->engine, m->base);
    else
        lki_free(m->base);
    if (!intact) fail_msg("%s wrote outside of an operand", name);
}

/* The operands of a run as tensors on the host. */
static void make_operands(const lkt_case *c, lkt_variant variant, lkt_result *result)
{
    *result = (lkt_result){.hyper = c->hyper};
    for (int i = 0; i < c->input_count; i++) {
        if (!c->in[i]) continue;
        bool casts = variant.cast && lk_dtype_is_float(c->in[i]->dtype);
        bool low = variant.dtype == LK_BF16 || variant.dtype == LK_F16;
        lk_dtype dtype = !casts ? c->in[i]->dtype : low && c->keeps_f32[i] ? LK_F32 : variant.dtype;
        result->in[i] = lk_tensor_cast(c->in[i], dtype);
        lkt_not_null(result->in[i]);
    }
    for (int i = 0; i < c->output_count; i++) {
        if (!c->out[i] || c->unwanted[i] || variant.hidden_output == i + 1) continue;
        bool casts = variant.cast && lk_dtype_is_float(c->out[i]->dtype) && (i == 0 || !variant.keeps);
        result->out[i] = lk_tensor_create(casts ? variant.out_dtype : c->out[i]->dtype, c->out[i]->shape);
        lkt_not_null(result->out[i]);
        memset(result->out[i]->data, POISON, lk_tensor_nbytes(result->out[i]));
    }
}

/* The addresses of one placement of all operands. */
typedef struct placement {
    memory in[LKT_MAX_INPUTS], out[LK_MAX_OUTPUTS];
} placement;

/* No element lies across its own size. */
static int offset_of(const lk_tensor *tensor, lkt_variant variant)
{
    int nbytes = (int)lk_dtype_nbytes(tensor->dtype);
    return variant.offset_nbytes && variant.offset_nbytes < nbytes ? nbytes : variant.offset_nbytes;
}

/* Whether the two layouts of it differ. */
static bool has_layouts(const lk_tensor *tensor)
{
    int64_t places = 1;
    for (int i = 2; i < tensor->shape.rank; i++) places *= tensor->shape.dim[i];
    return tensor->shape.rank > 2 && tensor->shape.dim[1] > 1 && places > 1;
}

static int layout_of(const lk_tensor *tensor, lkt_variant variant)
{
    bool last = tensor && variant.channels_last && has_layouts(tensor);
    return last ? LK_LAYOUT_CHANNELS_LAST : LK_LAYOUT_ROW_MAJOR;
}

/* (n, c, s...) to (n, s..., c) or back, in place. */
static void turn(const lk_tensor *tensor, bool to_last)
{
    size_t size = lk_dtype_nbytes(tensor->dtype), nbytes = lk_tensor_nbytes(tensor);
    int64_t n = tensor->shape.dim[0], c = tensor->shape.dim[1];
    int64_t places = n && c ? lk_tensor_count(tensor) / n / c : 0;
    char *from = lki_calloc(nbytes + 1, "a turned operand"), *data = tensor->data;
    assert_non_null(from);
    memcpy(from, data, nbytes);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < c; k++)
            for (int64_t p = 0; p < places; p++) {
                int64_t row = (i * c + k) * places + p, last = (i * places + p) * c + k;
                memcpy(data + (to_last ? last : row) * (int64_t)size,
                       from + (to_last ? row : last) * (int64_t)size, size);
            }
    lki_free(from);
}

static void turn_operands(const lkt_result *operands, lkt_variant variant, bool to_last)
{
    for (int i = 0; i < LKT_MAX_INPUTS; i++)
        if (layout_of(operands->in[i], variant)) turn(operands->in[i], to_last);
    for (int i = 0; i < LK_MAX_OUTPUTS; i++)
        if (layout_of(operands->out[i], variant)) turn(operands->out[i], to_last);
}

static void place(lk_engine *engine, lk_call *call, placement *p, const lkt_result *operands,
                  lkt_variant variant)
{
    *p = (placement){0};
    for (int i = 0; i < call->input_count; i++) {
        if (!operands->in[i]) continue;
        p->in[i] = memory_get(engine, lk_tensor_nbytes(operands->in[i]), offset_of(operands->in[i], variant));
        memory_write(&p->in[i], operands->in[i]->data);
        call->in[i].data = p->in[i].data;
    }
    for (int i = 0; i < call->output_count; i++) {
        if (!operands->out[i]) continue;
        p->out[i] =
            memory_get(engine, lk_tensor_nbytes(operands->out[i]), offset_of(operands->out[i], variant));
        memory_write(&p->out[i], operands->out[i]->data);
        call->out[i].data = i == 0 && variant.alias ? call->in[variant.alias - 1].data : p->out[i].data;
    }
}

static void collect(const placement *p, const lkt_result *result, lkt_variant variant)
{
    for (int i = 0; i < LKT_MAX_INPUTS; i++)
        if (result->in[i]) memory_read(&p->in[i], result->in[i]->data);
    for (int i = 0; i < LK_MAX_OUTPUTS; i++) {
        bool aliased = i == 0 && variant.alias;
        if (result->out[i])
            memory_read(aliased ? &p->in[variant.alias - 1] : &p->out[i], result->out[i]->data);
    }
}

static void unplace(placement *p, const char *name)
{
    for (int i = 0; i < LKT_MAX_INPUTS; i++) memory_put(&p->in[i], name);
    for (int i = 0; i < LK_MAX_OUTPUTS; i++) memory_put(&p->out[i], name);
}

static lk_status run_placed(lk_engine *engine, lk_call *call, const char *name)
{
    memory scratch = {.engine = engine};
    if (call->scratch_nbytes) {
        scratch = memory_get(engine, call->scratch_nbytes, 0);
        call->scratch = scratch.data;
    }
    uint64_t before = lki_allocation_count();
    lk_status status = engine->ops->begin_step ? engine->ops->begin_step(engine, call->generator) : LK_OK;
    if (status == LK_OK) status = call->run(call);
    if (status == LK_OK && engine->ops->synchronize) status = engine->ops->synchronize(engine, NULL);
    if (lki_allocation_count() != before) fail_msg("%s allocated memory while it ran", name);
    memory_put(&scratch, name);
    return status;
}

/* Absent operands keep their shape and dtype zeroed; the call's tensors are dense. */
static void describe(lk_tensor *to, const lk_tensor *from)
{
    *to = (lk_tensor){0};
    if (!from) return;
    to->dtype = from->dtype;
    to->shape = from->shape;
    lki_tensor_set_contiguous(to);
}

/* Pointers go to what this run has, and a dtype follows the variant. */
static lk_attr attributes_of(const lkt_case *c, lkt_variant variant, lkt_result *result)
{
    lk_attr attr = c->attr;
    lk_op_family family = lk_op_family_of(c->op);
    lk_dtype *dtype = family == LK_FAMILY_CAST   ? &attr.cast.dtype
                      : family == LK_FAMILY_FILL ? &attr.fill.dtype
                                                 : NULL;
    if (family == LK_FAMILY_FUSED) attr.fused.chain = &c->fused;
    if (family == LK_FAMILY_UPDATE) attr.update.hyper = &result->hyper;
    if (dtype && variant.cast && lk_dtype_is_float(*dtype)) *dtype = variant.out_dtype;
    return attr;
}

/* The call of a case, its operands without memory; the pointers in it are the caller's. */
static lk_call make_call(lk_engine *engine, const lkt_case *c, lkt_variant variant, const lkt_result *result,
                         const lk_attr *attr, lk_tensor *in, int *in_layout)
{
    lk_call call = {.op = c->op,
                    .attr = attr,
                    .input_count = c->input_count,
                    .output_count = c->output_count,
                    .in = in,
                    .in_layout = in_layout,
                    .engine = engine};
    for (int i = 0; i < c->input_count; i++) {
        describe(&in[i], result->in[i]);
        in_layout[i] = layout_of(result->in[i], variant);
    }
    for (int i = 0; i < c->output_count; i++) {
        const lk_tensor *out = result->out[i] ? result->out[i] : c->out[i];
        describe(&call.out[i], out);
        call.out_layout[i] = layout_of(out, variant);
    }
    return call;
}

lk_preference lkt_preference(lk_engine *engine, const lkt_case *c, lkt_variant variant)
{
    lk_tensor in[LKT_MAX_INPUTS];
    int in_layout[LKT_MAX_INPUTS] = {0};
    lkt_result result;
    if (!engine->ops->preference) return LK_IMPOSSIBLE;
    make_operands(c, variant, &result);
    lk_attr attr = attributes_of(c, variant, &result);
    lk_call call = make_call(engine, c, variant, &result, &attr, in, in_layout);
    lk_preference answer = engine->ops->preference(engine, &call);
    lkt_result_free(&result);
    return answer;
}

const char *lkt_fallback(lk_engine *engine, const lkt_case *c, lkt_variant variant)
{
    lk_tensor in[LKT_MAX_INPUTS];
    int in_layout[LKT_MAX_INPUTS] = {0};
    lkt_result result;
    make_operands(c, variant, &result);
    lk_attr attr = attributes_of(c, variant, &result);
    lk_call call = make_call(engine, c, variant, &result, &attr, in, in_layout);
    placement placed;
    place(engine, &call, &placed, &result, variant);
    const char *reason = engine->ops->prepare(engine, &call) == LK_OK ? call.fallback : NULL;
    collect(&placed, &result, variant);
    if (call.free_state) call.free_state(call.state);
    unplace(&placed, c->name);
    lkt_result_free(&result);
    return reason;
}

lk_status lkt_run(lk_engine *engine, const lkt_case *c, lkt_variant variant, lkt_result *result)
{
    lk_tensor in[LKT_MAX_INPUTS];
    int in_layout[LKT_MAX_INPUTS] = {0};
    lk_generator generator;
    lk_generator_seed(&generator, 42);
    make_operands(c, variant, result);
    turn_operands(result, variant, true);
    lk_attr attr = attributes_of(c, variant, result);
    lk_call call = make_call(engine, c, variant, result, &attr, in, in_layout);
    call.generator = &generator;
    placement first, second;
    place(engine, &call, &first, result, variant);
    lk_status status = engine->ops->prepare(engine, &call);
    if (variant.moves) place(engine, &call, &second, result, variant);
    if (status == LK_OK) status = run_placed(engine, &call, c->name);
    collect(variant.moves ? &second : &first, result, variant);
    turn_operands(result, variant, false);
    if (call.free_state) call.free_state(call.state);
    unplace(&first, c->name);
    if (variant.moves) unplace(&second, c->name);
    return status;
}

void lkt_result_free(lkt_result *result)
{
    for (int i = 0; i < LKT_MAX_INPUTS; i++) lk_tensor_free(result->in[i]);
    for (int i = 0; i < LK_MAX_OUTPUTS; i++) lk_tensor_free(result->out[i]);
    *result = (lkt_result){0};
}

const char *lkt_difference(const lk_tensor *actual, const lk_tensor *expected, double tolerance)
{
    static char text[200];
    int64_t count = lk_tensor_count(expected);
    for (int64_t i = 0; i < count; i++) {
        double a = lk_tensor_get(actual, i), e = lk_tensor_get(expected, i);
        if (actual->dtype != LK_F64 && lk_dtype_is_float(actual->dtype))
            e = (float)e; /* what overflows there is inf */
        if (a == e || (isnan(a) && isnan(e))) continue;
        if (fabs(a - e) <= tolerance * fmax(1, fabs(e))) continue;
        snprintf(text, sizeof text, "element %lld is %.9g, expected %.9g", (long long)i, a, e);
        return text;
    }
    return NULL;
}

bool lkt_case_is_compared(const lk_engine *engine, const lkt_case *c)
{
    bool drops = lk_op_family_of(c->op) == LK_FAMILY_ATTENTION && c->attr.attention.p > 0;
    return !drops || !engine->ops->begin_step;
}
