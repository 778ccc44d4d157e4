/* The safetensors format: u64 header length, a JSON header, then the tensors' bytes without holes.
 *
 * What our files add, inside of the format: `__metadata__` holds "crc32c:NAME" for every tensor, and
 * "string:NAME" for every string of the state dict. */
#ifndef LKI_CHECKPOINT_SAFETENSORS_H
#define LKI_CHECKPOINT_SAFETENSORS_H

#include <lockstep/checkpoint.h>

#define LKI_SAFETENSORS_MAX_HEADER UINT64_C(100000000)
#define LKI_SAFETENSORS_CRC        "crc32c:"
#define LKI_SAFETENSORS_STRING     "string:"

/* "F32", "BF16", …; the names that the format has for our dtypes. */
const char *lki_safetensors_dtype_name(lk_dtype dtype);
/* False for a name that is not one of ours. */
bool lki_safetensors_dtype_parse(lk_dtype *out, const char *name);

#endif
