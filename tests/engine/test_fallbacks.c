/* Which calls the cpu engine leaves to `ref`: some of the ops in the list below, and no other case of the
 * conformance suite. A new kernel shortens the list. LOCKSTEP_TEST_FALLBACKS=1 prints every case that falls
 * back. */
#include "case.h"

#include "lktest.h"

#include <stdlib.h>

/* Ops that fall back in some of their cases, in f32 or in bf16. The comments say in which. */
static const lk_op known[] = {
    /* Passes make them for other engines alone. */
    LK_OP_BATCH_NORM_RELU,
    LK_OP_BATCH_NORM_RELU_GRAD,
    LK_OP_POINTWISE_LOSS_WITH_GRAD,
    LK_OP_REORDER,
    /* Axes that are neither the first nor the last ones. */
    LK_OP_SUM,
    LK_OP_MEAN,
    LK_OP_MAX,
    LK_OP_VAR,
    /* From or to integers. */
    LK_OP_CAST,
    LK_OP_FULL,
    LK_OP_GREATER,
    LK_OP_GREATER_EQUAL,
    LK_OP_EQUAL,
    /* LAMB. */
    LK_OP_UPDATE,
    /* Slices with a step. */
    LK_OP_SLICES_GRAD,
    LK_OP_CUMSUM, /* of a scalar */
    LK_OP_CUMPROD_GRAD,
    LK_OP_RANDOM,
};

enum { KNOWN_COUNT = sizeof known / sizeof *known };
static bool met[KNOWN_COUNT];

static bool is_known(lk_op op)
{
    for (int i = 0; i < KNOWN_COUNT; i++)
        if (known[i] == op) return met[i] = true;
    return false;
}

static void only_what_is_listed_falls_back(void **state)
{
    (void)state;
    lkt_case_list cases = {0};
    lk_engine *engine = lk_engine_open("cpu", NULL);
    lkt_not_null(engine);
    lkt_cases_elementwise(&cases);
    lkt_cases_reduce(&cases);
    lkt_cases_movement(&cases);
    lkt_cases_scan(&cases);
    lkt_cases_product(&cases);
    lkt_cases_conv(&cases);
    lkt_cases_pool(&cases);
    lkt_cases_norm(&cases);
    lkt_cases_recurrent(&cases);
    lkt_cases_attention(&cases);
    lkt_cases_loss(&cases);
    lkt_cases_update(&cases);
    int strangers = 0;
    for (int i = 0; i < cases.count; i++) {
        const lkt_case *c = cases.items[i];
        bool is_f64 = c->input_count && c->in[0] && c->in[0]->dtype == LK_F64;
        for (int low = 0; low < 2 && !is_f64; low++) {
            lkt_variant variant = {.cast = low, .dtype = LK_BF16, .out_dtype = LK_BF16};
            if (low && !(lkt_op_flags(c->op) & LK_OP_KEEPS_16_BITS)) continue;
            const char *reason = lkt_fallback(engine, c, variant);
            if (!reason) continue;
            if (is_known(c->op) && !getenv("LOCKSTEP_TEST_FALLBACKS")) continue;
            print_error("%s%s: %s\n", c->name, low ? " in bf16" : "", reason);
            strangers += !is_known(c->op);
        }
    }
    for (int i = 0; i < KNOWN_COUNT; i++) {
        if (met[i]) continue;
        print_error("%s falls back no more: take it off the list\n", lk_op_name(known[i]));
        strangers++;
    }
    lkt_case_list_free(&cases);
    lk_engine_close(engine);
    assert_int_equal(strangers, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_what_is_listed_falls_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
