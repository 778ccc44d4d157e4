#include "board/run.h"

#include "base/memory.h"
#include "board/inside.h"
#include "board/run_settings.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILES = 4096, MAX_DEPTH = 4 };

static bool is_events_file(const char *name)
{
    return strstr(name, "tfevents") != NULL;
}

static bool has_suffix(const char *name, const char *suffix)
{
    size_t length = strlen(name), suffix_length = strlen(suffix);
    return length > suffix_length && !strcmp(name + length - suffix_length, suffix);
}

/* ---- Is it one? ---- */

static void look_for_logs(void *context, const char *name, bool is_folder)
{
    bool *found = context;
    static const char *const files[] = {"log.txt", "hparams.json"};
    static const char *const folders[] = {"csv_logger", "tensorboard"};
    for (int i = 0; i < 2; i++)
        if (!strcmp(name, is_folder ? folders[i] : files[i])) *found = true;
    if (!is_folder && (is_events_file(name) || has_suffix(name, ".jsonl"))) *found = true;
}

bool lki_board_is_run(const char *folder)
{
    bool found = false;
    lki_inside_list(folder, "", look_for_logs, &found);
    return found;
}

/* ---- Its files ---- */

void lki_board_note_bad(lki_board_file *file, const char *problem)
{
    file->problem = problem;
    file->bad_entries++;
}

static void free_file(lki_board_file *file)
{
    lki_free(file->tail.below);
    lki_free(file->loader);
    lki_free(file->header);
}

static void claim_file(lki_board_run *run, lki_board_kind kind, const char *below, const char *loader)
{
    for (int i = 0; i < run->file_count; i++)
        if (!strcmp(run->files[i].tail.below, below)) return;
    if (run->file_count == MAX_FILES) return;
    size_t nbytes = sizeof *run->files * ((size_t)run->file_count + 1);
    lki_board_file *grown = lki_realloc(run->files, nbytes, "the files of a run");
    if (!grown) return;
    run->files = grown;
    lki_board_file made = {.kind = kind, .tail.below = lki_strdup(below), .loader = lki_strdup(loader)};
    if (made.tail.below && made.loader)
        run->files[run->file_count++] = made;
    else
        free_file(&made);
}

typedef struct search {
    lki_board_run *run;
    const char *below; /* the folder that is listed: "" or "csv_logger" */
    int depth;
} search;

/* "train" of "csv_logger/train.csv" and of "tensorboard/train/events…". */
static char *loader_of(const char *below, const char *name)
{
    if (has_suffix(name, ".csv")) return lki_strndup(name, strlen(name) - 4);
    if (!strncmp(below, "tensorboard/", 12)) return lki_strdup(below + 12);
    return lki_strdup(!strcmp(below, "tensorboard") ? "" : below);
}

static void visit_log(void *context, const char *name, bool is_folder)
{
    const search *search = context;
    LKI_SCOPED char *path = *search->below ? lki_format("%s/%s", search->below, name) : lki_strdup(name);
    if (!path) return;
    bool is_events = !strncmp(search->below, "tensorboard", 11);
    if (is_folder) {
        bool is_ours = search->depth == 0 && (!strcmp(name, "csv_logger") || !strcmp(name, "tensorboard"));
        struct search deeper = {search->run, path, search->depth + 1};
        if (is_ours || (is_events && search->depth < MAX_DEPTH))
            lki_inside_list(search->run->folder, path, visit_log, &deeper);
        return;
    }
    LKI_SCOPED char *loader = loader_of(search->below, name);
    if (!loader) return;
    if (is_events_file(name))
        claim_file(search->run, LKI_BOARD_EVENTS, path, loader);
    else if (!strcmp(search->below, "csv_logger") && has_suffix(name, ".csv"))
        claim_file(search->run, LKI_BOARD_CSV, path, loader);
    else if (search->depth == 0 && has_suffix(name, ".jsonl"))
        claim_file(search->run, LKI_BOARD_JSONL, path, "");
}

/* ---- What is new in them ---- */

/* The files of a kind make one set of series: if one of them was replaced, all are read again. */
static void forget_kind(lki_board_run *run, lki_board_kind kind)
{
    lki_board_series_drop(&run->series, kind);
    if (kind == LKI_BOARD_EVENTS) lki_board_histograms_fini(&run->histograms);
    for (int i = 0; i < run->file_count; i++) {
        lki_board_file *file = &run->files[i];
        if (file->kind != kind) continue;
        lki_tail_rewind(&file->tail);
        lki_free(file->header);
        file->header = NULL;
        file->problem = NULL;
        file->bad_entries = 0;
    }
}

