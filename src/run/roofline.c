#include "run/roofline.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "graph/plan.h"

#include <math.h>
#include <string.h>

enum { PRODUCT_SIDE = 512, LEAST_RUNS = 3, MOST_RUNS = 200, LEAST_SIZE = 12, LARGEST_SIZE = 28 };

static const double SECONDS = 0.03; /* of one measurement, or LEAST_RUNS of it */

typedef lk_value *(*record_op)(lk_value *a, lk_value *b);

static lk_value *record_product(lk_value *a, lk_value *b)
{
    return lk_op_matmul(a, b);
}

static lk_value *record_relu(lk_value *a, lk_value *b)
{
    (void)b;
    return lk_op_relu(a);
}

static lk_status time_plan(lki_plan *plan, double *best_s)
{
    *best_s = INFINITY;
    double end_s = lki_now_s() + SECONDS;
    for (int i = 0; i < LEAST_RUNS || (i < MOST_RUNS && lki_now_s() < end_s); i++) {
        double begin_s = lki_now_s();
        LKI_TRY(lki_plan_run(plan));
        *best_s = fmin(*best_s, lki_now_s() - begin_s);
    }
    return LK_OK;
}

/* The best time of an op over one or two inputs of one shape. Products may be in 16 bits. */
static lk_status time_op(lk_engine *engine, record_op record, int input_count, lk_shape shape,
                         lk_dtype precision, double *best_s)
{
    lk_graph *graph = lk_graph_create(false);
    if (!graph) return LK_ERR_NOMEM;
    lki_workspace *workspace = lki_workspace_create(NULL);
    lk_tensor *values = lk_tensor_create(LK_F32, shape);
    lki_plan *plan = NULL;
    lk_status status = workspace && values ? LK_OK : LK_ERR_NOMEM;
    if (!status) {
        lk_value *a = lk_graph_input(graph, "a", LK_F32, shape);
        lk_value *b = input_count > 1 ? lk_graph_input(graph, "b", LK_F32, shape) : NULL;
        status = lk_graph_output(graph, "y", record(a, b));
    }
    for (int64_t i = 0; !status && i < lk_tensor_count(values); i++)
        ((float *)values->data)[i] = (float)(i % 7) - 2.5f;
    if (status)
        lk_graph_free(graph);
    else
        status = lki_plan_compile(
            &plan, graph,
            (lki_plan_options){.engine = engine, .workspace = workspace, .precision = precision});
    for (int i = 0; i < input_count && !status; i++) status = lki_plan_bind(plan, i, values->data);
    if (!status) status = time_plan(plan, best_s);
    lki_plan_free(plan);
    lk_tensor_free(values);
    lki_workspace_free(workspace);
    return status;
}

static lk_status measure_flops(lki_roofline *roofline, lk_dtype dtype, double *out)
{
    if (roofline->flops[dtype] == 0) {
        double best_s;
        LKI_TRY(time_op(roofline->engine, record_product, 2, LK_SHAPE(PRODUCT_SIDE, PRODUCT_SIDE), dtype,
                        &best_s));
        roofline->flops[dtype] = 2.0 * PRODUCT_SIDE * PRODUCT_SIDE * PRODUCT_SIDE / best_s;
    }
    *out = roofline->flops[dtype];
    return LK_OK;
}

/* The pool of threads costs more than it gains on what is small. */
static lk_status time_copy(size_t nbytes, double *best_s)
{
    LKI_SCOPED char *from = lki_calloc(nbytes, "a copy to time"), *to = lki_calloc(nbytes, "a copy to time");
    if (!from || !to) return LK_ERR_NOMEM;
    memset(to, 1, nbytes);
    double end_s = lki_now_s() + SECONDS;
    for (int i = 0; i < LEAST_RUNS || (i < MOST_RUNS && lki_now_s() < end_s); i++) {
        double begin_s = lki_now_s();
        memcpy(to, from, nbytes);
        __asm__ volatile("" : : "r"(to) : "memory");
        *best_s = fmin(*best_s, lki_now_s() - begin_s);
    }
    return LK_OK;
}

/* Half of the bytes are read, half are written. */
static lk_status measure_traffic(lki_roofline *roofline, double nbytes, double *out)
{
    int size = (int)ceil(log2(fmax(nbytes, 1)));
    if (size < LEAST_SIZE) size = LEAST_SIZE;
    if (size > LARGEST_SIZE) size = LARGEST_SIZE;
    if (roofline->nbytes[size] == 0) {
        double best_s;
        int64_t count = ((int64_t)1 << size) / 2 / (int64_t)sizeof(float);
        LKI_TRY(time_op(roofline->engine, record_relu, 1, LK_SHAPE(count), LK_F32, &best_s));
        LKI_TRY(time_copy(((size_t)1 << size) / 2, &best_s));
        roofline->nbytes[size] = (double)((int64_t)1 << size) / best_s;
    }
    *out = roofline->nbytes[size];
    return LK_OK;
}

lk_status lki_roofline_seconds(lki_roofline *roofline, const lki_trace_site *site, double *seconds,
                               const char **limit)
{
    double flops_rate, traffic;
    lk_dtype dtype = site->dtype == LK_BF16 || site->dtype == LK_F16 ? (lk_dtype)site->dtype : LK_F32;
    *seconds = -1;
    *limit = "";
    bool is_f64 = site->dtype == LK_F64 && site->flops > 0;
    if (site->nbytes <= 0 || is_f64 || strcmp(lk_engine_name(roofline->engine), "cpu") != 0) return LK_OK;
    LKI_TRY(measure_traffic(roofline, site->nbytes, &traffic));
    *seconds = site->nbytes / traffic;
    *limit = "memory";
    if (site->flops <= 0) return LK_OK;
    LKI_TRY(measure_flops(roofline, dtype, &flops_rate));
    if (site->flops / flops_rate > *seconds) {
        *seconds = site->flops / flops_rate;
        *limit = "compute";
    }
    return LK_OK;
}
