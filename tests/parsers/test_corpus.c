/* Every reader reads its corpus, and copies with damage that is drawn from a fixed seed. scripts/fuzz-parsers
 * does the same for longer, with libFuzzer and the sanitizers. */
#include "lktest.h"

#include "parsers.h"

#include "data/image.h"

#include <dirent.h>

enum { COPIES = 60, MAX_NBYTES = 20000 };

static uint64_t random_state = 42;

static uint32_t draw(uint32_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % limit;
}

/* A byte is changed, or a piece is moved, repeated or cut off. */
static size_t damage(uint8_t *data, size_t nbytes)
{
    if (nbytes < 2) return nbytes;
    size_t at = draw((uint32_t)nbytes), piece = 1 + draw(16);
    if (piece > nbytes - at) piece = nbytes - at;
    switch (draw(5)) {
    case 0: data[at] = (uint8_t)draw(256); return nbytes;
    case 1: data[at] ^= (uint8_t)(1 << draw(8)); return nbytes;
    case 2: memmove(data + at, data + at + piece, nbytes - at - piece); return nbytes - piece;
    case 3:
        if (nbytes + piece > MAX_NBYTES) return nbytes;
        memmove(data + at + piece, data + at, nbytes - at);
        return nbytes + piece;
    default: return draw(4) ? nbytes : at;
    }
}

static size_t read_bytes(uint8_t *data, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s is not there", path);
    size_t nbytes = fread(data, 1, MAX_NBYTES, file);
    fclose(file);
    return nbytes;
}

static int read_corpus(const parser *one, bool is_damaged)
{
    static uint8_t whole[MAX_NBYTES], copy[MAX_NBYTES];
    char folder[1024], path[2048];
    struct dirent **entries;
    snprintf(folder, sizeof folder, LK_SOURCE_DIR "/tests/parsers/corpus/%s", one->name);
    int count = scandir(folder, &entries, NULL, alphasort), files = 0;
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            size_t nbytes = read_bytes(whole, path);
            files++;
            if (!is_damaged) parse_afresh(one, whole, nbytes);
            for (int c = 0; is_damaged && c < COPIES; c++) {
                size_t length = nbytes;
                memcpy(copy, whole, nbytes);
                for (uint32_t k = 0, changes = 1 + draw(4); k < changes; k++) length = damage(copy, length);
                parse_afresh(one, copy, length);
            }
        }
        free(entries[i]);
    }
    if (count > 0) free(entries);
    return files;
}

static void the_corpus(void **state)
{
    (void)state;
    for (int i = 0; i < PARSER_LISTS; i++)
        for (const parser *one = parser_lists[i]; one->name; one++)
            if (read_corpus(one, false) == 0) fail_msg("there is no corpus for %s", one->name);
}

static void damaged_copies(void **state)
{
    (void)state;
    for (int i = 0; i < PARSER_LISTS; i++)
        for (const parser *one = parser_lists[i]; one->name; one++) read_corpus(one, true);
}

/* A few bytes that say that they are gigabytes. */
static void a_picture_that_claims_too_much(void **state)
{
    (void)state;
    uint8_t data[MAX_NBYTES];
    lki_image image = {0};
    size_t nbytes = read_bytes(data, LK_SOURCE_DIR "/tests/parsers/corpus/picture/large");
    lkt_fails(lki_image_read(&image, as_file("a.png", data + 1, nbytes - 1), 3), LK_ERR_FORMAT,
              "too few for 60000 x 60000 pixels");
    lki_image_fini(&image);
    nbytes = read_bytes(data, LK_SOURCE_DIR "/tests/parsers/corpus/picture/large-jpeg");
    lkt_fails(lki_image_read(&image, as_file("a.jpg", data + 1, nbytes - 1), 3), LK_ERR_FORMAT,
              "too few for 60000 x 60000 pixels");
    lki_image_fini(&image);
}

/* What a file says must not move the user's cursor. */
static void a_sentence_without_control_characters(void **state)
{
    (void)state;
    lkt_fails(lk_fail(LK_ERR_FORMAT, "a\nb\tc\x1b[2Jd\x7f"), LK_ERR_FORMAT, "a b c?[2Jd?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_corpus),
        cmocka_unit_test(damaged_copies),
        cmocka_unit_test(a_picture_that_claims_too_much),
        cmocka_unit_test(a_sentence_without_control_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
