/* TensorBoard's event files: records with checksums, each one Event of its protocol buffers.
 *
 *     record = u64 length, u32 masked crc of the length, data, u32 masked crc of the data
 *     Event  = wall_time 1 (double), step 2, file_version 3, summary 5
 *     Summary = value 1, repeated: tag 1, simple_value 2 (float), image 4 (height 1, width 2, colorspace 3,
 *               png 4), histo 5 (min 1, max 2, num 3, sum 4, sum_squares 5, bucket_limit 6, bucket 7),
 * metadata 9
 *
 * event_setup.c writes what belongs to a run as a whole: its settings (metadata of the plug-in "hparams") and
 * its graph (graph_def 4 of an Event). */
#ifndef LKI_LOGGER_EVENT_H
#define LKI_LOGGER_EVENT_H

#include <lockstep/sys/logger.h>

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

lk_status lki_event_put_histogram(lki_event_buffer *buffer, double wall_time, int64_t step, const char *tag,
                                  const lk_histogram *histogram);

/* The start and the end of a session of the plug-in "hparams": the settings are a JSON object, and `status`
 * is what the run came to. */
lk_status lki_event_put_session(lki_event_buffer *buffer, double wall_time, const char *json);
lk_status lki_event_put_session_end(lki_event_buffer *buffer, double wall_time, lk_status status);
/* The model of lk_logger_ops.log_model as a GraphDef. */
lk_status lki_event_put_graph(lki_event_buffer *buffer, double wall_time, const char *json);

/* Fields of a message that grows at the end of a buffer (event_fields.c). Each makes room for itself. */
lk_status lki_field_varint(lki_event_buffer *buffer, int field, uint64_t value);
lk_status lki_field_double(lki_event_buffer *buffer, int field, double value);
lk_status lki_field_bytes(lki_event_buffer *buffer, int field, const void *data, size_t nbytes);
lk_status lki_field_text(lki_event_buffer *buffer, int field, const char *text);
/* A record around a message. */
lk_status lki_event_put_record(lki_event_buffer *buffer, const lki_event_buffer *event);

/* What a record holds, as a reader sees it. Tags are not zero-terminated and point into the record. */
typedef struct lki_event_value {
    const char *tag;
    size_t tag_length;
    int64_t step;
    double wall_time;
    bool is_scalar; /* else a picture or something unknown */
    float scalar;
    const uint8_t *histogram; /* its message; NULL: it is none */
    size_t histogram_nbytes;
} lki_event_value;

/* Reads a histogram's message. Limits and counts, at most `capacity` of them, go to the caller's memory. */
lk_status lki_event_histogram(const lki_event_value *value, lk_histogram *out, double *limits, double *counts,
                              int capacity);

/* Takes the record at `offset`: checks both checksums and moves offset behind it. *data and *nbytes are the
 * Event. Fails with LK_ERR_FORMAT and the record's place; LK_ERR_NOT_FOUND where the bytes end before the
 * record does. Where the data alone is wrong, offset still moves: the next record's place is known. */
lk_status lki_event_next(const uint8_t *bytes, size_t total, size_t *offset, const uint8_t **data,
                         size_t *nbytes);

/* Calls visit for every value of an Event. */
typedef void (*lki_event_visit)(const lki_event_value *value, void *context);
lk_status lki_event_parse(const uint8_t *data, size_t nbytes, lki_event_visit visit, void *context);

#endif
