/* JSON documents on disk, written atomically, read with errors that name file and line. */
#ifndef LKI_CHECKPOINT_JSON_FILE_H
#define LKI_CHECKPOINT_JSON_FILE_H

#include <lockstep/status.h>

#include <jansson.h>

/* Indented, with a newline at the end; takes the document (also on failure). */
lk_status lki_json_save(const char *path, json_t *document);
/* *out is the caller's to json_decref. */
lk_status lki_json_load(json_t **out, const char *path);

#endif
