/* Projects to start from: a folder with an estimator's source and all that it takes to build and train it;
 * the training backend's source; the examples. */
#include "cli/commands.h"
#include "cli/embedded.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *embedded(const char *name)
{
    for (const lki_embedded_file *file = lki_embedded; file->name; file++)
        if (strcmp(file->name, name) == 0) return file->text;
    return "";
}

/* ---- Texts with @WORDS@ in them ---- */

typedef struct word {
    const char *from, *to;
} word;

static char *replace_one(const char *text, const word *word)
{
    size_t step = strlen(word->from), count = 0;
    for (const char *at = text; (at = strstr(at, word->from)); at += step) count++;
    char *out = lki_calloc(strlen(text) + count * strlen(word->to) + 1, "a file");
    char *end = out;
    for (const char *next; out && (next = strstr(text, word->from)); text = next + step) {
        memcpy(end, text, (size_t)(next - text));
        end += next - text;
        end = stpcpy(end, word->to);
    }
    if (out) strcpy(end, text);
    return out;
}

static char *replace_words(const char *text, const word *words)
{
    char *out = lki_strdup(text);
    for (; out && words->from; words++) {
        char *next = replace_one(out, words);
        lki_free(out);
        out = next;
    }
    return out;
}

/* A file in a folder; one that is there already is left alone. */
static lk_status write_new(const char *folder, const char *name, const char *text)
{
    LKI_SCOPED char *path = lki_format("%s/%s", folder, name);
    if (!path || !text) return LK_ERR_NOMEM;
    if (access(path, F_OK) == 0) return lki_fail(LK_ERR_INVALID, "%s: it exists already", path);
    return lki_write_file_atomic(path, text, strlen(text));
}

static lk_status make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0) return LK_OK;
    if (errno == EEXIST) return lki_fail(LK_ERR_INVALID, "%s: it exists already", path);
    return lki_fail(LK_ERR_IO, "%s: the folder cannot be made: %s", path, strerror(errno));
}

/* ---- create ---- */

typedef struct create_options {
    const char *name;
    bool gtb, get_train_backend;
} create_options;

/* Letters, digits, '_' and '-', a letter first; lower-cased, as a folder and, with '_' for '-', as a C name.
 */
static lk_status check_name(const char *given, char *name, char *identifier, size_t capacity)
{
    size_t length = given ? strlen(given) : 0;
    if (length == 0) return lki_fail(LK_ERR_CONFIG, "create: -n NAME is needed");
    if (length >= capacity) return lki_fail(LK_ERR_CONFIG, "create: the name is too long");
    for (size_t i = 0; i <= length; i++) {
        char c = given[i];
        bool good =
            isalpha((unsigned char)c) || (i && (isdigit((unsigned char)c) || c == '_' || c == '-')) || !c;
        if (!good || (unsigned char)c > 127)
            return lki_fail(
                LK_ERR_CONFIG,
                "create: \"%s\": a name has letters, digits, \"_\" and \"-\" and begins with a letter",
                given);
        name[i] = (char)tolower((unsigned char)c);
        identifier[i] = name[i] == '-' ? '_' : name[i];
    }
    return LK_OK;
}

/* The program is built in the project's folder, under the project's name: what else is called so there. */
static lk_status check_free(const char *name, bool has_backend)
{
    static const struct {
        const char *name, *what;
    } taken[] = {
        {"run", "a target of its Makefile"},
        {"clean", "a target of its Makefile"},
        {"makefile", "what make reads"},
        {"data", "the folder of its data"},
        {"model", "the folder of its weights"},
        {"logs", "the folder of its logs"},
        {"train_backend", "the source of its training backend"},
    };
    int count = sizeof taken / sizeof *taken;
    if (!has_backend) count--; /* the last one's file */
    for (int i = 0; i < count; i++)
        if (!strcmp(name, taken[i].name))
            return lki_fail(LK_ERR_CONFIG, "create: \"%s\": in a project, this is %s; take another name",
                            name, taken[i].what);
    return LK_OK;
}

typedef struct project {
    char name[64], identifier[64];
    bool has_backend;
    word words[8];
} project;

static lk_status write_template(const project *project, const char *folder, const char *name,
                                const char *template)
{
    LKI_SCOPED char *text = replace_words(embedded(template), project->words);
    return text ? write_new(folder, name, text) : LK_ERR_NOMEM;
}

static lk_status write_project(const project *project)
{
    LKI_SCOPED char *source = lki_format("%s.c", project->name);
    LKI_SCOPED char *data = lki_format("%s/data", project->name);
    if (!source || !data) return LK_ERR_NOMEM;
    LKI_TRY(make_folder(project->name));
    LKI_TRY(make_folder(data));
    LKI_TRY(write_template(project, project->name, source, "project.c.in"));
    LKI_TRY(write_template(project, project->name, "config.json", "config.json.in"));
    LKI_TRY(write_template(project, project->name, "Makefile", "Makefile.in"));
    LKI_TRY(write_template(project, project->name, "README.md", "README.md.in"));
    LKI_TRY(write_template(project, project->name, "job.sbatch", "job.sbatch.in"));
    LKI_TRY(write_template(project, data, "README.md", "data.md.in"));
    return project->has_backend ? write_template(project, project->name, "train_backend.c", "backend.c")
                                : LK_OK;
}

