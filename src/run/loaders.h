/* The loaders of a run, by key. */
#ifndef LKI_RUN_LOADERS_H
#define LKI_RUN_LOADERS_H

#include <lockstep/runner.h>

enum { LKI_MAX_LOADERS = 16 };

typedef struct lki_run_loader {
    char *key;
    lk_loader *loader;
    lk_metrics *metrics;         /* of its last pass */
    bool has_metrics;            /* in this epoch */
    bool skip;                   /* it rests in this epoch */
    double portion;              /* number of batches taken per pass, or below 1 their share; 0: all */
    bool repeat;                 /* every pass is the first one over again */
    lk_loader_state *first_pass; /* that pass at its start; NULL before it */
    int64_t pass_batches;        /* that a pass takes */
    int64_t continued;           /* epochs that went on with the pass of the one before */
    lk_loader_state *cut;        /* where the last epoch left its pass; NULL: that pass is done */
} lki_run_loader;

typedef struct lki_run_loaders {
    lki_run_loader items[LKI_MAX_LOADERS];
    int count;
    int current;     /* index of the one that runs, or ran last */
    int batch_limit; /* check, overfit: batches per loader; 0 for all */
} lki_run_loaders;

/* Takes the loader over, also when it fails. */
lk_status lki_run_add_loader(lki_run_loaders *loaders, const char *key, lk_loader *loader_owned);
/* Makes loaders of datasets and adds them. */
lk_status lki_run_add_datasets(lki_run_loaders *loaders, const lk_datasets_options *options);
void lki_run_free_loaders(lki_run_loaders *loaders);
/* The index of a loader by its key; -1 if there is none. */
int lki_run_find_loader(const lki_run_loaders *loaders, const char *key);
/* Refuses a key that no loader has; the sentence begins with `who`. */
lk_status lki_run_check_loader(const lki_run_loaders *loaders, const char *who, const char *key);
/* What is wrong with the key of a loader, which also names files in the logdir; NULL if nothing is. */
const char *lki_loader_key_fault(const char *key);

#endif
