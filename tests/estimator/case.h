/* What the tests of estimators share: where the real fields lie, and fields made up. */
#ifndef LKT_ESTIMATOR_CASE_H
#define LKT_ESTIMATOR_CASE_H

#include "lktest.h"

#include <lockstep/lockstep.h>

/* The folder of the turbulence files; NULL where it is not at hand. */
const char *lkt_sapsan_folder(void);

#define NEEDS_SAPSAN(folder)                                                                                 \
    const char *folder = lkt_sapsan_folder();                                                                \
    if (!folder) {                                                                                           \
        print_message("the turbulence files are not at hand (LOCKSTEP_SHARED)\n");                           \
        skip();                                                                                              \
    }

/* The velocity of cnn_krr at 16^3. */
lk_fields *lkt_velocity16(const char *folder, lk_fields_options more);
/* sin-shaped numbers in any shape. */
lk_tensor *lkt_wavy(lk_shape shape);

#endif
