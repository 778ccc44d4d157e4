/* Fields of the next batch that are rows of something larger (lk_step_take_rows). They are announced before
 * the batch begins and forgotten when it has begun, or has failed to. */
#ifndef LKI_STEP_ANNOUNCED_ROWS_H
#define LKI_STEP_ANNOUNCED_ROWS_H

#include <lockstep/step.h>

#include <string.h>

enum { LKI_MAX_ANNOUNCED = 32 };

typedef struct lki_announced {
    const char *name;
    const lk_rows *rows;
    const int64_t *indices;
} lki_announced;

typedef struct lki_announcements {
    lki_announced items[LKI_MAX_ANNOUNCED];
    int count;
} lki_announcements;

/* NULL: the field's tensor has its values. */
static inline const lki_announced *lki_find_announced(const lki_announcements *announcements,
                                                      const char *name)
{
    for (int i = 0; i < announcements->count; i++)
        if (strcmp(announcements->items[i].name, name) == 0) return &announcements->items[i];
    return NULL;
}

#endif
