#include "run/op_text.h"

#include "base/number_text.h"

#include <string.h>

const char *lki_time_text(char *text, size_t capacity, double seconds)
{
    if (seconds < 1e-3)
        lki_snprintf(text, capacity, "%.1f us", seconds * 1e6);
    else
        lki_snprintf(text, capacity, "%.2f ms", seconds * 1e3);
    return text;
}

const char *lki_layer_text(const char *scope)
{
    if (!scope) return "";
    return strncmp(scope, "layer ", 6) == 0 ? scope + 6 : scope;
}

void lki_print_fallback(FILE *out, const char *indent, const char *op, const char *scope, const char *reason)
{
    fprintf(out, "%sslow: %s%s%s is computed by ref's plain kernel: %s\n", indent, op, scope ? " in " : "",
            scope ? scope : "", reason);
}
