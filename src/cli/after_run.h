/* What `lockstep run` says when the run has ended: how to measure what it has trained, or how to go on. */
#ifndef LKI_CLI_AFTER_RUN_H
#define LKI_CLI_AFTER_RUN_H

#include <lockstep/config.h>

#include <stdio.h>

/* The words of the command line, which outlive the run. Call it first. */
void lki_remember_words(int count, char **words);

/* A command line for a shell: the name by which the command was called, then these words; and the one that
 * was given, without a flag. */
void lki_print_command(FILE *out, const char *const *after, int count);
void lki_print_own_command(FILE *out, const char *without);

/* LOGDIR/checkpoints/NAME of a call of train; NULL if it has no logdir. The caller frees it. */
char *lki_checkpoint_of_call(const lk_config *config, int call, const char *name);

/* The best checkpoint, and the command that evaluates it, for each call of train that has one and is not
 * silent. */
void lki_print_best(const lk_config *config, const char *expdir);

/* After a signal: what `saved`, a runner checkpoint of this run, holds, and the command that goes on from
 * there. NULL: nothing was saved. To stderr. */
void lki_print_how_to_go_on(const lk_config *config, const char *saved);

/* Ends the process by the signal that stopped the run, if it is SIGINT or SIGTERM: a loop of the shell then
 * stops, too. The exit code for it, and what to do with that code at the very end. */
int lki_exit_code_of_stop(void);
void lki_end_by_signal(int exit_code);
/* For atexit, before all others, so that it runs last: raises the signal that lki_end_by_signal has noted. */
void lki_raise_ending_signal(void);

#endif
