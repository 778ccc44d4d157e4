/* The comm of one rank passes the same suite as the others. */
#include "conformance.h"

#include "comm/comm.h"

static lk_status connect_self(lk_comm **out, int rank, int size, void *context)
{
    (void)rank, (void)size, (void)context;
    return lki_comm_self_create(out);
}

static void conforms(void **state)
{
    (void)state;
    _Atomic int arrived = 0;
    conformance suite = {.connect = connect_self, .arrived = &arrived, .rank_order = true};
    run_threads(1, conformance_body, &suite);
    run_threads(1, steady_body, &suite);
    run_threads(1, aborted_body, &suite);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conforms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
