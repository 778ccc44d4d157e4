/* Names and numbers, sorted by name: what a batch, a loader or an epoch is reported with. */
#ifndef LKI_RUN_METRICS_H
#define LKI_RUN_METRICS_H

#include <lockstep/runner.h>

lk_metrics *lki_metrics_create(void);
void lki_metrics_free(lk_metrics *metrics);
/* Forgets the values but keeps the names' memory: setting the same names again allocates nothing. */
void lki_metrics_clear(lk_metrics *metrics);
lk_status lki_metrics_copy(lk_metrics *destination, const lk_metrics *source);

#endif
