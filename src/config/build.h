/* From tree to objects, in two passes.
 *
 * lki_plan walks the tree in file order, finds the component of every `_target_`, binds and checks its
 * arguments and resolves `_var_` references: all mistakes are found here, and nothing is built. What it
 * leaves is a list of objects, children before parents. lki_plan_build then builds them in that order, so
 * that random numbers are drawn in the order in which the file names things. An object belongs to the plan
 * until a builder takes it; lki_plan_fini frees what was not taken. One thread. */
#ifndef LKI_CONFIG_BUILD_H
#define LKI_CONFIG_BUILD_H

#include "config/tree/tree.h"

#include <lockstep/config.h>

struct lki_object {
    lki_object *next; /* the one built after this */
    const lk_component *component;
    lki_node *node;
    const char *called; /* the name that the file used for the component */
    const char *var;    /* its `_var_`; NULL: none */
    lki_node **values;  /* by parameter; NULL: left out and without a default */
    const bool *given;  /* by parameter: said in the file, not the default */
    bool checkpoint;    /* a module's `checkpoint: y` */
    void *pointer;      /* what was built */
    bool built, taken;
    bool is_given; /* existed before the plan, which neither builds nor frees it */
};

/* Something that builders of one plan share, by a text that says what it is. */
typedef struct lki_kept lki_kept;
struct lki_kept {
    lki_kept *next;
    const char *key;
    void *object;
    void (*free)(void *object);
};

/* Zero, with a tree, is a plan that knows nothing yet. */
typedef struct lki_plan {
    lki_tree *tree;
    lki_object *first, *last;
    lki_object *runner;    /* the one under `runner:`, once the plan is made */
    lki_object *seeded_by; /* the call whose seed was set before anything was built; NULL: none */
    lki_kept *kept;        /* while objects are being built */
    int show;              /* an lk_show: what calls print that do not say it themselves */
} lki_plan;

/* Adds an object after those that are there. Its node stands for it from then on. */
void lki_plan_append(lki_plan *plan, lki_object *object);

/* datasets.c: `datasets:` of the calls becomes the `loaders:` that it stands for. */
lk_status lki_datasets_to_loaders(lki_tree *tree);

/* Checks the whole tree and lists its objects. `run:` holds calls, all else may hold components. */
lk_status lki_plan_make(lki_plan *plan);

/* Builds every object but the calls, which lki_object_build does when their turn comes. */
lk_status lki_plan_build(lki_plan *plan);
lk_status lki_object_build(lki_plan *plan, lki_object *object);

void lki_plan_fini(lki_plan *plan);

/* Keeps an object for the builders that follow, until all are built; it is freed on failure too. And one that
 * was kept; NULL where there is none. The key must live as long as the tree. */
lk_status lki_plan_keep(lki_plan *plan, const char *key, void *object_owned, void (*free)(void *object));
void *lki_plan_kept(const lki_plan *plan, const char *key);

/* The object that a map with `_target_`, `_call_` or `_var_` stands for; NULL: it is none. */
lki_object *lki_node_object(const lki_node *node);

/* Binds a component's arguments to its parameters: fills object->values and ->given, finds unknown keys,
 * arguments given twice and missing ones. Types are checked by lki_object_check, after the children have been
 * planned. */
lk_status lki_object_bind(lki_plan *plan, lki_object *object);
lk_status lki_object_check(const lki_object *object);

/* Whether a value given for a parameter with no_effect or refused says what happens anyhow. */
bool lki_parameter_is_same(const lk_parameter *parameter, const lki_node *node);

/* Says in a line for each key that changes nothing here what it is and why. */
void lki_plan_note_keys(const lki_plan *plan);

/* top.c: keys at the top that nothing refers to. Those that the runner or a call would take are an error, as
 * they stand in the wrong place; the others are said. */
lk_status lki_plan_check_top(const lki_plan *plan);
void lki_plan_note_top(const lki_plan *plan);

/* The i-th object of one of an object's own arguments, and its key in a map; NULL where there is none. */
lki_object *lki_object_argument(const lki_object *object, const char *name, int index);
const char *lki_object_key(const lki_object *object, const char *name, int index);

/* The arguments of a builder. */
struct lk_args {
    lki_plan *plan;
    lki_object *object;
    lk_status status; /* the first failure of a reader: a parameter that the table does not have, an object
                         used twice */
    char place[LKI_PLACE_CAPACITY];
};

#endif
