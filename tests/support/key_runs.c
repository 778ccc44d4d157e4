#define _GNU_SOURCE /* nftw */
#include "key_cases.h"
#include "study.h"
#include "times.h"

#include "lktest.h"

#include "base/memory.h"
#include "base/status.h"
#include "estimator/estimator.h"
#include "run/study_link.h"

#include <lockstep/config.h>
#include <lockstep/lockstep.h>
#include <lockstep/log.h>

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static lkt_key_cases cases;
static char folder[1024];
static char **only; /* the components to try; NULL: all */
static int failures;
static const char *part; /* the files of cases that are tried begin so */

/* Files need not outlive the machine here, and waiting for the disk would take most of the test's time. */
int fsync(int file)
{
    (void)file;
    return 0;
}

int fdatasync(int file)
{
    return fsync(file);
}

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    failures++;
}

/* ---- A run ---- */

/* What is to be run: the config of a block, its component with the block's arguments, the further settings of
 * a case, and one key more where it is not NULL. */
typedef struct job {
    const lkt_key_block *block;
    const char *component;
    const char *const *further;
    const char *key, *value;
    bool reads_settings, is_short_of_memory, has_terminal, is_trial;
} job;

typedef struct result {
    int code;
    char *text; /* all that can be seen of the run */
} result;

static lk_status set(lk_config *config, const char *path, const char *assignment)
{
    LKI_SCOPED char *whole = *assignment == '/' ? lki_format("%s", assignment + 1)
                                                : lki_format("%s%s%s", path, path ? "/" : "", assignment);
    return lk_config_override(config, whole);
}

static lk_status configure(const job *j, lk_config *config)
{
    const char *path = j->block->config->path, *base = j->block->base;
    LKI_TRY(lk_config_load_text(config, "c.yml", j->block->config->text));
    if (base) {
        LKI_SCOPED char *component = lki_format("%s={_target_: %s, %s", path, j->component, base + 1);
        LKI_TRY(lk_config_override(config, component));
    }
    for (int i = 0; j->further && j->further[i]; i++) LKI_TRY(set(config, path, j->further[i]));
    if (!j->key) return LK_OK;
    LKI_SCOPED char *change = lki_format("%s=%s", j->key, j->value);
    return set(config, path, change);
}

/* In a process and a folder of its own. */
static void run_job(const job *j, const char *place, int terminal)
{
    if (chdir(place) || symlink("../data", "data") || !freopen("../out.txt", "w", stdout) ||
        !freopen("../err.txt", "w", stderr))
        _exit(98);
    alarm(120);
    setenv("TERM", "xterm", 1);
    if (terminal >= 0) dup2(terminal, STDOUT_FILENO), dup2(terminal, STDERR_FILENO);
    lk_set_log_sink(lk_log_to_stderr, NULL);
    if (j->is_trial)
        lki_study_join(lkt_study_serve("study.txt", 0), (lki_study_metric){"valid", "loss", true, NULL});
    if (j->is_short_of_memory) lki_set_allocation_limit(128 << 10);
    lk_config *config = lk_config_create();
    lk_status status = configure(j, config);
    if (!status) status = lk_config_run(config);
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_config_free(config);
    fflush(NULL);
    _exit(status ? 1 : 0);
}

static char *read_all(const char *path, size_t *nbytes)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1), block[4096];
    *nbytes = 0;
    for (size_t count; file && (count = fread(block, 1, sizeof block, file)) > 0;) {
        text = realloc(text, *nbytes + count + 1);
        assert_non_null(text);
        memcpy(text + *nbytes, block, count);
        *nbytes += count;
        text[*nbytes] = 0;
    }
    if (file) fclose(file);
    return text;
}

/* Files that repeat the config: only their names are looked at. Of those that hold its numbers beside others,
 * or the time of day, the size too. */
static bool repeats_the_config(const char *name, bool reads_settings)
{
    if (!strcmp(name, "hparams.json")) return !reads_settings;
    return !strcmp(name, "config.yml") || !strcmp(name, "log.txt") || !strcmp(name, "params.json") ||
           !strcmp(name, "trace.json") || !strcmp(name, "profile.txt") || !strcmp(name, "system.jsonl") ||
           !strcmp(name, "model.json") || !strcmp(name, LKI_MODEL_DETAILS);
}

