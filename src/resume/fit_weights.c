#include "resume/fit_weights.h"

#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "nn/module.h"
#include "step/step.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN = 8, LIST_NBYTES = 1200 };

/* Names of one kind of misfit: the first few, and how many there are. */
typedef struct misfits {
    char text[LIST_NBYTES];
    size_t used;
    int count;
} misfits;

typedef struct fit {
    lk_param_list params;
    const lk_state_dict *state;
    const char *prefix, *names;
    misfits missing, unexpected, wrong;
    int selected, loaded;
} fit;

static void add_misfit(misfits *list, const char *name, const char *detail)
{
    size_t needed = strlen(name) + strlen(detail) + 8;
    if (list->count++ >= SHOWN || list->used + needed > sizeof list->text) return;
    list->used += (size_t)snprintf(list->text + list->used, sizeof list->text - list->used, "%s%s%s",
                                   list->used ? ", " : "", name, detail);
}

/* All names are selected if there is no pattern. */
static bool is_selected(const char *patterns, const char *name)
{
    return !patterns || lki_matches_one_of(patterns, name);
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

static lk_tensor *find(const fit *f, const char *path)
{
    LKI_SCOPED char *name = lki_format("%s%s", f->prefix, path);
    return name && lk_state_dict_has(f->state, name) ? lk_state_dict_get(f->state, name) : NULL;
}

/* Whether the file has a shared parameter under another of its names, as formats that store it once do. */
static bool has_other_name(const fit *f, int index)
{
    for (int i = 0; i < f->params.count; i++)
        if (i != index && f->params.items[i].param == f->params.items[index].param &&
            is_selected(f->names, f->params.items[i].path) && find(f, f->params.items[i].path))
            return true;
    return false;
}

static void compare_params(fit *f)
{
    for (int i = 0; i < f->params.count; i++) {
        const char *path = f->params.items[i].path;
        if (!is_selected(f->names, path)) continue;
        const lk_tensor *given = find(f, path), *own = f->params.items[i].param->value;
        f->selected++;
        /* As in PyTorch: files of its versions before 0.4.1 do not have it, and it begins at 0. */
        if (!given && ends_with(path, "num_batches_tracked")) continue;
        if (!given && has_other_name(f, i)) {
            f->loaded++;
        } else if (!given) {
            add_misfit(&f->missing, path, "");
        } else if (!lk_shape_equal(given->shape, own->shape)) {
            char detail[400], from[160], to[160];
            snprintf(detail, sizeof detail, " is %s in the file and %s in the model",
                     lk_shape_format(from, sizeof from, given->shape),
                     lk_shape_format(to, sizeof to, own->shape));
            add_misfit(&f->wrong, path, detail);
        } else {
            f->loaded++;
        }
    }
}

static lk_status find_unexpected(fit *f)
{
    size_t length = strlen(f->prefix);
    lk_state_dict *known = lk_state_dict_create(); /* as a set of names */
    lk_status status = known ? LK_OK : LK_ERR_NOMEM;
    for (int i = 0; i < f->params.count && !status; i++)
        status = lk_state_dict_put_string(known, f->params.items[i].path, "");
    for (int64_t i = 0; i < lk_state_dict_count(f->state) && !status; i++) {
        const char *name = lk_state_dict_name(f->state, i);
        if (strncmp(name, f->prefix, length) != 0 || !is_selected(f->names, name + length)) continue;
        if (!lk_state_dict_has(known, name + length)) add_misfit(&f->unexpected, name + length, "");
    }
    lk_state_dict_free(known);
    return status;
}

static void describe(char *text, size_t capacity, const char *title, const misfits *list)
{
    size_t used = strlen(text);
    if (!list->count || used + 40 > capacity) return;
    char more[40] = "";
    if (list->count > SHOWN) snprintf(more, sizeof more, " and %d more", list->count - SHOWN);
    snprintf(text + used, capacity - used, "; %s: %s%s", title, list->text, more);
}

static void report_fit(const fit *f, char *text, size_t capacity)
{
    snprintf(text, capacity, "%d of %d tensors fit", f->loaded, f->selected);
    describe(text, capacity, "missing", &f->missing);
    describe(text, capacity, "unexpected", &f->unexpected);
    describe(text, capacity, "of another shape", &f->wrong);
}

static lk_status copy_params(fit *f)
{
    for (int i = 0; i < f->params.count; i++) {
        const lk_named_param *named = &f->params.items[i];
        const lk_tensor *given = is_selected(f->names, named->path) ? find(f, named->path) : NULL;
        if (!given) continue;
        LKI_TRY(lki_param_pull(named->param));
        LKI_SCOPED char *name = lki_format("%s%s", f->prefix, named->path);
        lk_status status = name ? lk_state_dict_copy_to(f->state, name, named->param->value) : LK_ERR_NOMEM;
        lki_param_push(named->param);
        LKI_TRY(status);
    }
    return LK_OK;
}

lk_status lki_weights_fit(lk_module *module, const lk_state_dict *state, const char *prefix, const char *what,
                          const char *names, bool strict, char **report)
{
    char text[3 * LIST_NBYTES + 200];
    fit f = {.state = state, .prefix = prefix, .names = names};
    lk_status status = lki_module_names(module, &f.params);
    if (status) return status;
    compare_params(&f);
    LKI_TRY_OUT(find_unexpected(&f));
    report_fit(&f, text, sizeof text);
    if (report && !(*report = lki_strdup(text))) LKI_TRY_OUT(LK_ERR_NOMEM);
    if (names && !f.selected)
        status = lki_fail(LK_ERR_NOT_FOUND, "%s: no weight of the model is called \"%s\"", what, names);
    else if (f.wrong.count || (strict && (f.missing.count || f.unexpected.count)))
        status = lki_fail(f.wrong.count ? LK_ERR_SHAPE : LK_ERR_NOT_FOUND, "%s does not fit the model: %s",
                          what, text);
    else if (!f.loaded && f.selected)
        status = lki_fail(LK_ERR_NOT_FOUND, "%s does not fit the model: %s", what, text);
    else
        status = copy_params(&f);
out:
    lk_param_list_free(&f.params);
    return status;
}
