#include "config/components.h"

#include "base/status.h"

#include <string.h>

lk_status lki_built(void *object, void **out)
{
    *out = object;
    return object ? LK_OK : lki_last_status();
}

int lki_choice_index(const char *choices, const char *text)
{
    size_t length = text ? strlen(text) : 0;
    int index = 0;
    for (const char *at = choices; *at && length; at += *at == '|', index++) {
        size_t choice = strcspn(at, "|");
        if (choice == length && !strncmp(at, text, length)) return index;
        at += choice;
    }
    return -1;
}