/* Of a profile, all lines but the first are times. */
static void hide_profile(char *text)
{
    char *at = strstr(text, "profile of epoch");
    char *rest = at ? strchr(at, '\n') : NULL;
    if (!rest) return;
    char *next = rest + 1;
    while (!strncmp(next, "  ", 2) && strchr(next, '\n')) next = strchr(next, '\n') + 1;
    memmove(rest + 1, next, strlen(next) + 1);
}

static FILE *listing; /* nftw has no context */
static size_t listing_root;
static bool listing_settings;

static uint64_t hash_of(const char *text, size_t nbytes)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < nbytes; i++) hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    return hash;
}

static int list_file(const char *path, const struct stat *info, int type, struct FTW *at)
{
    const char *name = path + at->base, *events = strstr(path, "events.out.tfevents");
    bool is_checkpoint = !strncmp(name, "runner.", 7) || !strcmp(name, "model.safetensors"),
         is_record = strstr(path, "/mlruns/");
    size_t nbytes;
    (void)info;
    if (type != FTW_F) return 0;
    if (is_record && (at->level != 3 || strcmp(name, "meta.yaml") != 0)) return 0; /* random names below */
    if (events && strstr(path, "/tensorboard/events.out") && !listing_settings)    /* settings and model */
        return fprintf(listing, "%.*s\n", (int)(events - path - (ptrdiff_t)listing_root),
                       path + listing_root) < 0;
    if (repeats_the_config(name, listing_settings)) return fprintf(listing, "%s\n", path + listing_root) < 0;
    char *text = read_all(path, &nbytes);
    if (!events && memchr(text, 0, nbytes) == NULL) {
        lkt_drop_times(text, name);
        nbytes = strlen(text);
    }
    int length = events ? (int)(events - path - (ptrdiff_t)listing_root) : (int)(strlen(path) - listing_root);
    fprintf(listing, "%.*s %zu %llx\n", length, path + listing_root, nbytes,
            events || is_checkpoint || is_record ? 0ull : (unsigned long long)hash_of(text, nbytes));
    free(text);
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The folder's files, in the order of their names. */
char *lkt_list_results(const char *place, bool settings)
{
    char *text = NULL, *lines[1024], *sorted = NULL;
    size_t nbytes;
    int count = 0;
    listing = open_memstream(&text, &nbytes);
    listing_root = strlen(place) + 1;
    listing_settings = settings;
    assert_int_equal(nftw(place, list_file, 16, FTW_PHYS), 0);
    fclose(listing);
    for (char *line = strtok(text, "\n"); line && count < 1024; line = strtok(NULL, "\n"))
        lines[count++] = line;
    qsort(lines, (size_t)count, sizeof *lines, by_text);
    FILE *out = open_memstream(&sorted, &nbytes);
    for (int i = 0; i < count; i++) fprintf(out, "%s\n", lines[i]);
    fclose(out);
    free(text);
    return sorted;
}

typedef struct terminal {
    int ours, theirs; /* -1: none */
} terminal;

static terminal open_terminal(void)
{
    terminal t = {posix_openpt(O_RDWR | O_NOCTTY), -1};
    assert_true(t.ours >= 0 && grantpt(t.ours) == 0 && unlockpt(t.ours) == 0);
    t.theirs = open(ptsname(t.ours), O_RDWR | O_NOCTTY);
    assert_true(t.theirs >= 0);
    return t;
}

/* What the run writes to it until it ends, into a file. */
static void drain_terminal(terminal t, const char *path)
{
    char block[1024];
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    close(t.theirs);
    for (ssize_t count; (count = read(t.ours, block, sizeof block)) > 0;)
        fwrite(block, 1, (size_t)count, file);
    fclose(file);
    close(t.ours);
}

/* Zeros for what the time of day and the machine's speed decide: the beginning of a line that begins with a
 * date, and its last six columns before a star. */
static void blank_times(char *text)
{
    for (char *line = text; *line; line += strcspn(line, "\n") + (line[strcspn(line, "\n")] != 0)) {
        size_t length = strcspn(line, "\n");
        if (length < 40 || strncmp(line, "20", 2) != 0 || line[4] != '-' || line[13] != ':') continue;
        memset(line, '0', 19);
        while (strchr(" *", line[length - 1])) length--;
        memset(line + length - 6, '0', 6);
    }
}

/* How long ranks have waited for each other differs from run to run. */
static void hide_waiting(char *text)
{
    char *line = strstr(text, "the ranks waited for each other ");
    if (!line) return;
    char *end = line + strcspn(line, "\n");
    memmove(line, end, strlen(end) + 1);
}

static result run(const job *j)
{
    char place[1100], out[1100], err[1100];
    size_t nbytes;
    int status = 0;
    terminal t = j->has_terminal ? open_terminal() : (terminal){-1, -1};
    snprintf(place, sizeof place, "%s/run", folder);
    snprintf(out, sizeof out, "%s/out.txt", folder);
    snprintf(err, sizeof err, "%s/err.txt", folder);
    lkt_shell_in(folder, "rm -rf run out.txt err.txt && mkdir run");
    pid_t pid = fork();
    if (pid == 0) run_job(j, place, t.theirs);
    assert_true(pid > 0);
    if (j->has_terminal) drain_terminal(t, out);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    result r = {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
    char *printed = read_all(out, &nbytes), *said = read_all(err, &nbytes),
         *files = lkt_list_results(place, j->reads_settings);
    for (char *time = printed; (time = strstr(time, "runtime: "));)
        for (time += strlen("runtime: "); *time && !strchr(" \n", *time); time++) *time = '0';
    blank_times(printed);
    hide_profile(printed);
    hide_waiting(printed);
    r.text = lki_format("%s%s%s", said, printed, files);
    free(printed), free(said), free(files);
    return r;
}

/* ---- A case ---- */

static bool is_same(const result *a, const result *b)
{
    return a->code == b->code && !strcmp(a->text, b->text);
}

static const char *first_line(char *text)
{
    text[strcspn(text, "\n")] = 0;
    return text;
}

static bool watches(const lkt_key_case *c, const char *what)
{
    return c->watches && strstr(c->watches, what);
}

static void judge(const lkt_key_case *c, const char *component, const result *base, const result *changed)
{
    char where[400];
    snprintf(where, sizeof where, "%s:%d: %s: %s: %s", c->file, c->line, component, c->key, c->value);
    bool is_base_told = c->text && strstr(base->text, c->text) && (base->code || c->outcome == LKT_KEY_SAYS);
    switch (c->outcome) {
    case LKT_KEY_DIFFERS:
        if (changed->code && !watches(c, "failing"))
            complain("%s: the run fails (%d): %s", where, changed->code, first_line(changed->text));
        else if (is_same(base, changed))
            complain("%s has no effect", where);
        break;
    case LKT_KEY_FAILS:
        if (changed->code != 1 || is_base_told || !strstr(changed->text, c->text))
            complain("%s: expected a failure with \"%s\", found (%d) %s", where, c->text, changed->code,
                     first_line(changed->text));
        break;
    case LKT_KEY_SAYS:
        if (changed->code || is_base_told || !strstr(changed->text, c->text))
            complain("%s: expected the line \"%s\", found (%d) %s", where, c->text, changed->code,
                     first_line(changed->text));
        break;
    }
}

/* The last base, which most cases of a block share. */
static struct {
    const lkt_key_block *block;
    const lk_component *component;
    result result;
} kept;

static result base_of(const job *j, const lk_component *component, bool is_plain, bool may_fail)
{
    if (is_plain && kept.block == j->block && kept.component == component)
        return (result){kept.result.code, lki_strdup(kept.result.text)};
    result base = run(j), again = run(j);
    if (base.code && !may_fail)
        complain("%s:%d: %s: the config does not run: %s", j->block->file, j->block->line, j->component,
                 first_line(base.text));
    else if (!is_same(&base, &again))
        complain("%s:%d: %s: two runs differ:\n%s---\n%s", j->block->file, j->block->line, j->component,
                 base.text, again.text);
    lki_free(again.text);
    if (!is_plain) return base;
    lki_free(kept.result.text);
    kept.block = j->block;
    kept.component = component;
    kept.result = (result){base.code, lki_strdup(base.text)};
    return base;
}

static void try_case(const lkt_key_block *block, const lk_component *component, const char *called,
                     const lkt_key_case *c)
{
    job j = {.block = block, .component = called, .further = c->further};
    j.reads_settings = watches(c, "settings");
    j.is_short_of_memory = watches(c, "memory");
    j.has_terminal = watches(c, "terminal");
    j.is_trial = watches(c, "study");
    result base = base_of(&j, component, !c->further[0] && !c->watches, watches(c, "failing"));
    j.key = c->key;
    j.value = c->value;
    result changed = run(&j);
    if (base.code == 0 || watches(c, "failing")) judge(c, component->name, &base, &changed);
    lki_free(base.text);
    lki_free(changed.text);
}

/* ---- Values from the registry ---- */

static bool is_of(const lkt_key_block *block, const lk_component *component)
{
    char name[100];
    for (int i = 0; lkt_word_at(block->components, i, name, sizeof name); i++)
        if (lk_component_find(name) == component) return true;
    return false;
}

/* The first block about a component; NULL where there is none. */
static const lkt_key_block *block_of(const lk_component *component)
{
    for (int i = 0; i < cases.block_count; i++)
        if (is_of(&cases.blocks[i], component)) return &cases.blocks[i];
    return NULL;
}

static bool has_case(const lk_component *component, const char *key)
{
    for (int i = 0; i < cases.block_count; i++) {
        const lkt_key_block *block = &cases.blocks[i];
        for (int k = 0; is_of(block, component) && k < block->case_count; k++)
            if (!strcmp(block->cases[k].key, key)) return true;
    }
    return false;
}

static void try_value(const lkt_key_block *block, const lk_component *component, const char *called,
                      lkt_key_case c, const char *value)
{
    c.value = value;
    try_case(block, component, called, &c);
}

static void try_choices(const lkt_key_block *block, const lk_component *component, const char *called,
                        const lk_parameter *p, lkt_key_case c)
{
    for (const char *at = p->choices; *at; at += *at == '|') {
        char choice[64];
        size_t length = strcspn(at, "|");
        snprintf(choice, sizeof choice, "%.*s", (int)length, at);
        at += length;
        if (!p->default_value || strcmp(choice, p->default_value))
            try_value(block, component, called, c, choice);
    }
}

/* A key without a case of its own: another value, where its type and default tell one. */
static void try_default(const lkt_key_block *block, const lk_component *component, const char *called,
                        const lk_parameter *p)
{
    lkt_key_case c = {.key = p->name, .file = block->file, .line = block->line};
    bool has_default = p->default_value && *p->default_value;
    char value[64];
    if (p->no_effect || p->refused) {
        c.outcome = p->refused ? LKT_KEY_FAILS : LKT_KEY_SAYS;
        c.text = p->refused ? "cannot be set" : "has no effect here";
        try_value(block, component, called, c, "something");
    } else if (has_default && p->type == LK_PARAMETER_BOOL) {
        try_value(block, component, called, c, strchr("tyTY1", *p->default_value) ? "n" : "y");
    } else if (has_default && p->type == LK_PARAMETER_FLOAT) {
        double number = atof(p->default_value);
        snprintf(value, sizeof value, "%.9g", number == 0 ? 0.25 : number / 2);
        try_value(block, component, called, c, value);
    } else if (has_default && (p->type == LK_PARAMETER_INT || p->type == LK_PARAMETER_INT64)) {
        snprintf(value, sizeof value, "%d", atoi(p->default_value) + 1);
        try_value(block, component, called, c, value);
    } else if (p->type == LK_PARAMETER_STRING && p->choices) {
        try_choices(block, component, called, p, c);
    } else {
        complain("%s: %s has no case: add `%s: ANOTHER VALUE` below `== %s` in tests/config/keys/%s",
                 component->name, p->name, p->name, block->components, block->file);
    }
}

static void try_component(const lkt_key_block *block, const lk_component *component, const char *called)
{
    const lk_parameter *p = block == block_of(component) ? component->parameters : NULL;
    for (; p && p->name; p++)
        if (!has_case(component, p->name)) try_default(block, component, called, p);
    for (int i = 0; i < block->case_count; i++) try_case(block, component, called, &block->cases[i]);
}

/* ---- All of them ---- */

void lkt_use_two_cores(void)
{
    cpu_set_t all, two;
    CPU_ZERO(&two);
    if (sched_getaffinity(0, sizeof all, &all)) return;
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&two) < 2; i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &two);
    assert_int_equal(sched_setaffinity(0, sizeof two, &two), 0);
}

