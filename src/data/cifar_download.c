#include "data/cifar.h"

#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"
#include "data/fetch.h"
#include "data/file.h"
#include "data/tar.h"
#include "tensor/buffer.h"

#include <unistd.h>

/* Another process may have unpacked them while this one waited. */
static bool has_all(const char *folder, const char *const *files)
{
    for (int i = 0; files[i]; i++) {
        LKI_SCOPED char *path = lki_format("%s/%s", folder, files[i]);
        if (!path || !lki_file_exists(path)) return false;
    }
    return true;
}

static lk_status fetch(const lki_cifar_archive *archive, const char *root, const char *folder)
{
    const lki_published file = {archive->file, archive->md5, false};
    lk_buffer *raw = NULL;
    const char *mirrors = lki_setting_text(LKI_SETTING_DATASET_MIRRORS);
    LKI_TRY(lki_fetch(&raw, archive->name, mirrors ? mirrors : LKI_CIFAR_MIRROR, root, &file));
    lk_status status = lki_untar_folder(folder, archive->folder, archive->file, lki_buffer_data(raw),
                                        lki_buffer_nbytes(raw));
    lki_buffer_release(raw);
    return status;
}

lk_status lki_cifar_download(const lki_cifar_archive *archive, const char *root, const char *const *files)
{
    LKI_SCOPED char *folder = lki_format("%s/%s", root, archive->folder);
    if (!folder) return LK_ERR_NOMEM;
    int lock = -1;
    LKI_TRY(lki_fetch_lock(&lock, archive->name, folder));
    lk_status status = has_all(folder, files) ? LK_OK : fetch(archive, root, folder);
    close(lock); /* and with it the lock */
    return status;
}
