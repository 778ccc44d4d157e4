/* Files of data and of weights. */
#include "parsers.h"

#include "base/arena.h"
#include "base/memory.h"
#include "checkpoint/json_file.h"
#include "checkpoint/pickle.h"
#include "checkpoint/storage.h"
#include "checkpoint/torch_load.h"
#include "data/cifar.h"
#include "data/hdf5.h"
#include "data/idx.h"
#include "data/image.h"
#include "data/tar.h"
#include "logger/csv_table.h"
#include "logger/tensorboard_read.h"
#include "tensor/buffer.h"
#include "tensor/npy.h"
#include "tensor/png.h"

#include <lockstep/checkpoint.h>
#include <lockstep/vision.h>

#include <stdlib.h>
#include <string.h>

/* Reads every byte of what was loaded. */
static void take_weights(lk_state_dict *state)
{
    char hash[LK_HASH_LENGTH + 1];
    if (!state) {
        check_refusal();
        return;
    }
    if (lk_weights_hash(state, hash)) check_refusal();
    lk_state_dict_free(state);
}

static void take_tensor(lk_tensor *tensor)
{
    if (!tensor) {
        check_refusal();
        return;
    }
    lk_state_dict *state = lk_state_dict_create();
    must(state && lk_state_dict_put(state, "x", tensor) == LK_OK, "a tensor can be put into a state dict");
    take_weights(state);
}

static void parse_safetensors(const uint8_t *data, size_t nbytes)
{
    take_weights(lk_load_safetensors(as_file("a.safetensors", data, nbytes)));
}

static void parse_weights(const uint8_t *data, size_t nbytes)
{
    const char *path = as_file("weights", data, nbytes);
    take_weights(lk_load_checkpoint(path));
    take_weights(lki_torch_load(path));
}

static void parse_npz(const uint8_t *data, size_t nbytes)
{
    take_weights(lk_load_checkpoint(as_file("a.npz", data, nbytes)));
}

/* Without the checksums of a zip around it. */
static void parse_pickle(const uint8_t *data, size_t nbytes)
{
    lki_arena arena = {0};
    lki_pickled out = {0};
    int left = 100000;
    if (lki_unpickle(&arena, "a.pkl", data, nbytes, &left, &out))
        check_refusal();
    else
        must(out.nbytes <= nbytes, "a pickle lies within its bytes");
    lki_arena_fini(&arena);
}

static void parse_npy(const uint8_t *data, size_t nbytes)
{
    take_tensor(lki_npy_read(as_file("a.npy", data, nbytes)));
}

/* The first byte says how many dimensions are expected. */
static void parse_idx(const uint8_t *data, size_t nbytes)
{
    lk_tensor *tensor = NULL;
    if (nbytes < 1) return;
    lk_status status = lki_idx_read(&tensor, as_file("a-idx", data + 1, nbytes - 1), data[0] % 4);
    must((status == LK_OK) == (tensor != NULL), "IDX: a tensor or a failure");
    take_tensor(tensor);
}

/* The bits of the first byte are the options. */
static void parse_csv(const uint8_t *data, size_t nbytes)
{
    if (nbytes < 1) return;
    lk_csv_dataset_options options = {
        .struct_size = sizeof options,
        .no_header = data[0] & 1,
        .class_targets = data[0] & 2,
        .delimiter = data[0] & 4 ? ';' : 0,
        .target_columns = data[0] & 8 ? "y" : NULL,
        .feature_columns = data[0] & 16 ? "a,b" : NULL,
        .classes = data[0] & 32 ? "one,two" : NULL,
    };
    lk_dataset *dataset = lk_csv_dataset_with(as_file("a.csv", data + 1, nbytes - 1), &options);
    if (!dataset) check_refusal();
    lk_dataset_free(dataset);
}

static void parse_picture(const uint8_t *data, size_t nbytes)
{
    lki_image image = {0};
    if (nbytes < 1) return;
    const char *path = as_file("a.png", data + 1, nbytes - 1);
    if (data[0] & 2) {
        take_tensor(lki_png_read(path));
        return;
    }
    if (lki_image_read(&image, path, data[0] & 1 ? 1 : 3)) check_refusal();
    lki_image_fini(&image);
}

