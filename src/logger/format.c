#include "logger/format.h"

#include "base/number_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *lki_format_short(char text[LKI_NUMBER_LENGTH], double value)
{
    double size = fabs(value);
    if (!isfinite(value)) return lki_format_exact(text, value);
    if (size != 0 && (size < 1e-3 || size >= 1e9)) {
        lki_snprintf(text, LKI_NUMBER_LENGTH, "%.4g", value);
        return text;
    }
    int length = lki_snprintf(text, LKI_NUMBER_LENGTH, "%.4f", value);
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
        lki_snprintf(text, LKI_NUMBER_LENGTH, "%.9g", value);
    return text;
}
