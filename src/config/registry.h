/* The one registry of components: the library's own tables, then whatever plugins add.
 *
 * Built-in tables are constant; added components are borrowed. Not thread-safe while components are being
 * added. */
#ifndef LKI_CONFIG_REGISTRY_H
#define LKI_CONFIG_REGISTRY_H

#include <lockstep/config.h>

#include <stdio.h>

/* Calls `visit` with every name of every component, short and full. */
void lki_registry_each_name(void (*visit)(const char *name, const lk_component *component, void *context),
                            void *context);

/* Fails with `unknown component "torch.nn.Liner"; did you mean "torch.nn.Linear"?`. */
lk_status lki_fail_unknown_component(const char *name);

/* The position of a parameter in the component's table; -1 where it has none of that name. */
int lki_component_parameter_index(const lk_component *component, const char *name);
int lki_component_parameter_count(const lk_component *component);

/* "a module", for messages. */
const char *lki_kind_phrase(lk_component_kind kind);

/* How objects of a kind are freed, where a higher folder makes them. */
void lki_registry_free_kind(lk_component_kind kind, void (*free)(void *object));

/* Frees an object that this component built. */
void lki_component_dispose(const lk_component *component, void *object);

/* Another hold on an object of a kind that counts its holders; NULL where the kind does not. */
void *lki_component_share(const lk_component *component, void *object);

/* Whether it is one of those that were added, not of the library's own tables. */
bool lki_component_is_added(const lk_component *component);

/* How many have been added; and forgetting all but the first `count` of them. */
int lki_registry_added(void);
void lki_registry_keep(int count);

/* What went wrong where LK_COMPONENTS added components at the start of the program. */
lk_status lki_components_offered(void);

/* Forgets the components that were added; for tests and at exit. */
void lki_registry_reset(void);

/* The help of one component as text for a terminal, and as a section of the reference page. */
void lki_component_print_help(FILE *out, const lk_component *component);
void lki_component_print_markdown(FILE *out, const lk_component *component);

/* Prints one line of Markdown, broken before column 100; the lines after the first are indented. */
void lki_print_wrapped(FILE *out, const char *line, int indent);

#endif
