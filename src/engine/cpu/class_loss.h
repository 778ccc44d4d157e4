/* How losses over classes read their operands. */
#ifndef LKI_CPU_CLASS_LOSS_H
#define LKI_CPU_CLASS_LOSS_H

#include "engine/cpu/cpu.h"

/* Scores (n, c, s...) seen as outer by classes by inner. */
typedef struct lki_classes {
    int64_t outer, count, inner;
    const int64_t *target; /* (outer, inner); of probabilities NULL */
    const float *weight;   /* (count), or NULL */
    int64_t ignored;
} lki_classes;

/* `target`: which input that is; the weights come behind it. */
lki_classes lki_classes_of(const lk_call *call, lk_shape scores, int target);
lk_status lki_classes_check(const lki_classes *c);
/* The weight of sample i's class, 0 if it is ignored; and the sum over all samples. */
double lki_classes_weight(const lki_classes *c, int64_t i);
double lki_classes_total(const lki_classes *c);
/* How many of `outer` a thread should take at least. */
int64_t lki_classes_grain(const lki_classes *c);
/* logp = log softmax of the logits. */
void lki_classes_log_softmax(lki_cpu *cpu, const lki_classes *c, const float *logits, float *logp);

/* soft_loss.c: cross-entropy with label smoothing or targets that are probabilities. */
lk_status lki_cpu_prepare_soft_cross_entropy(lk_call *call);
lk_status lki_cpu_prepare_soft_cross_entropy_grad(lk_call *call);

#endif
