/* What the reading of fields comes to: the arrays of all files, each once, and where their numbers belong.
 *
 * A plan opens the first file of each name to learn its channels; the rest follows from the options. It is
 * made by every process that takes part in the reading, and comes out the same in all of them. */
#ifndef LKI_DATA_FIELDS_PLAN_H
#define LKI_DATA_FIELDS_PLAN_H

#include "data/fields.h"
#include "data/fields_host.h"
#include "data/identical_layout.h"

/* A name with its label, and the file of its first checkpoint: the others have the same channels. */
typedef struct lki_fields_name {
    const char *name, *label;
    int64_t channels;
    lki_twin first;
} lki_fields_name;

/* Where the numbers of a block go: the first of them. A block that is feature and target has two. */
typedef struct lki_fields_goal {
    size_t offset;        /* in the memory of the fields */
    int64_t all_channels; /* of the tensor that it is part of */
    int next;             /* of the same block; -1: none */
} lki_fields_goal;

/* One array of one file. */
typedef struct lki_fields_block {
    char *path;
    uint64_t hash; /* of the path: most are told apart by it */
    int name;
    double checkpoint;
    int goal; /* the first one */
} lki_fields_block;

typedef struct lki_fields_plan {
    const char *path_template;
    const lk_fields_options *options; /* borrowed */
    int dims;
    lki_box input, size, cube; /* a field in its file, sampled, and the sub-cubes of it */
    lki_fields_name *names;
    int name_count;
    lki_fields_block *blocks;
    int block_count;
    lki_fields_goal *goals;
    int goal_count;
    lki_fields_layout layout;
} lki_fields_plan;

/* The label of the index-th name; NULL: the last of the file. */
const char *lki_fields_label(lk_name_list labels, int index);

/* "u00000" for messages, also where the label is the file's last. */
const char *lki_fields_label_text(const char *path, const char *label, char *text, size_t capacity);

/* Fails where an array is not (channels, input_size...) or input_size alone. */
lk_status lki_fields_check_shape(const lki_fields_plan *plan, const char *path, const char *label,
                                 const lk_shape *shape);

/* Puts in front of the current error which array of which checkpoint it is about. */
lk_status lki_fields_fail_with(lk_status status, const lki_fields_name *name, double checkpoint);

/* Options that have been checked; the plan must be zero at first and be given to _fini in any case. */
lk_status lki_fields_plan_init(lki_fields_plan *plan);
void lki_fields_plan_fini(lki_fields_plan *plan);

#endif
