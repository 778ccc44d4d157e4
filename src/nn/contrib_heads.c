/* catalyst.contrib's heads for metric learning: cosines between features and the centres of classes, with a
 * margin at the class of each sample if it is given. */
#include <lockstep/contrib.h>

#include "base/arguments.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "nn/embeddings.h"
#include "nn/nodes.h"

#include <math.h>

static const double PI = 3.14159265358979323846;

typedef struct head {
    int64_t in_features, out_features;
    double s, m, eps;
    bool dynamical_s;
    /* (N, C) cosines, their values at the classes (N, 1), whether a place is that of the class (N, C) ->
     * logits before the scale. */
    lk_value *(*margin)(lk_module *module, lk_value *cosines, lk_value *labels, lk_value *is_class);
} head;

/* ---- cosines ---- */

/* x (N, in), weight (out, in) or (in, out) or (k, in, out) -> (N, out) */
static lk_value *cosines_of(lk_module *module, lk_value *x)
{
    const head *own = module->context;
    lk_shape shape = lk_value_shape(x);
    if (shape.rank != 2 || shape.dim[1] != own->in_features)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "expected features (samples, %lld), found %s",
                              (long long)own->in_features, LKI_SHOW(shape));
    lk_value *weight = lki_module_value(module, x, "weight"), *unit = lki_normalized(x, 1, 1e-12);
    lk_shape stored = lk_value_shape(weight);
    if (stored.rank == 3) {
        lk_value *each = lk_op_matmul(lk_op_unsqueeze(unit, 0), lki_normalized(weight, 1, 1e-12));
        return lk_op_max(each, LK_AXES(0), false); /* (k, N, out) -> (N, out) */
    }
    if (own->margin && lki_module_own_param(module, "t"))
        return lk_op_clamp(lk_op_matmul(unit, lki_normalized(weight, 0, 1e-12)), -1, 1);
    return lk_op_linear(unit, lki_normalized(weight, 1, 1e-12), NULL);
}

/* ---- margins ---- */

/* cos(acos(c) + m) = c cos(m) - sqrt(1 - c^2) sin(m) */
static lk_value *turned(lk_value *c, double m)
{
    lk_value *sine = lk_op_sqrt(lk_op_add_scalar(lk_op_neg(lk_op_mul(c, c)), 1));
    return lk_op_sub(lk_op_mul_scalar(c, cos(m)), lk_op_mul_scalar(sine, sin(m)));
}

static lk_value *clamped(const head *own, lk_value *cosines)
{
    return lk_op_clamp(cosines, own->eps - 1, 1 - own->eps);
}

static lk_value *at_class(lk_value *cosines, lk_value *labels)
{
    return lk_op_gather(cosines, 1, labels);
}

static lk_value *arc_margin(lk_module *module, lk_value *cosines, lk_value *labels, lk_value *is_class)
{
    const head *own = module->context;
    lk_value *c = clamped(own, cosines), *near = at_class(c, labels);
    if (!near) return NULL;
    lk_value *too_far = lk_op_less(near, lki_scalar_like(near, cos(PI - own->m)));
    return lk_op_where(is_class, lk_op_where(too_far, near, turned(near, own->m)), c);
}

static lk_value *subtracted(const head *own, lk_value *c, lk_value *is_class)
{
    return c ? lk_op_where(is_class, lk_op_add_scalar(c, -own->m), c) : NULL;
}

static lk_value *cos_margin(lk_module *module, lk_value *cosines, lk_value *labels, lk_value *is_class)
{
    (void)labels;
    return subtracted(module->context, cosines, is_class);
}

static lk_value *am_margin(lk_module *module, lk_value *cosines, lk_value *labels, lk_value *is_class)
{
    const head *own = module->context;
    (void)labels;
    return subtracted(own, clamped(own, cosines), is_class);
}

/* buffer = value, after everything that has read it: the value depends on all of these. */
static void keep(lk_value *buffer, lk_value *value)
{
    lk_value *operands[] = {buffer, value};
    if (buffer && value) lki_record(lk_value_graph(buffer), LK_OP_ASSIGN, operands, 2, 2, NULL);
}

