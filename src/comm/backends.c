/* The backend that lies in a plug-in and is one library: Gloo. For MPI see mpi_libraries.c. */
#include "comm/comm.h"

#include "base/plugin.h"
#include "base/status.h"
#include "comm/gloo/gloo_plugin.h"
#include "comm/comm_services.h"

const lki_comm_services lki_comm_services_here = {
    .comm_init = lki_comm_init,
    .reduce = lki_reduce,
    .scale = lki_scale,
    .store_set = lki_store_set,
    .store_get = lki_store_get,
    .store_wait = lki_store_wait,
    .store_port = lki_store_port,
    .monitor_fail = lki_monitor_fail,
    .monitor_failure = lki_monitor_failure,
    .monitor_progress = lki_monitor_progress,
    .monitor_on_failure = lki_monitor_on_failure,
};

lki_plugin lki_gloo = {
    .name = "gloo",
    .library = "Gloo",
    .package = "libgloo-dev",
    .functions_nbytes = sizeof(lki_gloo_functions),
    .services = &lki_comm_services_here,
    .services_nbytes = sizeof lki_comm_services_here,
};

bool lki_comm_has_gloo(void)
{
    return lki_plugin_open(&lki_gloo) != NULL;
}

lk_status lki_comm_gloo_create(lk_comm **out, const lki_gloo_options *options)
{
    const lki_gloo_functions *gloo = lki_plugin_open(&lki_gloo);
    *out = NULL;
    return gloo ? gloo->create(out, options) : lki_fail_prefix(LK_ERR_UNSUPPORTED, "comm gloo");
}
