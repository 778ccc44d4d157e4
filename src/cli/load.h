/* Configs from the command line. */
#ifndef LKI_CLI_LOAD_H
#define LKI_CLI_LOAD_H

#include "cli/options.h"

#include <lockstep/config.h>

/* What every command that reads configs has. */
typedef struct lki_config_options {
    lki_texts files, overrides;
    const char *expdir;
} lki_config_options;

#define LKI_EXPDIR_OPTION(offset_)                                                                           \
    {                                                                                                        \
        "expdir", 0, LKI_OPTION_TEXT, offset_, "DIR", NULL,                                                  \
            "directory with C sources of your own components", 0                                             \
    }

/* Compiles and loads the components of --expdir, where it is given. Returns the exit code, and reports. */
int lki_load_components(const char *expdir);

/* The files merged in order, then the overrides. NULL after an error. */
lk_config *lki_load_config(const char *command, const lki_config_options *options);

/* run.c: copies the sources of the run's own components into each logdir, once a job. */
lk_status lki_keep_code(const lk_config *config, const char *expdir);

/* The exit code of a config that could not be built: its data may be at fault (1), otherwise it is (2). */
int lki_build_exit_code(lk_status status);

#endif
