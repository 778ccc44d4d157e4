#define _GNU_SOURCE
#include "launch/role.h"

#include "base/status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *lki_environment_get(const char *const *environment, const char *name)
{
    size_t length = strlen(name);
    if (!environment) environment = (const char *const *)environ;
    for (; environment && *environment; environment++)
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
            return (*environment)[length + 1] ? *environment + length + 1 : NULL;
    return NULL;
}

lk_status lki_environment_int(const char *const *environment, const char *name, long least, long most,
                              int *out, bool *found)
{
    const char *text = lki_environment_get(environment, name);
    char *end = NULL;
    *found = text != NULL;
    if (!text) return LK_OK;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        return lki_fail(LK_ERR_CONFIG, "%s: expected a number from %ld to %ld, found \"%s\"", name, least,
                        most, text);
    *out = (int)value;
    return LK_OK;
}
