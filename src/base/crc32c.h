/* CRC-32C (Castagnoli): the checksum of TensorBoard's records and of our checkpoints' tensors. Uses the
 * processor's instruction where it has one. */
#ifndef LKI_BASE_CRC32C_H
#define LKI_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues from `crc`, which is 0 at the start: crc32c(ab) == crc32c(crc32c(a), b). */
uint32_t lki_crc32c(uint32_t crc, const void *data, size_t nbytes);

/* The same without the instruction, so that a test can compare the two. */
uint32_t lki_crc32c_portable(uint32_t crc, const void *data, size_t nbytes);

#endif
