#include "data/fields_plan.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

enum { ALIGNMENT = 64 };

const char *lki_fields_label(lk_name_list labels, int index)
{
    if (labels.count == 0) return NULL;
    return labels.items[labels.count == 1 ? 0 : index];
}

const char *lki_fields_label_text(const char *path, const char *label, char *text, size_t capacity)
{
    if (label) return label;
    lki_hdf5_last_label(path, text, capacity);
    return text;
}

static bool same_names(const lk_fields_options *options)
{
    bool same = options->targets.count == options->features.count;
    for (int i = 0; same && i < options->features.count; i++)
        same = strcmp(options->features.items[i], options->targets.items[i]) == 0 &&
               lki_same_text(lki_fields_label(options->feature_labels, i),
                             lki_fields_label(options->target_labels, i));
    return same || options->targets.count == 0;
}

static lk_number_list checkpoints_of(const lki_fields_plan *plan)
{
    static const double first[] = {0};
    return plan->options->checkpoints.count ? plan->options->checkpoints : (lk_number_list){first, 1};
}

static int64_t points_of(const lki_box *box)
{
    return box->size[0] * box->size[1] * box->size[2];
}

/* ---- Names ---- */

lk_status lki_fields_check_shape(const lki_fields_plan *plan, const char *path, const char *label,
                                 const lk_shape *shape)
{
    char found[128], expected[128], text[200];
    int dims = plan->dims, rank = shape->rank;
    lk_shape wanted = {.rank = dims};
    memcpy(wanted.dim, plan->options->input_size, sizeof *wanted.dim * (size_t)dims);
    bool fits = rank == dims || rank == dims + 1;
    for (int i = 0; fits && i < dims; i++) fits = shape->dim[rank - dims + i] == wanted.dim[i];
    if (fits && lk_shape_count(*shape) > 0) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "%s: array \"%s\" has shape %s, input_size is %s", path,
                    lki_fields_label_text(path, label, text, sizeof text),
                    lk_shape_format(found, sizeof found, *shape),
                    lk_shape_format(expected, sizeof expected, wanted));
}

/* Sampled to what: found here, so that a wrong size is said with the first file. */
static lk_status check_sampling(lki_fields_plan *plan, const char *path, const char *label)
{
    char text[200];
    int64_t step[LK_MAX_SPATIAL];
    if (lki_sample_steps(&plan->input, &plan->size, step) == LK_OK) return LK_OK;
    return lki_fail_prefix(lki_last_status(), "%s: array \"%s\"", path,
                           lki_fields_label_text(path, label, text, sizeof text));
}

lk_status lki_fields_fail_with(lk_status status, const lki_fields_name *name, double checkpoint)
{
    char array[200] = "";
    bool named = !name->label || strstr(lk_error(), name->label);
    if (!named) snprintf(array, sizeof array, " (array \"%s\")", name->label);
    return lki_fail_prefix(status, "\"%s\"%s at checkpoint %g", name->name, array, checkpoint);
}

static lk_status look_at_first(lki_fields_plan *plan, lki_fields_name *name)
{
    double checkpoint = checkpoints_of(plan).items[0];
    lki_hdf5_place place;
    LKI_SCOPED char *path = lk_field_path(plan->path_template, name->name, checkpoint);
    if (!path) return lki_last_status();
    lk_status status = lki_hdf5_find_place(path, name->label, &place);
    if (!status) status = lki_fields_check_shape(plan, path, name->label, &place.shape);
    if (!status) status = check_sampling(plan, path, name->label);
    if (status) return lki_fields_fail_with(status, name, checkpoint);
    name->channels = place.shape.rank > plan->dims ? place.shape.dim[0] : 1;
    lki_twin_init(&name->first, path, &place);
    return LK_OK;
}

static lk_status find_name(lki_fields_plan *plan, const char *text, const char *label, int *index)
{
    for (*index = 0; *index < plan->name_count; (*index)++)
        if (strcmp(plan->names[*index].name, text) == 0 && lki_same_text(plan->names[*index].label, label))
            return LK_OK;
    lki_fields_name *name = &plan->names[plan->name_count++]; /* there is room for all */
    *name = (lki_fields_name){.name = text, .label = label};
    return look_at_first(plan, name);
}

static lk_status count_channels(lki_fields_plan *plan, lk_name_list names, lk_name_list labels,
                                int64_t *channels)
{
    *channels = 0;
    for (int i = 0; i < names.count; i++) {
        int index;
        LKI_TRY(find_name(plan, names.items[i], lki_fields_label(labels, i), &index));
        *channels += plan->names[index].channels;
    }
    return LK_OK;
}

/* ---- Blocks ---- */

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

/* The block of a file: the same one where several names or checkpoints lead to one array. */
static lki_fields_block *find_block(lki_fields_plan *plan, int name, double checkpoint)
{
    char *path = lk_field_path(plan->path_template, plan->names[name].name, checkpoint);
    if (!path) return NULL;
    uint64_t hash = hash_of(path);
    for (int i = 0; i < plan->block_count; i++) {
        lki_fields_block *seen = &plan->blocks[i];
        if (seen->hash != hash || strcmp(seen->path, path) != 0) continue;
        if (!lki_same_text(plan->names[seen->name].label, plan->names[name].label)) continue;
        lki_free(path);
        return seen;
    }
    lki_fields_block *block = &plan->blocks[plan->block_count++]; /* there is room for all */
    *block =
        (lki_fields_block){.path = path, .hash = hash, .name = name, .checkpoint = checkpoint, .goal = -1};
    return block;
}

