/* Contiguous copies of the fields of a batch that are not. A copy is kept for the next batch of its shape. */
#ifndef LKI_STEP_PACKED_FIELDS_H
#define LKI_STEP_PACKED_FIELDS_H

#include <lockstep/step.h>

enum { LKI_MAX_PACKED_FIELDS = 16 };

typedef struct lki_packed_fields {
    lk_tensor *copies[LKI_MAX_PACKED_FIELDS]; /* by field; NULL: it has always been contiguous */
} lki_packed_fields;

/* Points *fields at `room`, with copies in place of those that are not contiguous, if there are any. No batch
 * may be in flight. */
lk_status lki_pack_fields(lki_packed_fields *packed, const lk_input **fields, int count, lk_input *room);
bool lki_fields_are_packed(const lk_input *fields, int count);
void lki_packed_fields_fini(lki_packed_fields *packed);

#endif
