/* Host memory and its copies on a device.
 *
 * A mirror is a list of blocks of host memory and their copies. Training changes the copies; the host pulls
 * them before it reads, and pushes after it has written. Each block knows which side is newer, so that both
 * move no more than they must, and asking is cheap. Gradients are scratch: they travel only when somebody
 * names them. One thread. */
#ifndef LKI_STEP_DEVICE_MIRROR_H
#define LKI_STEP_DEVICE_MIRROR_H

#include <lockstep/sys/engine.h>

typedef struct lki_mirror lki_mirror;

lki_mirror *lki_mirror_create(lk_engine *engine);
/* Pulls what is newer on the device first. NULL is fine. */
void lki_mirror_free(lki_mirror *mirror);

/* A copy of host memory that outlives the mirror. `scratch` blocks are left out of pull and push. */
lk_status lki_mirror_add(lki_mirror *mirror, void *host, size_t nbytes, bool scratch, const char *what);

/* The device's address of a host address inside one of the blocks; that address itself where the mirror is
 * NULL or does not know it. */
void *lki_mirror_address(const lki_mirror *mirror, void *host);
/* Grows with each change that either side was said to have; not 0. */
uint64_t lki_mirror_version(const lki_mirror *mirror);

/* Brings the other side up to date. */
lk_status lki_mirror_pull(lki_mirror *mirror);
lk_status lki_mirror_push(lki_mirror *mirror);
/* The same for one block, scratch or not, whoever is newer. */
lk_status lki_mirror_pull_block(lki_mirror *mirror, void *host);
lk_status lki_mirror_push_block(lki_mirror *mirror, void *host);

/* Says which side has changed: the host's copies are older from now on, or the device's. */
void lki_mirror_device_changed(lki_mirror *mirror);
void lki_mirror_host_changed(lki_mirror *mirror);

/* For one block, by an address in it; nothing happens if there is no such block. pull_newer copies only if
 * the device's side is the newer one. */
lk_status lki_mirror_pull_newer(lki_mirror *mirror, void *host);
void lki_mirror_device_changed_block(lki_mirror *mirror, void *host);
void lki_mirror_host_changed_block(lki_mirror *mirror, void *host);

/* A block of its own for `owner`, whose memory must last until it is removed. Removing it frees the copy;
 * blocks of others, and those that were added, stay. */
lk_status lki_mirror_join(lki_mirror *mirror, void *host, size_t nbytes, const void *owner, const char *what);
void lki_mirror_remove(lki_mirror *mirror, void *host, const void *owner);

#endif