static lk_value *curricular_margin(lk_module *module, lk_value *cosines, lk_value *labels, lk_value *is_class)
{
    const head *own = module->context;
    lk_value *near = at_class(cosines, labels), *t = lki_module_value(module, cosines, "t");
    if (!near || !t) return NULL;
    lk_value *moved = turned(near, own->m);
    lk_value *too_far = lk_op_less_equal(near, lki_scalar_like(near, cos(PI - own->m)));
    lk_value *at = lk_op_where(too_far, lk_op_add_scalar(near, -sin(PI - own->m) * own->m), moved);
    if (lk_graph_is_training(lk_value_graph(cosines))) {
        lk_value *mean = lk_op_reshape(lk_op_mean(lk_op_detach(near), LK_ALL_AXES, false), LK_SHAPE(1));
        lk_value *next = lk_op_add(lk_op_mul_scalar(mean, 0.01), lk_op_mul_scalar(t, 1 - 0.01));
        keep(t, next);
        t = next;
    }
    if (!moved) return NULL;
    lk_value *is_hard = lk_op_greater(cosines, lk_op_expand(moved, lk_value_shape(cosines)));
    lk_value *hard = lk_op_mul(cosines, lk_op_add(cosines, t));
    return lk_op_where(is_class, at, lk_op_where(is_hard, hard, cosines));
}

/* s = log(mean(sum(exp(s c)))) / cos(min(pi / 4, median angle)); the lower median of the angles is the upper
 * one of their cosines. */
static lk_value *adapted_scale(const head *own, lk_value *s, lk_value *cosines, lk_value *labels,
                               lk_value *is_class)
{
    lk_value *c = lk_op_detach(cosines), *near = at_class(clamped(own, c), labels);
    lk_value *others = lk_op_masked_fill(lk_op_exp(lk_op_mul(c, s)), is_class, 0);
    lk_value *mean = lk_op_mean(lk_op_sum(others, LK_AXES(1), false), LK_ALL_AXES, false);
    lk_value *sorted = lk_op_sort(near, 0, true, NULL);
    if (!sorted || !mean) return NULL;
    int64_t middle = (lk_value_shape(sorted).dim[0] - 1) / 2;
    lk_value *median = lk_op_reshape(lk_op_slice(sorted, 0, middle, middle + 1, 1), LK_SHAPE(1));
    median = lk_op_clamp(median, cos(PI / 4), 1);
    return lk_op_div(lk_op_reshape(lk_op_log(mean), LK_SHAPE(1)), median);
}

static lk_value *ada_margin(lk_module *module, lk_value *cosines, lk_value *labels, lk_value *is_class)
{
    const head *own = module->context;
    lk_value *s = lki_module_value(module, cosines, "s");
    if (!s) return cosines;
    if (lk_graph_is_training(lk_value_graph(cosines))) {
        lk_value *next = adapted_scale(own, s, cosines, labels, is_class);
        keep(s, next);
        s = next;
    }
    return lk_op_mul(cosines, s);
}

/* ---- the layer ---- */

static lk_value *labels_of(lk_value *x, lk_value *given)
{
    lk_shape shape = lk_value_shape(given);
    if (lk_shape_count(shape) != lk_value_shape(x).dim[0] || shape.rank < 1 || shape.dim[0] < 1)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected features and a class for each, found %s and %s",
                              LKI_SHOW(lk_value_shape(x)), LKI_SHOW(shape));
    return lk_op_reshape(lk_op_cast(given, LK_I64), LK_SHAPE(-1, 1));
}

static lk_status head_call(lk_module *module, lk_value *const *inputs, int count, lk_value **outputs,
                           int output_count)
{
    const head *own = module->context;
    lk_graph *graph = lk_value_graph(inputs[0]);
    lk_value *cosines = cosines_of(module, inputs[0]);
    (void)output_count;
    outputs[0] = cosines;
    if (!cosines || count < 2 || !inputs[1]) return graph->status;
    lk_value *labels = labels_of(inputs[0], inputs[1]);
    if (!labels) return graph->status;
    lk_value *one_hot = lk_op_one_hot(lk_op_reshape(labels, LK_SHAPE(-1)), own->out_features);
    lk_value *is_class = lk_op_cast(one_hot, LK_BOOL);
    lk_value *logits = own->margin(module, cosines, labels, is_class);
    outputs[0] = lk_op_mul_scalar(logits, lki_module_own_param(module, "s") ? 1 : own->s);
    return graph->status;
}

