/* model.storage.json: which checkpoints a run keeps and what each scored, as Catalyst writes it.
 *
 *     {logdir, topk, loader_key, metric_key, minimize, storage: [{logpath, metric}, …]} */
#ifndef LKI_CHECKPOINT_STORAGE_H
#define LKI_CHECKPOINT_STORAGE_H

#include <lockstep/checkpoint.h>
#include <lockstep/status.h>

#include <stdbool.h>

typedef struct lki_storage_entry {
    char *logpath;
    double metric; /* NaN is written as null */
} lki_storage_entry;

/* Zero is empty. Strings are the storage's own. */
typedef struct lki_storage {
    char *logdir, *loader_key, *metric_key;
    int topk;
    bool minimize;
    lki_storage_entry *entries; /* best first */
    int entry_count;
} lki_storage;

/* Copies the strings; loader_key and metric_key may be NULL. */
lk_status lki_storage_init(lki_storage *storage, const char *logdir, const char *loader_key,
                           const char *metric_key, bool minimize, int topk);
void lki_storage_fini(lki_storage *storage);

/* Takes a checkpoint in, best first, the later of equals after the earlier; NaN counts as worst. A path
 * that is there already is taken out first. Where more than topk are kept, the worst falls out: its path
 * comes back in *dropped (lki_free it), which may be the new one; else NULL. */
lk_status lki_storage_add(lki_storage *storage, const char *logpath, double metric, char **dropped);

/* What a checkpoint scored, kept in the checkpoint too, and the list made again from the checkpoints in
 * `folder`: "KIND.0003.safetensors". LK_ERR_FORMAT for a file without a score, which older versions wrote.
 * `storage` is fresh from lki_storage_init. */
lk_status lki_storage_put_score(lk_state_dict *state, const lki_storage *storage, double metric);
lk_status lki_storage_rebuild(lki_storage *storage, const char *folder, const char *kind);

lk_status lki_storage_save(const lki_storage *storage, const char *path);
/* Fills a fresh storage; it is empty where this fails. */
lk_status lki_storage_load(lki_storage *storage, const char *path);

/* Whether the scores of the list are of this metric, so that further ones can be compared with them. */
bool lki_storage_is_of(const lki_storage *storage, const char *loader_key, const char *metric_key,
                       bool minimize);
/* The list's paths are those of the run that wrote it. Its folder may have been copied or renamed since, or
 * be seen from another working directory: the files are taken to lie in `folder`, under their own names, and
 * those that do not are forgotten. */
lk_status lki_storage_relocate(lki_storage *storage, const char *logdir, const char *folder);

#endif
