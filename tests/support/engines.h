/* The engines that a test of training goes through: those of the host, the far one, and a GPU where one is
 * asked for. */
#ifndef LKT_ENGINES_H
#define LKT_ENGINES_H

#include "far_engine.h"
#include "lktest.h"

enum { REF, CPU, FAR, GPU };

static inline lk_engine *open_engine(int which)
{
    static const char *const names[] = {"ref", "cpu", NULL, "cuda"};
    lk_engine *engine = names[which] ? lk_engine_open(names[which], NULL) : lkt_far_engine_open();
    lkt_not_null(engine);
    return engine;
}

/* LOCKSTEP_TEST_ENGINE=cuda asks for a GPU's steps. */
static inline bool gpu_is_asked_for(void)
{
    const char *asked = getenv("LOCKSTEP_TEST_ENGINE");
    return asked && !strcmp(asked, "cuda");
}

#endif
