#include "data/class_names.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* Where a name stands, or where it would. */
static int find_place(const lki_class_names *self, const char *text, bool *found)
{
    int begin = 0, end = self->count;
    *found = false;
    while (begin < end) {
        int middle = begin + (end - begin) / 2, order = strcmp(text, self->items[middle].text);
        if (order == 0) return *found = true, middle;
        if (order < 0)
            end = middle;
        else
            begin = middle + 1;
    }
    return begin;
}

lk_status lki_class_names_add(lki_class_names *self, const char *text, int *number)
{
    bool found;
    int place = find_place(self, text, &found);
    if (!found && self->is_complete) return LK_ERR_NOT_FOUND;
    if (!found) {
        if (self->count == self->capacity) {
            int capacity = self->capacity ? 2 * self->capacity : 16;
            lki_class_name *items =
                lki_realloc(self->items, (size_t)capacity * sizeof *items, "the names of classes");
            if (!items) return LK_ERR_NOMEM;
            self->items = items;
            self->capacity = capacity;
        }
        char *copy = lki_strdup(text);
        if (!copy) return LK_ERR_NOMEM;
        memmove(self->items + place + 1, self->items + place,
                (size_t)(self->count - place) * sizeof *self->items);
        self->items[place] = (lki_class_name){copy, self->count++};
    }
    *number = self->items[place].number;
    return LK_OK;
}

lk_status lki_class_names_take(lki_class_names *self, const char *list)
{
    for (const char *name = list; name && *name;) {
        size_t length = strcspn(name, ",");
        LKI_SCOPED char *text = lki_strndup(name, length);
        int before = self->count, number;
        if (!text) return LK_ERR_NOMEM;
        LKI_TRY(lki_class_names_add(self, text, &number));
        if (self->count == before) return lki_fail(LK_ERR_INVALID, "classes: \"%s\" is there twice", text);
        name += length + (name[length] == ',');
    }
    self->is_complete = true;
    return LK_OK;
}

int *lki_class_names_places(const lki_class_names *self)
{
    int *places = LKI_NEW_ARRAY(int, self->count + 1);
    for (int i = 0; places && i < self->count; i++)
        places[self->items[i].number] = self->is_complete ? self->items[i].number : i;
    return places;
}

void lki_class_names_free(lki_class_names *self)
{
    for (int i = 0; i < self->count; i++) lki_free(self->items[i].text);
    lki_free(self->items);
    *self = (lki_class_names){0};
}
