/* What the models have in common. */
#include "models/models.h"

#include "base/status.h"
#include "graph/graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void lki_model_add(lk_module *module, const char *name, lk_module *part)
{
    lk_module_add_child(module, name, part);
}

void lki_model_add_at(lk_module *module, int index, lk_module *part)
{
    char name[16];
    snprintf(name, sizeof name, "%d", index);
    lk_module_add_child(module, name, part);
}

lk_module *lki_model_chain(void)
{
    return lki_module_create("Sequential", lki_module_chain, NULL, 0);
}

static lk_module *find(const lk_module *module, const char *name)
{
    for (int i = 0; i < module->child_count; i++)
        if (!strcmp(module->children[i].name, name)) return module->children[i].module;
    return NULL;
}

lk_value *lki_model_run(const lk_module *module, const char *name, lk_value *x)
{
    return lk_module_forward(find(module, name), x);
}

lk_module *lki_model_child(const lk_module *module, const char *name)
{
    return find(module, name);
}

lk_module *lki_make_embedding(int64_t count, int64_t width)
{
    lk_module *module = lk_embedding(count, width);
    if (module) lki_module_note(module, lk_init_normal(lki_module_own_param(module, "weight"), 0, 0.02));
    return lki_module_checked(module);
}

lk_value *lki_model_places(const lk_module *module, const char *name, lk_value *ids, int64_t length)
{
    lk_module *embedding = find(module, name);
    int64_t most = lki_module_own_param(embedding, "weight")->value->shape.dim[0];
    if (length > most)
        return lki_graph_fail(lk_value_graph(ids), LK_ERR_SHAPE,
                              "a sequence of %lld tokens is longer than the %lld positions of the model",
                              (long long)length, (long long)most);
    return lk_module_forward(embedding, lk_op_arange(lk_value_graph(ids), 0, (double)length, 1, LK_I64));
}

bool lki_model_has(const lk_module *module, const char *name)
{
    return find(module, name) != NULL;
}

void lki_model_each(lk_module *module, const char *type, lk_status (*visit)(lk_module *part))
{
    if (!module || module->failed) return;
    if (!strcmp(module->type, type)) lki_module_note(module, visit(module));
    for (int i = 0; i < module->child_count; i++) {
        lki_model_each(module->children[i].module, type, visit);
        if (module->children[i].module->failed) module->failed = true;
    }
}

static lk_status zero_bias(lk_module *module)
{
    lk_param *bias = lki_module_own_param(module, "bias");
    return bias ? lk_init_constant(bias, 0) : LK_OK;
}

lk_status lki_init_conv(lk_module *conv)
{
    LKI_TRY(lk_init_kaiming_normal(lki_module_own_param(conv, "weight"), .fan_out = true,
                                   .nonlinearity = LK_NONLINEARITY_RELU));
    return zero_bias(conv);
}

lk_status lki_init_linear_001(lk_module *linear)
{
    LKI_TRY(lk_init_normal(lki_module_own_param(linear, "weight"), 0, 0.01));
    return zero_bias(linear);
}

int64_t lki_divisible(double channels)
{
    int64_t near = (int64_t)(channels + 4) / 8 * 8;
    if (near < 8) near = 8;
    return (double)near < 0.9 * channels ? near + 8 : near;
}

lk_status lki_size_or(const char *model, const char *name, int64_t given, int64_t standard, int64_t *out)
{
    if (given < 0)
        return lki_fail(LK_ERR_INVALID, "%s: %s: expected at least 1, found %lld", model, name,
                        (long long)given);
    *out = given ? given : standard;
    return LK_OK;
}

lk_module *lki_make_conv_norm(lki_conv_norm own)
{
    lk_module *chain = lki_model_chain();
    lki_model_add(chain, "0",
                  lk_conv2d(own.in, own.out, own.kernel, .stride = own.stride,
                            .padding = (own.kernel - 1) / 2, .groups = own.groups, .no_bias = true));
    lki_model_add(chain, "1", lk_batch_norm2d(own.out, .eps = own.eps, .momentum = own.momentum));
    if (own.activation) lki_model_add(chain, "2", own.activation());
    return lki_module_checked(chain);
}

/* ---- squeeze and excitation ---- */

typedef struct squeeze_context {
    lki_activation between, scale;
} squeeze_context;

lk_value *lki_hardsigmoid(lk_value *x)
{
    return lk_op_clamp(lk_op_add_scalar(lk_op_mul_scalar(x, 1.0 / 6), 0.5), 0, 1);
}

static lk_value *squeeze_forward(lk_module *module, lk_value *x)
{
    const squeeze_context *own = module->context;
    lk_value *s = lk_op_mean(x, LK_AXES(2, 3), true); /* (N, C, 1, 1) */
    s = lki_model_run(module, "fc1", s);
    s = lki_model_run(module, "fc2", own->between(s));
    return lk_op_mul(x, own->scale(s));
}

lk_module *lki_make_squeeze(int64_t channels, int64_t squeezed, lki_activation between, lki_activation scale)
{
    squeeze_context own = {between, scale};
    lk_module *module = lki_module_create("SqueezeExcitation", squeeze_forward, &own, sizeof own);
    lki_model_add(module, "fc1", lk_conv2d(channels, squeezed, 1));
    lki_model_add(module, "fc2", lk_conv2d(squeezed, channels, 1));
    return lki_module_checked(module);
}
