#include "nn/init.h"

#include "base/status.h"
#include "base/take.h"

static lk_value *linear_forward(lk_module *module, lk_value *x)
{
    return lk_op_linear(x, lki_module_value(module, x, "weight"), lki_module_value(module, x, "bias"));
}

lk_module *lk_linear_with(int64_t in_features, int64_t out_features, const lk_linear_options *given)
{
    LKI_TAKE(lk_linear_options, options, given, NULL);
    if (in_features < 1 || out_features < 1)
        return lki_fail_null(LK_ERR_INVALID,
                             "Linear: expected at least 1 feature in and out, found %lld and %lld",
                             (long long)in_features, (long long)out_features);
    lk_module *module = lki_module_create("Linear", linear_forward, NULL, 0);
    lk_param *weight = lki_module_new_param(module, "weight", LK_SHAPE(out_features, in_features));
    lk_param *bias = options.no_bias ? NULL : lki_module_new_param(module, "bias", LK_SHAPE(out_features));
    lki_init_weight_and_bias(module, weight, bias);
    return lki_module_checked(module);
}
