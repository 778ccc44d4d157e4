/* A folder of classes, each a folder of pictures. */
#include <lockstep/data.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/dataset.h"
#include "data/image.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct picture {
    char *path;
    int64_t label;
} picture;

typedef struct folder {
    picture *pictures;
    int64_t count, capacity;
    int64_t height, width;
    int channels;
    bool resize;
} folder;

static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

typedef struct names {
    char **items;
    int count;
} names;

static void free_names(names *list)
{
    for (int i = 0; i < list->count; i++) lki_free(list->items[i]);
    lki_free(list->items);
}

static lk_status add_name(names *list, const char *name)
{
    char **items = lki_realloc(list->items, (size_t)(list->count + 1) * sizeof *items, "a list of files");
    if (!items) return LK_ERR_NOMEM;
    list->items = items;
    items[list->count] = lki_strdup(name);
    return items[list->count] ? list->count++, LK_OK : LK_ERR_NOMEM;
}

/* The entries of a folder in the order of their bytes, hidden ones left out. */
static lk_status list(names *out, const char *path)
{
    DIR *directory = opendir(path);
    if (!directory)
        return lki_fail(errno == ENOENT ? LK_ERR_NOT_FOUND : LK_ERR_IO, "%s: %s", path, strerror(errno));
    lk_status status = LK_OK;
    for (struct dirent *entry; status == LK_OK && (entry = readdir(directory));)
        if (entry->d_name[0] != '.') status = add_name(out, entry->d_name);
    closedir(directory);
    if (status == LK_OK && out->count) qsort(out->items, (size_t)out->count, sizeof *out->items, by_name);
    return status;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static lk_status add_picture(folder *self, const char *class_path, const char *name, int64_t label)
{
    if (self->count == self->capacity) {
        int64_t capacity = self->capacity ? 2 * self->capacity : 64;
        picture *pictures =
            lki_realloc(self->pictures, (size_t)capacity * sizeof *pictures, "a list of pictures");
        if (!pictures) return LK_ERR_NOMEM;
        self->pictures = pictures;
        self->capacity = capacity;
    }
    char *path = lki_format("%s/%s", class_path, name);
    if (!path) return LK_ERR_NOMEM;
    self->pictures[self->count++] = (picture){path, label};
    return LK_OK;
}

static lk_status add_class(folder *self, const char *class_path, int64_t label)
{
    names files = {0};
    lk_status status = list(&files, class_path);
    for (int i = 0; status == LK_OK && i < files.count; i++)
        if (lki_image_is_named_so(files.items[i]))
            status = add_picture(self, class_path, files.items[i], label);
    free_names(&files);
    return status;
}

/* The names of the folders in a folder, in the order of their bytes. */
static lk_status list_folders(names *out, const char *root)
{
    names entries = {0};
    lk_status status = list(&entries, root);
    for (int i = 0; status == LK_OK && i < entries.count; i++) {
        LKI_SCOPED char *path = lki_format("%s/%s", root, entries.items[i]);
        if (!path)
            status = LK_ERR_NOMEM;
        else if (is_folder(path))
            status = add_name(out, entries.items[i]);
    }
    free_names(&entries);
    return status;
}

/* -1 where there is none of that name. */
static int64_t find_name(const names *list, const char *name)
{
    char **found =
        list->count ? bsearch(&name, list->items, (size_t)list->count, sizeof *list->items, by_name) : NULL;
    return found ? found - list->items : -1;
}

static lk_status find_pictures(folder *self, const char *root, const names *own, const names *classes,
                               const char *classes_of)
{
    for (int i = 0; i < own->count; i++) {
        int64_t label = find_name(classes, own->items[i]);
        if (label < 0)
            return lki_fail(LK_ERR_INVALID, "%s: class \"%s\" is not one of the %d classes of %s", root,
                            own->items[i], classes->count, classes_of);
        LKI_SCOPED char *path = lki_format("%s/%s", root, own->items[i]);
        if (!path) return LK_ERR_NOMEM;
        LKI_TRY(add_class(self, path, label));
    }
    if (self->count > 0) return LK_OK;
    return lki_fail(LK_ERR_NOT_FOUND, "%s: no pictures: expected %s/<class>/<name>.png or .jpg", root, root);
}

/* ---- The dataset ---- */

static int64_t folder_length(void *context)
{
    return ((folder *)context)->count;
}

static lk_status folder_get(void *context, const lk_pass *pass, int64_t index, void *const *slots)
{
    (void)pass;
    const folder *self = context;
    const picture *one = &self->pictures[index];
    lki_image image;
    LKI_TRY(lki_image_read(&image, one->path, self->channels));
    lk_status status = LK_OK;
    if (!self->resize && (image.height != self->height || image.width != self->width))
        status = lki_fail(LK_ERR_SHAPE,
                          "%s: %lldx%lld pixels, the first picture has %lldx%lld (set height and width, in a "
                          "config size, or "
                          "begin the transforms with a resize)",
                          one->path, (long long)image.width, (long long)image.height, (long long)self->width,
                          (long long)self->height);
    else
        lki_image_to_f32(&image, slots[0], self->height, self->width);
    *(int64_t *)slots[1] = one->label;
    lki_image_fini(&image);
    return status;
}

static lk_status folder_read(void *context, int64_t index, lki_image *out, void *const *slots)
{
    const folder *self = context;
    LKI_TRY(lki_image_read(out, self->pictures[index].path, self->channels));
    *(int64_t *)slots[1] = self->pictures[index].label;
    return LK_OK;
}

static const char *folder_name(void *context, int64_t index)
{
    return ((const folder *)context)->pictures[index].path;
}

static void folder_free(void *context)
{
    folder *self = context;
    for (int64_t i = 0; i < self->count; i++) lki_free(self->pictures[i].path);
    lki_free(self->pictures);
    lki_free(self);
}

static const lk_dataset_ops folder_ops = {LK_SIZE(lk_dataset_ops), .length = folder_length, .get = folder_get,
                                          .free = folder_free};

static lk_status set_size(folder *self, const lk_image_folder_options *options)
{
    self->resize = options->height > 0;
    self->height = options->height;
    self->width = options->width ? options->width : options->height;
    if (self->resize) return LK_OK;
    lki_image first;
    LKI_TRY(lki_image_read(&first, self->pictures[0].path, self->channels));
    self->height = first.height;
    self->width = first.width;
    lki_image_fini(&first);
    return LK_OK;
}

static lk_status check_options(const lk_image_folder_options *options)
{
    if (options->channels != 0 && options->channels != 1 && options->channels != 3)
        return lki_fail(LK_ERR_INVALID, "image folder: channels: expected 1 or 3, found %d",
                        options->channels);
    if (options->height < 0 || options->width < 0 || (options->width > 0 && options->height == 0))
        return lki_fail(LK_ERR_INVALID, "image folder: a size needs a height of at least 1");
    return LK_OK;
}

static lk_dataset *open_folder(const char *root, const lk_image_folder_options *options, const names *own,
                               const names *classes)
{
    folder *self = LKI_NEW(folder);
    if (!self) return NULL;
    self->channels = options->channels ? options->channels : 3;
    if (find_pictures(self, root, own, classes, options->classes_of) || set_size(self, options)) {
        folder_free(self);
        return NULL;
    }
    const lk_field fields[] = {{"features", LK_F32, LK_SHAPE(self->channels, self->height, self->width)},
                               {"targets", LK_I64, {0}}};
    bool own_sizes = !self->resize;
    lk_dataset *dataset = lk_dataset_create(&folder_ops, fields, 2, self);
    if (dataset && own_sizes)
        lki_dataset_set_own_sizes(dataset, &(lki_own_sizes){folder_read, folder_name, self});
    if (!dataset ||
        !lk_dataset_set_classes(dataset, "targets", (const char *const *)classes->items, classes->count))
        return dataset;
    lk_dataset_free(dataset);
    return NULL;
}

lk_dataset *lk_image_folder_with(const char *root, const lk_image_folder_options *given)
{
    LKI_TAKE(lk_image_folder_options, options, given, NULL);
    names own = {0}, others = {0};
    lk_dataset *dataset = NULL;
    lk_status status =
        root ? check_options(&options) : lki_fail(LK_ERR_INVALID, "ImageFolder: no root folder");
    if (!status) status = list_folders(&own, root);
    if (!status && options.classes_of) status = list_folders(&others, options.classes_of);
    if (!status) dataset = open_folder(root, &options, &own, options.classes_of ? &others : &own);
    free_names(&own);
    free_names(&others);
    return dataset;
}
