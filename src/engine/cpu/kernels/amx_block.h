/* A block of 32 x 32 sums in four of AMX's tiles; two hold rows of A, two columns of B. */
#ifndef LKI_CPU_KERNELS_AMX_BLOCK_H
#define LKI_CPU_KERNELS_AMX_BLOCK_H

#include "engine/cpu/kernels/amx_tiles.h"
#include "engine/cpu/kernels/simd.h"
#include "engine/cpu/bf16.h"

#include <stdbool.h>

enum { SUM_ROW_NBYTES = 32 * 4, TILE_ROW_NBYTES = 64, TILE_COUNT = 512 };

/* Tiles 0 to 3 are the sums (0 1 over 2 3), 4 and 5 A's, 6 and 7 B's; their numbers are part of the
 * instructions. */
INLINE void load_sums(const float *sums, int rows, int columns, bool keep)
{
    amx_zero(0);
    amx_zero(1);
    amx_zero(2);
    amx_zero(3);
    if (!keep) return;
    amx_load(0, sums, SUM_ROW_NBYTES);
    if (columns == 2) amx_load(1, sums + 16, SUM_ROW_NBYTES);
    if (rows == 2) amx_load(2, sums + 16 * 32, SUM_ROW_NBYTES);
    if (rows == 2 && columns == 2) amx_load(3, sums + 16 * 32 + 16, SUM_ROW_NBYTES);
}

INLINE void store_sums(float *sums, int rows, int columns)
{
    amx_store(0, sums, SUM_ROW_NBYTES);
    if (columns == 2) amx_store(1, sums + 16, SUM_ROW_NBYTES);
    if (rows == 2) amx_store(2, sums + 16 * 32, SUM_ROW_NBYTES);
    if (rows == 2 && columns == 2) amx_store(3, sums + 16 * 32 + 16, SUM_ROW_NBYTES);
}

INLINE void add_steps(const lki_bf16_rows *a, const uint16_t *b, int64_t steps, const int rows,
                      const int columns)
{
    const int64_t row_nbytes = a->row * (int64_t)sizeof(uint16_t), *at = a->at;
    for (int64_t step = 0; step < steps; step++, b += 2 * TILE_COUNT) {
        const uint16_t *from = a->data + (at ? at[step] : step * 2 * TILE_COUNT);
        amx_load(4, from, row_nbytes);
        amx_load(6, b, TILE_ROW_NBYTES);
        if (rows == 2) amx_load(5, from + a->tile, row_nbytes);
        if (columns == 2) amx_load(7, b + TILE_COUNT, TILE_ROW_NBYTES);
        amx_multiply(0, 4, 6);
        if (columns == 2) amx_multiply(1, 4, 7);
        if (rows == 2) amx_multiply(2, 5, 6);
        if (rows == 2 && columns == 2) amx_multiply(3, 5, 7);
    }
}

static void block_sums(float *sums, const lki_bf16_rows *a, const uint16_t *b, int64_t steps, int rows,
                       int columns, bool keep)
{
    load_sums(sums, rows, columns, keep);
    if (rows == 2 && columns == 2)
        add_steps(a, b, steps, 2, 2);
    else if (rows == 2)
        add_steps(a, b, steps, 2, 1);
    else if (columns == 2)
        add_steps(a, b, steps, 1, 2);
    else
        add_steps(a, b, steps, 1, 1);
    store_sums(sums, rows, columns);
}

INLINE void block_begin(void)
{
    amx_config config = amx_full_tiles();
    amx_configure(&config);
}

INLINE void block_end(void)
{
    amx_release();
}

#endif
