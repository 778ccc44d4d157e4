/* The environment variables of Lockstep. */
#ifndef LKI_CLI_ENVIRONMENT_H
#define LKI_CLI_ENVIRONMENT_H

#include <stdio.h>

typedef struct lki_variable {
    const char *name, *help;
} lki_variable;

/* All that the library and the command read; a NULL name ends it. */
extern const lki_variable lki_variables[];

/* A line for each variable that begins with LOCKSTEP_ and is none of these. */
void lki_environment_note(void);

void lki_environment_print(FILE *out);

#endif
