/* Configs from the command line. */
#ifndef LKI_CLI_LOAD_H
#define LKI_CLI_LOAD_H

#include "cli/options.h"

#include <lockstep/config.h>

/* What every command that reads configs has. */
typedef struct lki_config_options {
    lki_texts files, overrides;
} lki_config_options;

/* The files merged in order, then the overrides. NULL after an error. */
lk_config *lki_load_config(const char *command, const lki_config_options *options);

/* The exit code of a config that could not be built: its data may be at fault (1), otherwise it is (2). */
int lki_build_exit_code(lk_status status);

#endif
