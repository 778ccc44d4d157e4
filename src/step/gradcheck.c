/* lk_gradcheck: gradients against central differences.
 *
 * The inputs become parameters of an f64 graph, the result is summed with fixed pseudo-random weights into
 * one number, and the plan is replayed with each element of each input moved a little up and a little down.
 */
#include "step/gradcheck.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/plan.h"
#include "graph/record_util.h"
#include "step/backend.h"

#include <math.h>
#include <stdio.h>

/* Central differences err by about STEP^2 and lose 1e-16 / STEP to rounding: this is near the best of both.
 */
static const double STEP = 1e-5;
enum { WEIGHT_SEED = 137, DRAW_SEED = 271 };

typedef struct check {
    lk_param **params; /* NULL for an input that is no float: it is a constant */
    lk_tensor **gradients;
    int count;
    double tolerance;
    lk_generator generator; /* for dropout: seeded anew before every replay, so that each drops the same */
    lk_engine *engine;
    lki_backend *backend;
    lki_workspace *workspace;
    lki_plan *plan;
} check;

static lk_status make_params(check *self, lk_tensor *const *inputs)
{
    self->params = LKI_NEW_ARRAY(lk_param *, self->count);
    self->gradients = LKI_NEW_ARRAY(lk_tensor *, self->count);
    if (!self->params || !self->gradients) return LK_ERR_NOMEM;
    for (int i = 0; i < self->count; i++) {
        char name[32];
        if (!lk_dtype_is_float(inputs[i]->dtype)) continue;
        snprintf(name, sizeof name, "input %d", i);
        self->params[i] = lk_param_create(name, lk_tensor_cast(inputs[i], LK_F64), true);
        if (!self->params[i]) return lki_last_status();
    }
    return LK_OK;
}

/* sum(y * weights), with weights that no structure of y can cancel. */
static lk_value *weighted_sum(lk_graph *graph, lk_value *y)
{
    lk_generator generator;
    if (!y) return NULL;
    if (y->dtype != LK_F64)
        return lki_graph_fail(graph, LK_ERR_DTYPE, "gradcheck: the function must return f64, not %s",
                              lk_dtype_name(y->dtype));
    lk_tensor *weights = lk_tensor_create(LK_F64, y->shape);
    if (!weights) return lki_graph_fail(graph, LK_ERR_NOMEM, "gradcheck: out of memory");
    lk_generator_seed(&generator, WEIGHT_SEED);
    lk_uniform(weights, -1, 1, &generator);
    lk_value *constant = lk_graph_constant(graph, weights);
    lk_tensor_free(weights);
    return lk_op_sum(lk_op_mul(y, constant), LK_ALL_AXES, false);
}

/* Records the function and its gradients into `graph`. */
static lk_status record(check *self, lk_graph *graph, lk_graph_function function, void *context,
                        lk_tensor *const *inputs)
{
    lki_autodiff_report report;
    lk_status status = LK_OK;
    int param_count = 0;
    lk_value **values = LKI_NEW_ARRAY(lk_value *, self->count);
    lk_param **params = LKI_NEW_ARRAY(lk_param *, self->count);
    if (!values || !params) {
        status = LK_ERR_NOMEM;
        goto out;
    }
    for (int i = 0; i < self->count; i++) {
        values[i] =
            self->params[i] ? lk_graph_param(graph, self->params[i]) : lk_graph_constant(graph, inputs[i]);
        if (self->params[i]) params[param_count++] = self->params[i];
    }
    lk_value *loss = weighted_sum(graph, function(values, self->count, context));
    if (!loss && !graph->status) {
        status = lki_fail(LK_ERR_INVALID, "gradcheck: the function returned no value");
        goto out;
    }
    LKI_TRY_OUT(lki_pass_autodiff(graph, loss, params, param_count, &report));
    LKI_TRY_OUT(lk_graph_output(graph, "loss", loss));
out:
    lki_free(values);
    lki_free(params);
    return status;
}

/* Puts the parameters and their gradients where the engine can reach them. */
static lk_status place_params(check *self)
{
    for (int i = 0; i < self->count; i++) {
        lk_param *param = self->params[i];
        if (!param) continue;
        size_t nbytes = lk_tensor_nbytes(param->value);
        LKI_TRY(lki_backend_add(self->backend, param->value->data, nbytes, false, param->name));
        LKI_TRY(lki_backend_add(self->backend, param->grad->data, nbytes, true, param->name));
        param->home = self->backend->home;
    }
    return LK_OK;
}

