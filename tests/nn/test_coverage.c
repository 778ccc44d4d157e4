/* Every constructor of nn.h, optim.h and scheduler.h must be called by a test that compares with PyTorch. */
#include "lktest.h"

#include <ctype.h>
#include <stdbool.h>

static char *read_source(const char *path)
{
    char full[1024];
    snprintf(full, sizeof full, "%s/%s", LK_SOURCE_DIR, path);
    FILE *file = fopen(full, "rb");
    if (!file) fail_msg("%s: cannot be read", full);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)size + 1);
    if (fread(text, 1, (size_t)size, file) != (size_t)size) fail_msg("%s: cannot be read", full);
    fclose(file);
    return text;
}

/* Whether the source has the name with something else around it. */
static bool mentions(const char *source, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = source; (at = strstr(at, name)); at += length) {
        bool starts = at == source || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
        if (starts && at[length] == '(') return true;
    }
    return false;
}

/* Declarations of the form "<type> *lk_<name>(" or "<type> *lk_<name>_create(", and "lk_status
 * lk_init_<name>(". */
static int check_header(const char *header, const char *declares, const char *const *sources)
{
    char *text = read_source(header);
    for (char *at = text; (at = strstr(at, " *\nlk_"));) memmove(at + 2, at + 3, strlen(at + 3) + 1);
    int found = 0;
    for (const char *at = text; (at = strstr(at, declares)); at++) {
        if (at != text && at[-1] != '\n') continue;
        char name[96];
        const char *start = at + (strrchr(declares, ' ') - declares) + 1;
        start += *start == '*';
        snprintf(name, sizeof name, "%.*s", (int)strcspn(start, "("), start);
        static const char *const endings[] = {"_create", "_last_with", "_with"};
        for (int i = 0; i < 3; i++) {
            size_t length = strlen(name), cut = strlen(endings[i]);
            if (length > cut && strcmp(name + length - cut, endings[i]) == 0) name[length - cut] = 0;
        }
        /* Copies, look-ups and lists compute nothing. */
        if (strncmp(name, "lk_module_", 10) == 0) continue;
        bool tested = false;
        for (int i = 0; sources[i] && !tested; i++) tested = mentions(sources[i], name);
        if (!tested) fail_msg("%s: %s is not compared with PyTorch by any test", header, name);
        found++;
    }
    free(text);
    return found;
}

static void every_constructor_is_compared(void **state)
{
    (void)state;
    char *layers = read_source("tests/nn/test_layers.c"),
         *more_layers = read_source("tests/nn/test_more_layers.c"),
         *criteria = read_source("tests/nn/test_criterion.c"),
         *recurrent = read_source("tests/nn/test_recurrent.c"),
         *transformer = read_source("tests/nn/test_transformer.c");
    char *init = read_source("tests/nn/test_init.c"),
         *optimizers = read_source("tests/optim/test_optimizer.c");
    char *schedulers = read_source("tests/optim/test_scheduler.c");
    const char *const of_nn[] = {layers, more_layers, criteria, recurrent, transformer, NULL};
    const char *const of_init[] = {init, NULL};
    const char *const of_optim[] = {optimizers, schedulers, NULL};
    assert_in_range(check_header("include/lockstep/nn.h", "lk_module *lk_", of_nn), 46, 200);
    assert_in_range(check_header("include/lockstep/nn.h", "lk_criterion *lk_", of_nn), 10, 100);
    assert_in_range(check_header("include/lockstep/nn.h", "lk_status lk_init_", of_init), 9, 100);
    assert_in_range(check_header("include/lockstep/optim.h", "lk_optimizer *lk_", of_optim), 6, 100);
    assert_in_range(check_header("include/lockstep/scheduler.h", "lk_scheduler *lk_", of_optim), 14, 100);
    free(layers);
    free(more_layers);
    free(criteria);
    free(recurrent);
    free(transformer);
    free(init);
    free(optimizers);
    free(schedulers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_constructor_is_compared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
