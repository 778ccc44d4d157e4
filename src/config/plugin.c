/* Components that come from outside: offered when code is loaded, and shared objects opened at run time. */
#include "config/registry.h"

#include "base/memory.h"
#include "base/status.h"

#include <dlfcn.h>

/* A constructor has nobody to return a status to: the first sentence waits here until somebody asks. */
static lki_error offered;

void lk_components_offer(const lk_build *build, const char *file, const lk_component *const *components,
                         int count)
{
    for (int i = 0; i < count && !offered.status; i++) {
        lk_status status = lk_component_add_built(components[i], build);
        if (status) lki_error_keep(&offered, lki_fail_prefix(status, "%s", file));
    }
}

lk_status lki_components_offered(void)
{
    return lki_error_restore(&offered);
}

lk_status lk_components_load(const char *path)
{
    int before = lki_registry_added();
    LKI_TRY(lki_components_offered());
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) return lki_fail(LK_ERR_CONFIG, "%s", dlerror());
    lk_status status = lki_components_offered();
    if (!status && lki_registry_added() == before)
        status = lki_fail(LK_ERR_CONFIG, "%s: it adds no components: LK_COMPONENTS(&name) is missing", path);
    if (status == LK_OK) return LK_OK;
    lki_registry_keep(before);
    offered.status = LK_OK;
    dlclose(object);
    return status;
}
