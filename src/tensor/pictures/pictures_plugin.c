#include "tensor/pictures/pictures_plugin.h"

#include "base/plugin.h"
#include "tensor/tensor_services.h"

LKI_PLUGIN_EXPORT(pictures, lki_pictures_functions, lki_tensor_services, .decode_png = lki_decode_png,
                  .decode_jpeg = lki_decode_jpeg, .encode_png = lki_encode_png,
                  .decode_png_tensor = lki_decode_png_tensor);
