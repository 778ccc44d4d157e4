#include "data/mnist.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"
#include "data/fetch.h"
#include "data/file.h"
#include "tensor/buffer.h"

#include <unistd.h>

/* The unpacked file is put in place at once. */
static lk_status fetch(const lki_mnist_kind *kind, const char *folder, const char *path,
                       const lki_published *file)
{
    /* A cluster may have a mirror of its own. */
    const char *mirrors =
        lki_setting_text(kind->is_mnist ? LKI_SETTING_MNIST_MIRRORS : LKI_SETTING_DATASET_MIRRORS);
    lk_buffer *raw = NULL;
    LKI_TRY(lki_fetch(&raw, kind->name, mirrors ? mirrors : kind->mirrors, folder, file));
    lk_status status = lki_write_file_atomic(path, lki_buffer_data(raw), lki_buffer_nbytes(raw));
    lki_buffer_release(raw);
    return status;
}

lk_status lki_mnist_download(const char *root, const lki_mnist_kind *kind, const lki_published *file)
{
    LKI_SCOPED char *folder = lki_format("%s/%s/raw", root, kind->name);
    if (!folder) return LK_ERR_NOMEM;
    LKI_SCOPED char *packed = lki_format("%s/%s", folder, file->name);
    LKI_SCOPED char *path = lki_mnist_unpacked(folder, file);
    if (!packed || !path) return LK_ERR_NOMEM;
    int lock = -1;
    LKI_TRY(lki_fetch_lock(&lock, kind->name, folder));
    lk_status status = LK_OK;
    if (!lki_file_exists(path) && !lki_file_exists(packed)) status = fetch(kind, folder, path, file);
    close(lock); /* and with it the lock */
    return status;
}
