/* --expdir: a folder of C sources whose LK_COMPONENTS a config may name.
 *
 * All *.c of the folder become one shared object, which is compiled when sources, headers, compiler or flags
 * have changed and kept in DIR/.lockstep, or in the user's cache where that cannot be written. Processes that
 * start at once compile it once: the first one holds a lock. */
#ifndef LKI_CLI_EXPDIR_H
#define LKI_CLI_EXPDIR_H

#include <lockstep/status.h>

/* Compiles what has changed and loads it. The compiler's own words go to stderr as they are. */
lk_status lki_expdir_load(const char *folder);

/* Copies the sources into LOGDIR/code, so that a run can be told from its folder alone. */
lk_status lki_expdir_copy(const char *folder, const char *logdir);

/* compile.c: a growing list of words for a command line; the words are copies. */
typedef struct lki_words {
    char **items; /* NULL after the last */
    int count;
} lki_words;

lk_status lki_words_add(lki_words *words, const char *text);
/* The words of a text, which blanks separate; NULL has none. */
lk_status lki_words_split(lki_words *words, const char *text);
void lki_words_free(lki_words *words);

/* The compiler ($CC, or cc) and all of its flags but sources and output: those of this installation's
 * headers, and $CFLAGS. */
lk_status lki_compiler_words(lki_words *out, char **include);

/* Runs a command; `what` is what it was to do. */
lk_status lki_run_command(const lki_words *words, const char *what);

#endif
