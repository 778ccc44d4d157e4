/* The class names that a column of text holds: each gets a number when it is first seen, and its place in the
 * order of their bytes once all have been seen. */
#ifndef LKI_DATA_CLASS_NAMES_H
#define LKI_DATA_CLASS_NAMES_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct lki_class_name {
    char *text; /* owned */
    int number; /* that of lki_class_names_add */
} lki_class_name;

/* Zeroed memory is none. */
typedef struct lki_class_names {
    lki_class_name *items; /* (count), in the order of their bytes */
    int count, capacity;
    bool is_complete; /* a name that is not there is refused instead of added */
} lki_class_names;

/* Writes the number of a name, which is copied if it is new. LK_ERR_NOT_FOUND, without a sentence, if the
 * names are complete and it is none of them. */
lk_status lki_class_names_add(lki_class_names *self, const char *text, int *number);

/* Takes names that commas separate: they are numbered in their order, and no other will be added. */
lk_status lki_class_names_take(lki_class_names *self, const char *list);

/* For each number the place of its name: (count), freed by the caller. NULL if memory runs out. */
int *lki_class_names_places(const lki_class_names *self);

void lki_class_names_free(lki_class_names *self);

#endif
