/* Arrays from HDF5 files. What reads them is a plug-in. */
#include "data/hdf5.h"

#include "base/plugin.h"
#include "base/status.h"
#include "base/take.h"
#include "data/hdf5/hdf5_plugin.h"
#include "data/memory_dataset.h"
#include "tensor/tensor_services.h"

lki_plugin lki_hdf5 = {
    .name = "hdf5",
    .library = "HDF5",
    .package = "libhdf5-dev",
    .functions_nbytes = sizeof(lki_hdf5_functions),
    .services = &lki_tensor_services_table,
    .services_nbytes = sizeof lki_tensor_services_table,
};

static const lki_hdf5_functions *open_hdf5(const char *path)
{
    const lki_hdf5_functions *hdf5 = lki_plugin_open(&lki_hdf5);
    if (!hdf5) lki_fail_prefix(LK_ERR_UNSUPPORTED, "%s", path);
    return hdf5;
}

lk_tensor *lk_hdf5_read(const char *path, const char *label)
{
    if (!path) return lki_fail_null(LK_ERR_INVALID, "HDF5: no path");
    const lki_hdf5_functions *hdf5 = open_hdf5(path);
    return hdf5 ? hdf5->read(path, label) : NULL;
}

lk_status lki_hdf5_find_place(const char *path, const char *label, lki_hdf5_place *out)
{
    const lki_hdf5_functions *hdf5 = open_hdf5(path);
    return hdf5 ? hdf5->find_place(path, label, out) : LK_ERR_UNSUPPORTED;
}

void lki_hdf5_last_label(const char *path, char *label, size_t capacity)
{
    const lki_hdf5_functions *hdf5 = open_hdf5(path);
    if (hdf5)
        hdf5->last_label(path, label, capacity);
    else if (capacity)
        *label = 0;
}

lk_dataset *lk_hdf5_dataset_with(const char *path, const lk_hdf5_dataset_options *given)
{
    LKI_TAKE(lk_hdf5_dataset_options, options, given, NULL);
    lk_tensor *features = lk_hdf5_read(path, options.features);
    if (!features || !options.targets) {
        lki_memory_field only = lki_memory_field_of("features", features);
        return lki_memory_dataset_create(&only, 1);
    }
    lki_memory_field fields[] = {lki_memory_field_of("features", features),
                                 lki_memory_field_of("targets", lk_hdf5_read(path, options.targets))};
    return lki_memory_dataset_create(fields, 2);
}