static int run_create(const void *pointer)
{
    const create_options *options = pointer;
    project project = {.has_backend = options->gtb || options->get_train_backend};
    bool backend = project.has_backend;
    if (check_name(options->name, project.name, project.identifier, sizeof project.name) ||
        check_free(project.name, backend))
        return lki_report(LKI_EXIT_WRONG);
    LKI_SCOPED char *function = lki_format("%s_backend", project.identifier);
    LKI_SCOPED char *declaration = lki_format(
        "\n/* train_backend.c: how it is trained. */\nlk_status %s(const lk_training *training);\n",
        function);
    LKI_SCOPED char *use = lki_format("        config->backend = %s;\n", function);
    if (!function || !declaration || !use) return lki_report(LKI_EXIT_FAILED);
    word words[] = {{"@NAME@", project.name},
                    {"@BACKEND_DECLARATION@", backend ? declaration : ""},
                    {"@BACKEND_USE@", backend ? use : ""},
                    {"@BACKEND_LINE@",
                     backend ? "| `train_backend.c` | how it is trained: the runner, its callbacks, its "
                               "arguments |\n"
                             : ""},
                    {"lk_supervised_backend", function}};
    memcpy(project.words, words, sizeof words);
    if (write_project(&project)) return lki_report(LKI_EXIT_FAILED);
    printf("%s/ is ready: cd %s && make && ./%s\n", project.name, project.name, project.name);
    return LKI_EXIT_DONE;
}

static const lki_option create_table[] = {
    {.name = "name",
     .letter = 'n',
     .type = LKI_OPTION_TEXT,
     .offset = offsetof(create_options, name),
     .value = "NAME",
     .help = "name of the project and of its directory"},
    {.name = "gtb",
     .type = LKI_OPTION_FLAG,
     .offset = offsetof(create_options, gtb),
     .help = "also write the source of the training backend, and use it"},
    {.name = "get-train-backend",
     .type = LKI_OPTION_FLAG,
     .offset = offsetof(create_options, get_train_backend),
     .help = "the same as --gtb"},
    {0},
};

const lki_command lki_command_create = {
    .name = "create",
    .usage = "-n NAME [--gtb]",
    .summary = "Creates a project: an estimator that builds and trains.",
    .options = create_table,
    .options_nbytes = sizeof(create_options),
    .run = run_create,
};

/* ---- gtb, get-examples ---- */

typedef struct no_options {
    int none;
} no_options;

static int run_gtb(const void *options)
{
    (void)options;
    if (write_new(".", "train_backend.c", embedded("backend.c"))) return lki_report(LKI_EXIT_FAILED);
    printf("train_backend.c is the source of lk_supervised_backend: give its function another name, and an "
           "estimator "
           ".backend = that\n");
    return LKI_EXIT_DONE;
}

const lki_command lki_command_gtb = {
    .name = "gtb",
    .usage = "",
    .summary = "Writes the source of the training backend into this directory.",
    .options_nbytes = sizeof(no_options),
    .run = run_gtb,
};

/* A folder of examples is made with its first file. */
static lk_status write_example(const char *name, const char *text)
{
    const char *slash = strchr(name, '/');
    LKI_SCOPED char *folder = lki_format("lockstep_examples/%.*s", slash ? (int)(slash - name) : 0, name);
    if (!folder) return LK_ERR_NOMEM;
    if (slash && access(folder, F_OK)) LKI_TRY(make_folder(folder));
    return write_new("lockstep_examples", name, text);
}

static int run_get_examples(const void *options)
{
    (void)options;
    if (make_folder("lockstep_examples")) return lki_report(LKI_EXIT_FAILED);
    int count = 0;
    for (const lki_embedded_file *file = lki_embedded; file->name; file++) {
        if (strncmp(file->name, "examples/", 9) != 0) continue;
        if (write_example(file->name + 9, file->text)) return lki_report(LKI_EXIT_FAILED);
        count++;
    }
    printf(
        "%d files are in lockstep_examples/: cc FILE.c $(pkg-config --cflags --libs lockstep), or lockstep "
        "run -C FILE.yml\n",
        count);
    return LKI_EXIT_DONE;
}

const lki_command lki_command_get_examples = {
    .name = "get-examples",
    .usage = "",
    .summary = "Writes the examples into lockstep_examples/.",
    .options_nbytes = sizeof(no_options),
    .run = run_get_examples,
};
