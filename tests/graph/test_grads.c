/* Gradients with respect to several values at once, against formulas. */
#include "lktest.h"

#include <lockstep/step.h>

#include "graph/graph.h"

/* b = 3 a, y = sum(b^2), and c, which y does not depend on. */
static lk_value *several(lk_graph *graph, const char *const *names, lk_value *const *in, int count,
                         void *context)
{
    (void)names, (void)count, (void)context;
    lk_value *a = in[0], *b = lk_op_mul_scalar(a, 3), *c = in[1], *found[4];
    lk_value *y = lk_op_sum(lk_op_mul(b, b), LK_ALL_AXES, false);
    if (lk_op_grads(found, y, (lk_value *[]){a, b, c, a}, 4)) return NULL;
    static const char *const keys[] = {"a", "b", "c", "again"};
    for (int i = 0; i < 4; i++) lk_graph_output(graph, keys[i], found[i]);
    lk_graph_output(graph, "second", lk_op_grad(lk_op_mul(found[0], found[1]), a));
    return NULL;
}

static void check(lk_step *step, const char *key, const double *x, double factor)
{
    const lk_tensor *found = lk_step_output(step, key);
    lkt_not_null(found);
    for (int i = 0; i < 3; i++) lkt_close(lk_tensor_get(found, i), factor * x[i], 1e-6);
}

/* As torch.autograd.grad(y, (a, b, c)): what flows to a through b is a's too. */
static void each_value_gets_all_of_its_gradient(void **state)
{
    (void)state;
    const double x[] = {0.5, -2, 3};
    lk_module *model = lk_linear(1, 1);
    lk_step *step = lk_step(.model = model, .function = several);
    lk_tensor *a = lk_tensor_create(LK_F32, LK_SHAPE(3)), *c = lk_tensor_create(LK_F32, LK_SHAPE(3));
    for (int i = 0; i < 3; i++) lk_tensor_set(a, i, x[i]);
    lkt_ok(lk_step_evaluate(step, (lk_input[]){{"a", a}, {"c", c}}, 2));
    check(step, "a", x, 18); /* y = 9 a^2 */
    check(step, "again", x, 18);
    check(step, "b", x, 6);
    check(step, "c", x, 0);
    check(step, "second", x, 216); /* 18 a 6 a, twice */
    lk_tensor_free(a);
    lk_tensor_free(c);
    lk_step_free(step);
    lk_module_free(model);
}

static void a_failure_gives_none(void **state)
{
    (void)state;
    lk_graph *graph = lk_graph_create(true), *other = lk_graph_create(true);
    lk_value *x = lk_graph_input(graph, "x", LK_F32, LK_SHAPE(3)), *y = lk_op_mul(x, x), *out[] = {x, x};
    lk_value *stranger = lk_graph_input(other, "x", LK_F32, LK_SHAPE(3));
    lkt_fails(lk_op_grads(out, y, (lk_value *[]){x, stranger}, 2), LK_ERR_INVALID,
              "grad: its operands belong to different graphs");
    assert_true(!out[0] && !out[1]);
    lk_graph_free(graph);
    lk_graph_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_value_gets_all_of_its_gradient),
        cmocka_unit_test(a_failure_gives_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
