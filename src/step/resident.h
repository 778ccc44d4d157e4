/* Batches that are rows of something larger: a device keeps a copy of all of it and gathers there; the host
 * gathers into memory of its own. */
#ifndef LKI_STEP_RESIDENT_H
#define LKI_STEP_RESIDENT_H

#include <lockstep/step.h>

#include "graph/plan.h"

enum { LKI_MAX_RESIDENTS = 32 };

typedef struct lki_resident {
    const void *data; /* of the rows, all `nbytes` of them */
    size_t nbytes;
    void *device; /* NULL: it did not fit, and batches are gathered on the host */
} lki_resident;

/* What the next batch takes from rows. */
typedef struct lki_announced {
    const char *name;
    const lk_rows *rows;
    const int64_t *indices;
} lki_announced;

typedef struct lki_residents {
    lk_engine *engine;
    lki_resident items[LKI_MAX_RESIDENTS];
    int count;
    lk_tensor *gathered[LKI_MAX_RESIDENTS]; /* by the field's index: the host's batches */
    lki_announced announced[LKI_MAX_RESIDENTS];
    int announced_count;
} lki_residents;

void lki_residents_fini(lki_residents *residents);

/* Lets the copies go: what comes next is copied as it is then. An address says nothing of what lies there. */
void lki_residents_release(lki_residents *residents);

/* Gives the copies' memory back, from now on; false where there are none. */
bool lki_residents_give_way(lki_residents *residents);

/* In the place of what was announced under that name. */
lk_status lki_residents_announce(lki_residents *residents, lki_announced announced);
bool lki_residents_has(const lki_residents *residents, const char *name);
void lki_residents_forget(lki_residents *residents); /* the batch has begun, or never will */

/* Gives input `index` of the plan its values. */
lk_status lki_residents_bind(lki_residents *residents, lki_plan *plan, int index, const lk_input *field);

#endif
