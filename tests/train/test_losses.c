/* 50 training steps of small networks have PyTorch's losses. */
#include "lktest.h"

#include "case_losses.h"

static void losses_are_pytorchs(void **state)
{
    (void)state;
    for (int k = 0; k < LOSS_SHORT_WORKLOADS; k++) {
        double on_cpu[LOSS_STEPS], expected[LOSS_STEPS];
        lkt_losses_on("cpu", &lkt_loss_workloads[k], on_cpu);
        lkt_losses_of_pytorch(&lkt_loss_workloads[k], expected);
        lkt_losses_compare(&lkt_loss_workloads[k], "cpu and PyTorch", on_cpu, expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses_are_pytorchs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
