/* Inside of a loader that engines need: the block its batches lie in, to pin it. See <lockstep/data.h> for
 * the rest. */
#ifndef LKI_DATA_LOADER_H
#define LKI_DATA_LOADER_H

#include <lockstep/data.h>

/* Whether batches may come with large fields that are not gathered yet (lk_batch_field.rows). From the next
 * pass on. */
void lki_loader_defer(lk_loader *loader, bool defer);

/* The memory of all batches; {NULL, 0} before the first pass begins. It stays in place until the loader is
 * freed. */
void lki_loader_memory(const lk_loader *loader, void **data, size_t *nbytes);

#endif
