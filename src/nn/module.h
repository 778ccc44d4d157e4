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

/* A parameter as one module calls it. Another module may share it under another name. */
typedef struct lki_own_param {
    char *name;
    lk_param *param;
} lki_own_param;

typedef struct lki_hook {
    lk_module_pre_hook before; /* or NULL */
    lk_module_hook after;      /* or NULL */
    void *context;
} lki_hook;

struct lk_module {
    char *type;
    char *name; /* as its first parent calls it; NULL at the root */
    lk_module_function forward;
    lk_module_call_function call;  /* of several values; NULL: by `forward` */
    int input_count, output_count; /* of `call`; 0: any number */
    int required_inputs;           /* the others may be left out; 0: none may */
    const char *input_names;       /* static, separated by spaces, for nodes that name them; or NULL */
    void *context;
    size_t context_nbytes; /* of a context that the module owns as plain bytes; 0 where it is the user's */
    void (*free_context)(void *context);
    lki_own_param *params; /* parameters first, then buffers, each in the order of their adding */
    int param_count;
    lki_child *children;
    int child_count;
    lki_hook *hooks;
    int hook_count;
    int holder_count;      /* handed out and not yet freed: 1, and 1 per lk_module_share */
    int place_count;       /* how many of these a parent holds */
    bool failed;           /* a helper failed while it was being built */
    bool is_checkpointed;  /* what it computes inside is computed again for the backward pass */
    bool was_recorded;     /* the summary's: output_shape is set */
    lk_shape output_shape; /* of the last recording */
};

/* `context` is copied; NULL with 0 bytes for none. */
lk_module *lki_module_create(const char *type, lk_module_function forward, const void *context,
                             size_t context_nbytes);
/* A module of one value that takes the named inputs, of which those after the first `required` may be NULL or
 * left out. The names are not copied. */
lk_module *lki_module_of_named(const char *type, lk_module_call_function call, const char *names,
                               int required, const void *context, size_t nbytes);
/* The module, or NULL after freeing it where a helper failed on it. */
lk_module *lki_module_checked(lk_module *module);

/* What a constructor got and has not handed on is freed where it fails. NULLs are allowed. */
void lki_free_modules(lk_module *const *modules, int count);

/* lk_module_params and lk_module_param for the library itself: the values are not brought up to date, and
 * nobody outside holds the parameters because of it. */
lk_status lki_module_params(const lk_module *module, lk_param_list *out);
/* All names, as PyTorch's state_dict has them: a shared parameter once per place. */
lk_status lki_module_names(const lk_module *module, lk_param_list *out);
lk_param *lki_module_param(const lk_module *module, const char *path);

/* A new f32 parameter, zeroed; NULL (and the module marked) on failure or for a NULL module. */
lk_param *lki_module_new_param(lk_module *module, const char *name, lk_shape shape);
lk_param *lki_module_new_buffer(lk_module *module, const char *name, lk_dtype dtype, lk_shape shape);
/* Marks a module under construction as failed where the status is not LK_OK. */
void lki_module_note(lk_module *module, lk_status status);

/* The module's own parameter or buffer of that name, or NULL without an error. */
lk_param *lki_module_own_param(const lk_module *module, const char *name);
/* The named parameter as a value of x's graph; NULL where the module has none by that name. */
lk_value *lki_module_value(const lk_module *module, lk_value *x, const char *name);

/* Runs the children one after the other. */
lk_value *lki_module_chain(lk_module *module, lk_value *x);

enum { LKI_MAX_MODULE_VALUES = 32 };

/* What lk_module_call does around a module's own function. `begin` opens the scope and runs the hooks that
 * may replace the inputs; if it fails, there is nothing to end. `name` is that of this place, or NULL for the
 * module's own. `end` runs the other hooks if `status` is LK_OK, notes the output and closes the scope. */
lk_status lki_module_begin(lk_module *module, const char *name, lk_value **inputs, int count);
lk_status lki_module_end(lk_module *module, lk_value *const *inputs, int input_count, lk_value **outputs,
                         int output_count, lk_status status);

/* The same for functions that do not pass on what they take: a hook that wants the inputs is refused. */
void lki_module_enter(lk_module *module, lk_graph *graph);
lk_value *lki_module_leave(lk_module *module, lk_graph *graph, lk_value *output);

#endif
