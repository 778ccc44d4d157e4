#include "data/mnist.h"

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"
#include "data/download.h"
#include "data/file.h"
#include "tensor/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Separated by spaces; LOCKSTEP_MNIST_MIRRORS in the environment replaces them, for a cluster with a mirror
 * of its own. */
static const char default_mirrors[] =
    "https://ossci-datasets.s3.amazonaws.com/mnist https://storage.googleapis.com/cvdf-datasets/mnist";

/* ---- The lock: one process per file system downloads, the others wait for it and then find the files ----
 */

static lk_status take_lock(int *out, const char *folder)
{
    LKI_SCOPED char *path = lki_format("%s/.download.lock", folder);
    if (!path) return LK_ERR_NOMEM;
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) return lki_fail(LK_ERR_IO, "%s: could not create: %s", path, strerror(errno));
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        lki_log(LKI_LOG_INFO, "MNIST: another process is downloading to %s: waiting for it", folder);
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

static lk_status check_sum(const lk_buffer *raw, const lki_mnist_file *file, const char *url)
{
    char found[65];
    lki_sha256_hex(found, lki_buffer_data(raw), lki_buffer_nbytes(raw));
    if (strcmp(found, file->sha256) == 0) return LK_OK;
    return lki_fail(LK_ERR_FORMAT, "%s: wrong checksum: sha256 %s, expected %s", url, found, file->sha256);
}

/* Downloads the gzip beside its place, checks what it unpacks to, and puts the unpacked file in place at
 * once. */
static lk_status fetch_from(const char *mirror, const char *folder, const lki_mnist_file *file)
{
    LKI_SCOPED char *url = lki_format("%s/%s.gz", mirror, file->name);
    LKI_SCOPED char *part = lki_format("%s/%s.gz.part", folder, file->name);
    LKI_SCOPED char *path = lki_format("%s/%s", folder, file->name);
    if (!url || !part || !path) return LK_ERR_NOMEM;
    LKI_TRY(lki_download(url, part));
    lk_buffer *raw = NULL;
    lk_status status = lki_file_read(&raw, part);
    if (status == LK_OK) status = check_sum(raw, file, url);
    if (status == LK_OK) status = lki_write_file_atomic(path, lki_buffer_data(raw), lki_buffer_nbytes(raw));
    lki_buffer_release(raw);
    /* What does not check out cannot be resumed: the next mirror starts afresh. */
    if (status == LK_OK || status == LK_ERR_FORMAT) unlink(part);
    return status;
}

static lk_status fetch(const char *mirrors, const char *folder, const lki_mnist_file *file)
{
    LKI_SCOPED char *list = lki_strdup(mirrors);
    LKI_SCOPED char *failures = lki_strdup("");
    if (!list || !failures) return LK_ERR_NOMEM;
    lk_status status = lki_fail(LK_ERR_INVALID, "no mirror is known");
    char *rest = NULL;
    for (char *mirror = strtok_r(list, " ", &rest); mirror; mirror = strtok_r(NULL, " ", &rest)) {
        status = fetch_from(mirror, folder, file);
        if (status == LK_OK || status == LK_ERR_NOMEM || status == LK_ERR_UNSUPPORTED) return status;
        lki_log(LKI_LOG_WARNING, "MNIST: %s", lk_error());
        char *more = lki_format("%s%s%s", failures, *failures ? "; " : "", lk_error());
        if (!more) return LK_ERR_NOMEM;
        lki_free(failures);
        failures = more;
    }
    return lki_fail(status, "MNIST: could not download %s: %s", file->name,
                    *failures ? failures : lk_error());
}

lk_status lki_mnist_download(const char *root, const lki_mnist_file *files, int file_count)
{
    const char *mirrors = lki_setting_text(LKI_SETTING_MNIST_MIRRORS);
    LKI_SCOPED char *folder = lki_format("%s/MNIST/raw", root);
    if (!folder) return LK_ERR_NOMEM;
    LKI_TRY(lki_make_folders(folder));
    int lock = -1;
    LKI_TRY(take_lock(&lock, folder));
    lk_status status = LK_OK;
    for (int i = 0; i < file_count && status == LK_OK; i++) {
        LKI_SCOPED char *path = lki_format("%s/%s", folder, files[i].name);
        LKI_SCOPED char *packed = lki_format("%s/%s.gz", folder, files[i].name);
        if (!path || !packed)
            status = LK_ERR_NOMEM;
        else if (!lki_file_exists(path) && !lki_file_exists(packed))
            status = fetch(mirrors ? mirrors : default_mirrors, folder, &files[i]);
    }
    close(lock); /* and with it the lock */
    return status;
}