static bool is_wanted(const char *name)
{
    for (char **wanted = only; wanted && *wanted; wanted++)
        if (!strcmp(*wanted, name)) return true;
    return !only;
}

/* One that has the table and the function of another, which has cases. */
static bool is_alike(const lk_component *component)
{
    char first[100], name[100];
    for (int i = 0; i < cases.alike_count; i++) {
        const lk_component *model = lk_component_find(lkt_word_at(cases.alike[i], 0, first, sizeof first));
        for (int k = 1; lkt_word_at(cases.alike[i], k, name, sizeof name); k++)
            if (lk_component_find(name) == component)
                return model && block_of(model) && model->parameters == component->parameters &&
                       model->build == component->build;
    }
    return false;
}

static void test_every_component_has_cases(void **state)
{
    const lk_component *component;
    (void)state;
    int before = failures;
    for (int i = 0; (component = lk_component_at(i)); i++)
        if (is_wanted(component->name) && component->parameters && component->parameters->name &&
            !block_of(component) && !is_alike(component))
            complain("%s has no cases: add `== %s in CONFIG` to a file of tests/config/keys", component->name,
                     component->name);
    assert_int_equal(failures, before);
}

static void test_every_key_has_an_effect(void **state)
{
    char name[100];
    (void)state;
    int before = failures;
    for (int i = 0; i < cases.block_count; i++)
        for (int k = 0; lkt_word_at(cases.blocks[i].components, k, name, sizeof name); k++) {
            const lk_component *component = lk_component_find(name);
            if (strncmp(cases.blocks[i].file, part, strlen(part)) != 0) break;
            if (!component)
                complain("%s:%d: there is no component %s", cases.blocks[i].file, cases.blocks[i].line, name);
            else if (is_wanted(component->name))
                try_component(&cases.blocks[i], component, name);
        }
    assert_int_equal(failures, before);
}

