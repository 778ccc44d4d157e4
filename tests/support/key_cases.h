/* Files of cases (those of tests/config/keys): for each component a config in which it takes part, and for
 * each of its keys another value, with what that value must bring about. tests/config/keys/README.md has the
 * format. Everything read lives until lkt_key_cases_free. */
#ifndef LKT_KEY_CASES_H
#define LKT_KEY_CASES_H

#include <stdbool.h>

enum { LKT_MAX_FURTHER = 8, LKT_MAX_KEY_FILES = 16, LKT_MAX_KEY_CONFIGS = 128 };

/* Text of a whole config, and where in it the component under test stands ("runner/model/args/0"). */
typedef struct lkt_key_config {
    const char *name, *path, *text;
} lkt_key_config;

typedef enum lkt_key_outcome {
    LKT_KEY_DIFFERS, /* another result, and no failure */
    LKT_KEY_FAILS,   /* refused with `text` */
    LKT_KEY_SAYS,    /* the same result and `text` on the terminal */
} lkt_key_outcome;

typedef struct lkt_key_case {
    const char *key, *value;
    const char *further[LKT_MAX_FURTHER + 1]; /* "momentum=0.9", "/run/0/num_epochs=3": for both runs */
    lkt_key_outcome outcome;
    const char *text;
    const char *watches; /* "settings": hparams.json is a result too; "memory": larger blocks than 128 KiB
                            cannot be had; "failing": the config fails without the key too; "study": the
                            run is a trial of a study; NULL */
    const char *file;
    int line;
} lkt_key_case;

/* The cases of one component, or of several that have the same keys. */
typedef struct lkt_key_block {
    const char *components; /* names, separated by spaces */
    const lkt_key_config *config;
    const char *base; /* its arguments as a flow map; NULL: as the config has them */
    lkt_key_case *cases;
    int case_count;
    const char *file;
    int line;
} lkt_key_block;

typedef struct lkt_key_cases {
    char *texts[LKT_MAX_KEY_FILES], *names[LKT_MAX_KEY_FILES];
    lkt_key_config configs[LKT_MAX_KEY_CONFIGS];
    lkt_key_block *blocks;
    const char *alike[LKT_MAX_KEY_FILES]; /* names of components of which the first stands for all */
    int text_count, config_count, block_count, alike_count;
} lkt_key_cases;

/* Adds a file, which may use the configs of those before it. Fails the test where the file cannot be read or
 * has a line that is none of these. */
void lkt_key_cases_read(lkt_key_cases *cases, const char *path);
void lkt_key_cases_free(lkt_key_cases *cases);

/* Writes the files that the configs name into FOLDER/data. */
void lkt_key_data_write(const char *folder);

/* key_runs.c: no key of a config is accepted and has no effect. Every key of every component with cases in
 * the files that begin with `which` is given another value, alone, in a config that is really run. The
 * results of both runs are compared: weights, logs, files, what is printed. Further arguments of the program
 * are the components to try. A test's whole main function. */
int lkt_keys_main(const char *which, int argc, char **argv);

/* What a run has left in a folder: the files' names, sizes and hashes, a line each; the caller frees the
 * text. Of files that repeat the config only the names are told (with `settings`, hparams.json is not one of
 * them). */
char *lkt_list_results(const char *folder, bool settings);

/* Runs are on two cores at most from here on, wherever the test is run. */
void lkt_use_two_cores(void);

/* The i-th word of a text; NULL where it has fewer. */
const char *lkt_word_at(const char *words, int index, char *buffer, int capacity);

#endif
