#include "data/tar.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A header of ustar: where its fields begin. Everything lies in blocks. */
enum { BLOCK = 512, NAME = 0, NAME_NBYTES = 100, SIZE = 124, SIZE_DIGITS = 12, CHECKSUM = 148, KIND = 156 };

/* An octal number that a space or a zero byte ends; false where it is none. */
static bool octal(const unsigned char *text, int digits, size_t *out)
{
    int i = 0;
    while (i < digits && text[i] == ' ') i++;
    *out = 0;
    for (; i < digits && text[i] >= '0' && text[i] <= '7'; i++) {
        if (*out > SIZE_MAX / 16) return false;
        *out = *out * 8 + (size_t)(text[i] - '0');
    }
    return i == digits || text[i] == ' ' || text[i] == 0;
}

/* The bytes of a header add up to its checksum, which itself counts as spaces. */
static bool checks_out(const unsigned char *header)
{
    size_t expected, sum = 0;
    for (int i = 0; i < BLOCK; i++) sum += i >= CHECKSUM && i < CHECKSUM + 8 ? ' ' : header[i];
    return octal(header + CHECKSUM, 8, &expected) && sum == expected;
}

static bool is_end(const unsigned char *header)
{
    for (int i = 0; i < BLOCK; i++)
        if (header[i]) return false;
    return true;
}

/* What follows "folder/" in the name of an entry, if it is a plain file directly in the folder; otherwise
 * NULL. */
static const char *file_in(const char *entry, char kind, const char *folder)
{
    size_t length = strlen(folder);
    if (kind != '0' && kind != 0) return NULL;
    if (strncmp(entry, "./", 2) == 0) entry += 2;
    if (strncmp(entry, folder, length) != 0 || entry[length] != '/') return NULL;
    const char *file = entry + length + 1;
    return *file && *file != '.' && !strchr(file, '/') ? file : NULL;
}

static lk_status write_entry(const char *target, const char *file, const unsigned char *data, size_t nbytes)
{
    LKI_SCOPED char *path = lki_format("%s/%s", target, file);
    return path ? lki_write_file_atomic(path, data, nbytes) : LK_ERR_NOMEM;
}

lk_status lki_untar_folder(const char *target, const char *folder, const char *name, const void *data,
                           size_t nbytes)
{
    const unsigned char *bytes = data;
    for (size_t at = 0; at + BLOCK <= nbytes;) {
        const unsigned char *header = bytes + at;
        char entry[NAME_NBYTES + 1] = {0};
        size_t size;
        if (is_end(header)) return LK_OK;
        if (!checks_out(header) || !octal(header + SIZE, SIZE_DIGITS, &size))
            return lki_fail(LK_ERR_FORMAT, "%s: offset %zu: a damaged header of tar", name, at);
        at += BLOCK;
        if (size > nbytes - at)
            return lki_fail(LK_ERR_FORMAT, "%s: truncated: an entry ends at offset %zu, the archive at %zu",
                            name, at + size, nbytes);
        memcpy(entry, header + NAME, NAME_NBYTES);
        const char *file = file_in(entry, (char)header[KIND], folder);
        if (file) LKI_TRY(write_entry(target, file, bytes + at, size));
        size_t whole = (size + BLOCK - 1) / BLOCK * BLOCK;
        at = whole > nbytes - at ? nbytes : at + whole;
    }
    return lki_fail(LK_ERR_FORMAT, "%s: truncated: the archive has no end", name);
}
