/* What the models are put together with. A NULL module passes through, and a part that is NULL marks the
 * module that gets it as failed; lki_module_checked at the end frees a half-built one. */
#ifndef LKI_MODELS_MODELS_H
#define LKI_MODELS_MODELS_H

#include "nn/module.h"
#include <lockstep/models.h>

/* Adds a child; the module owns it from the call on. */
void lki_model_add(lk_module *module, const char *name, lk_module *part_owned);
void lki_model_add_at(lk_module *module, int index, lk_module *part_owned); /* "0", "1", ... */

/* An empty Sequential, whose parts are added one by one. */
lk_module *lki_model_chain(void);

/* The child with this name over x; NULL passes through. */
lk_value *lki_model_run(const lk_module *module, const char *name, lk_value *x);
bool lki_model_has(const lk_module *module, const char *name);

/* The child itself, which there is. */
lk_module *lki_model_child(const lk_module *module, const char *name);

/* An embedding with first weights of N(0, 0.02), and what one of positions gives for 0 to length - 1:
 * (length, E). A sequence that is too long fails. */
lk_module *lki_make_embedding(int64_t count, int64_t width);
lk_value *lki_model_places(const lk_module *module, const char *name, lk_value *ids, int64_t length);

/* Calls `visit` for each module of a type, parents first, in PyTorch's order of modules(). */
void lki_model_each(lk_module *module, const char *type, lk_status (*visit)(lk_module *part));

/* What torchvision's models do to their convolutions and linear layers: kaiming_normal by fan_out and
 * a bias of 0; a normal distribution of 0.01 and a bias of 0. */
lk_status lki_init_conv(lk_module *conv);
lk_status lki_init_linear_001(lk_module *linear);

/* torchvision's _make_divisible by 8. */
int64_t lki_divisible(double channels);

/* A number of channels, classes or layers: `given`, or the standard if it is 0. A negative one fails. */
lk_status lki_size_or(const char *model, const char *name, int64_t given, int64_t standard, int64_t *out);

/* Conv2d without a bias, BatchNorm2d and an activation (NULL: none) as children "0", "1" and "2". */
typedef struct lki_conv_norm {
    int64_t in, out, kernel, stride, groups; /* stride and groups 0: 1 */
    double eps, momentum;                    /* 0: BatchNorm2d's */
    lk_module *(*activation)(void);
} lki_conv_norm;
lk_module *lki_make_conv_norm(lki_conv_norm own);

/* x times what it says about each channel: SqueezeExcitation of torchvision, with fc1 and fc2. */
typedef lk_value *(*lki_activation)(lk_value *x);
lk_module *lki_make_squeeze(int64_t channels, int64_t squeezed, lki_activation between, lki_activation scale);
lk_value *lki_hardsigmoid(lk_value *x);

#endif
