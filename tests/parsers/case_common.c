#define _GNU_SOURCE
#include "parsers.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const parser *const parser_lists[PARSER_LISTS] = {file_parsers, text_parsers, store_parsers, client_parsers,
                                                  board_parsers};

const parser *find_parser(const char *name)
{
    for (int i = 0; i < PARSER_LISTS; i++)
        for (const parser *one = parser_lists[i]; one->name; one++)
            if (!strcmp(one->name, name)) return one;
    return NULL;
}

void parse_afresh(const parser *one, const uint8_t *data, size_t nbytes)
{
    lk_fail(LK_OK, "%s", "");
    one->parse(data, nbytes);
}

void must(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "what must hold does not: %s (%s)\n", what, lk_error());
    abort();
}

void check_refusal(void)
{
    must(*lk_error() != 0, "a failure has a sentence");
    must(!strchr(lk_error(), '\n'), "a sentence is one line");
}

static char folder[64];

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) fprintf(stderr, "%s is left\n", folder);
}

const char *parser_folder(void)
{
    if (*folder) return folder;
    snprintf(folder, sizeof folder, "%s/lockstep-parsers-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    must(mkdtemp(folder) != NULL, "a folder can be made");
    atexit(remove_folder);
    return folder;
}

const char *as_file(const char *name, const uint8_t *data, size_t nbytes)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", parser_folder(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0 && write(fd, data, nbytes) == (ssize_t)nbytes && close(fd) == 0, "a file can be written");
    return path;
}

char *as_text(const uint8_t *data, size_t nbytes)
{
    char *text = malloc(nbytes + 1);
    must(text != NULL, "there is memory");
    if (nbytes) memcpy(text, data, nbytes);
    text[nbytes] = 0;
    return text;
}
