#define _GNU_SOURCE
#include "tune/study_file.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static const char *const state_names[] = {"open", "complete", "pruned", "failed"};

/* ---- Writing ---- */

/* A whole line with one call, at the end of the file; `line` is taken over. */
static lk_status write_line(const lki_study *study, json_t *line)
{
    LKI_SCOPED char *path = lki_strdup(study->path);
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(line);
    LKI_SCOPED char *whole = text ? lki_format("%s\n", text) : NULL;
    free(text);
    if (!whole) return lki_fail(LK_ERR_NOMEM, "out of memory for a line of %s", path ? path : "a study");
    ssize_t length = (ssize_t)strlen(whole);
    off_t before = lseek(study->fd, 0, SEEK_END);
    errno = ENOSPC; /* a part of a line sets none */
    if (write(study->fd, whole, (size_t)length) == length && fdatasync(study->fd) == 0) return LK_OK;
    lk_status status = lki_fail(LK_ERR_IO, "%s: could not write: %s", study->path, strerror(errno));
    if (before >= 0) (void)!ftruncate(study->fd, before); /* what follows must begin a line */
    return status;
}

/* JSON has neither NaN nor infinities: they are null, and texts. */
static json_t *json_of_number(double value)
{
    if (isinf(value)) return json_string(value > 0 ? "inf" : "-inf");
    return isnan(value) ? json_null() : json_real(value);
}

lk_status lki_study_write_begin(const lki_study *study, const lki_trial *trial)
{
    if (study->fd < 0) return LK_OK;
    json_t *values = json_object();
    for (int i = 0; i < study->parameter_count; i++)
        json_object_set_new(values, study->parameters[i].name, json_of_number(trial->values[i]));
    return write_line(study, json_pack("{s:i, s:o}", "trial", trial->number, "values", values));
}

lk_status lki_study_write_epoch(const lki_study *study, const lki_trial *trial)
{
    if (study->fd < 0) return LK_OK;
    const lki_trial_epoch *last = &trial->epochs[trial->epoch_count - 1];
    json_t *line = json_pack("{s:i, s:I, s:o}", "trial", trial->number, "epoch", (json_int_t)last->epoch,
                             "value", json_of_number(last->value));
    if (trial->is_to_end) json_object_set_new(line, "prune", json_true());
    return write_line(study, line);
}

lk_status lki_study_write_end(const lki_study *study, const lki_trial *trial)
{
    if (study->fd < 0) return LK_OK;
    json_t *line = json_pack("{s:i, s:s}", "trial", trial->number, "state", state_names[trial->state]);
    if (trial->sentence) json_object_set_new(line, "sentence", json_string(trial->sentence));
    return write_line(study, line);
}

/* ---- Reading ---- */

static lk_status fail_line(const lki_study *study, int number)
{
    return lki_fail(LK_ERR_FORMAT, "%s:%d: not a line of a study", study->path, number);
}

static double number_of_json(const json_t *node)
{
    if (json_is_string(node)) return *json_string_value(node) == '-' ? -INFINITY : INFINITY;
    return json_is_number(node) ? json_number_value(node) : NAN;
}

/* The first key by which the file's description differs from the study's. */
static lk_status check_description(const lki_study *study, const char *line, const char *description)
{
    const char *key;
    json_t *value, *here = json_loads(description, 0, NULL), *there = json_loads(line, 0, NULL);
    lk_status status = json_is_object(there) ? LK_OK : fail_line(study, 1);
    json_object_foreach(here, key, value)
    {
        if (status || json_equal(value, json_object_get(there, key))) continue;
        status = lki_fail(LK_ERR_CONFIG,
                          "%s: an earlier study lies there with another \"%s\": give --new to begin anew, or "
                          "another --logdir",
                          study->path, key);
    }
    json_decref(here);
    json_decref(there);
    return status;
}

static bool read_values(const lki_study *study, const json_t *object, double *values)
{
    for (int i = 0; i < study->parameter_count; i++) {
        const json_t *value = json_object_get(object, study->parameters[i].name);
        if (!json_is_number(value)) return false;
        values[i] = json_number_value(value);
    }
    return true;
}

