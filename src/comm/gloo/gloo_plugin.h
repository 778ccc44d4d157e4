/* liblockstep_gloo.so: base/plugin.h. Its services are comm/comm_services.h. */
#ifndef LKI_COMM_GLOO_GLOO_PLUGIN_H
#define LKI_COMM_GLOO_GLOO_PLUGIN_H

#include "base/plugin.h"
#include "comm/comm.h"

typedef struct lki_gloo_functions {
    __typeof__(&lki_comm_gloo_create) create;
} lki_gloo_functions;

extern lki_plugin lki_gloo; /* the library's side */

#endif