/* The blocks of one of the two tensors, which begins at `offset`. */
static lk_status add_blocks(lki_fields_plan *plan, lk_name_list names, lk_name_list labels, size_t offset)
{
    lk_number_list checkpoints = checkpoints_of(plan);
    int64_t all_channels;
    LKI_TRY(count_channels(plan, names, labels, &all_channels));
    size_t sample_nbytes = (size_t)(all_channels * points_of(&plan->size)) * sizeof(float);
    for (int c = 0; c < checkpoints.count; c++, offset += sample_nbytes) {
        size_t at = offset;
        for (int i = 0; i < names.count; i++) {
            int name;
            LKI_TRY(find_name(plan, names.items[i], lki_fields_label(labels, i), &name));
            lki_fields_block *block = find_block(plan, name, checkpoints.items[c]);
            if (!block) return lki_last_status();
            plan->goals[plan->goal_count] = (lki_fields_goal){at, all_channels, block->goal};
            block->goal = plan->goal_count++;
            at += (size_t)(plan->names[name].channels * points_of(&plan->cube)) * sizeof(float);
        }
    }
    return LK_OK;
}

/* ---- The whole ---- */

static lk_status make_room(lki_fields_plan *plan)
{
    const lk_fields_options *options = plan->options;
    int names = options->features.count + options->targets.count;
    int64_t blocks = (int64_t)names * checkpoints_of(plan).count;
    plan->names = LKI_NEW_ARRAY(lki_fields_name, names);
    plan->blocks = LKI_NEW_ARRAY(lki_fields_block, blocks);
    plan->goals = LKI_NEW_ARRAY(lki_fields_goal, blocks);
    return plan->names && plan->blocks && plan->goals ? LK_OK : LK_ERR_NOMEM;
}

/* (samples, channels, cube...) as the caller will see it. */
static lk_shape shape_of(const lki_fields_plan *plan, int64_t samples, int64_t channels, bool flat)
{
    lk_shape shape = {.rank = flat ? 3 : plan->dims + 2, .dim = {samples, channels, points_of(&plan->cube)}};
    for (int i = 0; !flat && i < plan->dims; i++)
        shape.dim[2 + i] = plan->cube.size[LK_MAX_SPATIAL - plan->dims + i];
    return shape;
}

static void set_sizes(lki_fields_plan *plan)
{
    const lk_fields_options *options = plan->options;
    const int64_t *size = options->sample_to[0] > 0 ? options->sample_to : options->input_size;
    memcpy(plan->layout.size, size, sizeof *size * (size_t)plan->dims);
    plan->input = lki_box_of(plan->dims, options->input_size);
    plan->size = lki_box_of(plan->dims, size);
}

static lk_status choose_cube(lki_fields_plan *plan, int64_t *cubes)
{
    int64_t cube[LK_MAX_SPATIAL];
    LKI_TRY(lki_choose_cube(plan->dims, plan->layout.size, plan->options, cube));
    plan->cube = lki_box_of(plan->dims, cube);
    return lki_count_cubes(&plan->size, &plan->cube, cubes);
}

static void lay_out(lki_fields_plan *plan, int64_t samples, int64_t feature_channels, int64_t target_channels)
{
    lki_fields_layout *layout = &plan->layout;
    bool flat = plan->options->flat;
    layout->dims = plan->dims;
    layout->features = shape_of(plan, samples, feature_channels, flat);
    layout->targets = shape_of(plan, samples, target_channels, flat);
    lk_shape cubes = shape_of(plan, samples, target_channels, false);
    layout->target_shape = (lk_shape){.rank = plan->dims + 1};
    memcpy(layout->target_shape.dim, cubes.dim + 1, sizeof *cubes.dim * (size_t)(plan->dims + 1));
    size_t nbytes = (size_t)lk_shape_count(layout->features) * sizeof(float);
    layout->targets_offset = layout->same ? 0 : (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    layout->nbytes = layout->same
                         ? nbytes
                         : layout->targets_offset + (size_t)lk_shape_count(layout->targets) * sizeof(float);
}

static void count_reading(lki_fields_plan *plan)
{
    lki_fields_layout *layout = &plan->layout;
    layout->block_count = plan->block_count;
    for (int i = 0; i < plan->block_count; i++)
        layout->read_nbytes += (uint64_t)plan->names[plan->blocks[i].name].first.place.nbytes;
    layout->independent = true;
    for (int i = 0; i < plan->name_count; i++) layout->independent &= plan->names[i].first.place.offset >= 0;
}

lk_status lki_fields_plan_init(lki_fields_plan *plan)
{
    const lk_fields_options *options = plan->options;
    int64_t cubes, feature_channels, target_channels;
    set_sizes(plan);
    LKI_TRY(make_room(plan));
    LKI_TRY(count_channels(plan, options->features, options->feature_labels, &feature_channels));
    if (choose_cube(plan, &cubes)) {
        lki_fields_fail_at(plan->path_template, options);
        return lki_last_status();
    }
    plan->layout.same = same_names(options);
    target_channels = feature_channels;
    if (!plan->layout.same)
        LKI_TRY(count_channels(plan, options->targets, options->target_labels, &target_channels));
    lay_out(plan, checkpoints_of(plan).count * cubes, feature_channels, target_channels);
    LKI_TRY(add_blocks(plan, options->features, options->feature_labels, 0));
    if (!plan->layout.same)
        LKI_TRY(
            add_blocks(plan, options->targets, options->target_labels, (size_t)plan->layout.targets_offset));
    count_reading(plan);
    return LK_OK;
}

void lki_fields_plan_fini(lki_fields_plan *plan)
{
    for (int i = 0; i < plan->block_count; i++) lki_free(plan->blocks[i].path);
    for (int i = 0; i < plan->name_count; i++) lki_twin_fini(&plan->names[i].first);
    lki_free(plan->names);
    lki_free(plan->blocks);
    lki_free(plan->goals);
}
