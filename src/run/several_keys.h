/* A supervised runner whose model has several inputs or outputs. */
#ifndef LKI_RUN_SEVERAL_KEYS_H
#define LKI_RUN_SEVERAL_KEYS_H

#include <lockstep/runner.h>

/* Lets the runner give the fields of `input_keys` to its model, and name the model's outputs by
 * `output_keys`. The names are copied. */
lk_status lki_run_use_several_keys(lk_runner *runner, const lk_supervised_runner_options *options);

#endif
