/* The config object of <lockstep/config.h>, for the parts that plan and run it. */
#ifndef LKI_CONFIG_CONFIG_H
#define LKI_CONFIG_CONFIG_H

#include "config/build.h"
#include "config/tree/tree.h"

#include <lockstep/config.h>

struct lk_config {
    lki_tree tree;
};

/* Plans the config and checks that it has a runner and calls to make. The plan must be finished, on failure
 * too, and before the config is planned again. */
lk_status lki_config_plan(lk_config *config, lki_plan *plan);

#endif
