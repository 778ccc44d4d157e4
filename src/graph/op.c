#include <lockstep/sys/op.h>

#include "graph/op_info.h"

static const struct {
    const char *name;
    int output_count;
    lk_op_family family;
    unsigned flags;
} infos[LK_OP_COUNT] = {
#define X(symbol, name, output_count, family, flags)                                                         \
    [LK_OP_##symbol] = {name, output_count, LK_FAMILY_##family, flags},
    LK_OP_LIST(X)
#undef X
};

const char *lk_op_name(lk_op op)
{
    return infos[op].name;
}

unsigned lk_op_flags(lk_op op)
{
    return infos[op].flags;
}

lk_op_family lk_op_family_of(lk_op op)
{
    return infos[op].family;
}

int lki_op_output_count(lk_op op)
{
    return infos[op].output_count;
}
