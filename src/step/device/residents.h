/* Batches that are rows of something larger: the device keeps a copy of all of it and gathers there. */
#ifndef LKI_STEP_DEVICE_RESIDENTS_H
#define LKI_STEP_DEVICE_RESIDENTS_H

#include "step/step.h"

enum { LKI_MAX_RESIDENTS = 32 };

typedef struct lki_resident {
    const void *data; /* of the rows, all `nbytes` of them */
    size_t nbytes;
    void *device; /* NULL: it did not fit, and batches are gathered on the host */
} lki_resident;

typedef struct lki_residents {
    lk_engine *engine;
    lki_resident items[LKI_MAX_RESIDENTS];
    int count;
} lki_residents;

/* Lets the copies go: what comes next is copied as it is then. An address says nothing of what lies there. */
void lki_residents_release(lki_residents *residents);

/* Gives the copies' memory back, from now on; false if there are none. */
bool lki_residents_give_way(lki_residents *residents);

/* Gives input `index` of the plan its values. */
lk_status lki_residents_bind(lki_residents *residents, lki_plan *plan, int index, const lk_input *field,
                             const lki_announced *announced);

#endif