static lk_status check_head(const char *type, const head *own)
{
    if (own->in_features < 1 || own->out_features < 1)
        return lki_fail(LK_ERR_INVALID, "%s: expected at least 1 feature in and out, found %lld and %lld",
                        type, (long long)own->in_features, (long long)own->out_features);
    if (!isfinite(own->s) || !isfinite(own->m))
        return lki_fail(LK_ERR_INVALID, "%s: s and m: expected numbers, found %g and %g", type, own->s,
                        own->m);
    if (!(own->eps >= 0 && own->eps < 1))
        return lki_fail(LK_ERR_INVALID, "%s: eps: expected at least 0 and less than 1, found %g", type,
                        own->eps);
    return LK_OK;
}

/* `names`: of the inputs. The weight has `shape`. */
static lk_module *create_head(const char *type, const char *names, const head *own, lk_shape shape)
{
    if (check_head(type, own) != LK_OK) return NULL;
    lk_module *module = lki_module_of_named(type, head_call, names, 1, own, sizeof *own);
    lk_param *weight = lki_module_new_param(module, "weight", shape);
    if (weight) lki_module_note(module, lk_init_xavier_uniform(weight, 1));
    return module;
}

static head head_of(int64_t in, int64_t out, const lk_margin_head_options *options, double m)
{
    return (head){.in_features = in,
                  .out_features = out,
                  .s = lki_number_or(options->s, 64),
                  .m = lki_number_or(options->m, m),
                  .eps = lki_number_or(options->eps, 1e-6)};
}

/* A head that has no use for `k` or `no_dynamical_s` refuses them. */
static lk_status refuse_others(const char *type, const lk_margin_head_options *options, bool takes_k,
                               bool is_adaptive)
{
    if (options->k && !takes_k) return lki_fail(LK_ERR_INVALID, "%s: k belongs to SubCenterArcFace", type);
    if (options->no_dynamical_s && !is_adaptive)
        return lki_fail(LK_ERR_INVALID, "%s: no_dynamical_s belongs to AdaCos", type);
    if (is_adaptive && (options->s != 0 || options->m != 0))
        return lki_fail(LK_ERR_INVALID, "%s has neither s nor m", type);
    return LK_OK;
}

static lk_module *plain_head(const char *type, head own, const lk_margin_head_options *options)
{
    if (refuse_others(type, options, false, false)) return NULL;
    return lki_module_checked(
        create_head(type, "input target", &own, LK_SHAPE(own.out_features, own.in_features)));
}

lk_module *lk_arc_face_with(int64_t in_features, int64_t out_features, const lk_margin_head_options *given)
{
    LKI_TAKE(lk_margin_head_options, options, given, NULL);
    head own = head_of(in_features, out_features, &options, 0.5);
    own.margin = arc_margin;
    return plain_head("ArcFace", own, &options);
}

lk_module *lk_cos_face_with(int64_t in_features, int64_t out_features, const lk_margin_head_options *given)
{
    LKI_TAKE(lk_margin_head_options, options, given, NULL);
    head own = head_of(in_features, out_features, &options, 0.35);
    own.margin = cos_margin;
    if (options.eps != 0) return lki_fail_null(LK_ERR_INVALID, "CosFace has no eps");
    return plain_head("CosFace", own, &options);
}

lk_module *lk_am_softmax_with(int64_t in_features, int64_t out_features, const lk_margin_head_options *given)
{
    LKI_TAKE(lk_margin_head_options, options, given, NULL);
    head own = head_of(in_features, out_features, &options, 0.5);
    own.margin = am_margin;
    return plain_head("AMSoftmax", own, &options);
}