static void parse_pickled_pictures(const uint8_t *data, size_t nbytes)
{
    static const char *const keys[] = {"coarse_labels", "fine_labels", NULL};
    const char *path = as_file("train", data, nbytes);
    lk_buffer *records = NULL;
    char *names = NULL;
    if (lki_cifar_unpickle(&records, path, keys))
        check_refusal();
    else
        must(lki_buffer_nbytes(records) % (LKI_CIFAR_PIXELS + 2) == 0, "CIFAR: whole records");
    lki_buffer_release(records);
    if (lki_cifar_unpickle_names(&names, path, "label_names")) check_refusal();
    lki_free(names);
}

/* The first byte says which data set. */
static void parse_collection(const uint8_t *data, size_t nbytes)
{
    if (nbytes < 1) return;
    if (data[0] % 3 == 0) {
        parse_pickled_pictures(data + 1, nbytes - 1);
    } else if (data[0] % 3 == 1) {
        if (lki_untar_folder(parser_folder(), "in", "a.tar", data + 1, nbytes - 1)) check_refusal();
    } else {
        as_file("ua.base", data + 1, nbytes - 1);
        as_file("ua.test", data + 1, nbytes - 1);
        lk_dataset *dataset = lk_movielens(parser_folder(), .train = true);
        if (!dataset) check_refusal();
        lk_dataset_free(dataset);
    }
}

/* Labels of arrays in one file that is there; what HDF5's own library makes of a file is its own. */
static void parse_hdf5_label(const uint8_t *data, size_t nbytes)
{
    char *label = as_text(data, nbytes);
    lki_hdf5_place place;
    take_tensor(lk_hdf5_read(LK_SOURCE_DIR "/tests/parsers/labels.h5", label));
    if (lki_hdf5_find_place(LK_SOURCE_DIR "/tests/parsers/labels.h5", label, &place)) check_refusal();
    free(label);
}

static void parse_storage(const uint8_t *data, size_t nbytes)
{
    lki_storage storage = {0}, again = {0};
    const char *path = as_file("model.storage.json", data, nbytes);
    if (lki_storage_load(&storage, path)) {
        check_refusal();
        must(storage.entry_count == 0 && !storage.logdir, "a storage that was not loaded is empty");
        return;
    }
    must(lki_storage_save(&storage, path) == LK_OK, "what was loaded can be saved");
    must(lki_storage_load(&again, path) == LK_OK && again.entry_count == storage.entry_count,
         "and loaded again");
    lki_storage_fini(&again);
    if (lki_storage_relocate(&storage, "elsewhere", parser_folder())) check_refusal();
    lki_storage_fini(&storage);
}

static void parse_events(const uint8_t *data, size_t nbytes)
{
    lki_tensorboard_scalars scalars = {0};
    const char *path = as_file("events.out.tfevents.1", data, nbytes);
    for (int growing = 0; growing < 2; growing++) {
        if (lki_tensorboard_check(&scalars, path, growing)) check_refusal();
        lki_tensorboard_scalars_fini(&scalars);
    }
    if (lki_tensorboard_truncate(path, 2, 3)) {
        check_refusal();
        return;
    }
    must(lki_tensorboard_check(&scalars, path, false) == LK_OK, "what is kept of events can be read");
    lki_tensorboard_scalars_fini(&scalars);
}

/* A table of a run that is continued: it takes one more row. */
static void parse_table(const uint8_t *data, size_t nbytes)
{
    lki_csv_table *table = NULL;
    lk_metric_value value = {.name = "loss", .value = 0.5};
    if (nbytes < 1) return;
    const char *path = as_file("train.csv", data + 1, nbytes - 1);
    if (lki_csv_table_check(path)) check_refusal();
    if (lki_csv_table_open(&table, path, data[0])) {
        check_refusal();
        return;
    }
    if (lki_csv_table_add(table, data[0] + 1, 1.0, (lk_metric_values){&value, 1})) check_refusal();
    if (lki_csv_table_close(table)) check_refusal();
    must(lki_csv_table_check(path) == LK_OK, "a table that was continued can be continued again");
}

const parser file_parsers[] = {
    {"safetensors", parse_safetensors},
    {"weights", parse_weights},
    {"npz", parse_npz},
    {"pickle", parse_pickle},
    {"npy", parse_npy},
    {"idx", parse_idx},
    {"csv", parse_csv},
    {"picture", parse_picture},
    {"collection", parse_collection},
    {"hdf5-label", parse_hdf5_label},
    {"storage", parse_storage},
    {"events", parse_events},
    {"table", parse_table},
    {NULL, NULL},
};
