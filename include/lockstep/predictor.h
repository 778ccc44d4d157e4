/* A trained model that answers: weights from a file and a model, or the config that it was
 * trained with, become a function from batches to outputs. Without runner, loaders, callbacks and
 * data.
 *
 *     lk_predictor *predictor = lk_predictor("model.best.safetensors", .config = "digits.yml");
 *     lk_tensor *pictures = lk_rand(LK_SHAPE(5, 1, 28, 28)); // as many as you like
 *     lk_tensor *logits = predictor ? lk_predictor_run(predictor, pictures) : NULL; // (5, 10)
 *     if (!logits) fprintf(stderr, "%s\n", lk_error());
 *     lk_tensor_free(logits);
 *     lk_predictor_free(predictor);
 *
 * Life: the caller frees the predictor and the tensors that it returns. Threads: any number of
 * threads may call lk_predictor_run at the same time. They share one copy of the weights and one
 * engine, and take turns: each batch uses all cores, or the GPU. Nothing else may happen to a
 * predictor while it is freed. */
#ifndef LOCKSTEP_PREDICTOR_H
#define LOCKSTEP_PREDICTOR_H

#include <lockstep/arguments.h>
#include <lockstep/nn.h>
#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_predictor lk_predictor;

typedef struct lk_predictor_options {
    size_t struct_size;
    /* The model, which is handed over also if the call fails. Either this or `config`. */
    lk_module *model;
    /* A config that names the model: of its runner, or of its first train call. Nothing else of it
     * is built, so its data need not be there. Add components of your own before. */
    const char *config;
    const char *device; /* NULL: "auto" */
    lk_dtype precision; /* LK_F32, LK_BF16 or LK_F16: of products, as in lk_step_options */
    /* Larger batches are computed in parts of so many samples. 0: 256. */
    int64_t max_batch;
    const char *input_key;  /* NULL: that of the config's runner, or "features" */
    const char *output_key; /* NULL: that of the config's runner, or "logits" */
    /* Of a CPU: 1 stays on the threads that call lk_predictor_run. 0: the cores that this process
     * may run on. */
    int thread_count;
} lk_predictor_options;

/* Opens a predictor. `weights` is any file that lk_load_checkpoint reads; every weight of the model
 * must be in it. Returns NULL on failure. */
#define lk_predictor(...) LK_CALL1_(lk_predictor_with, lk_predictor_options, __VA_ARGS__, )
lk_predictor *lk_predictor_with(const char *weights, const lk_predictor_options *options);
void lk_predictor_free(lk_predictor *predictor);

/* Returns the model's output for a batch of any size, (batch, ...), or NULL on failure. The first
 * axis of `features` counts the samples. Dropout is off, and batch norms use their running
 * statistics. Numbers of a dtype that the model does not take become f32, or i64 for indices. */
lk_tensor *lk_predictor_run(lk_predictor *predictor, const lk_tensor *features);

#ifdef __cplusplus
}
#endif
#endif
