/* What a component's table says, for people. */
#include "config/registry.h"

#include <string.h>

static const char *type_text(const lk_parameter *parameter, char *buffer, size_t capacity)
{
    const char *kind = lk_component_kind_name(parameter->kind);
    switch (parameter->type) {
    case LK_PARAMETER_INT:
    case LK_PARAMETER_INT64: return "integer";
    case LK_PARAMETER_FLOAT: return "number";
    case LK_PARAMETER_BOOL: return "boolean";
    case LK_PARAMETER_STRING: return parameter->choices ? parameter->choices : "string";
    case LK_PARAMETER_INTS: return "integer(s)";
    case LK_PARAMETER_FLOATS: return "number(s)";
    case LK_PARAMETER_STRINGS: return "string(s)";
    case LK_PARAMETER_OBJECT:
        snprintf(buffer, capacity, "%s%s", kind, parameter->takes_paths ? " or file" : "");
        return buffer;
    case LK_PARAMETER_OBJECTS:
        snprintf(buffer, capacity, "%s(s)%s", kind, parameter->takes_paths ? " or file(s)" : "");
        return buffer;
    case LK_PARAMETER_ANY: break;
    }
    return parameter->no_effect ? "no effect" : parameter->refused ? "refused" : "anything";
}

static const char *default_text(const lk_parameter *parameter, char *buffer, size_t capacity)
{
    if (!parameter->default_value) return "required";
    if (!*parameter->default_value) return "optional";
    snprintf(buffer, capacity, "default %s", parameter->default_value);
    return buffer;
}

/* How a run treats a value that means nothing here; the help text that follows gives the reason. */
static const char *meaning_text(const lk_parameter *parameter, char *buffer, size_t capacity)
{
    if (!parameter->no_effect && !parameter->refused) return "";
    snprintf(buffer, capacity, "%s%s%s%s", parameter->choices ? "other than " : "",
             parameter->choices ? parameter->choices : "", parameter->choices ? ": " : "",
             parameter->no_effect ? "accepted, and said to have no effect: " : "an error: ");
    return buffer;
}

static int widest_name(const lk_component *component)
{
    int widest = 0;
    for (const lk_parameter *p = component->parameters; p && p->name; p++)
        if ((int)strlen(p->name) > widest) widest = (int)strlen(p->name);
    return widest;
}

void lki_component_print_help(FILE *out, const lk_component *component)
{
    char type[64], fallback[96], meaning[160];
    int width = widest_name(component);
    fprintf(out, "%s (%s): %s\n", component->name, lk_component_kind_name(component->kind),
            component->help ? component->help : "");
    if (component->aliases) fprintf(out, "Also called: %s\n", component->aliases);
    if (!component->parameters || !component->parameters->name) return;
    fprintf(out, "\nParameters, in positional order:\n");
    for (const lk_parameter *p = component->parameters; p->name; p++) {
        fprintf(out, "  %-*s  %s, %s", width, p->name, type_text(p, type, sizeof type),
                default_text(p, fallback, sizeof fallback));
        fprintf(out, "\n  %-*s  %s%s\n", width, "", meaning_text(p, meaning, sizeof meaning),
                p->help ? p->help : "");
    }
}

/* ---- The reference page: Markdown whose lines end before column 100 ---- */

enum { PAGE_COLUMNS = 100 };

/* UTF-8's continuation bytes take no column of their own. */
static int columns_of(const char *text, size_t nbytes)
{
    int columns = 0;
    for (size_t i = 0; i < nbytes; i++) columns += (text[i] & 0xC0) != 0x80;
    return columns;
}

void lki_print_wrapped(FILE *out, const char *line, int indent)
{
    int column = 0;
    for (size_t length; *line; line += length + strspn(line + length, " ")) {
        length = strcspn(line, " ");
        int columns = columns_of(line, length);
        if (column > 0 && column + 1 + columns > PAGE_COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > 0) {
            fputc(' ', out);
            column++;
        }
        fwrite(line, 1, length, out);
        column += columns;
    }
    fputc('\n', out);
}

/* "Also `a`, `b`." */
static void print_names(FILE *out, const char *names)
{
    char line[1024] = "Also ";
    size_t used = strlen(line);
    for (size_t length; *names && used < sizeof line; names += length + strspn(names + length, " ")) {
        length = strcspn(names, " ");
        used += (size_t)snprintf(line + used, sizeof line - used, "`%.*s`%s", (int)length, names,
                                 names[length] ? ", " : ".");
    }
    lki_print_wrapped(out, line, 0);
}

static void print_parameter(FILE *out, const lk_parameter *parameter)
{
    char type[64], fallback[96], meaning[160], line[1024];
    snprintf(line, sizeof line, "- `%s`: %s; %s; %s%s", parameter->name,
             type_text(parameter, type, sizeof type), default_text(parameter, fallback, sizeof fallback),
             meaning_text(parameter, meaning, sizeof meaning), parameter->help ? parameter->help : "");
    lki_print_wrapped(out, line, 2);
}

void lki_component_print_markdown(FILE *out, const lk_component *component)
{
    fprintf(out, "### %s\n\n", component->name);
    lki_print_wrapped(out, component->help ? component->help : "", 0);
    if (component->aliases) print_names(out, component->aliases);
    fputc('\n', out);
    if (!component->parameters || !component->parameters->name) return;
    for (const lk_parameter *p = component->parameters; p->name; p++) print_parameter(out, p);
    fputc('\n', out);
}
