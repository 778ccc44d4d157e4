/* LOGDIR/model.json: the layers of the run's model and the ops that compute it, with their shapes. */
#ifndef LKI_RUN_MODEL_FILE_H
#define LKI_RUN_MODEL_FILE_H

#include <lockstep/runner.h>

/* On the master: writes the file and tells the loggers. A model that takes more than one input, or none that
 * the data has, has no such file. */
lk_status lki_run_write_model(lk_runner *runner);

/* The shape of a full batch of the model's input in the first loader; false: the loader has no such field. */
bool lki_run_batch_shape(const lk_runner *runner, lk_dtype *dtype, lk_shape *shape);

#endif
