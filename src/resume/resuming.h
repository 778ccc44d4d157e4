/* What a run has from the checkpoint that it goes on from, and what its own checkpoints must say. */
#ifndef LKI_RESUME_RESUMING_H
#define LKI_RESUME_RESUMING_H

#include <lockstep/checkpoint.h>
#include <lockstep/data.h>

typedef struct lki_resuming {
    struct lki_terms *terms; /* run_terms.h; made when the run begins */
    bool freezes;            /* something is frozen, or was: frozen_params.h */
    bool took_state;         /* from a checkpoint: all of it, or the weights */

    /* Where a resumed run goes on. */
    bool inside_epoch;             /* and not at the start of one */
    bool inside_loader;            /* the loader goes on in its middle: metrics keep what they have seen */
    int first_loader;              /* of the first epoch */
    lk_loader_state *loader_state; /* of that loader; NULL at its start */
    int64_t loader_batch_step, loader_sample_step;
    lk_state_dict *rank_state; /* this rank's own share of it */
    int block_count;           /* with shards: shares of that many earlier ranks are in it */
    lk_state_dict *state;      /* kept for the parts by key, which may be made later */
} lki_resuming;

#endif
