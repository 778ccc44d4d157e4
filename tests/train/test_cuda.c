/* Training on a GPU: the losses of the CPU engine and of PyTorch, step by step. Skips loudly where there is
 * no GPU. */
#include "lktest.h"

#include "case_losses.h"
#include "device/open_plugin.h"

static void losses_are_the_cpus_and_pytorchs(void **state)
{
    (void)state;
    char why[256];
    if (lki_cuda_device_count(why) == 0) {
        print_message("SKIPPED: %s\n", why);
        skip();
    }
    int workloads = lkt_loss_steps() < LOSS_STEPS ? LOSS_SHORT_WORKLOADS : LOSS_WORKLOADS;
    for (int k = 0; k < workloads; k++) {
        const workload *w = &lkt_loss_workloads[k];
        double on_cpu[LOSS_STEPS], on_gpu[LOSS_STEPS], again[LOSS_STEPS], expected[LOSS_STEPS];
        lkt_losses_on("cpu", w, on_cpu);
        lkt_losses_on("cuda", w, on_gpu);
        lkt_losses_on("cuda", w, again);
        lkt_losses_of_pytorch(w, expected);
        lkt_losses_compare(w, "cuda and cpu", on_gpu, on_cpu);
        lkt_losses_compare(w, "cuda and PyTorch", on_gpu, expected);
        assert_memory_equal(on_gpu, again, sizeof on_gpu); /* the same bits each time */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses_are_the_cpus_and_pytorchs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
