#include "comm/gloo/gloo_plugin.h"

#include "base/plugin.h"
#include "comm/comm_services.h"

LKI_PLUGIN_EXPORT(gloo, lki_gloo_functions, lki_comm_services, .create = lki_comm_gloo_create);
