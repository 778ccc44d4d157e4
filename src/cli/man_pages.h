/* The man pages of the commands, lockstep-run.1 and so on, in mdoc, from the option tables: the build writes
 * them, so they say what the command takes. */
#ifndef LKI_CLI_MAN_PAGES_H
#define LKI_CLI_MAN_PAGES_H

#include <lockstep/status.h>

/* Writes lockstep-COMMAND.1 for each command into a directory that exists. */
lk_status lki_write_man_pages(const char *folder);

#endif
