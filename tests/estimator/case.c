#include "case.h"

#include <unistd.h>

const char *lkt_sapsan_folder(void)
{
    static char folder[1024];
    const char *shared = getenv("LOCKSTEP_SHARED");
    if (shared)
        snprintf(folder, sizeof folder, "%s/data/sapsan", shared);
    else
        snprintf(folder, sizeof folder, "%s/../shared/data/sapsan", LK_SOURCE_DIR);
    char file[1100];
    snprintf(file, sizeof file, "%s/cnn_krr/t0/u_dim32_fm15.h5", folder);
    return access(file, R_OK) == 0 ? folder : NULL;
}

lk_fields *lkt_velocity16(const char *folder, lk_fields_options more)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/cnn_krr/t{checkpoint:1.0f}/{feature}_dim32_fm15.h5", folder);
    more.features = more.targets = lk_names("u");
    more.checkpoints = lk_numbers(0);
    for (int i = 0; i < 3; i++) {
        more.input_size[i] = 32;
        more.sample_to[i] = 16;
    }
    return lk_hdf5_fields_with(path, &more);
}

lk_tensor *lkt_wavy(lk_shape shape)
{
    lk_tensor *tensor = lk_tensor_create(LK_F32, shape);
    for (int64_t i = 0; tensor && i < lk_tensor_count(tensor); i++)
        lk_tensor_set(tensor, i, sin(0.37 * (double)i) + 0.2 * cos(1.7 * (double)i));
    return tensor;
}
