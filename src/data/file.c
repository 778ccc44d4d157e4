#include "data/file.h"

#include "base/memory.h"
#include "base/status.h"
#include "tensor/buffer.h"
#include "tensor/mapped.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

bool lki_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* ---- gzip ---- */

typedef struct growing {
    unsigned char *data;
    size_t nbytes, capacity;
} growing;

static lk_status grow(growing *out, size_t capacity)
{
    unsigned char *data = lki_realloc(out->data, capacity, "an unpacked file");
    if (!data) return LK_ERR_NOMEM;
    out->data = data;
    out->capacity = capacity;
    return LK_OK;
}

/* A gzip file ends with its unpacked size (modulo 2^32): a hint that saves growing, capped by what gzip can
 * pack. */
static size_t size_hint(const unsigned char *packed, size_t nbytes)
{
    if (nbytes < 18) return 1024;
    const unsigned char *tail = packed + nbytes - 4;
    size_t hint = (size_t)tail[0] | (size_t)tail[1] << 8 | (size_t)tail[2] << 16 | (size_t)tail[3] << 24;
    size_t most = nbytes * 1040 + 1024;
    return (hint < most ? hint : most) + 1;
}

static lk_status inflate_all(growing *out, z_stream *stream, const char *path)
{
    size_t packed_nbytes = stream->avail_in;
    for (;;) {
        if (out->nbytes == out->capacity) LKI_TRY(grow(out, out->capacity * 2));
        size_t room = out->capacity - out->nbytes;
        stream->next_out = out->data + out->nbytes;
        stream->avail_out = room > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uInt)room;
        uInt before = stream->avail_out;
        int code = inflate(stream, Z_NO_FLUSH);
        out->nbytes += before - stream->avail_out;
        if (code == Z_STREAM_END) {
            if (stream->avail_in < 2 || stream->next_in[0] != 0x1f || stream->next_in[1] != 0x8b)
                return LK_OK;
            code = inflateReset(stream); /* several gzip members in one file */
        }
        size_t offset = packed_nbytes - stream->avail_in;
        if (code == Z_BUF_ERROR && stream->avail_in == 0)
            return lki_fail(LK_ERR_FORMAT, "%s: truncated gzip: it ends at offset %zu", path, offset);
        if (code != Z_OK && code != Z_BUF_ERROR)
            return lki_fail(LK_ERR_FORMAT, "%s: corrupt gzip at offset %zu: %s", path, offset,
                            stream->msg ? stream->msg : "bad data");
        if (code == Z_OK && stream->avail_in == 0 && stream->avail_out > 0)
            return lki_fail(LK_ERR_FORMAT, "%s: truncated gzip: it ends at offset %zu", path, offset);
    }
}

lk_status lki_gunzip(lk_buffer **out, const char *path, const void *packed, size_t packed_nbytes)
{
    *out = NULL;
    if (packed_nbytes > UINT32_MAX)
        return lki_fail(LK_ERR_UNSUPPORTED, "%s: gzip files of more than 4 GiB are not supported", path);
    growing unpacked = {0};
    LKI_TRY(grow(&unpacked, size_hint(packed, packed_nbytes)));
    if (lki_gunzip_whole(unpacked.data, unpacked.capacity, &unpacked.nbytes, packed, packed_nbytes)) {
        *out = lki_buffer_adopt(unpacked.data, unpacked.nbytes, NULL, NULL);
        if (!*out) lki_free(unpacked.data);
        return *out ? LK_OK : LK_ERR_NOMEM;
    }
    z_stream stream = {.next_in = (Bytef *)packed, .avail_in = (uInt)packed_nbytes};
    lk_status status = LK_OK;
    if (inflateInit2(&stream, 15 + 16) != Z_OK) {
        status = lki_fail(LK_ERR_NOMEM, "%s: zlib could not start", path);
    } else {
        status = inflate_all(&unpacked, &stream, path);
        inflateEnd(&stream);
    }
    if (status == LK_OK) {
        *out = lki_buffer_adopt(unpacked.data, unpacked.nbytes, NULL, NULL);
        if (!*out) status = LK_ERR_NOMEM;
    }
    if (status != LK_OK) lki_free(unpacked.data);
    return status;
}

lk_status lki_file_read(lk_buffer **out, const char *path)
{
    lk_buffer *mapped = NULL;
    *out = NULL;
    LKI_TRY(lki_map_file(&mapped, path));
    const unsigned char *bytes = lki_buffer_data(mapped);
    size_t nbytes = lki_buffer_nbytes(mapped);
    if (nbytes == 0) {
        lki_buffer_release(mapped);
        return lki_fail(LK_ERR_FORMAT, "%s: the file is empty", path);
    }
    if (nbytes < 2 || bytes[0] != 0x1f || bytes[1] != 0x8b) {
        *out = mapped;
        return LK_OK;
    }
    lk_status status = lki_gunzip(out, path, bytes, nbytes);
    lki_buffer_release(mapped);
    return status;
}

/* ---- Checksums ---- */

static void digest_hex(char out[65], const void *data, size_t nbytes, const EVP_MD *kind)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    memset(out, 0, 65);
    if (!EVP_Digest(data, nbytes, digest, &length, kind, NULL)) return;
    for (unsigned int i = 0; i < length && i < 32; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

void lki_sha256_hex(char out[65], const void *data, size_t nbytes)
{
    digest_hex(out, data, nbytes, EVP_sha256());
}

void lki_md5_hex(char out[65], const void *data, size_t nbytes)
{
    digest_hex(out, data, nbytes, EVP_md5());
}
