/* Whole files as memory: mapped where they are plain, unpacked where they are gzipped. Any thread. */
#ifndef LKI_DATA_FILE_H
#define LKI_DATA_FILE_H

#include <lockstep/status.h>
#include <lockstep/tensor.h>

#include <stdbool.h>
#include <stddef.h>

bool lki_file_exists(const char *path);

/* The unpacked content of a gzip file; `path` is for messages only. */
lk_status lki_gunzip(lk_buffer **out, const char *path, const void *packed, size_t packed_nbytes);

/* The fast way, where libdeflate is there: a gzip of one member that fits into `capacity`. False where it
 * cannot, whatever the reason; zlib then unpacks it or says what is wrong. */
bool lki_gunzip_whole(void *out, size_t capacity, size_t *out_nbytes, const void *packed,
                      size_t packed_nbytes);

/* Maps a plain file, unpacks one that begins as gzip does. */
lk_status lki_file_read(lk_buffer **out, const char *path);

/* SHA-256 as 64 hexadecimal digits and a zero. */
void lki_sha256_hex(char out[65], const void *data, size_t nbytes);

/* MD5 as 32 digits: for archives whose publishers give nothing better. */
void lki_md5_hex(char out[65], const void *data, size_t nbytes);

#endif
