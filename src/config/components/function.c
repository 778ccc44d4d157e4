/* Functions that a config can name: of a tensor, for BatchTransform; and those that clip gradients, which are
 * only names. */
#include "config/components/components.h"

#include "base/status.h"
#include "config/build.h"

#include <lockstep/callback.h>

#include <math.h>
#include <string.h>

/* A function of each element, or of each row along the last axis. */
typedef struct function {
    double (*element)(double x);
    void (*row)(float *row, int64_t count);
    int axis; /* rows: 1 where the last axis must be that; -1: the last one, whichever it is */
} function;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double relu(double x)
{
    return x > 0 ? x : 0;
}

/* The logarithm of the sum of exp(x), taken so that nothing overflows. */
static double log_sum_exp(const float *row, int64_t count)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++) largest = row[i] > largest ? row[i] : largest;
    for (int64_t i = 0; i < count; i++) sum += exp(row[i] - largest);
    return largest + log(sum);
}

static void log_softmax(float *row, int64_t count)
{
    double whole = log_sum_exp(row, count);
    for (int64_t i = 0; i < count; i++) row[i] = (float)(row[i] - whole);
}

static void softmax(float *row, int64_t count)
{
    double whole = log_sum_exp(row, count);
    for (int64_t i = 0; i < count; i++) row[i] = (float)exp(row[i] - whole);
}

static lk_status apply(lk_tensor *tensor, lk_runner *runner, void *context)
{
    const function *f = context;
    int64_t count = lk_tensor_count(tensor);
    float *data = tensor->data;
    (void)runner;
    if (tensor->dtype != LK_F32 || !lk_tensor_is_contiguous(tensor))
        return lki_fail(LK_ERR_DTYPE, "BatchTransform: expected a tensor of f32, found one of %s",
                        lk_dtype_name(tensor->dtype));
    if (f->element) {
        for (int64_t i = 0; i < count; i++) data[i] = (float)f->element(data[i]);
        return LK_OK;
    }
    if (f->axis == 1 && tensor->shape.rank != 2)
        return lki_fail(LK_ERR_SHAPE,
                        "BatchTransform: dim: 1 is not the last axis of a tensor with %d: only that one is "
                        "possible, which is dim: -1",
                        tensor->shape.rank);
    int64_t width = tensor->shape.rank ? tensor->shape.dim[tensor->shape.rank - 1] : 1;
    for (int64_t i = 0; width > 0 && i < count; i += width) f->row(data + i, width);
    return LK_OK;
}

static lk_status build_transform(const lk_component *self, lk_args *args, void **out)
{
    const lk_component *named = lk_arg_peek(args, "transform");
    const lki_object *given = lki_object_argument(args->object, "transform", 0);
    const function *f = named->context;
    (void)self;
    if (!f) return lki_fail(LK_ERR_CONFIG, "transform: %s is not a function of a tensor", named->name);
    if (f->row && !strcmp(given->values[0]->text, "1")) f++; /* dim: 1, by the ROW macro */
    return lki_built(lk_batch_transform_callback(.transform = apply, .context = (void *)f,
                                                 .scope = lk_arg_string(args, "scope"),
                                                 .input_key = lk_arg_string(args, "input_key"),
                                                 .output_key = lk_arg_string(args, "output_key")),
                     out);
}

/* A function of a config is the entry that describes it. */
static lk_status build_function(const lk_component *self, lk_args *args, void **out)
{
    const function *f = self->context;
    if (f && f->row && lk_arg_int(args, "dim") != -1 && lk_arg_int(args, "dim") != 1)
        return lki_fail(LK_ERR_CONFIG, "dim: expected -1, the last axis");
    *out = (void *)self;
    return LK_OK;
}

static void keep(void *object)
{
    (void)object;
}

static const lk_parameter transform_parameters[] = {
    LKI_OBJECT("transform", FUNCTION, LKI_REQUIRED, "the function, as in torch.sigmoid"),
    LKI_CHOICE("scope", "on_batch_end", "on_batch_start|on_batch_end", "before the model or after"),
    LKI_STRING("input_key", LKI_OPTIONAL, "the tensor; the model's input or output where left out"),
    LKI_STRING("output_key", LKI_OPTIONAL,
               "the name of the result; the tensor itself changes where left out"),
    LKI_REFUSED("transform_kwargs", NULL,
                "write arguments beside the function's name, as in transform: {_target_: softmax, dim: 1}"),
    {0},
};
static const lk_parameter dim_parameters[] = {
    LKI_INT("dim", "-1", "-1: the last axis; 1: the same, of tensors with two"), {0}};

#define ELEMENT(name_, function_, help_)                                                                     \
    {                                                                                                        \
        .name = name_, .aliases = "torch." name_ " torch.nn.functional." name_, .kind = LK_KIND_FUNCTION,    \
        .help = help_, .build = build_function, .free = keep, .context = &(const function)                   \
        {                                                                                                    \
            .element = function_                                                                             \
        }                                                                                                    \
    }
#define ROW(name_, function_, help_)                                                                         \
    {                                                                                                        \
        .name = name_, .aliases = "torch." name_ " torch.nn.functional." name_, .kind = LK_KIND_FUNCTION,    \
        .help = help_, .parameters = dim_parameters, .build = build_function, .free = keep,                  \
        .context = (const function[])                                                                        \
        {                                                                                                    \
            {.row = function_, .axis = -1},                                                                  \
            {                                                                                                \
                .row = function_, .axis = 1                                                                  \
            }                                                                                                \
        }                                                                                                    \
    }
#define CLIPPING(name_, help_)                                                                               \
    {                                                                                                        \
        .name = name_, .aliases = "torch.nn.utils." name_, .kind = LK_KIND_FUNCTION, .help = help_,          \
        .build = build_function, .free = keep                                                                \
    }

const lk_component lki_function_components[] = {
    {.name = "BatchTransform",
     .aliases = LKI_CALLBACK_NAMES("BatchTransform"),
     .kind = LK_KIND_CALLBACK,
     .help = "A function of a tensor of each batch.",
     .parameters = transform_parameters,
     .build = build_transform},
    ELEMENT("sigmoid", sigmoid, "1 / (1 + exp(-x))."),
    ELEMENT("tanh", tanh, "The hyperbolic tangent."),
    ELEMENT("relu", relu, "max(x, 0)."),
    ELEMENT("exp", exp, "The exponential."),
    ELEMENT("log", log, "The natural logarithm."),
    ELEMENT("abs", fabs, "The size without the sign."),
    ROW("softmax", softmax, "exp(x), scaled to sum to one."),
    ROW("log_softmax", log_softmax, "The logarithm of softmax."),
    CLIPPING("clip_grad_norm_", "Scales the gradients down to a norm."),
    CLIPPING("clip_grad_value_", "Cuts each gradient off at a value."),
    {0},
};
