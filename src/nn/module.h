/* The module inside, and what the layers build themselves with.
 *
 * A layer is a type name, a forward function, a context (its options, copied) and parameters:
 *
 *     lk_module *module = lki_module_create("Linear", linear_forward, &context, sizeof context);
 *     lk_param *weight = lki_module_new_param(module, "weight", LK_SHAPE(out, in));
 *
 * The helpers pass a NULL module through; lki_module_checked at the end frees a half-built one. */
#ifndef LKI_NN_MODULE_H
#define LKI_NN_MODULE_H

#include "base/arguments.h"
#include <lockstep/nn.h>

typedef struct lki_child {
    char *name;
    lk_module *module;
} lki_child;

struct lk_module {
    char *type;
    char *name; /* as its parent calls it; NULL at the root */
    lk_module_function forward;
    void *context;
    size_t context_nbytes; /* of a context that the module owns as plain bytes; 0 where it is the user's */
    void (*free_context)(void *context);
    lk_param **params; /* parameters first, then buffers, each in the order of their adding */
    int param_count;
    lki_child *children;
    int child_count;
    bool failed;           /* a helper failed while it was being built */
    bool was_recorded;     /* the summary's: output_shape is set */
    lk_shape output_shape; /* of the last recording */
};

/* `context` is copied; NULL with 0 bytes for none. */
lk_module *lki_module_create(const char *type, lk_module_function forward, const void *context,
                             size_t context_nbytes);
/* The module, or NULL after freeing it where a helper failed on it. */
lk_module *lki_module_checked(lk_module *module);

/* lk_module_params and lk_module_param for the library itself: the values are not brought up to date, and
 * nobody outside holds the parameters because of it. */
lk_status lki_module_params(const lk_module *module, lk_param_list *out);
lk_param *lki_module_param(const lk_module *module, const char *path);

/* A new f32 parameter, zeroed; NULL (and the module marked) on failure or for a NULL module. */
lk_param *lki_module_new_param(lk_module *module, const char *name, lk_shape shape);
lk_param *lki_module_new_buffer(lk_module *module, const char *name, lk_dtype dtype, lk_shape shape);
/* Marks a module under construction as failed where the status is not LK_OK. */
void lki_module_note(lk_module *module, lk_status status);

/* The named parameter as a value of x's graph; NULL where the module has none by that name. */
lk_value *lki_module_value(const lk_module *module, lk_value *x, const char *name);

/* Runs the children one after the other. */
lk_value *lki_module_chain(lk_module *module, lk_value *x);

/* As lk_module_forward for modules that take more than one value: opens and closes the scope, notes the
 * output. */
void lki_module_enter(lk_module *module, lk_graph *graph);
lk_value *lki_module_leave(lk_module *module, lk_graph *graph, lk_value *output);

#endif
