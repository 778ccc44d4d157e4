/* Every YAML sample of the documentation is a config that the command would accept: the blocks fenced with
 * ```yaml in README.md and docs/, and the literal blocks of the man page's section CONFIG. */
#include "lktest.h"

#include "estimator/estimator.h"

#include <lockstep/config.h>

#include <glob.h>

typedef struct sample {
    char text[16384], name[1200];
    size_t nbytes;
} sample;

static int checked;

static void check_sample(const sample *s)
{
    lk_config *config = lk_config_create();
    assert_non_null(config);
    if (lk_config_load_text(config, s->name, s->text) || lk_config_check(config))
        fail_msg("%s: %s", s->name, lk_error());
    lk_config_free(config);
    checked++;
}

static void append(sample *s, const char *line)
{
    int count = snprintf(s->text + s->nbytes, sizeof s->text - s->nbytes, "%s", line);
    assert_in_range(count, 0, sizeof s->text - s->nbytes - 1);
    s->nbytes += (size_t)count;
}

/* Checks what stands between a line that begins with `open` and the next one that begins with `close`. */
static void check_page(const char *path, const char *open, const char *close)
{
    static sample s;
    char line[1024];
    bool inside = false;
    FILE *page = fopen(path, "r");
    assert_non_null(page);
    for (int number = 1; fgets(line, sizeof line, page); number++) {
        if (inside && !strncmp(line, close, strlen(close))) {
            check_sample(&s);
            inside = false;
        } else if (inside) {
            append(&s, line);
        } else if (!strncmp(line, open, strlen(open))) {
            inside = true;
            s.nbytes = 0;
            snprintf(s.name, sizeof s.name, "the sample at %.900s:%d", path, number);
        }
    }
    assert_false(inside);
    fclose(page);
}

static void test_samples_of_the_pages(void **state)
{
    (void)state;
    glob_t pages;
    checked = 0;
    assert_int_equal(glob(LK_SOURCE_DIR "/docs/*.md", 0, NULL, &pages), 0);
    for (size_t i = 0; i < pages.gl_pathc; i++) check_page(pages.gl_pathv[i], "```yaml", "```");
    globfree(&pages);
    check_page(LK_SOURCE_DIR "/README.md", "```yaml", "```");
    assert_in_range(checked, 3, 1000);
}

static void test_samples_of_the_man_page(void **state)
{
    (void)state;
    checked = 0;
    check_page(LK_SOURCE_DIR "/docs/man/lockstep.1", ".Bd -literal", ".Ed");
    assert_in_range(checked, 1, 1000);
}

static int add_estimators(void **state)
{
    (void)state;
    return lki_estimator_components_add() != LK_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_of_the_pages),
        cmocka_unit_test(test_samples_of_the_man_page),
    };
    return cmocka_run_group_tests(tests, add_estimators, NULL);
}
