/* Numbers as text, for people and for files. */
#ifndef LKI_LOGGER_FORMAT_H
#define LKI_LOGGER_FORMAT_H

enum { LKI_NUMBER_LENGTH = 40 };

/* Four decimals without trailing zeros ("0.8583", "0.02", "12"); small and huge numbers with an exponent
 * ("1.5e-05"). */
const char *lki_format_short(char text[LKI_NUMBER_LENGTH], double value);

/* Nine significant digits: any f32 comes back from it as it was. "nan", "inf", "-inf" for those. */
const char *lki_format_exact(char text[LKI_NUMBER_LENGTH], double value);

#endif
