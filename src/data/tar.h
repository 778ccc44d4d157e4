/* Archives of tar. */
#ifndef LKI_DATA_TAR_H
#define LKI_DATA_TAR_H

#include <lockstep/status.h>

#include <stddef.h>

/* Writes the files that lie directly in one folder of the archive into `target`, which must exist, each at
 * once. Whatever else the archive holds is left alone: no name of it becomes a path. LK_ERR_FORMAT where the
 * archive ends too early or a header is damaged; `name` is for messages. */
lk_status lki_untar_folder(const char *target, const char *folder, const char *name, const void *data,
                           size_t nbytes);

#endif
