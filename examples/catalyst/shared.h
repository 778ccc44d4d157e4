/* What the runners of this folder have in common. */
#ifndef SHARED_H
#define SHARED_H

#include <lockstep/lockstep.h>

#include <string.h>

/* What `build` was asked for, as a component that a config can name. */
#define COMPONENT(symbol_, name_, kind_, help_, build_, ...)                                                 \
    static const lk_component symbol_ = {.name = name_, .kind = LK_KIND_##kind_, .help = help_,              \
                                         .build = build_, .parameters = (const lk_parameter[]){__VA_ARGS__, {0}}}
#define MODEL_PARAMETER                                                                                      \
    {.name = "model", .type = LK_PARAMETER_OBJECTS, .kind = LK_KIND_MODULE, .default_value = "",             \
     .help = "The model, or several by key."}
#define ENGINE_PARAMETER                                                                                     \
    {.name = "engine", .type = LK_PARAMETER_OBJECT, .kind = LK_KIND_ENGINE, .default_value = "",             \
     .help = "Where it runs."}

/* The value of a field of the batch, while a step is recorded. */
static inline lk_value *find_input(const char *const *names, lk_value *const *inputs, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return inputs[i];
    return NULL;
}

/* Trains on a batch of a train loader, and evaluates any other. */
static inline lk_status take_step(lk_runner *runner, lk_step *step, const lk_input *fields, int count)
{
    if (!step) return lk_error_status();
    return runner->is_train_loader ? lk_step_train(step, fields, count) : lk_step_evaluate(step, fields, count);
}

/* How many samples have their class among the best k. */
static inline double accuracy(const lk_tensor *logits, const lk_tensor *targets, int k)
{
    int64_t samples = logits->shape.dim[0], classes = logits->shape.dim[1], hits = 0;
    for (int64_t i = 0; i < samples; i++) {
        double score = lk_tensor_get(logits, i * classes + (int64_t)lk_tensor_get(targets, i));
        int better = 0;
        for (int64_t c = 0; c < classes; c++) better += lk_tensor_get(logits, i * classes + c) > score;
        hits += better < k;
    }
    return (double)hits / (double)samples;
}

/* loss, accuracy01 and accuracy03 of a step with the output "logits". */
static inline lk_status report_classes(lk_runner *runner, lk_step *step, const lk_tensor *targets)
{
    const lk_tensor *logits = lk_step_output(step, "logits");
    lk_status status = lk_metrics_set(runner->batch_metrics, "loss", lk_step_loss(step));
    if (status == LK_OK) status = lk_metrics_set(runner->batch_metrics, "accuracy01", accuracy(logits, targets, 1));
    if (status == LK_OK) status = lk_metrics_set(runner->batch_metrics, "accuracy03", accuracy(logits, targets, 3));
    return status;
}

#endif
