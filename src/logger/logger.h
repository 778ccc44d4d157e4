/* What a run asks of the library's own loggers: whether two of them would write to the same place. */
#ifndef LKI_LOGGER_LOGGER_H
#define LKI_LOGGER_LOGGER_H

#include <lockstep/logger.h>

/* Where a logger writes: to a folder that exists, or to a stream. The path is borrowed from its context. */
typedef struct lki_logger_target {
    const char *folder;
    FILE *stream;
} lki_logger_target;

/* As lk_logger_create, with the target known. */
lk_logger *lki_logger_create_to(const lk_logger_ops *ops, unsigned scopes, void *context,
                                lki_logger_target target);

/* Whether both are of one kind and have one target, whatever the folder is called. */
bool lki_logger_writes_where(const lk_logger *logger, const lk_logger *other);

#endif
