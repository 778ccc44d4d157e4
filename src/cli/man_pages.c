#include "cli/man_pages.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "cli/options.h"

#include <lockstep/version.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Text as roff takes it: no line begins with a dot or a quote, and a dash is one that can be copied. */
static void put_text(FILE *out, const char *text)
{
    for (bool begins = true; *text; begins = *text++ == '\n') {
        if (begins && (*text == '.' || *text == '\'')) fputs("\\&", out);
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
}

static void put_bold(FILE *out, const char *before, const char *text)
{
    fputs("\\fB", out);
    put_text(out, before);
    put_text(out, text);
    fputs("\\fR", out);
}

static void put_option(FILE *out, const lki_option *o)
{
    const char *value = o->value ? o->value : o->choices;
    char letter[2] = {o->letter, '\0'};
    fputs(".TP\n", out);
    if (o->letter) {
        put_bold(out, "-", letter);
        fputs(", ", out);
    }
    put_bold(out, "--", o->name);
    if (value) {
        fputs(" \\fI", out);
        put_text(out, value);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    put_text(out, o->help);
    fputs(o->type == LKI_OPTION_TEXTS ? ".\nIt may be given several times.\n" : ".\n", out);
}

static void put_heading(FILE *out, const lki_command *command)
{
    size_t length = strlen(command->summary); /* a name's description ends without a dot */
    char summary[256];
    snprintf(summary, sizeof summary, "%.*s", (int)(length ? length - 1 : 0), command->summary);
    fputs(".TH LOCKSTEP\\-", out);
    for (const char *c = command->name; *c; c++) fputc(toupper((unsigned char)*c), out);
    fprintf(out, " 1 \"\" \"lockstep %s\"\n.SH NAME\nlockstep\\-", lk_version());
    put_text(out, command->name);
    fputs(" \\- ", out);
    put_text(out, summary);
    fputs("\n.SH SYNOPSIS\n", out);
    put_bold(out, "lockstep ", command->name);
    fputc(' ', out);
    put_text(out, command->usage);
    fputs("\n.SH DESCRIPTION\n", out);
    put_text(out, command->summary);
    fputc('\n', out);
    if (command->positional) {
        fputs(".PP\nWhat is no option: ", out);
        put_text(out, command->positional);
        fputs(".\n", out);
    }
}

static void put_page(FILE *out, const lki_command *command)
{
    static const lki_option help = {.name = "help", .letter = 'h', .help = "print the options"};
    put_heading(out, command);
    fputs(".SH OPTIONS\n", out);
    for (const lki_option *o = command->options; o && o->name; o++) put_option(out, o);
    put_option(out, &help);
    if (command->takes_overrides)
        fputs(".TP\n\\fB\\-\\-a/b/0=\\fIVALUE\\fR[:\\fItype\\fR]\nOverride a value of the config.\n", out);
    if (command->notes) {
        fputs(".SH NOTES\n", out);
        put_text(out, command->notes);
        fputc('\n', out);
    }
    fputs(".SH EXIT STATUS\n0 if all went well, 1 if something failed, 2 if the command line or a config is "
          "wrong.\n"
          ".SH SEE ALSO\n\\fBlockstep\\fR(1), \\fBlockstep manual ",
          out);
    put_text(out, command->name);
    fputs("\\fR\n", out);
}

lk_status lki_write_man_pages(const char *folder)
{
    for (int i = 0; lki_commands[i]; i++) {
        char *text = NULL;
        size_t nbytes;
        LKI_SCOPED char *path = lki_format("%s/lockstep-%s.1", folder, lki_commands[i]->name);
        FILE *stream = path ? open_memstream(&text, &nbytes) : NULL;
        if (!stream) return lki_fail(LK_ERR_NOMEM, "no memory for the man pages");
        put_page(stream, lki_commands[i]);
        fclose(stream);
        lk_status status = lki_write_file_atomic(path, text, nbytes);
        free(text);
        LKI_TRY(status);
    }
    return LK_OK;
}
