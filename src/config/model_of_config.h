/* The model that a config describes, and nothing else of it: neither its data nor its calls are built. */
#ifndef LKI_CONFIG_MODEL_OF_CONFIG_H
#define LKI_CONFIG_MODEL_OF_CONFIG_H

#include <lockstep/nn.h>

typedef struct lki_config_model {
    lk_module *module; /* the caller's */
    char input_key[64], output_key[64];
} lki_config_model;

/* Without `draws` the weights are not drawn, because they come from a file. */
lk_status lki_model_of_config(const char *path, bool draws, lki_config_model *out);

#endif