static bool forget_what_changed(lki_board_run *run)
{
    bool is_old[LKI_BOARD_KIND_COUNT] = {false}, any = false;
    int kept = 0;
    for (int i = 0; i < run->file_count; i++) {
        lki_tail_news news = lki_tail_look(&run->files[i].tail, run->folder);
        if (news == LKI_TAIL_GONE || news == LKI_TAIL_REPLACED) any = is_old[run->files[i].kind] = true;
        if (news == LKI_TAIL_GONE)
            free_file(&run->files[i]);
        else
            run->files[kept++] = run->files[i];
    }
    run->file_count = kept;
    for (int kind = 0; kind < LKI_BOARD_KIND_COUNT; kind++)
        if (is_old[kind]) forget_kind(run, (lki_board_kind)kind);
    return any;
}

static lk_status follow_files(lki_board_run *run, bool *changed)
{
    static const lki_tail_read readers[] = {
        [LKI_BOARD_EVENTS] = lki_board_read_events,
        [LKI_BOARD_JSONL] = lki_board_read_jsonl,
        [LKI_BOARD_CSV] = lki_board_read_csv,
    };
    for (int i = 0; i < run->file_count; i++) {
        lki_board_file *file = &run->files[i];
        if (lki_tail_look(&file->tail, run->folder) != LKI_TAIL_GREW) continue;
        lki_board_reading reading = {file, &run->series, LK_OK, &run->histograms};
        LKI_TRY(lki_tail_follow(&file->tail, run->folder, readers[file->kind], &reading));
        LKI_TRY(reading.status);
        *changed = true;
    }
    return LK_OK;
}

/* A log may hold any number; one beyond what a double counts exactly is none of ours. */
static int64_t whole(double value)
{
    const double most = 9007199254740992.0;
    return value >= -most && value <= most ? (int64_t)value : 0;
}

/* When a file was last written; 0 if there is none. */
static int64_t time_of(const lki_board_run *run, const char *name)
{
    struct stat info;
    LKI_SCOPED char *path = lki_format("%s/%s", run->folder, name);
    return path && lstat(path, &info) == 0 ? info.st_mtim.tv_sec : 0;
}

/* The settings are written when a run starts, and again when it is resumed. */
static void sum_up_times(lki_board_run *run)
{
    run->started = time_of(run, "hparams.json");
    run->updated = time_of(run, "log.txt");
    run->last = 0;
    for (int i = 0; i < run->file_count; i++)
        if (run->files[i].tail.changed.tv_sec > run->updated)
            run->updated = run->files[i].tail.changed.tv_sec;
    for (int i = 0; i < run->series.count; i++) {
        const lki_board_series *series = &run->series.items[i];
        if (series->count == 0 || !isfinite(series->time[0])) continue;
        int64_t first = whole(series->time[0]), last = whole(series->time[series->count - 1]);
        if (run->started == 0 || first < run->started) run->started = first;
        if (last > run->last) run->last = last;
    }
    if (run->last == 0) run->last = run->updated;
}

static void sum_up(lki_board_run *run)
{
    run->epochs = 0;
    for (int i = 0; i < run->series.count; i++) {
        const lki_board_series *series = &run->series.items[i];
        double last = series->count ? series->step[series->count - 1] : 0;
        if (series->axis == LKI_BOARD_EPOCH && whole(last) > run->epochs) run->epochs = whole(last);
    }
    sum_up_times(run);
}

lk_status lki_board_run_refresh(lki_board_run *run, bool *changed)
{
    lki_run_state before = run->state;
    search search = {run, "", 0};
    *changed = forget_what_changed(run);
    lki_inside_list(run->folder, "", visit_log, &search);
    LKI_TRY(follow_files(run, changed));
    *changed |= lki_board_read_settings(run);
    sum_up(run);
    run->state = lki_board_run_state(run->folder, run->epochs, run->num_epochs, run->updated);
    *changed |= run->state != before;
    return LK_OK;
}

/* ---- Its life ---- */

lki_board_run *lki_board_run_open(int id, const char *name, const char *folder)
{
    lki_board_run *run = LKI_NEW(lki_board_run);
    if (!run) return NULL;
    *run = (lki_board_run){.id = id,
                           .name = lki_strdup(name),
                           .folder = lki_strdup(folder),
                           .is_there = true,
                           .minimize = -1,
                           .state = LKI_RUN_ENDED};
    if (run->name && run->folder) return run;
    lki_board_run_free(run);
    return NULL;
}

void lki_board_run_free(lki_board_run *run)
{
    if (!run) return;
    for (int i = 0; i < run->file_count; i++) free_file(&run->files[i]);
    lki_board_series_fini(&run->series);
    lki_board_histograms_fini(&run->histograms);
    lki_free(run->files);
    lki_free(run->hparams);
    lki_free(run->valid_loader);
    lki_free(run->valid_metric);
    lki_free(run->name);
    lki_free(run->folder);
    lki_free(run);
}
