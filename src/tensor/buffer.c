#include "tensor/buffer.h"

#include "base/memory.h"

#include <stdatomic.h>

struct lk_buffer {
    void *data;
    size_t nbytes;
    void (*release)(void *data, void *context);
    void *context;
    atomic_int view_count;
};

lk_buffer *lki_buffer_create(size_t nbytes, const char *what)
{
    void *data = lki_calloc_aligned(nbytes, what);
    if (!data) return NULL;
    lk_buffer *buffer = lki_buffer_adopt(data, nbytes, NULL, NULL);
    if (!buffer) lki_free(data);
    return buffer;
}

lk_buffer *lki_buffer_adopt(void *data, size_t nbytes, void (*release)(void *data, void *context),
                            void *context)
{
    lk_buffer *buffer = LKI_NEW(lk_buffer);
    if (!buffer) return NULL;
    buffer->data = data;
    buffer->nbytes = nbytes;
    buffer->release = release;
    buffer->context = context;
    atomic_init(&buffer->view_count, 1);
    return buffer;
}

lk_buffer *lki_buffer_share(lk_buffer *buffer)
{
    if (buffer) atomic_fetch_add_explicit(&buffer->view_count, 1, memory_order_relaxed);
    return buffer;
}

void lki_buffer_release(lk_buffer *buffer)
{
    if (!buffer || atomic_fetch_sub_explicit(&buffer->view_count, 1, memory_order_acq_rel) > 1) return;
    if (buffer->release)
        buffer->release(buffer->data, buffer->context);
    else
        lki_free(buffer->data);
    lki_free(buffer);
}

void *lki_buffer_data(const lk_buffer *buffer)
{
    return buffer->data;
}

size_t lki_buffer_nbytes(const lk_buffer *buffer)
{
    return buffer->nbytes;
}
