/* Fits y = 2 x + 1 with the installed library and checks what it learned. */
#include <lockstep/lockstep.h>

#include <math.h>
#include <stdio.h>

enum { SAMPLES = 64, STEPS = 500 };

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, lk_error());
    return 1;
}

int main(void)
{
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(SAMPLES, 1)),
              *y = lk_tensor_create(LK_F32, LK_SHAPE(SAMPLES, 1));
    if (!x || !y) return fail("tensors");
    for (int i = 0; i < SAMPLES; i++) {
        double value = (double)i / SAMPLES - 0.5;
        lk_tensor_set(x, i, value);
        lk_tensor_set(y, i, 2 * value + 1);
    }
    lk_manual_seed(0);
    lk_step *step = lk_step(.model = lk_linear(1, 1), .criterion = lk_mse_loss(),
                            .optimizer = lk_sgd(.lr = 0.5), .owned = true);
    if (!step) return fail("step");
    lk_input batch[] = {{"features", x}, {"targets", y}};
    for (int i = 0; i < STEPS; i++)
        if (lk_step_train(step, batch, 2)) return fail("training");
    double loss = lk_step_loss(step);
    lk_step_free(step);
    lk_tensor_free(x);
    lk_tensor_free(y);
    if (!(loss < 1e-6)) {
        fprintf(stderr, "the loss after %d steps is %g\n", STEPS, loss);
        return 1;
    }
    printf("lockstep %s: loss %.1e\n", lk_version(), loss);
    return 0;
}
