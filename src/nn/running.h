/* Running values of norms that the graph moves by ops of its own. */
#ifndef LKI_NN_RUNNING_H
#define LKI_NN_RUNNING_H

#include "nn/module.h"

/* param = value, at each replay. */
void lki_assign(lk_value *param, lk_value *value);
/* running = (1 - share) running + share value; the share is one number. */
void lki_move_running(lk_value *running, lk_value *value, lk_value *share);

#endif
