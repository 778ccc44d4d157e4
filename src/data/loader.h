/* Inside of a loader, for engines and runs: the block its batches lie in, to pin it, and its state between
 * passes. See <lockstep/data.h> for the rest. */
#ifndef LKI_DATA_LOADER_H
#define LKI_DATA_LOADER_H

#include <lockstep/data.h>

#include "data/batch_share.h"
#include "data/ring.h"

/* Whether batches may come with large fields that are not gathered yet (lk_batch_field.rows). From the next
 * pass on. */
void lki_loader_defer(lk_loader *loader, bool defer);

/* From the next pass on, each batch holds those of `count` ranks, the pass's and those that follow it, as
 * batch_share.h lays them out. batch_size is still that of one rank. */
lk_status lki_loader_set_shares(lk_loader *loader, int count);
/* Another number of samples per batch, before the first pass. Fails if the loader's sampler makes batches. */
lk_status lki_loader_set_batch_size(lk_loader *loader, int64_t batch_size);

/* Where those ranks' samples lie in the batch that was handed out last. More than one rank only. */
void lki_loader_last_shares(const lk_loader *loader, lki_batch_share *out);

/* Whether it reads a stream: how many batches a pass has is not known. */
bool lki_loader_is_stream(const lk_loader *loader);
/* LK_ERR_UNSUPPORTED if its batches cannot hold the samples of several ranks in a fixed layout. */
lk_status lki_loader_check_shards(const lk_loader *loader);
/* LK_ERR_UNSUPPORTED for a stream, in which `who` says what needs the number of batches. */
lk_status lki_loader_check_length(const lk_loader *loader, const char *who);
/* From the next pass on, each batch of a stream is as large as that of the rank with the most samples, which
 * `agree` finds out; NULL: each rank ends by itself. */
void lki_loader_set_agree(lk_loader *loader, lki_ring_agree agree, void *context);
/* Whether the pass has another batch. All ranks that agree must ask together. */
lk_status lki_loader_has_next(lk_loader *loader, bool *out);

/* What it was made with; its own. */
const lk_loader_options *lki_loader_options(const lk_loader *loader);

/* Another dataset of the same samples (a field has another dtype, labels have other numbers), owned from the
 * call on. Between passes. Fails, and keeps the dataset it has, when a batch transform refuses it. */
lk_status lki_loader_set_dataset(lk_loader *loader, lk_dataset *dataset_owned);

/* The memory of all batches; {NULL, 0} before the first pass begins. It stays in place until the loader is
 * freed. */
void lki_loader_memory(const lk_loader *loader, void **data, size_t *nbytes);

/* What the next pass depends on, whatever is left of the current one; for lk_loader_restore. */
void lki_loader_save_between(const lk_loader *loader, lk_loader_state *out);

/* Fails if such a pass has no batch, without starting it. */
lk_status lki_loader_check_pass(const lk_loader *loader, const lk_pass_options *pass);

#endif
