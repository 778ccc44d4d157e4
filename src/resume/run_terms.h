/* The terms of a run: the numbers it was given, kept in its checkpoints, so that a run that goes on with
 * others says which ones count.
 *
 * The checkpoint's learning rate, momentum and seed go on, as after PyTorch's load_state_dict and with the
 * generator's state. Everything else is the new run's: batch sizes, ranks, epochs, precision and the
 * optimizer's other numbers. Another scheduler is refused. */
#ifndef LKI_RESUME_RUN_TERMS_H
#define LKI_RESUME_RUN_TERMS_H

#include <lockstep/checkpoint.h>
#include <lockstep/runner.h>

enum { LKI_MAX_TERMS = 96 };

typedef struct lki_term {
    char name[64], value[64];
    bool is_saved_one; /* the checkpoint's value counts */
} lki_term;

typedef struct lki_terms {
    lki_term items[LKI_MAX_TERMS];
    int count;
} lki_terms;

/* What the run was given: before anything is resumed. NULL when memory is short. */
lki_terms *lki_terms_of(const lk_runner *runner);

/* Strings "run.<name>". */
lk_status lki_terms_save(const lk_runner *runner, lk_state_dict *state);

/* LK_ERR_INVALID for another scheduler: it cannot go on from the numbers of this one. */
lk_status lki_terms_check(const lk_runner *runner, const lk_state_dict *state);
/* Notes each difference in the run's header, once the state was taken over. Terms of which the checkpoint's
 * value counts become the run's. */
lk_status lki_terms_restore(lk_runner *runner, const lk_state_dict *state);

#endif
