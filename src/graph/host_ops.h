/* The ops that are the same for every engine whose memory is the host's: those that talk to other ranks, and
 * assign. */
#ifndef LKI_GRAPH_HOST_OPS_H
#define LKI_GRAPH_HOST_OPS_H

#include <lockstep/sys/engine.h>

lk_status lki_host_prepare(lk_call *call);

#endif
