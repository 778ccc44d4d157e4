#include <lockstep/sys/op.h>

#include "graph/op_info.h"

static const struct {
    const char *name;
    int output_count;
    unsigned flags;
} infos[LK_OP_COUNT] = {
#define X(symbol, name, output_count, flags) [LK_OP_##symbol] = {name, output_count, flags},
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

int lki_op_output_count(lk_op op)
{
    return infos[op].output_count;
}
