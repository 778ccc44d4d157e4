/* Dropout: the draws come in order from one generator, so they are made by one thread; what follows is a
 * product. */
#include "engine/cpu/cpu.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

enum { TILE = 1024 };

static lk_status run_dropout(const lk_call *call)
{
    const lki_cpu_kernels *kernels = lki_cpu_of(call)->kernels;
    double p = call->attr->dropout.p;
    bool draws = p > 0 && p < 1;
    if (draws && !call->generator) return lki_fail(LK_ERR_INVALID, "dropout has no random generator");
    int64_t count = lk_tensor_count(&call->in[0]);
    uint8_t *mask = call->output_count > 1 ? call->out[1].data : NULL;
    lki_tile_args args = {p < 1 ? (float)(1 / (1 - p)) : 0, 0, 0};
    for (int64_t i = 0; i < count; i += TILE) {
        int64_t n = count - i < TILE ? count - i : TILE;
        uint8_t *kept = mask ? mask + i : (uint8_t *)call->scratch;
        float *wide = (float *)((char *)call->scratch + TILE);
        if (draws)
            kernels->draw_mask(kept, call->generator, (uint64_t)ceil((1 - p) * 0x1p53), n);
        else
            memset(kept, p <= 0, (size_t)n);
        if (!call->out[0].data) continue;
        kernels->tile_load(wide, kept, LK_U8, n);
        kernels->tile[LK_OP_DROPOUT_GRAD](lki_cpu_out(call, 0) + i, lki_cpu_in(call, 0) + i, wide, NULL, n,
                                          &args);
    }
    return LK_OK;
}

lk_status lki_cpu_prepare_dropout(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    call->scratch_nbytes = TILE * (1 + sizeof(float));
    call->run = run_dropout;
    return LK_OK;
}
