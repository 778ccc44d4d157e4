/* What a run was made with: hparams.json, checkpoints/model.storage.json and config.yml. */
#ifndef LKI_BOARD_RUN_SETTINGS_H
#define LKI_BOARD_RUN_SETTINGS_H

#include "board/run.h"
#include "board/text_out.h"

/* Reads the two JSON files anew; whether they have changed. */
bool lki_board_read_settings(lki_board_run *run);

/* config.yml as a JSON object from paths to texts: {"optimizer/lr": "0.02"}. What is no YAML gives the values
 * up to the mistake. */
void lki_board_put_config(lki_text_out *out, const char *yaml, size_t nbytes);

#endif
