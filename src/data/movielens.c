/* MovieLens-100K: the ratings that each user gave, as Catalyst's class has them. */
#include <lockstep/vision.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/file.h"
#include "data/memory_dataset.h"
#include "tensor/buffer.h"

#include <math.h>
#include <string.h>

typedef struct rating {
    int64_t user, item; /* counted from 1 */
    int64_t stars;
} rating;

typedef struct ratings {
    rating *items;
    int64_t count, capacity;
} ratings;

/* ---- Reading user, item, rating and time, separated by tabs, a rating per line ---- */

enum {
    MOST = 10000000,
    MOST_CELLS = 1 << 28
}; /* larger numbers of users and items are a mistake in the file */

/* A whole number and the byte that must follow it. */
static bool number(const char **at, const char *end, char after, int64_t *out)
{
    const char *begin = *at;
    *out = 0;
    while (*at < end && **at >= '0' && **at <= '9' && *at - begin < 18) *out = *out * 10 + (*(*at)++ - '0');
    if (*at == begin) return false;
    if (after == '\n' && *at < end && **at == '\r') ++*at;
    if (after == '\n' && *at == end) return true;
    return *at < end && *(*at)++ == after;
}

static bool parse_line(const char **at, const char *end, rating *out)
{
    int64_t time;
    return number(at, end, '\t', &out->user) && number(at, end, '\t', &out->item) &&
           number(at, end, '\t', &out->stars) && number(at, end, '\n', &time) && out->user >= 1 &&
           out->user <= MOST && out->item >= 1 && out->item <= MOST;
}

static lk_status add(ratings *list, rating one)
{
    if (list->count == list->capacity) {
        int64_t capacity = list->capacity ? 2 * list->capacity : 1024;
        rating *items = lki_realloc(list->items, (size_t)capacity * sizeof *items, "a list of ratings");
        if (!items) return LK_ERR_NOMEM;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = one;
    return LK_OK;
}

static lk_status parse(ratings *list, const char *path, const char *at, size_t nbytes)
{
    const char *end = at + nbytes;
    for (int64_t line = 1; at < end; line++) {
        rating one;
        while (at < end && *at == '\n') at++, line++; /* empty lines, as at the end */
        if (at == end) return LK_OK;
        if (!parse_line(&at, end, &one))
            return lki_fail(LK_ERR_FORMAT,
                            "%s:%lld: expected user, item, rating and time, whole numbers separated by tabs",
                            path, (long long)line);
        LKI_TRY(add(list, one));
    }
    return LK_OK;
}

static lk_status find(char **out, const char *root, const char *name)
{
    static const char *const folders[] = {"", "/ml-100k", "/MovieLens/raw/ml-100k"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        char *path = lki_format("%s%s/%s", root, folders[f], name);
        if (!path) return LK_ERR_NOMEM;
        *out = path;
        if (lki_file_exists(path)) return LK_OK;
        lki_free(path);
    }
    *out = NULL;
    return lki_fail(LK_ERR_NOT_FOUND,
                    "MovieLens: no %s in %s, %s/ml-100k or %s/MovieLens/raw/ml-100k: unpack "
                    "https://files.grouplens.org/datasets/movielens/ml-100k.zip there",
                    name, root, root, root);
}

static lk_status read_ratings(ratings *out, const char *root, const char *name)
{
    LKI_SCOPED char *path = NULL;
    lk_buffer *buffer = NULL;
    LKI_TRY(find(&path, root, name));
    LKI_TRY(lki_file_read(&buffer, path));
    lk_status status = parse(out, path, lki_buffer_data(buffer), lki_buffer_nbytes(buffer));
    lki_buffer_release(buffer);
    return status;
}

/* ---- Users by items ---- */

static void raise_to(const ratings *list, int64_t *users, int64_t *items)
{
    for (int64_t i = 0; i < list->count; i++) {
        if (list->items[i].user > *users) *users = list->items[i].user;
        if (list->items[i].item > *items) *items = list->items[i].item;
    }
}

/* The larger numbers of users and items of both files give the shape, so that the two data sets agree. */
static lk_dataset *make(const ratings *own, const ratings *other, double min_rating)
{
    int64_t users = 0, items = 0;
    raise_to(own, &users, &items);
    raise_to(other, &users, &items);
    if (users == 0) return lki_fail_null(LK_ERR_FORMAT, "MovieLens: there are no ratings");
    if (users * items > MOST_CELLS)
        return lki_fail_null(LK_ERR_FORMAT, "MovieLens: %lld users and %lld items are too many for one table",
                             (long long)users, (long long)items);
    lk_tensor *stars = lk_tensor_create(LK_F32, LK_SHAPE(users, items));
    lk_tensor *rated = lk_tensor_create(LK_F32, LK_SHAPE(users, items));
    for (int64_t i = 0; stars && rated && i < own->count; i++) {
        const rating *one = &own->items[i];
        int64_t at = (one->user - 1) * items + one->item - 1;
        if ((double)one->stars < min_rating) continue;
        ((float *)stars->data)[at] = (float)one->stars;
        ((float *)rated->data)[at] = one->stars != 0;
    }
    lki_memory_field fields[] = {lki_memory_field_of("features", stars),
                                 lki_memory_field_of("targets", rated)};
    return lki_memory_dataset_create(fields, 2);
}

lk_dataset *lk_movielens_with(const char *root, const lk_movielens_options *given)
{
    LKI_TAKE(lk_movielens_options, options, given, NULL);
    ratings train = {NULL, 0, 0}, test = {NULL, 0, 0};
    lk_dataset *dataset = NULL;
    if (!root) return lki_fail_null(LK_ERR_INVALID, "MovieLens: no root folder");
    if (!isfinite(options.min_rating))
        return lki_fail_null(LK_ERR_INVALID, "MovieLens: min_rating: expected a finite number, found %g",
                             options.min_rating);
    lk_status status = read_ratings(&train, root, "ua.base");
    if (!status) status = read_ratings(&test, root, "ua.test");
    if (!status)
        dataset =
            options.train ? make(&train, &test, options.min_rating) : make(&test, &train, options.min_rating);
    lki_free(train.items);
    lki_free(test.items);
    return dataset;
}
