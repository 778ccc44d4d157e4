/* Memory that plans share because they run one at a time. It grows when a larger plan joins; plans notice
 * that its address has changed and look theirs up again. If it could not grow, it is smaller than before, and
 * each plan reserves what it needs when it runs next. */
#ifndef LKI_GRAPH_WORKSPACE_H
#define LKI_GRAPH_WORKSPACE_H

#include "graph/plan.h"

struct lki_workspace {
    lki_home *home; /* whose memory it is; NULL: the host's */
    char *arena, *scratch;
    size_t arena_nbytes, scratch_nbytes;
    uint64_t version; /* one more each time an address changes */
};

lk_status lki_workspace_reserve(lki_workspace *workspace, size_t arena_nbytes, size_t scratch_nbytes);

#endif
