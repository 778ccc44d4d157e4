/* What the plug-ins of comm (MPI, Gloo) use of the library, beyond base/plugin.h. In them, the usual names
 * are given by comm/comm_inside_plugin.c. */
#ifndef LKI_COMM_COMM_SERVICES_H
#define LKI_COMM_COMM_SERVICES_H

#include "comm/comm.h"
#include "comm/comm_own.h"
#include "comm/reduction.h"

typedef struct lki_comm_services {
    __typeof__(&lki_comm_init) comm_init;
    __typeof__(&lki_reduce) reduce;
    __typeof__(&lki_scale) scale;
    __typeof__(&lki_store_set) store_set;
    __typeof__(&lki_store_get) store_get;
    __typeof__(&lki_store_wait) store_wait;
    __typeof__(&lki_store_port) store_port;
    __typeof__(&lki_monitor_fail) monitor_fail;
    __typeof__(&lki_monitor_failure) monitor_failure;
    __typeof__(&lki_monitor_progress) monitor_progress;
    __typeof__(&lki_monitor_on_failure) monitor_on_failure;
} lki_comm_services;

extern const lki_comm_services lki_comm_services_here; /* the library's side */

#endif