/* ---- The program ---- */

static int read_cases(void **state)
{
    struct dirent **names;
    char path[1200];
    (void)state;
    snprintf(path, sizeof path, "keys_%s", part);
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder(path));
    setenv("LOCKSTEP_MNIST_MIRRORS", "http://127.0.0.1:9/", 1); /* nobody answers there */
    setenv("LOCKSTEP_DATASET_MIRRORS", "http://127.0.0.1:9/", 1);
    lkt_key_data_write(folder);
    lkt_ok(lki_estimator_components_add());
    lkt_use_two_cores();
    int count = scandir(LK_SOURCE_DIR "/tests/config/keys", &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/tests/config/keys/%s", LK_SOURCE_DIR, names[i]->d_name);
        if (strstr(path, ".keys")) lkt_key_cases_read(&cases, path);
        free(names[i]);
    }
    free(names);
    return 0;
}

static int free_cases(void **state)
{
    (void)state;
    lki_free(kept.result.text);
    lkt_key_cases_free(&cases);
    return 0;
}

int lkt_keys_main(const char *which, int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_component_has_cases),
        cmocka_unit_test(test_every_key_has_an_effect),
    };
    part = which;
    only = argc > 1 ? argv + 1 : NULL;
    return cmocka_run_group_tests_name(which, tests, read_cases, free_cases);
}
