/* The flat buffers of a trained model: parameters, gradients and optimizer state, each one allocation.
 *
 * A parameter is a slice; slices start at multiples of 64 bytes and the gaps between them stay zero in all
 * the buffers, so an update or an all-reduce may run over them. Creating the buffers moves the parameters'
 * values into them.
 *
 * Ranks of one host have their parameters and gradients in a window, where they reach each other's: gradients
 * are averaged where they lie. Where the ranks also divide the update (divide.h), its state is held once for
 * all of them. */
#ifndef LKI_STEP_FLAT_H
#define LKI_STEP_FLAT_H

#include <lockstep/nn.h>
#include <lockstep/sys/comm.h>

#include "tensor/buffer.h"

enum { LKI_MAX_STATES = 3, LKI_MAX_UNREACHED_SETS = 63 };

typedef struct lki_slice {
    lk_param *param;
    const char *path; /* the parameter's full name; owned by the list the flat was made from */
    int64_t offset, count;
    int64_t since;         /* the updates that were made without it */
    uint64_t unreached_by; /* a bit for each set of parameters (lki_step_plan.unreached) that has it */
} lki_slice;

typedef struct lki_flat {
    lk_dtype dtype;
    int64_t count; /* elements, gaps included */
    lki_slice *slices;
    int slice_count;
    lk_buffer *values, *grads, *sums, *states[LKI_MAX_STATES];
    int state_count;
    lk_comm_window *window; /* of the values, the gradients and a common state; NULL: all of it is private */
    bool common_states;
} lki_flat;

typedef struct lki_flat_options {
    int state_count;
    bool with_sums;     /* makes `sums`, of accumulated gradients */
    lk_comm *comm;      /* whose ranks may share memory; NULL: there are none */
    bool on_host;       /* the engine works on this memory, so that sharing it is of use */
    bool common_states; /* one state for all of them, where they share memory */
} lki_flat_options;

/* Takes every trainable parameter of the list. */
lk_status lki_flat_init(lki_flat *flat, const lk_param_list *params, lki_flat_options options);
void lki_flat_fini(lki_flat *flat);
static inline bool lki_param_is_trained(const lk_param *param)
{
    return param->trainable && !param->is_buffer;
}

/* Whether it has what is trainable of the list that it was made from, and nothing else: the slices are in the
 * list's order. Asked before every batch that trains. */
static inline bool lki_flat_is_current(const lki_flat *flat, const lk_param_list *params)
{
    int next = 0;
    for (int i = 0; i < params->count; i++) {
        const lk_param *param = params->items[i].param;
        bool has_it = next < flat->slice_count && flat->slices[next].param == param;
        if (lki_param_is_trained(param) != has_it) return false;
        next += has_it;
    }
    return true;
}
bool lki_flat_has(const lki_flat *flat, const lk_param *param);
/* Changes whenever parameters of any model have moved: what was compiled before may point to where they were.
 */
extern _Atomic uint64_t lki_flat_moves;
static inline uint64_t lki_flat_generation(void)
{
    return lki_flat_moves;
}
void lki_flat_moved(void); /* says so of parameters that have moved in another way */

#endif
