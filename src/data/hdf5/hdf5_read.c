/* Arrays from HDF5 files. The library is not safe to call from two threads, so arrays are read whole, under
 * one lock. */
#include "data/hdf5/hdf5_plugin.h"

#include "base/plugin.h"
#include "base/status.h"
#include "tensor/tensor_services.h"

#include <hdf5.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static pthread_mutex_t hdf5_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Which array ---- */

typedef struct labels {
    char text[400]; /* all of them, for the message */
    char last[200]; /* the last by name: the default */
} labels;

static herr_t note_label(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    (void)info;
    labels *found = context;
    H5O_info_t object;
    if (H5Oget_info_by_name(group, name, &object, H5P_DEFAULT) < 0 || object.type != H5O_TYPE_DATASET)
        return 0;
    size_t used = strlen(found->text);
    snprintf(found->text + used, sizeof found->text - used, "%s%s", used ? ", " : "", name);
    snprintf(found->last, sizeof found->last, "%s", name);
    return 0;
}

static lk_status choose_label(hid_t file, const char *path, const char **label, labels *found)
{
    H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, NULL, note_label, found);
    if (!*found->text && !*label) return lki_fail(LK_ERR_FORMAT, "%s: the file has no array", path);
    if (!*label) *label = found->last;
    /* A path through groups ("a/b") is tried as it is; each part must exist or HDF5 complains. */
    hid_t probe = H5Dopen2(file, *label, H5P_DEFAULT);
    if (probe < 0)
        return lki_fail(LK_ERR_INVALID, "%s: no array \"%s\": the file has %s", path, *label,
                        *found->text ? found->text : "none");
    H5Dclose(probe);
    return LK_OK;
}

/* ---- Its dtype and shape ---- */

static lk_status choose_dtype(hid_t array, const char *path, const char *label, lk_dtype *dtype,
                              hid_t *memory_type)
{
    hid_t type = H5Dget_type(array);
    H5T_class_t class = H5Tget_class(type);
    size_t nbytes = H5Tget_size(type);
    bool is_signed = class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
    H5Tclose(type);
    if (class == H5T_FLOAT) {
        *dtype = nbytes > 4 ? LK_F64 : LK_F32;
        *memory_type = nbytes > 4 ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT;
        return LK_OK;
    }
    /* h5py writes NumPy's bool as an enum of one byte. */
    if (class != H5T_INTEGER && !(class == H5T_ENUM && nbytes == 1))
        return lki_fail(LK_ERR_DTYPE, "%s: array \"%s\" holds neither floats nor integers", path, label);
    if (nbytes == 1 && !is_signed) {
        *dtype = LK_U8;
        *memory_type = H5T_NATIVE_UINT8;
    } else {
        bool wide = nbytes > 4 || (nbytes == 4 && !is_signed);
        *dtype = wide ? LK_I64 : LK_I32;
        *memory_type = !wide ? H5T_NATIVE_INT32 : is_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64;
    }
    return LK_OK;
}

static lk_status choose_shape(hid_t array, const char *path, const char *label, lk_shape *shape)
{
    hsize_t dims[H5S_MAX_RANK];
    hid_t space = H5Dget_space(array);
    shape->rank = H5Sget_simple_extent_ndims(space);
    if (shape->rank >= 0 && shape->rank <= LK_MAX_DIMS) H5Sget_simple_extent_dims(space, dims, NULL);
    H5Sclose(space);
    if (shape->rank < 0 || shape->rank > LK_MAX_DIMS)
        return lki_fail(LK_ERR_SHAPE, "%s: array \"%s\" has %d dimensions, at most %d are possible", path,
                        label, shape->rank, LK_MAX_DIMS);
    for (int i = 0; i < shape->rank; i++) shape->dim[i] = (int64_t)dims[i];
    return LK_OK;
}

/* Unsigned numbers were read as they are: one that an i64 cannot hold looks negative. */
static lk_status check_range(const lk_tensor *tensor, const char *path, const char *label)
{
    const int64_t *data = tensor->data;
    for (int64_t i = 0; i < lk_shape_count(tensor->shape); i++)
        if (data[i] < 0)
            return lki_fail(LK_ERR_RANGE, "%s: array \"%s\": element %lld is %llu, which int64 cannot hold",
                            path, label, (long long)i, (unsigned long long)data[i]);
    return LK_OK;
}

