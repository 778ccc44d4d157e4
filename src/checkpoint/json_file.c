#include "checkpoint/json_file.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

lk_status lki_json_save(const char *path, json_t *document)
{
    lki_atomic_file *file;
    char *text = document ? json_dumps(document, JSON_INDENT(2) | JSON_ENCODE_ANY) : NULL;
    json_decref(document);
    if (!text) return lki_fail(LK_ERR_INVALID, "%s: not every value can be written as JSON", path);
    lk_status status = lki_atomic_file_open(&file, path);
    if (status == LK_OK) {
        lki_atomic_file_write(file, text, strlen(text));
        lki_atomic_file_write(file, "\n", 1);
        status = lki_atomic_file_commit(file);
    }
    free(text);
    return status;
}

lk_status lki_json_load(json_t **out, const char *path)
{
    LKI_SCOPED char *text = NULL;
    size_t nbytes;
    json_error_t error;
    *out = NULL;
    LKI_TRY(lki_read_file(&text, &nbytes, path));
    *out = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES, &error);
    return *out ? LK_OK : lki_fail(LK_ERR_FORMAT, "%s:%d: %s", path, error.line, error.text);
}
