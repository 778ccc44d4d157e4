#include "cli/after_run.h"
#include "cli/options.h"

#include "base/memory.h"
#include "config/config.h"
#include "launch/role.h"
#include "run/signals.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIGNAL_CODE = 128 };

static int word_count;
static char **words;

void lki_remember_words(int count, char **given)
{
    word_count = count;
    words = given;
}

/* ---- Words for a shell ---- */

static void print_word(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    if (*word && strspn(word, plain) == strlen(word)) {
        fprintf(out, "%s", word);
        return;
    }
    fputc('\'', out);
    for (; *word; word++) fprintf(out, *word == '\'' ? "'\\''" : "%c", *word);
    fputc('\'', out);
}

/* Whether a word is that option; *takes_next if its value is the next word. */
static bool is_option(const char *word, const char *name, bool has_value, bool *takes_next)
{
    size_t length = strlen(name);
    *takes_next = false;
    if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, length) != 0) return false;
    *takes_next = has_value && word[2 + length] == '\0';
    return word[2 + length] == '\0' || word[2 + length] == '=';
}

static bool was_given(const char *name)
{
    bool takes_next;
    for (int i = 0; i < word_count; i++)
        if (is_option(words[i], name, false, &takes_next)) return true;
    return false;
}

void lki_print_command(FILE *out, const char *const *after, int count)
{
    print_word(out, words[0]);
    for (int i = 0; i < count; i++) {
        fputc(' ', out);
        print_word(out, after[i]);
    }
}

void lki_print_own_command(FILE *out, const char *without)
{
    bool takes_next;
    for (int i = 0; i < word_count; i++) {
        if (is_option(words[i], without, false, &takes_next)) continue;
        if (i) fputc(' ', out);
        print_word(out, words[i]);
    }
}

/* The words of this run without those that contradict --autoresume. */
static void print_own_words(FILE *out)
{
    for (int i = 0; i < word_count; i++) {
        bool takes_next;
        if (is_option(words[i], "overwrite", false, &takes_next)) continue;
        if (is_option(words[i], "resume", true, &takes_next) ||
            is_option(words[i], "autoresume", true, &takes_next)) {
            i += takes_next;
            continue;
        }
        if (i) fputc(' ', out);
        print_word(out, words[i]);
    }
}

/* ---- The calls ---- */

static const lki_node *call_of(const lk_config *config, int call)
{
    const lki_node *calls = lki_node_get(config->tree.root, "run");
    return calls && calls->kind == LKI_NODE_LIST && call < calls->count ? calls->entries[call].value : NULL;
}

static int call_count(const lk_config *config)
{
    const lki_node *calls = lki_node_get(config->tree.root, "run");
    return calls && calls->kind == LKI_NODE_LIST ? calls->count : 0;
}

static const char *logdir_of(const lki_node *call)
{
    const lki_node *logdir = call ? lki_node_get(call, "logdir") : NULL;
    return !lki_node_is_null(logdir) && logdir->kind == LKI_NODE_SCALAR ? logdir->text : NULL;
}

char *lki_checkpoint_of_call(const lk_config *config, int call, const char *name)
{
    const char *logdir = logdir_of(call_of(config, call));
    return logdir ? lki_format("%s/checkpoints/%s", logdir, name) : NULL;
}

/* Whether a flag of a call is given and has that value. */
static bool is_set_to(const lki_node *call, const char *key, bool value)
{
    const lki_node *node = lki_node_get(call, key);
    bool set = !value;
    return !lki_node_is_null(node) && lki_node_bool(node, key, &set) == LK_OK && set == value;
}

static bool is_train(const lki_node *call)
{
    const lki_node *name = lki_node_get(call, "_call_");
    return name && name->kind == LKI_NODE_SCALAR && !strcmp(name->text, "train");
}

/* ---- At the end ---- */

static void print_best_of(const char *logdir, const char *best, const char *expdir)
{
    LKI_SCOPED char *config = lki_format("%s/config.yml", logdir);
    if (!config) return;
    printf("best checkpoint: %s\nevaluate it: ", best);
    print_word(stdout, words[0]);
    printf(" evaluate");
    const char *const options[] = {"-C", config, "-c", best, "--expdir", expdir};
    for (int i = 0; i < (expdir ? 6 : 4); i++) {
        putchar(' ');
        print_word(stdout, options[i]);
    }
    putchar('\n');
}

void lki_print_best(const lk_config *config, const char *expdir)
{
    for (int i = 0; i < call_count(config); i++) {
        const lki_node *call = call_of(config, i);
        LKI_SCOPED char *best = lki_checkpoint_of_call(config, i, "model.best.safetensors");
        if (is_set_to(call, "check", true) || is_set_to(call, "overfit", true)) continue; /* keeps none */
        if (!best || !is_train(call) || is_set_to(call, "verbose", false) || access(best, R_OK)) continue;
        print_best_of(logdir_of(call), best, expdir);
    }
}

/* What the config itself says against --autoresume. */
static void print_overrides(FILE *out, const lk_config *config)
{
    for (int i = 0; i < call_count(config); i++) {
        const lki_node *call = call_of(config, i);
        if (!is_train(call)) continue;
        if (is_set_to(call, "overwrite", true) && !was_given("overwrite"))
            fprintf(out, " --run/%d/overwrite=n", i);
        if (!lki_node_is_null(lki_node_get(call, "resume")) && !was_given("resume"))
            fprintf(out, " --run/%d/resume=null", i);
    }
}

static bool lacks_logdir(const lk_config *config)
{
    for (int i = 0; i < call_count(config); i++) {
        const lki_node *call = call_of(config, i);
        if (is_train(call) && !logdir_of(call)) return true;
    }
    return false;
}

void lki_print_how_to_go_on(const lk_config *config, const char *saved)
{
    lki_role role;
    bool is_launched =
        lki_launch_role(&role, lki_process_flags(), NULL, -1) == LK_OK && role.source != LKI_ROLE_LOCAL;
    if (is_launched && role.rank != 0) return;
    if (!saved) {
        fprintf(stderr, "lockstep: no checkpoint of this run was found%s\n",
                lacks_logdir(config) ? ": it has no logdir" : " in its logdir");
        return;
    }
    fprintf(stderr, "lockstep: saved %s; go on with%s:\n  ", saved, is_launched ? ", on the same ranks" : "");
    print_own_words(stderr);
    fprintf(stderr, " --autoresume last");
    print_overrides(stderr, config);
    fputc('\n', stderr);
}

/* ---- Ending by a signal ---- */

int lki_exit_code_of_stop(void)
{
    int number = lki_signals_stopped_by();
    return number == SIGINT || number == SIGTERM ? SIGNAL_CODE + number : LKI_EXIT_FAILED;
}

static int ending_signal;

void lki_end_by_signal(int exit_code)
{
    if (exit_code == SIGNAL_CODE + SIGINT || exit_code == SIGNAL_CODE + SIGTERM)
        ending_signal = exit_code - SIGNAL_CODE;
}

void lki_raise_ending_signal(void)
{
    if (!ending_signal) return;
    signal(ending_signal, SIG_DFL);
    raise(ending_signal);
}
