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

/* What is done about a value that means nothing here, before its reason. */
static void print_meaning(FILE *out, const lk_parameter *parameter)
{
    if (!parameter->no_effect && !parameter->refused) return;
    if (parameter->choices) fprintf(out, "other than %s: ", parameter->choices);
    fputs(parameter->no_effect ? "accepted, and said to have no effect: " : "an error: ", out);
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
    char type[64], fallback[96];
    int width = widest_name(component);
    fprintf(out, "%s (%s): %s\n", component->name, lk_component_kind_name(component->kind),
            component->help ? component->help : "");
    if (component->aliases) fprintf(out, "Also called: %s\n", component->aliases);
    if (!component->parameters || !component->parameters->name) return;
    fprintf(out, "\nParameters, in positional order:\n");
    for (const lk_parameter *p = component->parameters; p->name; p++) {
        fprintf(out, "  %-*s  %s, %s", width, p->name, type_text(p, type, sizeof type),
                default_text(p, fallback, sizeof fallback));
        fprintf(out, "\n  %-*s  ", width, "");
        print_meaning(out, p);
        fprintf(out, "%s\n", p->help ? p->help : "");
    }
}

/* A table cell may not hold a bar. */
static void print_cell(FILE *out, const char *text)
{
    for (; text && *text; text++) {
        if (*text == '|') fputc('\\', out);
        fputc(*text, out);
    }
}

/* " Also `a`, `b`." */
static void print_names(FILE *out, const char *names)
{
    if (!names) return;
    fputs(" Also ", out);
    for (size_t length; *names; names += length + strspn(names + length, " ")) {
        length = strcspn(names, " ");
        fprintf(out, "`%.*s`%s", (int)length, names, names[length] ? ", " : ".");
    }
}

void lki_component_print_markdown(FILE *out, const lk_component *component)
{
    char type[64], fallback[96];
    fprintf(out, "### %s\n\n%s", component->name, component->help ? component->help : "");
    print_names(out, component->aliases);
    fputs("\n\n", out);
    if (!component->parameters || !component->parameters->name) return;
    fputs("| parameter | type | | |\n| --- | --- | --- | --- |\n", out);
    for (const lk_parameter *p = component->parameters; p->name; p++) {
        fprintf(out, "| `%s` | ", p->name);
        print_cell(out, type_text(p, type, sizeof type));
        fprintf(out, " | %s | ", default_text(p, fallback, sizeof fallback));
        print_meaning(out, p);
        print_cell(out, p->help);
        fputs(" |\n", out);
    }
    fputc('\n', out);
}
