/* Files that appear whole or not at all, and their checksum. */
#include "lktest.h"

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static char path[1200];

static const char *in_scratch(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", lkt_scratch_folder("atomic"), name);
    return path;
}

static void expect_content(const char *file, const char *expected)
{
    LKI_SCOPED char *text = NULL;
    size_t nbytes;
    lkt_ok(lki_read_file(&text, &nbytes, file));
    assert_int_equal(nbytes, strlen(expected));
    assert_string_equal(text, expected);
}

static void committed_or_untouched(void **state)
{
    (void)state;
    const char *name = in_scratch("a.txt");
    lki_atomic_file *file;
    lkt_ok(lki_write_file_atomic(name, "old", 3));
    lkt_ok(lki_atomic_file_open(&file, name));
    lkt_ok(lki_atomic_file_printf(file, "%d %s", 7, "new"));
    expect_content(name, "old");
    lki_atomic_file_abort(file);
    expect_content(name, "old");
    lkt_ok(lki_atomic_file_open(&file, name));
    lkt_ok(lki_atomic_file_printf(file, "%d %s", 7, "new"));
    lkt_ok(lki_atomic_file_commit(file));
    expect_content(name, "7 new");
    struct stat info;
    assert_int_equal(stat(name, &info), 0);
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(info.st_mode & 0777, 0666 & ~mask);
}

static void long_lines_and_large_writes(void **state)
{
    (void)state;
    const char *name = in_scratch("large.txt");
    lki_atomic_file *file;
    char *block = malloc(200001);
    memset(block, 'x', 200000);
    block[200000] = '\0';
    lkt_ok(lki_atomic_file_open(&file, name));
    lkt_ok(lki_atomic_file_write(file, "a", 1));
    lkt_ok(lki_atomic_file_write(file, block, 200000));
    lkt_ok(lki_atomic_file_printf(file, "%s", block));
    lkt_ok(lki_atomic_file_commit(file));
    LKI_SCOPED char *text = NULL;
    size_t nbytes;
    lkt_ok(lki_read_file(&text, &nbytes, name));
    assert_int_equal(nbytes, 400001);
    assert_memory_equal(text + 1, block, 200000);
    assert_memory_equal(text + 200001, block, 200000);
    free(block);
}

static void links(void **state)
{
    (void)state;
    char from[1300], to[1400];
    snprintf(from, sizeof from, "%s", in_scratch("one"));
    snprintf(to, sizeof to, "%s.best", from);
    lkt_ok(lki_write_file_atomic(from, "1", 1));
    lkt_ok(lki_write_file_atomic(to, "0", 1));
    lkt_ok(lki_link_file_atomic(from, to));
    lkt_ok(lki_link_file_atomic(from, to)); /* already the same file */
    expect_content(to, "1");
    lkt_ok(lki_write_file_atomic(
        from, "2", 1)); /* a new file takes the old one's name; the link keeps the old content */
    expect_content(to, "1");
    unlink(from);
    expect_content(to, "1");
    lkt_fails(lki_link_file_atomic(from, to), LK_ERR_IO, "could not link");
    expect_content(to, "1");
}

static mode_t kind_of(const char *file)
{
    struct stat info;
    assert_int_equal(lstat(file, &info), 0);
    return info.st_mode & S_IFMT;
}

static void expect_no_temporaries(const char *folder)
{
    char command[1400];
    snprintf(command, sizeof command, "test -z \"$(ls -A '%s' | grep '[.]tmp$')\"", folder);
    assert_int_equal(system(command), 0);
}

/* What is no file of the disk is written to as it is: it can be neither replaced nor put back. */
static void pipes_and_devices_stay(void **state)
{
    (void)state;
    char folder[1100], name[1200], got[16] = "";
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("atomic"));
    snprintf(name, sizeof name, "%s/pipe", folder);
    assert_int_equal(mkfifo(name, 0600), 0);
    int reader = open(name, O_RDONLY | O_NONBLOCK);
    lkt_ok(lki_write_file_atomic(name, "through", 7));
    assert_int_equal(read(reader, got, sizeof got), 7);
    assert_string_equal(got, "through");
    lki_atomic_file *file;
    lkt_ok(lki_atomic_file_open(&file, name));
    lki_atomic_file_abort(file);
    assert_int_equal(kind_of(name), S_IFIFO);
    close(reader);
    snprintf(name, sizeof name, "%s/full", folder); /* as /dev/full: every write fails */
    int device = mknod(name, S_IFCHR | 0600, makedev(1, 7)) == 0 ? open(name, O_WRONLY) : -1;
    if (device >= 0) {
        close(device);
        lkt_fails(lki_write_file_atomic(name, "1", 1), LK_ERR_IO, "full: could not write: No space left");
        assert_int_equal(kind_of(name), S_IFCHR);
    } else {
        print_message("no device was tried: %s\n", strerror(errno));
    }
    expect_no_temporaries(folder);
}

