/* The work of calls, counted by hand, and the trace of a replay. */
#include "lktest.h"

#include <lockstep/graph.h>

#include "graph/plan.h"
#include "graph/trace_calls.h"

#include <string.h>

static lk_tensor shaped(lk_shape shape)
{
    static float value;
    return (lk_tensor){.dtype = LK_F32, .shape = shape, .data = &value};
}

static void check_work(lk_op op, lk_tensor a, lk_tensor b, lk_tensor y, double flops, double numbers)
{
    lk_tensor in[] = {a, b};
    lk_call call = {.op = op, .in = in, .input_count = 2, .output_count = 1, .out = {y}};
    double found_flops, found_nbytes;
    lki_call_work(&call, &found_flops, &found_nbytes);
    lkt_close(found_flops, flops, 0);
    lkt_close(found_nbytes, numbers < 0 ? -1 : 4 * numbers, 0);
}

static void test_work(void **state)
{
    (void)state;
    lk_tensor x = shaped(LK_SHAPE(8, 5)), w = shaped(LK_SHAPE(3, 5)), y = shaped(LK_SHAPE(8, 3));
    check_work(LK_OP_LINEAR, x, w, y, 2 * 8 * 3 * 5, 40 + 15 + 24);
    check_work(LK_OP_LINEAR_GRAD, y, x, w, 2 * 8 * 3 * 5, 24 + 40 + 15);
    check_work(LK_OP_MATMUL, shaped(LK_SHAPE(2, 8, 5)), shaped(LK_SHAPE(2, 5, 3)), shaped(LK_SHAPE(2, 8, 3)),
               2 * 2 * 8 * 3 * 5, 80 + 30 + 48);
    /* (2, 4, 6, 6) by (8, 2, 3, 3) in two groups: (2, 8, 4, 4). */
    lk_tensor image = shaped(LK_SHAPE(2, 4, 6, 6)), kernel = shaped(LK_SHAPE(8, 2, 3, 3)),
              result = shaped(LK_SHAPE(2, 8, 4, 4));
    const double conv = 2.0 * (2 * 8 * 4 * 4) * (2 * 3 * 3);
    check_work(LK_OP_CONV, image, kernel, result, conv, 288 + 144 + 256);
    check_work(LK_OP_CONV_GRAD_INPUT, result, kernel, image, conv, 288 + 144 + 256);
    check_work(LK_OP_CONV_GRAD_WEIGHT, result, image, kernel, conv, 288 + 144 + 256);
    check_work(LK_OP_ADD, x, x, x, 0, 120);
    check_work(LK_OP_EMBEDDING, x, x, x, -1, -1);
}

static void test_a_replay_is_traced_call_by_call(void **state)
{
    (void)state;
    lk_engine *engine = lk_engine_open("ref", NULL);
    lki_workspace *workspace = lki_workspace_create(NULL);
    lk_tensor *x = lk_randn(LK_SHAPE(4, 4));
    lk_graph *graph = lk_graph_create(false);
    lk_value *value = lk_graph_input(graph, "x", LK_F32, x->shape);
    lkt_ok(lk_graph_output(graph, "y", lk_op_relu(lk_op_matmul(value, value))));
    lki_plan *plan;
    lkt_ok(lki_plan_compile(&plan, graph, (lki_plan_options){.engine = engine, .workspace = workspace}));
    lkt_ok(lki_plan_bind(plan, 0, x->data));
    lki_trace *trace = lki_trace_create(64);
    for (int round = 0; round < 2; round++) {
        lki_trace_now = trace;
        lkt_ok(lki_plan_run(plan));
        lki_trace_now = NULL;
        lkt_ok(lki_plan_run(plan)); /* unseen */
    }
    int count = lki_plan_call_count(plan);
    assert_int_equal(trace->site_count, count);
    assert_int_equal(trace->span_count, 2 * count);
    for (int i = 0; i < 2 * count; i++) {
        const lki_trace_site *site = &trace->sites[trace->spans[i].site];
        assert_string_equal(site->name, lk_op_name(lki_plan_call(plan, i % count)->op));
        assert_int_equal(site->kind, LKI_TRACE_FORWARD);
    }
    lki_trace_free(trace);
    lki_plan_free(plan);
    lki_workspace_free(workspace);
    lk_tensor_free(x);
    lk_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_a_replay_is_traced_call_by_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
