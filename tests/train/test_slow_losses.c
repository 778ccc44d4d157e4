/* 50 training steps of ResNet-18 have PyTorch's losses. */
#include "lktest.h"

#include "case_losses.h"

static void losses_of_resnet_18_are_pytorchs(void **state)
{
    (void)state;
    const workload *resnet_18 = &lkt_loss_workloads[LOSS_WORKLOADS - 1];
    double on_cpu[LOSS_STEPS], expected[LOSS_STEPS];
    lkt_losses_on("cpu", resnet_18, on_cpu);
    lkt_losses_of_pytorch(resnet_18, expected);
    lkt_losses_compare(resnet_18, "cpu and PyTorch", on_cpu, expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses_of_resnet_18_are_pytorchs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
