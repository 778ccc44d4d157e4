/* The tile instructions of AMX that products of bf16 need, under names of our own: the processor's, or with
 * LKI_AMX_EMULATED the same in plain C, for tests on machines without them. Tiles are 16 rows of 64 bytes. */
#ifndef LKI_CPU_KERNELS_AMX_TILES_H
#define LKI_CPU_KERNELS_AMX_TILES_H

#include <stdint.h>
#include <string.h>

/* Eight tiles of 16 rows of 64 bytes, in the one palette that there is. */
typedef struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_nbytes[16];
    uint8_t rows[16];
} amx_config;

static inline amx_config amx_full_tiles(void)
{
    amx_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.row_nbytes[i] = 64, config.rows[i] = 16;
    return config;
}

#ifndef LKI_AMX_EMULATED
#include <immintrin.h>

#define amx_configure(config)         _tile_loadconfig(config)
#define amx_release()                 _tile_release()
#define amx_zero(tile)                _tile_zero(tile)
#define amx_load(tile, data, stride)  _tile_loadd(tile, data, stride)
#define amx_store(tile, data, stride) _tile_stored(tile, data, stride)
#define amx_multiply(sum, a, b)       _tile_dpbf16ps(sum, a, b)

#else

static _Thread_local struct {
    int configured;
    uint8_t tile[8][16][64];
} amx;

static inline float amx_widen(uint16_t low)
{
    uint32_t bits = (uint32_t)low << 16;
    float value;
    if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u; /* denormals count as zero */
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline void amx_configure(const amx_config *config)
{
    amx.configured = config->palette == 1;
    for (int i = 0; i < 8; i++)
        if (config->row_nbytes[i] != 64 || config->rows[i] != 16) amx.configured = 0;
    memset(amx.tile, 0, sizeof amx.tile);
}

static inline void amx_release(void)
{
    amx.configured = 0;
    memset(amx.tile, 0xff, sizeof amx.tile);
}

static inline void amx_zero(int tile)
{
    if (!amx.configured) __builtin_trap(); /* as the processor does, with an invalid opcode */
    memset(amx.tile[tile], 0, sizeof amx.tile[tile]);
}

static inline void amx_load(int tile, const void *data, int64_t stride)
{
    if (!amx.configured) __builtin_trap();
    for (int i = 0; i < 16; i++) memcpy(amx.tile[tile][i], (const char *)data + i * stride, 64);
}

static inline void amx_store(int tile, void *data, int64_t stride)
{
    if (!amx.configured) __builtin_trap();
    for (int i = 0; i < 16; i++) memcpy((char *)data + i * stride, amx.tile[tile][i], 64);
}

/* sum (16, 16) += a (16, 32) b (16 pairs, 16): pair after pair, the even product first. */
static inline void amx_multiply(int sum, int a, int b)
{
    if (!amx.configured) __builtin_trap();
    for (int i = 0; i < 16; i++)
        for (int pair = 0; pair < 16; pair++)
            for (int j = 0; j < 16; j++) {
                uint16_t x[2], y[2];
                float total;
                memcpy(x, amx.tile[a][i] + 4 * pair, sizeof x);
                memcpy(y, amx.tile[b][pair] + 4 * j, sizeof y);
                memcpy(&total, amx.tile[sum][i] + 4 * j, sizeof total);
                total += amx_widen(x[0]) * amx_widen(y[0]);
                total += amx_widen(x[1]) * amx_widen(y[1]);
                memcpy(amx.tile[sum][i] + 4 * j, &total, sizeof total);
            }
}

#endif
#endif
