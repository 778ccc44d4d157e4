/* Random numbers: those that the tensor's own functions draw. */
#include "engine/ref/ref.h"

#include "base/status.h"

lk_status lki_ref_random(const lk_call *call)
{
    const lk_random_attr *attr = &call->attr->random;
    lk_tensor out = call->out[0];
    if (!out.data) return LK_OK;
    if (!call->generator) return lki_fail(LK_ERR_INVALID, "random has no random generator");
    switch (attr->kind) {
    case LK_RANDOM_UNIFORM: return lk_uniform(&out, attr->a, attr->b, call->generator);
    case LK_RANDOM_NORMAL: return lk_normal(&out, attr->a, attr->b, call->generator);
    default: return lk_bernoulli(&out, attr->a, call->generator);
    }
}
