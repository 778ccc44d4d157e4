/* --expdir: a folder of C sources whose LK_COMPONENTS a config may name.
 *
 * All *.c of the folder become one shared object, which is compiled when sources, headers, compiler or flags
 * have changed and kept in DIR/.lockstep, or in the user's cache where that cannot be written. Processes that
 * start at once compile it once: the first one holds a lock. */
#ifndef LKI_CLI_EXPDIR_H
#define LKI_CLI_EXPDIR_H

#include <lockstep/status.h>

#include <stdbool.h>

/* Compiles what has changed and loads it. The compiler's own words go to stderr as they are. */
lk_status lki_expdir_load(const char *folder);

/* compile.c: a growing list of words for a command line; the words are copies. */
typedef struct lki_words {
    char **items; /* NULL after the last */
    int count;
} lki_words;

lk_status lki_words_add(lki_words *words, const char *text);
/* The words of a text, which blanks separate; NULL has none. */
lk_status lki_words_split(lki_words *words, const char *text);
bool lki_words_have(const lki_words *words, const char *text);
void lki_words_free(lki_words *words);

/* The *.c and *.h of a folder itself. */
lk_status lki_expdir_files(lki_words *files, const char *folder);

/* keep_code.c: copies the sources, and what they include from below the folder, into LOGDIR/code, so that a
 * run can be told from its folder alone. What an earlier run copied and this one does not goes. */
lk_status lki_expdir_copy(const char *folder, const char *logdir);

/* The compiler ($CC, or cc) and all of its flags but sources and output: those of this installation's
 * headers, and $CFLAGS. */
lk_status lki_compiler_words(lki_words *out, char **include);

/* includes.c: adds the files that `files` include, and those that they include in turn, each once and by its
 * folder's real path: beside the file that names them, or in one of the compiler's -I folders. Lines that the
 * preprocessor would leave out count, too; the system's headers and names made by macros do not. */
lk_status lki_find_includes(lki_words *included, const lki_words *files, const lki_words *compiler);

/* Runs a command; `what` is what it was to do. */
lk_status lki_run_command(const lki_words *words, const char *what);

#endif
