#include "checkpoint/state_values.h"

#include "base/status.h"

#include <string.h>

lk_status lki_state_dict_put_bytes(lk_state_dict *state, const char *name, const void *data, size_t nbytes)
{
    return lk_state_dict_put(state, name, lk_tensor_from(LK_U8, LK_SHAPE((int64_t)nbytes), data));
}

lk_status lki_state_dict_get_bytes(const lk_state_dict *state, const char *name, void *data, size_t nbytes)
{
    const lk_tensor *bytes = lk_state_dict_get(state, name);
    if (!bytes) return lki_last_status();
    if (lk_tensor_nbytes(bytes) != nbytes)
        return lki_fail(LK_ERR_FORMAT, "%s: %zu bytes where %zu are expected", name, lk_tensor_nbytes(bytes),
                        nbytes);
    memcpy(data, bytes->data, nbytes);
    return LK_OK;
}

lk_status lki_state_dict_get_counter(const lk_state_dict *state, const char *name, int64_t *out)
{
    LKI_TRY(lk_state_dict_get_i64(state, name, out));
    return *out >= 0 ? LK_OK : lki_fail(LK_ERR_FORMAT, "%s is %lld", name, (long long)*out);
}
