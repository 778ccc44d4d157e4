#include "logger/format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A program may have set a locale whose decimal point is a comma; files and logs stay the same everywhere. */
static void plain_point(char *text)
{
    char *comma = strchr(text, ',');
    if (comma) *comma = '.';
}

const char *lki_format_short(char text[LKI_NUMBER_LENGTH], double value)
{
    double size = fabs(value);
    if (!isfinite(value)) return lki_format_exact(text, value);
    if (size != 0 && (size < 1e-3 || size >= 1e9)) {
        snprintf(text, LKI_NUMBER_LENGTH, "%.4g", value);
        plain_point(text);
        return text;
    }
    int length = snprintf(text, LKI_NUMBER_LENGTH, "%.4f", value);
    plain_point(text);
    while (text[length - 1] == '0') length--;
    if (text[length - 1] == '.') length--;
    text[length] = '\0';
    return text;
}

const char *lki_format_exact(char text[LKI_NUMBER_LENGTH], double value)
{
    if (isnan(value)) /* printf may give it a sign */
        strcpy(text, "nan");
    else
        snprintf(text, LKI_NUMBER_LENGTH, "%.9g", value);
    plain_point(text);
    return text;
}
