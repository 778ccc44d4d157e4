/* Fields that several processes of one host read: one of them loads, the others map what it has made.
 *
 * Ranks that are forked share the fields of the process they come from. Ranks that were started one by one
 * (tasks of Slurm, mpirun, by hand) meet here: the result, sampled and cut, lies in a file of /dev/shm
 * ($LOCKSTEP_SHM) that is named after the options and the files' names, sizes and times. Who comes first
 * locks it and loads; the others wait and map the same pages. The last one takes the file away; what a killed
 * process has left is taken away by the next. Where any of this fails the process loads for itself. */
#ifndef LKI_DATA_FIELDS_HOST_H
#define LKI_DATA_FIELDS_HOST_H

#include <lockstep/fields.h>

typedef lk_fields *(*lki_fields_loader)(const char *path, lk_fields_options options);

/* What `load` gives, or the same from another process. */
lk_fields *lki_fields_of_host(const char *path, const lk_fields_options *options, lki_fields_loader load);

/* Says that this process is one of several that read the same: the environment of Slurm and MPI says so by
 * itself. Large fields are shared in any case. */
void lki_fields_expect_others(void);

#endif
