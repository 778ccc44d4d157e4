/* What runs have left in a folder of checkpoints: whole files, and temporary ones of a run that was killed in
 * the middle of a write. */
#ifndef LKI_CHECKPOINT_CHECKPOINT_FOLDER_H
#define LKI_CHECKPOINT_CHECKPOINT_FOLDER_H

#include <stdbool.h>

/* Whether a run has left any whole checkpoint there. */
bool lki_has_checkpoints(const char *folder);
/* Removes an earlier run's checkpoints and their list, for a run that overwrites them. */
void lki_remove_checkpoints(const char *folder);
/* Removes temporary files of processes that are gone. */
void lki_sweep_temporaries(const char *folder);

#endif
