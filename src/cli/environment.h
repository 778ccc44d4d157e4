/* The environment variables of Lockstep (base/settings.h), for people. */
#ifndef LKI_CLI_ENVIRONMENT_H
#define LKI_CLI_ENVIRONMENT_H

#include <stdio.h>

/* A line for each variable that begins with LOCKSTEP_ and is none of Lockstep's. */
void lki_environment_note(void);

/* All of them, with what they mean. */
void lki_environment_print(FILE *out);

/* Those that are set, for the doctor; secrets without their values. */
void lki_environment_print_set(FILE *out);

#endif
