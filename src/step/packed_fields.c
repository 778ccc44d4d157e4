#include "step/packed_fields.h"

#include "base/status.h"

bool lki_fields_are_packed(const lk_input *fields, int count)
{
    for (int i = 0; i < count; i++)
        if (!lk_tensor_is_contiguous(fields[i].tensor)) return false;
    return true;
}

static lk_status pack(lk_tensor **copy, const lk_tensor *field)
{
    bool fits = *copy && (*copy)->dtype == field->dtype && lk_shape_equal((*copy)->shape, field->shape);
    if (fits) return lk_tensor_copy(*copy, field);
    lk_tensor_free(*copy);
    *copy = lk_tensor_clone(field);
    return *copy ? LK_OK : lki_last_status();
}

lk_status lki_pack_fields(lki_packed_fields *packed, const lk_input **fields, int count, lk_input *room)
{
    if (lki_fields_are_packed(*fields, count)) return LK_OK;
    for (int i = 0; i < count; i++) {
        room[i] = (*fields)[i];
        if (lk_tensor_is_contiguous(room[i].tensor)) continue;
        LKI_TRY(pack(&packed->copies[i], room[i].tensor));
        room[i].tensor = packed->copies[i];
    }
    *fields = room;
    return LK_OK;
}

void lki_packed_fields_fini(lki_packed_fields *packed)
{
    for (int i = 0; i < LKI_MAX_PACKED_FIELDS; i++) lk_tensor_free(packed->copies[i]);
    *packed = (lki_packed_fields){0};
}
