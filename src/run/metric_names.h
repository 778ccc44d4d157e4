/* The names of metrics: which ones there will be, who looks at which, and those that nobody declared.
 *
 * A callback declares what it sets (lk_runner_declare_metric) when the experiment starts, and says with
 * lk_callback.declares_metrics that this is all of it. So a name that nobody reports is found before the
 * first batch; if a callback or handle_batch of the user's own may set it in that loader, when its loader has
 * ended for the first time, unless the name is a known one with a slip of the hand in it. What such code puts
 * into batch_metrics is averaged over the samples of the loader and of all ranks. */
#ifndef LKI_RUN_METRIC_NAMES_H
#define LKI_RUN_METRIC_NAMES_H

#include <lockstep/runner.h>

enum { LKI_MAX_WATCHED = 16 };

/* Who looks at which metric of which loader. */
typedef struct lki_watched {
    const char *who;
    char *loader_key, *metric_key;
} lki_watched;

typedef struct lki_metric_names {
    char **declared;
    int declared_count;
    bool has_strangers; /* somebody may report what was not declared */
    lki_watched watched[LKI_MAX_WATCHED];
    int watched_count;
} lki_metric_names;

void lki_metric_names_fini(lki_metric_names *names);

/* Declares prefix + name + tail; NULL parts are empty. */
lk_status lki_metric_names_declare(lk_runner *runner, const char *prefix, const char *name, const char *tail);
/* Says that somebody will look at this metric; keys of NULL are the run's valid_loader and valid_metric. */
lk_status lki_metric_names_watch(lk_runner *runner, const char *who, const char *loader_key,
                                 const char *metric_key);
/* When all callbacks have started. */
lk_status lki_metric_names_check(lk_runner *runner);
/* When a loader has ended. */
lk_status lki_metric_names_check_loader(lk_runner *runner);

bool lki_metric_names_is_declared(const lki_metric_names *names, const char *name);

#endif
