/* What losses of embeddings and classes have in common. x is (samples, width), labels (samples). */
#ifndef LKI_NN_EMBEDDINGS_H
#define LKI_NN_EMBEDDINGS_H

#include <lockstep/nn.h>

/* Fails on the graph unless there is one label per row of x. */
lk_status lki_check_embeddings(lk_value *x, lk_value *labels);

/* (samples, samples): 1 if two samples are of one class, else 0. */
lk_value *lki_same_labels(lk_value *labels, lk_dtype dtype);
/* 1 on the diagonal of a square matrix, 0 elsewhere. */
lk_value *lki_identity_like(lk_value *square);
/* (rows of a, rows of b), by differences, so that equal rows have the distance 0. */
lk_value *lki_squared_distances(lk_value *a, lk_value *b);
/* x / max(norm(x), eps) along an axis. */
lk_value *lki_normalized(lk_value *x, int axis, double eps);
/* sum(w x) / sum(w), or 0 if sum(w) is 0. */
lk_value *lki_weighted_mean(lk_value *x, lk_value *weights);

/* index where the condition holds, else `other`. Numbers below 2^53 stay exact. */
lk_value *lki_where_index(lk_value *condition, lk_value *index, double other);

/* A criterion with a copy of `context`, plain bytes. */
lk_criterion *lki_contrib_criterion(const char *type, lk_criterion_function forward, const void *context,
                                    size_t context_nbytes);
/* The same of a loss of several values. */
lk_criterion *lki_several_criterion(const char *type, lk_criterion_call_function call, int inputs,
                                    const void *context, size_t context_nbytes);
lk_value *lki_reduced(lk_value *each, lk_reduction reduction);
/* Fails unless it is mean, sum or none. */
lk_status lki_check_reduction(const char *type, lk_reduction reduction);
/* The target in x's dtype; fails on the graph unless it is of x's shape. */
lk_value *lki_target_like(lk_value *x, lk_value *target);

#endif
