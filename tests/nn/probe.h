/* The probe of tests/oracle/nn_parity.py: a layer `m` whose input is a parameter `x`, so that the gradient
 * with respect to it can be read and layers without parameters can be trained; and what the parity tests do
 * with one. */
#ifndef LKT_NN_PROBE_H
#define LKT_NN_PROBE_H

#include "golden.h"
#include "lktest.h"

#include <lockstep/checkpoint.h>
#include <lockstep/runner.h>
#include <lockstep/step.h>
#include <lockstep/sys/engine.h>

enum { PARITY_STEPS = 20 };

typedef struct parity_case {
    const char *name;
    lk_module *(*make)(void);
    lk_criterion *(*criterion)(void); /* NULL: MSE towards the target */
    const char *engine;
    const lkt_golden *golden;
} parity_case;

static lk_value *probe_forward(lk_module *module, lk_value *input)
{
    lk_value *x = lk_module_context(module)
                      ? lk_graph_param(lk_value_graph(input), lk_module_param(module, "x"))
                      : input;
    return lk_module_forward(lk_module_child(module, "m"), x);
}

/* The context is not NULL where the input is a parameter. */
static lk_module *make_probe(lk_module *module, const lk_tensor *x)
{
    static char marker;
    bool trained = lk_dtype_is_float(x->dtype);
    lk_module *probe =
        lk_custom_module(.type = "Probe", .forward = probe_forward, .context = trained ? &marker : NULL,
                         .children = lk_children({"m", module}));
    lkt_not_null(probe);
    if (trained) lkt_ok(lk_module_add_param(probe, lk_param_create("x", lk_tensor_clone(x), true)));
    return probe;
}

/* Compares every golden entry "<case>/<section>/<path>" with the value or gradient of that parameter; a
 * tolerance of 0 means bits. */
static void compare_section(const parity_case *test, lk_module *probe, const char *section, bool gradients,
                            double tolerance)
{
    char prefix[128], what[300];
    double scale = 0;
    snprintf(prefix, sizeof prefix, "%s/%s/", test->name, section);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < lkt_golden_count(test->golden); i++) {
            const char *name = lkt_golden_name(test->golden, i);
            if (strncmp(name, prefix, strlen(prefix)) != 0) continue;
            const lk_tensor *expected = lkt_golden_get(test->golden, "%s", name);
            if (pass == 0) {
                if (lk_dtype_is_float(expected->dtype)) scale = fmax(scale, lkt_largest(expected));
                continue;
            }
            lk_param *param = lk_module_param(probe, name + strlen(prefix));
            lkt_not_null(param);
            snprintf(what, sizeof what, "%s on %s", name, test->engine);
            const lk_tensor *actual = gradients ? param->grad : param->value;
            if (tolerance == 0 || !lk_dtype_is_float(expected->dtype))
                lkt_same_bits(actual, expected, what);
            else
                lkt_near(actual, expected, scale, tolerance, what);
        }
}

/* Every parameter and buffer of the probe must be known to the golden file, and the other way round. */
static void compare_names(const parity_case *test, const lk_module *probe, const char *section)
{
    lk_state_dict *names = lk_module_state_dict(probe);
    char prefix[128];
    int expected = 0;
    lkt_not_null(names);
    snprintf(prefix, sizeof prefix, "%s/%s/", test->name, section);
    for (int i = 0; i < lkt_golden_count(test->golden); i++)
        expected += strncmp(lkt_golden_name(test->golden, i), prefix, strlen(prefix)) == 0;
    assert_int_equal(lk_state_dict_count(names), expected);
    for (int i = 0; i < expected; i++)
        lkt_golden_get(test->golden, "%s%s", prefix, lk_state_dict_name(names, i));
    lk_state_dict_free(names);
}

/* y, and either y . cotangent or the criterion as the loss. */
typedef struct parity_context {
    lk_module *probe;
    lk_criterion *criterion; /* NULL: y . cotangent */
} parity_context;

static lk_value *parity_function(lk_graph *graph, const char *const *names, lk_value *const *inputs,
                                 int count, void *context)
{
    (void)names, (void)count;
    const parity_context *own = context;
    lk_value *y = lk_module_forward(own->probe, inputs[0]);
    lk_value *loss =
        own->criterion ? lk_criterion_forward(own->criterion, y, inputs[1]) : lk_op_mul(y, inputs[1]);
    lk_graph_output(graph, "y", y);
    lk_graph_output(graph, "unreduced", loss);
    return lk_value_shape(loss).rank || !own->criterion ? lk_op_sum(loss, LK_ALL_AXES, false) : loss;
}

/* 20 steps, every loss. */
static void check_training(const parity_case *test, lk_step *step, const lk_input *fields)
{
    const lk_tensor *losses = lkt_golden_get(test->golden, "%s/losses", test->name);
    double scale = lkt_largest(losses);
    lk_manual_seed((uint64_t)lk_tensor_get(lkt_golden_get(test->golden, "%s/seed", test->name), 0) + 2);
    for (int i = 0; i < PARITY_STEPS; i++) {
        lkt_ok(lk_step_train(step, fields, 2));
        double expected = lk_tensor_get(losses, i);
        if (!(fabs(lk_step_loss(step) - expected) <= 1e-5 * scale))
            fail_msg("%s on %s: loss %d is %.9g, expected %.9g", test->name, test->engine, i,
                     lk_step_loss(step), expected);
    }
}

/* Every case on every engine, and a look that the oracle has no case that is not here. */
static int run_parity_cases(const char *group, const parity_case *cases, int case_count, lkt_golden *golden,
                            void (*check)(void **state))
{
    int engine_count = 0, count = 0;
    while (lk_engine_names()[engine_count]) engine_count++;
    struct CMUnitTest *tests = calloc((size_t)(case_count * engine_count), sizeof *tests);
    parity_case *runs = calloc((size_t)(case_count * engine_count), sizeof *runs);
    for (int e = 0; e < engine_count; e++)
        for (int i = 0; i < case_count; i++, count++) {
            runs[count] = cases[i];
            runs[count].engine = lk_engine_names()[e];
            runs[count].golden = golden;
            tests[count] = (struct CMUnitTest){cases[i].name, check, NULL, NULL, &runs[count]};
        }
    int failed = _cmocka_run_group_tests(group, tests, (size_t)count, NULL, NULL);
    for (int i = 0; i < lkt_golden_count(golden); i++) {
        const char *name = lkt_golden_name(golden, i);
        size_t length = strcspn(name, "/");
        bool known = false;
        for (int k = 0; k < case_count; k++)
            known = known || (strlen(cases[k].name) == length && memcmp(cases[k].name, name, length) == 0);
        if (known) continue;
        fprintf(stderr, "the golden case \"%.*s\" is not tested\n", (int)length, name);
        failed++;
    }
    free(tests);
    free(runs);
    return failed;
}

#endif