static lk_status read_begin(lki_study *study, const json_t *line, int64_t number, int line_number)
{
    lki_trial *trial;
    double *values = LKI_NEW_ARRAY(double, study->parameter_count);
    if (!values) return LK_ERR_NOMEM;
    bool is_next =
        number == study->trial_count && read_values(study, json_object_get(line, "values"), values);
    lk_status status = is_next ? lki_study_add(study, values, &trial) : fail_line(study, line_number);
    lki_free(values);
    return status;
}

static lk_status read_end(lki_study *study, lki_trial *trial, const json_t *line, int line_number)
{
    const char *state = json_string_value(json_object_get(line, "state"));
    const char *sentence = json_string_value(json_object_get(line, "sentence"));
    for (int i = LKI_TRIAL_COMPLETE; i <= LKI_TRIAL_FAILED; i++) {
        if (!lki_same_text(state, state_names[i])) continue;
        trial->state = (lki_trial_state)i;
        trial->sentence = lki_strdup(sentence);
        return sentence && !trial->sentence ? LK_ERR_NOMEM : LK_OK;
    }
    return fail_line(study, line_number);
}

static lk_status read_line(lki_study *study, const char *text, int line_number)
{
    json_t *line = json_loads(text, 0, NULL);
    const json_t *number = json_object_get(line, "trial"), *epoch = json_object_get(line, "epoch");
    int64_t index = json_is_integer(number) ? json_integer_value(number) : -1;
    lk_status status;
    if (json_object_get(line, "values")) {
        status = read_begin(study, line, index, line_number);
    } else if (index < 0 || index >= study->trial_count) {
        status = fail_line(study, line_number);
    } else if (json_is_integer(epoch)) {
        status = lki_trial_add_epoch(study->trials[index], json_integer_value(epoch),
                                     number_of_json(json_object_get(line, "value")),
                                     json_is_true(json_object_get(line, "prune")));
    } else {
        status = read_end(study, study->trials[index], line, line_number);
    }
    json_decref(line);
    return status;
}

static lk_status read_lines(lki_study *study, char *text, const char *description)
{
    int number = 0;
    for (char *end; (end = strchr(text, '\n')) != NULL; text = end + 1) {
        *end = '\0';
        LKI_TRY(number++ ? read_line(study, text, number) : check_description(study, text, description));
    }
    return LK_OK;
}

/* The trials of a study hold its lock, too. When it is killed they die with it, but not in the same moment.
 */
static bool take_lock(int fd)
{
    enum { TRIES = 100, PAUSE_NS = 20000000 };
    for (int i = 0; i < TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
            return true; /* or there are no locks */
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    return false;
}

static lk_status fail_at_work(const char *path)
{
    return lki_fail(LK_ERR_INVALID, "%s: another `lockstep tune` is at work there", path);
}

lk_status lki_study_file_check_rest(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return LK_OK;
    bool is_free = take_lock(fd);
    close(fd);
    return is_free ? LK_OK : fail_at_work(path);
}

static lk_status lock(lki_study *study)
{
    study->fd = open(study->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (study->fd < 0) return lki_fail(LK_ERR_IO, "%s: could not open: %s", study->path, strerror(errno));
    if (take_lock(study->fd)) return LK_OK;
    return fail_at_work(study->path);
}

lk_status lki_study_file_open(lki_study *study, const char *description)
{
    LKI_SCOPED char *text = NULL;
    size_t nbytes = 0;
    LKI_TRY(lock(study));
    LKI_TRY(lki_read_file(&text, &nbytes, study->path));
    char *last = memrchr(text, '\n', nbytes);
    size_t whole = last ? (size_t)(last - text) + 1 : 0;
    text[whole] = '\0';
    if (whole < nbytes && ftruncate(study->fd, (off_t)whole) != 0)
        return lki_fail(LK_ERR_IO, "%s: could not cut off its last line: %s", study->path, strerror(errno));
    if (whole) return read_lines(study, text, description);
    return write_line(study, json_loads(description, 0, NULL));
}
