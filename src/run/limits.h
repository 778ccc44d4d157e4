/* How long a run trains, and into which epochs it divides its passes: max_steps, max_minutes, valid_every. */
#ifndef LKI_RUN_LIMITS_H
#define LKI_RUN_LIMITS_H

#include "run/loaders.h"

typedef struct lki_run_limits {
    bool by_steps;      /* max_steps alone says when the run ends; num_epochs is what that comes to */
    int64_t begun_ns;   /* rank 0's: when the run's loop began */
    double earlier_min; /* minutes that the run had trained before it was resumed */
    bool has_divided;   /* num_epochs counts pieces of passes */
} lki_run_limits;

/* After the callbacks have heard of the run's start: what the limits come to. */
lk_status lki_limits_settle(lk_runner *runner);
/* Whether max_steps are done. */
bool lki_limits_steps_done(const lk_runner *runner);
/* Whether max_minutes have passed, by rank 0's clock; false on other ranks. */
bool lki_limits_time_is_up(const lk_runner *runner);
/* Minutes of training, those before the run was resumed included. */
double lki_limits_minutes(const lk_runner *runner);
/* The first batch of a train loader's piece, in its pass. */
int64_t lki_limits_first_batch(const lk_runner *runner);
/* How many batches of a pass of `count` this epoch takes. */
int64_t lki_limits_piece(const lk_runner *runner, int64_t first, int64_t count);
/* Where an epoch has left the pass of its train loader, if batches of the pass's `count` are left. */
lk_status lki_limits_keep_place(lk_runner *runner, lki_run_loader *entry, int64_t count);
/* Freezes the parameters that the run's patterns name. */
lk_status lki_limits_freeze(const lk_runner *runner);

#endif
