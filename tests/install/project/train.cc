// The plain functions below the macros, from C++: builds a model and looks at what it predicts.
#include <lockstep/lockstep.h>

#include <cstdio>

int main()
{
    lk_shape shape{};
    shape.rank = 2;
    shape.dim[0] = 3;
    shape.dim[1] = 4;
    lk_tensor *x = lk_tensor_full(LK_F32, shape, 1.0);
    lk_manual_seed(0);
    lk_module *model = lk_linear_with(4, 2, nullptr);
    lk_step_options options{};
    options.struct_size = sizeof options;
    options.model = model;
    options.owned = true;
    lk_step *step = model ? lk_step_with(&options) : nullptr;
    lk_input input{"features", x};
    if (!step || lk_step_evaluate(step, &input, 1) != LK_OK) {
        std::fprintf(stderr, "%s\n", lk_error());
        return 1;
    }
    const lk_tensor *logits = lk_step_output(step, "logits");
    bool fits = logits && logits->shape.dim[0] == 3 && logits->shape.dim[1] == 2;
    lk_step_free(step);
    lk_tensor_free(x);
    std::printf("lockstep %s from C++: %s\n", lk_version(), fits ? "ok" : "wrong shape");
    return fits ? 0 : 1;
}
