/* The names that a code sample may use without declaring them. scripts/check-docs compiles every fragment of
 * C in the documentation and in public headers after this file. */
#include <lockstep/lockstep.h>
#include <lockstep/sys/callback.h>
#include <lockstep/sys/comm.h>
#include <lockstep/sys/dataset.h>
#include <lockstep/sys/engine.h>
#include <lockstep/sys/logger.h>
#include <lockstep/sys/metric.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern lk_runner *runner;
extern lk_module *model, *head, *trunk;
extern const lk_component wide_net, own_loss;
extern lk_criterion *criterion;
extern lk_optimizer *optimizer;
extern lk_dataset *dataset;
extern lk_step *step;
extern lk_comm *comm;
extern lk_fields *fields;
extern lk_loader *train_loader, *valid_loader;
extern const lk_tensor *x, *y, *logits, *targets;
lk_module *stress_net(int width);
lk_status epoch_end(lk_callback *callback, lk_runner *runner);
extern int width;
extern float *gradient;