static lk_tensor *read_array(hid_t array, const char *path, const char *label)
{
    lk_dtype dtype = LK_F32;
    hid_t memory_type = H5I_INVALID_HID;
    lk_shape shape = {0};
    if (choose_dtype(array, path, label, &dtype, &memory_type) || choose_shape(array, path, label, &shape))
        return NULL;
    lk_tensor *tensor = lk_tensor_create(dtype, shape);
    if (!tensor) return NULL;
    lk_status status = LK_OK;
    if (lk_shape_count(tensor->shape) > 0 &&
        H5Dread(array, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor->data) < 0)
        status = lki_fail(LK_ERR_FORMAT, "%s: array \"%s\" cannot be read: the file is damaged", path, label);
    else if (memory_type == H5T_NATIVE_UINT64)
        status = check_range(tensor, path, label);
    if (status == LK_OK) return tensor;
    lk_tensor_free(tensor);
    return NULL;
}

static lk_status open_file(const char *path, hid_t *file)
{
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) return lki_fail(LK_ERR_INVALID, "%s: a folder, not a file", path);
    if (!exists || !S_ISREG(info.st_mode)) return lki_fail(LK_ERR_NOT_FOUND, "%s: no such file", path);
    *file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    return *file >= 0 ? LK_OK : lki_fail(LK_ERR_FORMAT, "%s: not a readable HDF5 file", path);
}

static lk_tensor *read_file(const char *path, const char *label)
{
    hid_t file;
    labels found = {0};
    lk_tensor *tensor = NULL;
    if (open_file(path, &file)) return NULL;
    if (choose_label(file, path, &label, &found) == LK_OK) {
        hid_t array = H5Dopen2(file, label, H5P_DEFAULT);
        tensor = read_array(array, path, label);
        H5Dclose(array);
    }
    H5Fclose(file);
    return tensor;
}

/* HDF5 prints its errors unless told not to; what the program around us has set comes back after. */
typedef struct quiet {
    H5E_auto2_t printer;
    void *context;
} quiet;

static void lock_hdf5(void)
{
    pthread_mutex_lock(&hdf5_lock);
}

static void unlock_hdf5(void)
{
    pthread_mutex_unlock(&hdf5_lock);
}

/* A process that is forked while another thread is inside HDF5 would find it half-way, and locked. */
static void watch_forks(void)
{
    pthread_atfork(lock_hdf5, unlock_hdf5, unlock_hdf5);
}

static void begin_quietly(quiet *before)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    lock_hdf5();
    H5Eget_auto2(H5E_DEFAULT, &before->printer, &before->context);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

static void end_quietly(const quiet *before)
{
    H5Eset_auto2(H5E_DEFAULT, before->printer, before->context);
    unlock_hdf5();
}

static lk_tensor *read_tensor(const char *path, const char *label)
{
    quiet before;
    begin_quietly(&before);
    lk_tensor *tensor = read_file(path, label);
    end_quietly(&before);
    return tensor;
}

static lk_status place_of(hid_t array, const char *path, const char *label, lki_hdf5_place *out)
{
    hid_t memory_type = H5I_INVALID_HID;
    LKI_TRY(choose_dtype(array, path, label, &out->dtype, &memory_type));
    LKI_TRY(choose_shape(array, path, label, &out->shape));
    hid_t type = H5Dget_type(array);
    bool plain = H5Tequal(type, memory_type) > 0;
    H5Tclose(type);
    haddr_t offset = H5Dget_offset(array); /* undefined where the array lies in chunks or elsewhere */
    out->nbytes = lk_shape_count(out->shape) * (int64_t)lk_dtype_nbytes(out->dtype);
    plain = plain && offset != HADDR_UNDEF && (int64_t)H5Dget_storage_size(array) == out->nbytes;
    out->offset = plain ? (int64_t)offset : -1;
    return LK_OK;
}

static lk_status find_place(const char *path, const char *label, lki_hdf5_place *out)
{
    quiet before;
    labels found = {0};
    hid_t file;
    begin_quietly(&before);
    lk_status status = open_file(path, &file);
    if (status == LK_OK) {
        status = choose_label(file, path, &label, &found);
        hid_t array = status ? H5I_INVALID_HID : H5Dopen2(file, label, H5P_DEFAULT);
        if (!status) status = place_of(array, path, label, out);
        if (array >= 0) H5Dclose(array);
        H5Fclose(file);
    }
    end_quietly(&before);
    return status;
}

static void last_label(const char *path, char *label, size_t capacity)
{
    quiet before;
    labels found = {0};
    begin_quietly(&before);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file >= 0) {
        H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, NULL, note_label, &found);
        H5Fclose(file);
    }
    end_quietly(&before);
    snprintf(label, capacity, "%s", found.last);
}

LKI_PLUGIN_EXPORT(hdf5, lki_hdf5_functions, lki_tensor_services, .read = read_tensor,
                  .find_place = find_place, .last_label = last_label);