static lk_status compile(check *self, const char *engine, lk_graph_function function, void *context,
                         lk_tensor *const *inputs)
{
    self->engine = lk_engine_open(engine, LK_OPTIONS(lk_engine_options, .thread_count = 1));
    if (!self->engine) return lki_last_status();
    LKI_TRY(lki_backend_create(&self->backend, self->engine));
    self->workspace = lki_workspace_create(self->backend->home);
    lk_graph *graph = self->workspace ? lk_graph_create(true) : NULL;
    if (!graph) return LK_ERR_NOMEM;
    lk_status status = record(self, graph, function, context, inputs);
    if (!status) status = place_params(self);
    if (status) {
        lk_graph_free(graph);
        return status;
    }
    lki_plan_options options = {
        .engine = self->engine, .workspace = self->workspace, .generator = &self->generator};
    return lki_plan_compile(&self->plan, graph, options);
}

/* Every replay draws the same numbers and sees the parameters as the host has them. */
static lk_status begin_replay(check *self)
{
    lk_engine *engine = self->engine;
    lk_generator_seed(&self->generator, DRAW_SEED);
    lki_backend_changed(self->backend);
    LKI_TRY(lki_backend_push(self->backend));
    return engine->ops->begin_step ? engine->ops->begin_step(engine, &self->generator) : LK_OK;
}

/* The gradients as autodiff has them; the replays that follow write over the parameters' own. */
static lk_status keep_gradients(check *self)
{
    LKI_TRY(begin_replay(self));
    LKI_TRY(lki_plan_run(self->plan));
    for (int i = 0; i < self->count; i++) {
        if (!self->params[i]) continue;
        LKI_TRY(lki_backend_pull_block(self->backend, self->params[i]->grad->data));
        self->gradients[i] = lk_tensor_clone(self->params[i]->grad);
        if (!self->gradients[i]) return lki_last_status();
    }
    return LK_OK;
}

static lk_status loss_with(check *self, double *element, double value, double *loss)
{
    double before = *element;
    *element = value;
    lk_status status = begin_replay(self);
    if (!status) status = lki_plan_run_sections(self->plan, LKI_SECTION_FORWARD, LKI_SECTION_FORWARD);
    *element = before;
    LKI_TRY(status);
    const lk_tensor *output = lki_plan_output(self->plan, "loss");
    if (!output) return lki_last_status();
    *loss = lk_tensor_get(output, 0);
    return LK_OK;
}

/* A flat index as the place in its tensor, "(1, 0, 2)". */
static lk_shape place_of(lk_shape shape, int64_t index)
{
    lk_shape place = {.rank = shape.rank};
    for (int i = shape.rank - 1; i >= 0; i--) {
        place.dim[i] = index % shape.dim[i];
        index /= shape.dim[i];
    }
    return place;
}

static lk_status compare_element(check *self, int input, int64_t index)
{
    double *element = (double *)self->params[input]->value->data + index;
    double gradient = lk_tensor_get(self->gradients[input], index), up = NAN, down = NAN;
    double step = STEP * fmax(1, fabs(*element));
    LKI_TRY(loss_with(self, element, *element + step, &up));
    LKI_TRY(loss_with(self, element, *element - step, &down));
    double difference = (up - down) / (2 * step);
    if (fabs(gradient - difference) <= self->tolerance * fmax(1, fabs(difference))) return LK_OK;
    return lki_fail(LK_ERR_RANGE,
                    "gradcheck: input %d at %s: the gradient is %.9g, central differences give %.9g", input,
                    LKI_SHOW(place_of(self->gradients[input]->shape, index)), gradient, difference);
}

lk_status lk_gradcheck(lk_graph_function function, void *context, lk_tensor *const *inputs, int count,
                       double tolerance)
{
    return lki_gradcheck_on("ref", function, context, inputs, count, tolerance);
}

lk_status lki_gradcheck_on(const char *engine, lk_graph_function function, void *context,
                           lk_tensor *const *inputs, int count, double tolerance)
{
    check self = {.count = count, .tolerance = tolerance};
    lk_status status;
    LKI_TRY_OUT(make_params(&self, inputs));
    LKI_TRY_OUT(compile(&self, engine, function, context, inputs));
    LKI_TRY_OUT(keep_gradients(&self));
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; self.params[i] && k < lk_tensor_count(self.gradients[i]); k++)
            LKI_TRY_OUT(compare_element(&self, i, k));
out:
    lki_plan_free(self.plan);
    lki_workspace_free(self.workspace);
    lki_backend_free(self.backend);
    lk_engine_close(self.engine);
    for (int i = 0; i < count; i++) {
        if (self.params) lk_param_free(self.params[i]);
        if (self.gradients) lk_tensor_free(self.gradients[i]);
    }
    lki_free(self.params);
    lki_free(self.gradients);
    return status;
}
