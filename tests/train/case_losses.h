/* The losses of a few networks over 50 training steps, for the tests that compare them: with PyTorch's
 * (tests/golden/train/losses.lkg, which tests/oracle/train_losses.py wrote) and between engines. */
#ifndef LKT_CASE_LOSSES_H
#define LKT_CASE_LOSSES_H

#include "models.h"

enum { LOSS_STEPS = 50 };

/* How many of them are trained: LOCKSTEP_TEST_STEPS says so where an engine is slow. What comes after is 0.
 */
int lkt_loss_steps(void);

/* MNIST-linear, toy MLP, CNN3d, ResNet-8 and, last and longest, ResNet-18. */
enum { LOSS_SHORT_WORKLOADS = 4, LOSS_WORKLOADS = 5 };
extern const workload lkt_loss_workloads[LOSS_WORKLOADS];

void lkt_losses_on(const char *engine, const workload *w, double losses[LOSS_STEPS]);

/* PyTorch's losses of the workload. */
void lkt_losses_of_pytorch(const workload *w, double losses[LOSS_STEPS]);

/* Fails where a loss differs by 1e-4 of the expected one or more; says how far they are apart. */
void lkt_losses_compare(const workload *w, const char *what, const double actual[LOSS_STEPS],
                        const double expected[LOSS_STEPS]);

#endif
