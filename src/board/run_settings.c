#include "board/run_settings.h"

#include "base/memory.h"
#include "board/inside.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MAX_NBYTES = 1 << 20, MAX_PATH = 1024, MAX_DEPTH = 64 };

static json_t *load(const lki_board_run *run, const char *below)
{
    size_t nbytes;
    LKI_SCOPED char *text = lki_inside_read(run->folder, below, MAX_NBYTES, &nbytes);
    json_t *found = text ? json_loadb(text, nbytes, 0, NULL) : NULL;
    if (json_is_object(found)) return found;
    json_decref(found);
    return NULL;
}

static void keep_text(char **to, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text) return;
    lki_free(*to);
    *to = lki_strdup(text);
}

bool lki_board_read_settings(lki_board_run *run)
{
    json_t *hparams = load(run, "hparams.json");
    json_t *storage = load(run, "checkpoints/model.storage.json");
    char *line = hparams ? json_dumps(hparams, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    int minimize_before = run->minimize;
    bool changed = !lki_same_text(line, run->hparams);
    if (changed) {
        lki_free(run->hparams);
        run->hparams = lki_strdup(line);
    }
    free(line);
    keep_text(&run->valid_loader, hparams, "valid_loader");
    keep_text(&run->valid_metric, hparams, "valid_metric");
    run->num_epochs = json_integer_value(json_object_get(hparams, "num_epochs"));
    const char *loader = json_string_value(json_object_get(storage, "loader_key"));
    const char *metric = json_string_value(json_object_get(storage, "metric_key"));
    const json_t *minimize = json_object_get(storage, "minimize");
    run->minimize = -1;
    if (lki_same_text(loader, run->valid_loader) && lki_same_text(metric, run->valid_metric) &&
        json_is_boolean(minimize))
        run->minimize = json_is_true(minimize);
    json_decref(hparams);
    json_decref(storage);
    return changed || run->minimize != minimize_before;
}

/* ---- config.yml ---- */

typedef struct level {
    size_t path_length; /* of the folder that the values lie in */
    bool is_list, wants_key;
    int next; /* of a list */
} level;

typedef struct flattening {
    lki_text_out *out;
    char path[MAX_PATH];
    level levels[MAX_DEPTH];
    int depth;
    bool any;
} flattening;

static void append(flattening *f, size_t at, const char *name)
{
    snprintf(f->path + at, sizeof f->path - at, "%s%s", at ? "/" : "", name);
}

/* Before a value: the place of a list's item has its number in it. */
static void enter_item(flattening *f)
{
    char number[16];
    if (f->depth == 0) return;
    level *top = &f->levels[f->depth - 1];
    if (!top->is_list) return;
    snprintf(number, sizeof number, "%d", top->next++);
    append(f, top->path_length, number);
}

static void end_value(flattening *f)
{
    if (f->depth) f->levels[f->depth - 1].wants_key = !f->levels[f->depth - 1].is_list;
}

static void put_value(flattening *f, const char *text)
{
    enter_item(f);
    lki_text_out_put(f->out, ",", f->any);
    lki_text_out_string(f->out, f->path);
    lki_text_out_put(f->out, ":", 1);
    lki_text_out_string(f->out, text);
    f->any = true;
    end_value(f);
}

static bool open_level(flattening *f, bool is_list)
{
    if (f->depth == MAX_DEPTH) return false;
    enter_item(f);
    f->levels[f->depth++] = (level){strlen(f->path), is_list, !is_list, 0};
    return true;
}

static void close_level(flattening *f)
{
    if (f->depth) f->path[f->levels[--f->depth].path_length] = 0;
    end_value(f);
}

/* False ends the walk. */
static bool take_event(flattening *f, const yaml_event_t *event)
{
    level *top = f->depth ? &f->levels[f->depth - 1] : NULL;
    const char *text = event->type == YAML_SCALAR_EVENT ? (const char *)event->data.scalar.value : "";
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        if (top && top->wants_key) {
            append(f, top->path_length, text);
            top->wants_key = false;
        } else {
            put_value(f, text);
        }
        return true;
    case YAML_ALIAS_EVENT: put_value(f, (const char *)event->data.alias.anchor); return true;
    case YAML_MAPPING_START_EVENT: return open_level(f, false);
    case YAML_SEQUENCE_START_EVENT: return open_level(f, true);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT: close_level(f); return true;
    default: return event->type != YAML_STREAM_END_EVENT;
    }
}

void lki_board_put_config(lki_text_out *out, const char *yaml, size_t nbytes)
{
    yaml_parser_t parser;
    flattening f = {.out = out};
    bool goes_on = yaml_parser_initialize(&parser) != 0;
    lki_text_out_put(out, "{", 1);
    if (goes_on) yaml_parser_set_input_string(&parser, (const unsigned char *)yaml, nbytes);
    while (goes_on) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) break;
        goes_on = take_event(&f, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    lki_text_out_put(out, "}", 1);
}
