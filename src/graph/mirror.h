/* Parameters where an engine with memory of its own can reach them.
 *
 * A mirror is a list of blocks of host memory and their copies on the device. Training changes the copies;
 * the host pulls them before it reads, and pushes after it has written. Each block knows which side is newer,
 * so that both move no more than they must, and asking is cheap. Code that meets a parameter asks by the
 * parameter: lki_param_pull before it reads the value or writes a part of it, lki_param_push after it has
 * written it; both do nothing for parameters that live on the host alone. Gradients are scratch: they travel
 * only where somebody names them. One thread. */
#ifndef LKI_GRAPH_MIRROR_H
#define LKI_GRAPH_MIRROR_H

#include <lockstep/graph.h>

typedef struct lki_mirror lki_mirror;

/* NULL, without an error, for an engine that works on the host's memory. */
lk_status lki_mirror_create(lki_mirror **out, lk_engine *engine);
/* Pulls what is newer on the device first. */
void lki_mirror_free(lki_mirror *mirror);

/* A copy of host memory that outlives the mirror. `scratch` blocks are left out of pull and push. */
lk_status lki_mirror_add(lki_mirror *mirror, void *host, size_t nbytes, bool scratch, const char *what);

/* The device's address of a host address inside one of the blocks; that address itself where the mirror is
 * NULL or does not know it. */
void *lki_mirror_address(const lki_mirror *mirror, void *host);
lk_engine *lki_mirror_engine(const lki_mirror *mirror);
/* Grows with each change that either side was said to have; not 0. */
uint64_t lki_mirror_version(const lki_mirror *mirror);

/* Brings the other side up to date. NULL is fine. */
lk_status lki_mirror_pull(lki_mirror *mirror);
lk_status lki_mirror_push(lki_mirror *mirror);
/* The same for one block, scratch or not, whoever is newer. */
lk_status lki_mirror_pull_block(lki_mirror *mirror, void *host);
lk_status lki_mirror_push_block(lki_mirror *mirror, void *host);

/* Says which side has changed: the host's copies are older from now on, or the device's. */
void lki_mirror_device_changed(lki_mirror *mirror);
void lki_mirror_host_changed(lki_mirror *mirror);

/* By the parameter. */
lk_status lki_param_pull(const lk_param *param);
void lki_param_push(const lk_param *param); /* at the latest moment: when the device next needs it */
void lki_param_device_changed(const lk_param *param);
/* Gives a parameter that no mirror has a block of its own, whose host memory must last until it leaves. */
lk_status lki_param_join(lk_param *param, lki_mirror *mirror);
/* Back to the host alone. The copy goes, unless the block is shared with others. */
lk_status lki_param_leave(lk_param *param);

#endif
