/* Inside of a dataset that the rest of this folder needs: gathering raw bytes, and names for messages.
 *
 * See <lockstep/sys/dataset.h> for life and threads. */
#ifndef LKI_DATA_DATASET_H
#define LKI_DATA_DATASET_H

#include <lockstep/sys/dataset.h>

/* As lk_dataset_gather without the check of the indices: for a loader, which has checked them once a pass. */
lk_status lki_dataset_gather(const lk_dataset *dataset, const lk_pass *pass, const int64_t *indices,
                             int64_t count, void *const *destinations);

/* LK_ERR_RANGE naming the first index that is not below `length`. */
lk_status lki_check_indices(const int64_t *indices, int64_t count, int64_t length);

/* The bytes of one sample of a field. */
size_t lki_field_nbytes(const lk_field *field);

#endif
