/* Small programs inside: what joins the notes of a step into ops (small_join.cu), decides who waits for whom
 * (small_plan.cu) and runs them (small.cu) shares. */
#ifndef LKI_CUDA_SMALL_SMALL_PROGRAM_CUH
#define LKI_CUDA_SMALL_SMALL_PROGRAM_CUH

#include "engine/cuda/small/small.cuh"

/* What the last launch took in: as long as that stays, so do the barriers. */
typedef struct lki_cuda_taken {
    void *out[LKI_CUDA_MAX_GATHERS];
    int64_t width[LKI_CUDA_MAX_GATHERS];
    int row_count[LKI_CUDA_MAX_GATHERS], conversion[LKI_CUDA_MAX_GATHERS], count;
} lki_cuda_taken;

struct lki_cuda_small {
    lki_cuda_note note[LKI_CUDA_SMALL_OPS];
    int count;
    lki_cuda_small_op op[LKI_CUDA_SMALL_OPS];
    lki_cuda_small_args args;
    lki_cuda_small_facts facts;
    char *memory; /* device: the ops, then the samples' losses */
    lki_cuda_taken seen;
    bool is_planned;
    int blocks, wait_count;
    size_t shared_nbytes;
};

/* Whether one of two touches writes what the other touches. */
static inline bool lki_cuda_meet(const lki_cuda_touch *a, const lki_cuda_touch *b)
{
    return a->begin < b->begin + b->nbytes && b->begin < a->begin + a->nbytes && (a->writes || b->writes);
}

/* The notes become ops; false where they cannot. */
bool lki_cuda_small_join(const lki_cuda *cuda, lki_cuda_small *s);
/* Barriers, shared memory and which kernel, for the news of the step that is to run; anew where this step
 * takes in something else than the last. */
lk_status lki_cuda_small_plan(lki_cuda *cuda, lki_cuda_small *s);

#endif