lk_module *lk_sub_center_arc_face_with(int64_t in_features, int64_t out_features,
                                       const lk_margin_head_options *given)
{
    LKI_TAKE(lk_margin_head_options, options, given, NULL);
    static const char type[] = "SubCenterArcFace";
    head own = head_of(in_features, out_features, &options, 0.5);
    int64_t k = options.k ? options.k : 3;
    own.margin = arc_margin;
    if (refuse_others(type, &options, true, false)) return NULL;
    if (k < 1)
        return lki_fail_null(LK_ERR_INVALID, "%s: k: expected at least 1, found %lld", type, (long long)k);
    return lki_module_checked(
        create_head(type, "input target", &own, LK_SHAPE(k, in_features, out_features)));
}

lk_module *lk_curricular_face_with(int64_t in_features, int64_t out_features,
                                   const lk_margin_head_options *given)
{
    LKI_TAKE(lk_margin_head_options, options, given, NULL);
    static const char type[] = "CurricularFace";
    head own = head_of(in_features, out_features, &options, 0.5);
    own.margin = curricular_margin;
    if (refuse_others(type, &options, false, false)) return NULL;
    if (options.eps != 0) return lki_fail_null(LK_ERR_INVALID, "%s has no eps", type);
    if (check_head(type, &own) != LK_OK) return NULL;
    lk_module *module = lki_module_of_named(type, head_call, "input label", 1, &own, sizeof own);
    lk_param *weight = lki_module_new_param(module, "weight", LK_SHAPE(in_features, out_features));
    if (weight) lki_module_note(module, lk_init_normal(weight, 0, 0.01));
    lk_param *t = lki_module_new_buffer(module, "t", LK_F32, LK_SHAPE(1));
    if (t) t->steers = true;
    return lki_module_checked(module);
}

lk_module *lk_ada_cos_with(int64_t in_features, int64_t out_features, const lk_margin_head_options *given)
{
    LKI_TAKE(lk_margin_head_options, options, given, NULL);
    head own = head_of(in_features, out_features, &options, 0.5);
    if (refuse_others("AdaCos", &options, false, true)) return NULL;
    if (out_features < 3)
        return lki_fail_null(LK_ERR_INVALID, "AdaCos: expected at least 3 classes, found %lld",
                             (long long)out_features);
    own.margin = ada_margin;
    own.s = sqrt(2) * log((double)(out_features - 1));
    lk_module *module = create_head("AdaCos", "input target", &own, LK_SHAPE(out_features, in_features));
    lk_param *s = options.no_dynamical_s ? NULL : lki_module_new_buffer(module, "s", LK_F32, LK_SHAPE(1));
    if (s) {
        lki_module_note(module, lk_init_constant(s, own.s));
        s->steers = true;
    }
    return lki_module_checked(module);
}

/* ---- heads without a margin ---- */

static lk_value *product_forward(lk_module *module, lk_value *x)
{
    return cosines_of(module, x);
}

lk_module *lk_arc_margin_product(int64_t in_features, int64_t out_features)
{
    head own = {.in_features = in_features, .out_features = out_features};
    if (check_head("ArcMarginProduct", &own) != LK_OK) return NULL;
    lk_module *module = lki_module_create("ArcMarginProduct", product_forward, &own, sizeof own);
    lk_param *weight = lki_module_new_param(module, "weight", LK_SHAPE(out_features, in_features));
    if (weight) lki_module_note(module, lk_init_xavier_uniform(weight, 1));
    return lki_module_checked(module);
}

static lk_value *softmax_forward(lk_module *module, lk_value *x)
{
    return lk_op_linear(x, lki_module_value(module, x, "weight"), lki_module_value(module, x, "bias"));
}

lk_module *lk_softmax_head(int64_t in_features, int64_t num_classes)
{
    head own = {.in_features = in_features, .out_features = num_classes};
    if (check_head("SoftMax", &own) != LK_OK) return NULL;
    lk_module *module = lki_module_create("SoftMax", softmax_forward, NULL, 0);
    lk_param *weight = lki_module_new_param(module, "weight", LK_SHAPE(num_classes, in_features));
    lki_module_new_param(module, "bias", LK_SHAPE(num_classes));
    if (weight) lki_module_note(module, lk_init_xavier_uniform(weight, 1));
    return lki_module_checked(module);
}
