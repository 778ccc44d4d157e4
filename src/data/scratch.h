/* Memory of a thread's own that grows to the largest size asked for and is freed with the thread: transforms
 * allocate only when a thread meets a larger sample than before. One holder at a time: the next call may move
 * it. */
#ifndef LKI_DATA_SCRATCH_H
#define LKI_DATA_SCRATCH_H

#include <stddef.h>

/* 64-byte aligned, content undefined; NULL with the error set where memory is short. */
char *lki_thread_scratch(size_t nbytes);

#endif
