#include "step/same_training.h"

#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "engine/engines.h"
#include "optim/optimizer.h"
#include "step/replicas.h"

#include <lockstep/sys/comm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SENTENCE_NBYTES = 512 };

/* ---- A line for each thing that has to be the same ---- */

/* "0.weight f32 (10, 784)" */
static void describe_model(FILE *out, const lk_step_options *options, const lk_param_list *params)
{
    char shape[160];
    (void)options;
    for (int i = 0; i < params->count; i++) {
        const lk_param *param = params->items[i].param;
        fprintf(out, "%s %s %s%s\n", params->items[i].path, lk_dtype_name(param->value->dtype),
                lk_shape_format(shape, sizeof shape, param->value->shape),
                param->trainable || param->is_buffer ? "" : " frozen");
    }
}

/* "lr 0.1", in as few digits as tell the number from every other. */
static void describe_number(FILE *out, const char *name, double value)
{
    char text[32];
    for (int digits = 6; digits <= 17; digits++) {
        lki_snprintf(text, sizeof text, "%.*g", digits, value);
        if (lki_strtod(text, NULL) == value) break;
    }
    fprintf(out, "%s %s", name, text);
}

static void describe_group(FILE *out, const lk_hyper *hyper, int group)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"lr", hyper->lr},
                   {"momentum", hyper->momentum},
                   {"dampening", hyper->dampening},
                   {"weight_decay", hyper->weight_decay},
                   {"beta1", hyper->beta1},
                   {"beta2", hyper->beta2},
                   {"eps", hyper->eps},
                   {"alpha", hyper->alpha},
                   {"lr_decay", hyper->lr_decay},
                   {"clip", hyper->clip},
                   {"nesterov", hyper->nesterov},
                   {"amsgrad", hyper->amsgrad},
                   {"centered", hyper->centered},
                   {"maximize", hyper->maximize},
                   {"adam", hyper->no_trust}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        describe_number(out, numbers[i].name, numbers[i].value);
        fprintf(out, " in parameter group %d\n", group);
    }
}

/* Ranks that compute in bf16 must have the same instructions for it, too. */
static const char *kernels_of(const lk_engine *engine, lk_dtype precision)
{
    if (engine->ops == &lki_cpu_engine_ops && precision == LK_F32) return lki_cpu_f32_kernels(engine);
    return engine->ops->kernels ? engine->ops->kernels(engine) : NULL;
}

static void describe_training(FILE *out, const lk_step_options *options, const lk_param_list *params)
{
    const lk_optimizer *optimizer = options->optimizer;
    int every = options->accumulation_steps;
    const lk_engine *engine = options->engine;
    const char *kernels = kernels_of(engine, options->precision);
    fprintf(out, "engine %s%s%s\n", lk_engine_name(engine), kernels ? " with kernels of " : "",
            kernels ? kernels : "");
    fprintf(out, "optimizer %s\nparameter groups: %d\n", lk_optimizer_name(optimizer),
            optimizer->group_count);
    for (int i = 0; i < optimizer->group_count; i++) describe_group(out, &optimizer->groups[i].hyper, i);
    for (int i = 0; i < params->count; i++)
        fprintf(out, "%s in parameter group %d\n", params->items[i].path,
                lki_optimizer_group_of(optimizer, params->items[i].path, params->items[i].param));
    describe_number(out, "initial_accumulator_value", optimizer->initial_state);
    fprintf(out, "\naccumulation_steps %d\n", every > 1 ? every : 1);
    describe_number(out, "clip_norm", options->clip_norm);
    describe_number(out, "\nclip_value", options->clip_value);
    fprintf(out, "\nprecision %s\ncompress_gradients %d\nsync_batch_norm %d\ncheck_replicas %d\n",
            lk_dtype_name(options->precision), options->compress_gradients, options->sync_batch_norm,
            options->check_replicas ? options->check_replicas : LKI_CHECK_EVERY);
}

/* ---- Comparing ---- */

static size_t line_length(const char *text)
{
    return strcspn(text, "\n");
}

/* The first line in which two descriptions differ. */
static void describe_difference(char *sentence, const char *ours, const char *theirs, int rank)
{
    while (*ours && *theirs) {
        size_t our_length = line_length(ours), their_length = line_length(theirs);
        if (our_length != their_length || memcmp(ours, theirs, our_length) != 0) break;
        ours += our_length + (ours[our_length] == '\n');
        theirs += their_length + (theirs[their_length] == '\n');
    }
    snprintf(sentence, SENTENCE_NBYTES, "rank %d has %.*s where rank 0 has %.*s", rank,
             *ours ? (int)line_length(ours) : 7, *ours ? ours : "nothing",
             *theirs ? (int)line_length(theirs) : 7, *theirs ? theirs : "nothing");
}

/* Rank 0's description, on every rank; the caller's to free. NULL where it did not come. */
static char *share_description(lk_comm *comm, const char *ours)
{
    int64_t length = (int64_t)strlen(ours);
    if (lk_comm_broadcast(comm, &length, 1, LK_I64, 0)) return NULL;
    char *theirs = lki_calloc((size_t)length + 1, "the description of the model");
    if (!theirs) return NULL;
    if (comm->rank == 0) memcpy(theirs, ours, (size_t)length);
    if (lk_comm_broadcast(comm, theirs, length, LK_U8, 0) == LK_OK) return theirs;
    lki_free(theirs);
    return NULL;
}

/* What the first rank that differs has to say. All ranks speak, so that none has left before all have heard
 * it. */
static lk_status gather_sentences(lk_comm *comm, const char *what, const char *ours)
{
    LKI_SCOPED char *all = lki_calloc((size_t)comm->size * SENTENCE_NBYTES, "what the ranks say");
    if (!all) return LK_ERR_NOMEM;
    LKI_TRY(lk_comm_all_gather(comm, ours, all, SENTENCE_NBYTES, LK_U8));
    const char *first = all;
    while (!*first) first += SENTENCE_NBYTES;
    return lki_fail(LK_ERR_PEER, "%s: %s", what, first);
}

/* Every rank compares itself with rank 0; then all hear of the verdicts, and stop together. */
lk_status lki_check_same_text(lk_comm *comm, const char *what, const char *ours)
{
    char sentence[SENTENCE_NBYTES] = "";
    LKI_SCOPED char *theirs = share_description(comm, ours);
    if (!theirs) return lki_last_status();
    int64_t different = strcmp(ours, theirs) != 0;
    if (different) describe_difference(sentence, ours, theirs, comm->rank);
    LKI_TRY(lk_comm_all_reduce(comm, &different, 1, LK_I64, LK_REDUCE_MAX));
    return different ? gather_sentences(comm, what, sentence) : LK_OK;
}

static lk_status check(const lk_step_options *options, const lk_param_list *params, const char *what,
                       void (*describe)(FILE *, const lk_step_options *, const lk_param_list *))
{
    char *text = NULL;
    size_t nbytes = 0;
    FILE *out = open_memstream(&text, &nbytes);
    if (!out) return lki_fail(LK_ERR_NOMEM, "out of memory for the description of the model");
    describe(out, options, params);
    bool failed = fclose(out) != 0;
    lk_status status = failed ? lki_fail(LK_ERR_NOMEM, "out of memory for the description of the model")
                              : lki_check_same_text(options->comm, what, text);
    free(text);
    return status;
}

lk_status lki_check_same_training(const lk_step_options *options, const lk_param_list *params)
{
    LKI_TRY(check(options, params, "the ranks hold different models", describe_model));
    return check(options, params, "the ranks train differently", describe_training);
}
