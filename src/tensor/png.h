/* PNG pictures, to and from u8 tensors of shape (height, width, channels). Any thread. */
#ifndef LKI_TENSOR_PNG_H
#define LKI_TENSOR_PNG_H

#include <lockstep/tensor.h>

/* The file's bytes, freed with lki_free. Takes 1 (grey) or 3 (RGB) channels. */
lk_status lki_png_encode(void **out, size_t *nbytes, const lk_tensor *pixels);
/* The same into a file, atomically. */
lk_status lki_png_write(const char *path, const lk_tensor *pixels);
/* A picture as RGB, whatever the file holds; NULL with an error that names the file. */
lk_tensor *lki_png_read(const char *path);

#endif
