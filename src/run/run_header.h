/* What a run says before it trains: its header, and which options have no effect. */
#ifndef LKI_RUN_RUN_HEADER_H
#define LKI_RUN_RUN_HEADER_H

#include <lockstep/runner.h>

#include <stdio.h>

/* Adds a line about something that was decided for the user, once however often it is said. *notes is NULL
 * or lines to be freed. */
lk_status lki_header_note(char **notes, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Exactly what runs. `gpus` is what lki_run_describe_gpus says; `with_layers` puts the table of layers in
 * front. */
void lki_header_print(FILE *stream, const lk_runner *runner, const char *gpus, bool with_layers);
/* A resumed run that ends at once says why, verbose or not. */
void lki_header_nothing_left(const lk_runner *runner);
/* Warns of options that have no effect on this device, or on one rank. */
void lki_header_warn_of_idle_options(const lk_runner *runner, bool has_gpus);

#endif
