/* An update that the ranks of a host divide: each applies the rule to its part of the parameters and writes
 * what comes out to every rank's. Half as much is read and written where two ranks do it, and the optimizer's
 * state is held once.
 *
 * What comes out has the bits that it has where each rank does it all: the rules go element by element. */
#ifndef LKI_STEP_DIVIDED_UPDATE_H
#define LKI_STEP_DIVIDED_UPDATE_H

#include "step/step.h"

/* Whether the step's ranks would divide its update, if they share memory. */
bool lki_step_may_divide(const lk_step *step);

/* Collective: the update, by all ranks together. */
lk_status lki_step_divided_update(lk_step *step);

#endif
