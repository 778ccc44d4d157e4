#include "base/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { POLYNOMIAL_REVERSED = 0x82f63b78 };

static uint32_t table[8][256]; /* table[k][b]: the effect of byte b followed by k zero bytes */
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? (uint32_t)POLYNOMIAL_REVERSED : 0);
        table[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int byte = 0; byte < 256; byte++)
            table[k][byte] = (table[k - 1][byte] >> 8) ^ table[0][table[k - 1][byte] & 255];
}

uint32_t lki_crc32c_portable(uint32_t crc, const void *data, size_t nbytes)
{
    const uint8_t *at = data;
    pthread_once(&table_once, make_table);
    crc = ~crc;
    for (; nbytes >= 8; nbytes -= 8, at += 8) {
        uint32_t low =
            crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = table[7][low & 255] ^ table[6][(low >> 8) & 255] ^ table[5][(low >> 16) & 255] ^
              table[4][low >> 24] ^ table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
    }
    for (; nbytes; nbytes--, at++) crc = (crc >> 8) ^ table[0][(crc ^ *at) & 255];
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t with_instruction(uint32_t crc, const void *data,
                                                                   size_t nbytes)
{
    const uint8_t *at = data;
    uint64_t wide = (uint32_t)~crc;
    for (; nbytes >= 8; nbytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    uint32_t narrow = (uint32_t)wide;
    for (; nbytes; nbytes--, at++) narrow = __builtin_ia32_crc32qi(narrow, *at);
    return ~narrow;
}

uint32_t lki_crc32c(uint32_t crc, const void *data, size_t nbytes)
{
    return __builtin_cpu_supports("sse4.2") ? with_instruction(crc, data, nbytes)
                                            : lki_crc32c_portable(crc, data, nbytes);
}
#else
uint32_t lki_crc32c(uint32_t crc, const void *data, size_t nbytes)
{
    return lki_crc32c_portable(crc, data, nbytes);
}
#endif
