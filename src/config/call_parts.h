/* What the calls under `run:` take out of a config, for components_call.c.
 *
 * Everything taken belongs to the caller until it hands it to the runner. */
#ifndef LKI_CONFIG_CALL_PARTS_H
#define LKI_CONFIG_CALL_PARTS_H

#include "config/run_config.h"

/* The arrays behind a call's lists; their items belong to the runner once it is called. Zero is empty. */
typedef struct lki_call_lists {
    lk_named_loader *loaders;
    lk_callback **callbacks;
    lk_logger **loggers;
    lk_hparam *hparams;
    int hparam_count;
} lki_call_lists;

void lki_call_lists_fini(lki_call_lists *l);

/* The call's model, or the runner's at its first call; *out is NULL where the runner has it already, or has
 * several by key, which are then added to it. */
lk_status lki_call_take_model(lk_args *args, lk_module **out);

/* The optimizer; parts of `model` that it does not name will not be trained. Several by key are added to the
 * runner. */
lk_status lki_call_take_optimizer(lk_args *args, lk_module *model, lk_optimizer **out);
lk_status lki_call_take_criterion(lk_args *args, lk_criterion **out);

lk_status lki_call_take_loaders(lk_args *args, lki_call_lists *l, lk_loader_list *out);
lk_status lki_call_take_callbacks(lk_args *args, lki_call_lists *l, lk_callback_list *out);
lk_status lki_call_take_loggers(lk_args *args, lki_call_lists *l, lk_logger_list *out);

/* Nested maps become paths: {model: {size: 3}} is model/size = 3. */
lk_status lki_call_read_hparams(lk_args *args, lki_call_lists *l, lk_hparam_list *out);

/* The device alone, and all of device, ranks and precision: the call's own arguments, else its engine's, else
 * the runner's engine's. Keys that contradict each other are an error. */
lk_status lki_call_read_device(lk_args *args, lk_train_options *options);
lk_status lki_call_read_engine(lk_args *args, lk_train_options *options);

/* Frees what was taken for an evaluation that does not take place. */
void lki_call_drop_evaluation(lk_loader *loader, const lk_evaluate_options *options);

#endif
