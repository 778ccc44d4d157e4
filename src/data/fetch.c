#include "data/fetch.h"

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/download.h"
#include "data/file.h"
#include "tensor/buffer.h"
#include "tensor/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- The lock: one process per file system downloads, the others wait for it and then find the files ----
 */

lk_status lki_fetch_lock(int *out, const char *data_set, const char *folder)
{
    LKI_TRY(lki_make_folders(folder));
    LKI_SCOPED char *path = lki_format("%s/.download.lock", folder);
    if (!path) return LK_ERR_NOMEM;
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) return lki_fail(LK_ERR_IO, "%s: could not create: %s", path, strerror(errno));
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        lki_log(LKI_LOG_INFO, "%s: another process is downloading to %s: waiting for it", data_set, folder);
        while (flock(descriptor, LOCK_EX) != 0) {
            if (errno == EINTR) continue;
            close(descriptor);
            return lki_fail(LK_ERR_IO, "%s: could not lock: %s", path, strerror(errno));
        }
    }
    *out = descriptor;
    return LK_OK;
}

/* ---- One file ---- */

static lk_status check_digest(const lki_published *file, const char *url, const lk_buffer *packed,
                              const lk_buffer *raw)
{
    const lk_buffer *bytes = file->of_unpacked ? raw : packed;
    bool is_sha = strlen(file->digest) == 64;
    char found[65];
    if (is_sha)
        lki_sha256_hex(found, lki_buffer_data(bytes), lki_buffer_nbytes(bytes));
    else
        lki_md5_hex(found, lki_buffer_data(bytes), lki_buffer_nbytes(bytes));
    if (strcmp(found, file->digest) == 0) return LK_OK;
    return lki_fail(LK_ERR_FORMAT, "%s: wrong checksum: %s %s, expected %s", url, is_sha ? "sha256" : "md5",
                    found, file->digest);
}

static lk_status read_checked(lk_buffer **out, const char *part, const char *url, const lki_published *file)
{
    lk_buffer *packed = NULL, *raw = NULL;
    LKI_TRY(lki_map_file(&packed, part));
    lk_status status = lki_file_read(&raw, part);
    if (status == LK_OK) status = check_digest(file, url, packed, raw);
    lki_buffer_release(packed);
    if (status == LK_OK)
        *out = raw;
    else
        lki_buffer_release(raw);
    return status;
}

static lk_status fetch_from(lk_buffer **out, const char *mirror, const char *folder,
                            const lki_published *file)
{
    size_t length = strlen(mirror);
    bool ends = length && mirror[length - 1] == '/';
    LKI_SCOPED char *url = lki_format("%s%s%s", mirror, ends ? "" : "/", file->name);
    LKI_SCOPED char *part = lki_format("%s/%s.part", folder, file->name);
    if (!url || !part) return LK_ERR_NOMEM;
    LKI_TRY(lki_download(url, part));
    lk_status status = read_checked(out, part, url, file);
    /* What does not check out cannot be resumed: the next mirror starts afresh. */
    if (status == LK_OK || status == LK_ERR_FORMAT) unlink(part);
    return status;
}

lk_status lki_fetch(lk_buffer **out, const char *data_set, const char *mirrors, const char *folder,
                    const lki_published *file)
{
    LKI_SCOPED char *list = lki_strdup(mirrors);
    LKI_SCOPED char *failures = lki_strdup("");
    if (!list || !failures) return LK_ERR_NOMEM;
    lk_status status = lki_fail(LK_ERR_INVALID, "no mirror is known");
    char *rest = NULL;
    for (char *mirror = strtok_r(list, " ", &rest); mirror; mirror = strtok_r(NULL, " ", &rest)) {
        status = fetch_from(out, mirror, folder, file);
        if (status == LK_OK || status == LK_ERR_NOMEM || status == LK_ERR_UNSUPPORTED) return status;
        lki_log(LKI_LOG_WARNING, "%s: %s", data_set, lk_error());
        char *more = lki_format("%s%s%s", failures, *failures ? "; " : "", lk_error());
        if (!more) return LK_ERR_NOMEM;
        lki_free(failures);
        failures = more;
    }
    return lki_fail(status, "%s: could not download %s: %s", data_set, file->name,
                    *failures ? failures : lk_error());
}
