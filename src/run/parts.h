/* The models, criteria, optimizers and steps that a runner keeps by key besides its own. */
#ifndef LKI_RUN_PARTS_H
#define LKI_RUN_PARTS_H

#include <lockstep/runner.h>

enum { LKI_MAX_PARTS = 16 };

typedef struct lki_part {
    char *key;
    lk_module *model;
    lk_criterion *criterion;
    lk_optimizer *optimizer;
    lk_step *step;
    lk_state_dict *kept; /* what the optimizer knows while it has no step: kept_optimizer.h */
} lki_part;

typedef struct lki_parts {
    lki_part items[LKI_MAX_PARTS];
    int count;
    lk_module *models; /* lk_runner_models; NULL before it is asked for */
} lki_parts;

void lki_run_free_parts(lki_parts *parts);

/* All ranks make a step together. Fails for a batch that some of them do not have. */
lk_status lki_run_check_all_have_batches(const lk_runner *runner);

/* Brings the parameters that the program holds up to date, before it can look at them. */
lk_status lki_run_show_params(lk_runner *runner);

#endif
