/* A gradient that is not finite leaves nothing behind in what compressed gradients carry over to the next
 * step. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "comm/comm.h"
#include "step/replicas.h"
#include "step/step.h"

#include <math.h>

static void one_infinity_is_forgotten(void **state)
{
    (void)state;
    lk_engine *engine = lk_engine_open("cpu", LK_OPTIONS(lk_engine_options, .thread_count = 1));
    lk_module *model = lk_linear(2, 2);
    lk_optimizer *optimizer = lk_sgd(.lr = 0.1);
    lk_step *step = lk_step(.model = model, .optimizer = optimizer, .engine = engine);
    lkt_not_null(step);
    lk_comm *comm;
    lkt_ok(lki_comm_self_create(&comm));
    lki_replicas replicas;
    lkt_ok(lki_replicas_init(&replicas, comm, step->backend, &step->flat, &step->params,
                             (lki_replicas_options){.compress = true}));
    float *gradients = lki_buffer_data(step->flat.grads);
    static const float odd[] = {INFINITY, -INFINITY, NAN, 3.4e38f};
    for (int i = 0; i < 4; i++) {
        gradients[0] = odd[i];
        gradients[1] = 1.001f;
        lkt_ok(lki_replicas_average(&replicas, step->flat.grads));
        assert_false(isfinite(gradients[0]));
        assert_true(isfinite(replicas.residual[0]));
        gradients[0] = 1;
        gradients[1] = 0;
        lkt_ok(lki_replicas_average(&replicas, step->flat.grads));
        lkt_close(gradients[0], 1, 0);
        assert_true(gradients[1] != 0); /* what was left out of 1.001 comes now */
        gradients[1] = -gradients[1];
        lkt_ok(lki_replicas_average(&replicas, step->flat.grads));
    }
    lki_replicas_fini(&replicas);
    lk_comm_free(comm);
    lk_step_free(step);
    lk_optimizer_free(optimizer);
    lk_module_free(model);
    lk_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_infinity_is_forgotten)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
