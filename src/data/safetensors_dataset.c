/* A dataset over the tensors of a safetensors file, which is mapped, not read. */
#include <lockstep/checkpoint.h>
#include <lockstep/data.h>

#include "base/status.h"
#include "base/take.h"
#include "data/memory_dataset.h"

static lk_dataset *with_prefix(lk_dataset *dataset, const char *path)
{
    if (!dataset) lki_fail_prefix(lki_last_status(), "%s", path);
    return dataset;
}

static lk_dataset *all_tensors(const lk_state_dict *dict, const char *path)
{
    int64_t count = lk_state_dict_count(dict);
    lki_memory_field fields[LK_MAX_FIELDS];
    if (count < 1 || count > LK_MAX_FIELDS)
        return lki_fail_null(LK_ERR_FORMAT,
                             "%s: %lld tensors: a dataset has 1 to %d fields (name features and targets)",
                             path, (long long)count, LK_MAX_FIELDS);
    for (int64_t i = 0; i < count; i++)
        fields[i] =
            lki_memory_field_of(lk_state_dict_name(dict, i), lk_tensor_view(lk_state_dict_tensor(dict, i)));
    return with_prefix(lki_memory_dataset_create(fields, (int)count), path);
}

static lk_dataset *named_tensors(const lk_state_dict *dict, const char *path,
                                 const lk_safetensors_dataset_options *options)
{
    const char *const names[] = {options->features, options->targets};
    const char *const keys[] = {"features", "targets"};
    lki_memory_field fields[2];
    int count = 0;
    for (int i = 0; i < 2; i++)
        if (names[i])
            fields[count++] = lki_memory_field_of(keys[i], lk_tensor_view(lk_state_dict_get(dict, names[i])));
    return with_prefix(lki_memory_dataset_create(fields, count), path);
}

lk_dataset *lk_safetensors_dataset_with(const char *path, const lk_safetensors_dataset_options *given)
{
    LKI_TAKE(lk_safetensors_dataset_options, options, given, NULL);
    lk_state_dict *dict = lk_load_safetensors(path);
    if (!dict) return NULL;
    lk_dataset *dataset =
        options.features || options.targets ? named_tensors(dict, path, &options) : all_tensors(dict, path);
    lk_state_dict_free(dict); /* the views keep the file mapped */
    return dataset;
}
