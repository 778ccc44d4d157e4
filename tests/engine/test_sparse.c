/* Linear layers over inputs that are mostly zeros give what the reference engine gives, at every size of the
 * sparse kernels. */
#include "lktest.h"

#include <lockstep/graph.h>
#include <lockstep/random.h>

#include "graph/plan.h"

#include <math.h>

typedef struct result {
    lk_tensor *y, *dw, *db;
} result;

/* y = relu(x w' + b); loss = sum(y * y): its gradient reaches w and b through linear_grad. */
static result run(const char *engine_name, int threads, lk_tensor *x, const lk_tensor *w, const lk_tensor *b)
{
    lk_engine *engine = lk_engine_open(engine_name, LK_OPTIONS(lk_engine_options, .thread_count = threads));
    lkt_not_null(engine);
    lki_workspace *workspace = lki_workspace_create(NULL);
    lk_param *weight = lk_param_create("w", lk_tensor_clone(w), true),
             *bias = lk_param_create("b", lk_tensor_clone(b), true);
    lk_graph *graph = lk_graph_create(true);
    lk_value *input = lk_graph_input(graph, "x", LK_F32, x->shape);
    lk_value *y = lk_op_relu(lk_op_linear(input, lk_graph_param(graph, weight), lk_graph_param(graph, bias)));
    lkt_ok(lk_graph_output(graph, "y", y));
    lk_value *loss = lk_op_sum(lk_op_mul(y, y), LK_ALL_AXES, false);
    lkt_ok(lk_graph_output(graph, "loss", loss));
    lki_autodiff_report report;
    lkt_ok(lki_pass_autodiff(graph, loss, (lk_param *[]){weight, bias}, 2, &report));
    lki_plan *plan;
    lkt_ok(lki_plan_compile(&plan, graph, (lki_plan_options){.engine = engine, .workspace = workspace}));
    lki_plan_bind(plan, 0, x->data);
    lkt_ok(lki_plan_run(plan));
    result out = {lk_tensor_clone(lki_plan_output(plan, "y")), lk_tensor_clone(weight->grad),
                  lk_tensor_clone(bias->grad)};
    lki_plan_free(plan);
    lk_param_free(weight);
    lk_param_free(bias);
    lki_workspace_free(workspace);
    lk_engine_close(engine);
    return out;
}

static void expect_close(const lk_tensor *actual, const lk_tensor *expected, const char *what)
{
    for (int64_t i = 0; i < lk_tensor_count(expected); i++) {
        double a = lk_tensor_get(actual, i), e = lk_tensor_get(expected, i);
        if (!(fabs(a - e) <= 2e-4 * fmax(1, fabs(e))))
            fail_msg("%s[%lld] = %.7g, expected %.7g", what, (long long)i, a, e);
    }
}

static void free_result(result r)
{
    lk_tensor_free(r.y);
    lk_tensor_free(r.dw);
    lk_tensor_free(r.db);
}

/* Four fifths of x are zero, and some of its rows and columns wholly. */
static lk_tensor *sparse_input(int64_t m, int64_t k)
{
    lk_tensor *x = lk_randn(LK_SHAPE(m, k));
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < k; j++)
            if (lk_generator_f64(lk_default_generator()) < 0.8 || i == 2 || j % 50 < 5)
                lk_tensor_set(x, i * k + j, 0);
    return x;
}

static void compare(int64_t m, int64_t n, int64_t k, int threads)
{
    lk_tensor *x = sparse_input(m, k), *w = lk_randn(LK_SHAPE(n, k)), *b = lk_randn(LK_SHAPE(n));
    result expected = run("ref", 1, x, w, b), actual = run("cpu", threads, x, w, b);
    expect_close(actual.y, expected.y, "y");
    expect_close(actual.dw, expected.dw, "dw");
    expect_close(actual.db, expected.db, "db");
    free_result(expected);
    free_result(actual);
    lk_tensor_free(x);
    lk_tensor_free(w);
    lk_tensor_free(b);
}

static void every_width_of_the_kernels(void **state)
{
    (void)state;
    lk_manual_seed(5);
    for (int64_t n = 32; n <= 130; n += 7) compare(19, n, 256, 1);
}

static void odd_sizes_and_threads(void **state)
{
    (void)state;
    lk_manual_seed(6);
    compare(128, 100, 784, 1);
    compare(17, 33, 260, 1);
    compare(64, 112, 300, 2);
    compare(50, 241, 268, 2);
    compare(16, 40, 257, 1); /* no multiple of four: the dense way */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_width_of_the_kernels),
        cmocka_unit_test(odd_sizes_and_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
