#include "config/components/components.h"

#include "base/status.h"

#include <string.h>

lk_status lki_built(void *object, void **out)
{
    *out = object;
    return object ? LK_OK : lki_last_status();
}

lk_status lki_build_plain_callback(const lk_component *self, lk_args *args, void **out)
{
    const lki_plain_callback *kind = self->context;
    (void)args;
    return lki_built(kind->create(), out);
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
