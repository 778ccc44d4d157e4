#include "board/board.h"

#include "base/clock.h"
#include "base/memory.h"
#include "board/inside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 8 };

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static lk_status add_root(lki_board *board, const char *given, bool is_alone)
{
    struct stat info;
    if (stat(given, &info) == 0 && !S_ISDIR(info.st_mode))
        return lki_fail(LK_ERR_INVALID, "%s is no folder: give the logdir of a run, or a folder of logdirs",
                        given);
    size_t length = strlen(given);
    while (length > 1 && given[length - 1] == '/') length--;
    lki_board_root *root = &board->roots[board->root_count++];
    root->given = lki_strndup(given, length);
    root->prefix = lki_strdup(is_alone || !root->given ? "" : last_name(root->given));
    return root->given && root->prefix ? LK_OK : LK_ERR_NOMEM;
}

lk_status lki_board_open(lki_board **out, const char *const *folders, int count)
{
    *out = NULL;
    lki_board *board = LKI_NEW(lki_board);
    if (!board) return LK_ERR_NOMEM;
    board->version = 1;
    board->next_id = 1;
    board->roots = LKI_NEW_ARRAY(lki_board_root, count);
    lk_status status = board->roots ? LK_OK : LK_ERR_NOMEM;
    for (int i = 0; i < count && !status; i++) status = add_root(board, folders[i], count == 1);
    if (status)
        lki_board_close(board);
    else
        *out = board;
    return status;
}

void lki_board_close(lki_board *board)
{
    if (!board) return;
    for (int i = 0; i < board->run_count; i++) lki_board_run_free(board->runs[i]);
    for (int i = 0; i < board->root_count; i++) {
        lki_free(board->roots[i].given);
        lki_free(board->roots[i].prefix);
    }
    lki_free(board->runs);
    lki_free(board->roots);
    lki_free(board);
}

/* ---- Finding runs ---- */

typedef struct search {
    lki_board *board;
    const lki_board_root *root;
    const char *below; /* the folder that is listed, "" for the root itself */
    int depth;
    lk_status status;
} search;

static lki_board_run *find_folder(const lki_board *board, const char *folder)
{
    for (int i = 0; i < board->run_count; i++)
        if (!strcmp(board->runs[i]->folder, folder)) return board->runs[i];
    return NULL;
}

static lk_status add_run(lki_board *board, const char *name, const char *folder)
{
    if (board->run_count == LKI_BOARD_MAX_RUNS) {
        board->has_more = true;
        return LK_OK;
    }
    size_t nbytes = sizeof(void *) * ((size_t)board->run_count + 1);
    lki_board_run **grown = lki_realloc(board->runs, nbytes, "the board's runs");
    if (!grown) return LK_ERR_NOMEM;
    board->runs = grown;
    lki_board_run *run = lki_board_run_open(board->next_id, name, folder);
    if (!run) return LK_ERR_NOMEM;
    board->next_id++;
    board->runs[board->run_count++] = run;
    return LK_OK;
}

/* "logs/a" of the root "logs" is "a"; the root itself has its own last name. */
static char *name_of(const lki_board_root *root, const char *below)
{
    if (!*below) {
        char *whole = realpath(root->given, NULL);
        char *name = lki_strdup(whole ? last_name(whole) : last_name(root->given));
        free(whole);
        return name;
    }
    return *root->prefix ? lki_format("%s/%s", root->prefix, below) : lki_strdup(below);
}

static lk_status meet_folder(lki_board *board, const lki_board_root *root, const char *below)
{
    LKI_SCOPED char *folder = *below ? lki_format("%s/%s", root->given, below) : lki_strdup(root->given);
    if (!folder) return LK_ERR_NOMEM;
    lki_board_run *known = find_folder(board, folder);
    if (!lki_board_is_run(folder)) return LK_OK;
    if (known) {
        known->is_there = true;
        return LK_OK;
    }
    LKI_SCOPED char *name = name_of(root, below);
    return name ? add_run(board, name, folder) : LK_ERR_NOMEM;
}

/* What a run itself makes holds no other runs. */
static bool is_part_of_run(const char *name)
{
    static const char *const parts[] = {"csv_logger", "tensorboard", "checkpoints", "code",
                                        "confusion_matrix"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(name, parts[i])) return true;
    return false;
}

static void visit(void *context, const char *name, bool is_folder)
{
    search *s = context;
    if (!is_folder || s->status || s->depth == MAX_DEPTH || is_part_of_run(name)) return;
    LKI_SCOPED char *below = *s->below ? lki_format("%s/%s", s->below, name) : lki_strdup(name);
    s->status = below ? meet_folder(s->board, s->root, below) : LK_ERR_NOMEM;
    search deeper = {s->board, s->root, below, s->depth + 1, s->status};
    if (!s->status) lki_inside_list(s->root->given, below, visit, &deeper);
    s->status = deeper.status;
}

static lk_status find_runs(lki_board *board)
{
    board->has_more = false;
    for (int i = 0; i < board->run_count; i++) board->runs[i]->is_there = false;
    for (int i = 0; i < board->root_count; i++) {
        lki_board_root *root = &board->roots[i];
        struct stat info;
        bool is_there = stat(root->given, &info) == 0 && S_ISDIR(info.st_mode);
        if (is_there != root->is_there) board->version++;
        root->is_there = is_there;
        if (!is_there) continue;
        search s = {board, root, "", 0, LK_OK};
        LKI_TRY(meet_folder(board, root, ""));
        lki_inside_list(root->given, "", visit, &s);
        LKI_TRY(s.status);
    }
    return LK_OK;
}

static void forget_gone(lki_board *board)
{
    int kept = 0;
    for (int i = 0; i < board->run_count; i++) {
        if (board->runs[i]->is_there)
            board->runs[kept++] = board->runs[i];
        else
            lki_board_run_free(board->runs[i]);
    }
    if (kept != board->run_count) board->version++;
    board->run_count = kept;
}

lk_status lki_board_refresh(lki_board *board, int age_ms)
{
    int64_t now = lki_now_ns();
    if (board->looked_ns && now - board->looked_ns < (int64_t)age_ms * 1000000) return LK_OK;
    LKI_TRY(find_runs(board));
    forget_gone(board);
    for (int i = 0; i < board->run_count; i++) {
        bool changed;
        LKI_TRY(lki_board_run_refresh(board->runs[i], &changed));
        if (changed || board->runs[i]->version == 0) board->runs[i]->version = ++board->version;
    }
    board->looked_ns = lki_now_ns();
    return LK_OK;
}

lki_board_run *lki_board_find(const lki_board *board, int id)
{
    for (int i = 0; i < board->run_count; i++)
        if (board->runs[i]->id == id) return board->runs[i];
    return NULL;
}