static void links_are_followed(void **state)
{
    (void)state;
    char folder[1100], below[1200], target[1300], name[1200], far[1200], loop[1200];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("atomic"));
    snprintf(below, sizeof below, "%s/below", folder);
    snprintf(target, sizeof target, "%s/target", below);
    snprintf(name, sizeof name, "%s/link", folder);
    snprintf(far, sizeof far, "%s/far", folder);
    snprintf(loop, sizeof loop, "%s/loop", folder);
    assert_int_equal(symlink("below/target", name), 0);
    assert_int_equal(symlink(name, far), 0);
    assert_int_equal(symlink("loop", loop), 0);
    lkt_fails(lki_write_file_atomic(name, "1", 1), LK_ERR_IO, "link: could not create: No such file");
    lkt_ok(lki_make_folders(below));
    lkt_ok(lki_write_file_atomic(name, "made", 4)); /* it led to nothing yet */
    assert_int_equal(kind_of(target), S_IFREG);
    lkt_ok(lki_write_file_atomic(far, "replaced", 8));
    expect_content(target, "replaced");
    assert_int_equal(kind_of(name), S_IFLNK);
    assert_int_equal(kind_of(far), S_IFLNK);
    lkt_fails(lki_write_file_atomic(loop, "1", 1), LK_ERR_IO, "loop: could not create: Too many levels");
    expect_no_temporaries(folder);
    expect_no_temporaries(below);
}

static void folders(void **state)
{
    (void)state;
    char deep[1300], blocked[1400];
    snprintf(deep, sizeof deep, "%s/x/y/z", lkt_scratch_folder("atomic"));
    lkt_ok(lki_make_folders(deep));
    lkt_ok(lki_make_folders(deep));
    snprintf(blocked, sizeof blocked, "%s/file", deep);
    lkt_ok(lki_write_file_atomic(blocked, "", 0));
    lkt_fails(lki_make_folders(blocked), LK_ERR_IO, "is no folder");
    snprintf(blocked, sizeof blocked, "%s/file/more", deep);
    lkt_fails(lki_make_folders(blocked), LK_ERR_IO, "could not make the folder");
}

static void checksums(void **state)
{
    (void)state;
    unsigned char bytes[300];
    assert_int_equal(lki_crc32c(0, "123456789", 9), 0xe3069283u); /* the check value of the standard */
    assert_int_equal(lki_crc32c_portable(0, "123456789", 9), 0xe3069283u);
    for (int i = 0; i < 300; i++) bytes[i] = (unsigned char)(i * 37);
    for (size_t begin = 0; begin < 9; begin++)
        for (size_t length = 0; length + begin <= 300; length += 7) {
            uint32_t whole = lki_crc32c_portable(0, bytes + begin, length);
            assert_int_equal(lki_crc32c(0, bytes + begin, length), whole);
            uint32_t half = lki_crc32c(0, bytes + begin, length / 2);
            assert_int_equal(lki_crc32c(half, bytes + begin + length / 2, length - length / 2), whole);
        }
}

/* Anybody who may write to the folder can guess the temporary's name. */
static void planted_links_are_not_written_through(void **state)
{
    (void)state;
    char victim[1300], planted[1300];
    const char *name = in_scratch("a.txt");
    snprintf(victim, sizeof victim, "%s.victim", name);
    snprintf(planted, sizeof planted, "%.*s/.a.txt.%ld.tmp", (int)(strrchr(name, '/') - name), name,
             (long)getpid());
    lkt_ok(lki_write_file_atomic(victim, "precious", 8));
    assert_int_equal(symlink(victim, planted), 0);
    lkt_ok(lki_write_file_atomic(name, "new", 3));
    expect_content(victim, "precious");
    expect_content(name, "new");
    assert_int_not_equal(access(planted, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(committed_or_untouched),
        cmocka_unit_test(long_lines_and_large_writes),
        cmocka_unit_test(links),
        cmocka_unit_test(pipes_and_devices_stay),
        cmocka_unit_test(links_are_followed),
        cmocka_unit_test(planted_links_are_not_written_through),
        cmocka_unit_test(folders),
        cmocka_unit_test(checksums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
