/* The subcommands, each in the file of its name. */
#ifndef LKI_CLI_COMMANDS_H
#define LKI_CLI_COMMANDS_H

#include "cli/options.h"

extern const lki_command lki_command_run;
extern const lki_command lki_command_tune;
extern const lki_command lki_command_watch;
extern const lki_command lki_command_evaluate;
extern const lki_command lki_command_predict;
extern const lki_command lki_command_plot;
extern const lki_command lki_command_create;
extern const lki_command lki_command_gtb;
extern const lki_command lki_command_get_examples;
extern const lki_command lki_command_test;
extern const lki_command lki_command_bench;
extern const lki_command lki_command_board;
extern const lki_command lki_command_hash;
extern const lki_command lki_command_import;
extern const lki_command lki_command_tokenize;
extern const lki_command lki_command_export;
extern const lki_command lki_command_components;
extern const lki_command lki_command_help;
extern const lki_command lki_command_doctor;
extern const lki_command lki_command_completion;
extern const lki_command lki_command_version;
extern const lki_command lki_command_manual;

/* What `lockstep` alone says: the commands, a line each. */
void lki_print_overview(FILE *out);

/* doctor_gpu.c: the GPUs and what drives them, or why there is none, a line each. */
void lki_doctor_gpus(void);

#endif
