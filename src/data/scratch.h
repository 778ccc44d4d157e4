/* Memory of a thread's own that grows to the largest size asked for and is freed with the thread: transforms
 * allocate only when a thread meets a larger sample than before. Takes nest, because a transformed dataset
 * may wrap another one: each level has a block of its own. */
#ifndef LKI_DATA_SCRATCH_H
#define LKI_DATA_SCRATCH_H

#include <stddef.h>

/* 64-byte aligned, content undefined; NULL with the error set when memory is short or datasets are nested too
 * deeply. Each take that succeeds is paired with one give, the latest first. */
char *lki_scratch_take(size_t nbytes);
void lki_scratch_give(void);

#endif
