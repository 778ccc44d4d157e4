/* TensorBoard's event files: records with checksums, each one Event of its protocol buffers.
 *
 *     record = u64 length, u32 masked crc of the length, data, u32 masked crc of the data
 *     Event  = wall_time 1 (double), step 2, file_version 3, summary 5
 *     Summary = value 1, repeated: tag 1, simple_value 2 (float), image 4 (height 1, width 2, colorspace 3,
 * png 4) */
#ifndef LKI_LOGGER_EVENT_H
#define LKI_LOGGER_EVENT_H

#include <lockstep/metric.h>

/* Bytes that grow; zero is empty. */
typedef struct lki_event_buffer {
    uint8_t *data;
    size_t used, capacity;
} lki_event_buffer;

void lki_event_buffer_fini(lki_event_buffer *buffer);

/* Each appends one whole record. */
lk_status lki_event_put_version(lki_event_buffer *buffer, double wall_time);
/* Tags are the values' names with `suffix` behind them. */
lk_status lki_event_put_scalars(lki_event_buffer *buffer, double wall_time, int64_t step,
                                lk_metric_values values, const char *suffix);
lk_status lki_event_put_image(lki_event_buffer *buffer, double wall_time, int64_t step, const char *tag,
                              const lk_tensor *pixels);

/* What a record holds, as a reader sees it. Tags are not zero-terminated and point into the record. */
typedef struct lki_event_value {
    const char *tag;
    size_t tag_length;
    int64_t step;
    double wall_time;
    bool is_scalar; /* else a picture or something unknown */
    float scalar;
} lki_event_value;

/* Takes the record at `offset`: checks both checksums and moves offset behind it. *data and *nbytes are the
 * Event. Fails with LK_ERR_FORMAT and the record's place; LK_ERR_NOT_FOUND where the bytes end before the
 * record does. Where the data alone is wrong, offset still moves: the next record's place is known. */
lk_status lki_event_next(const uint8_t *bytes, size_t total, size_t *offset, const uint8_t **data,
                         size_t *nbytes);

/* Calls visit for every value of an Event. */
typedef void (*lki_event_visit)(const lki_event_value *value, void *context);
lk_status lki_event_parse(const uint8_t *data, size_t nbytes, lki_event_visit visit, void *context);

#endif
