/* Samplers that balance classes, and the one that makes short epochs. Catalyst's semantics; the draws come
 * from the loader's generator (Catalyst's own come from numpy's global one). */
#include "data/sampler.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"

#include <stdlib.h>
#include <string.h>

/* The samples of each class: indices sorted by class, and where each class begins. */
typedef struct classes {
    int64_t class_count;
    int64_t *begin;   /* (class_count + 1) */
    int64_t *members; /* (count) */
    int64_t num_classes, num_samples, num_batches, samples_per_class;
} classes;

static void free_classes(void *context)
{
    classes *self = context;
    if (!self) return;
    lki_free(self->begin);
    lki_free(self->members);
    lki_free(self);
}

typedef struct labelled {
    int64_t label, index;
} labelled;

static int by_label(const void *left, const void *right)
{
    const labelled *a = left, *b = right;
    if (a->label != b->label) return a->label < b->label ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static classes *group(const int64_t *labels, int64_t count)
{
    if (count < 1 || !labels) return lki_fail_null(LK_ERR_INVALID, "balance sampler: no labels");
    classes *self = LKI_NEW(classes);
    labelled *sorted = LKI_NEW_ARRAY(labelled, count);
    if (self) {
        self->begin = LKI_NEW_ARRAY(int64_t, count + 1);
        self->members = LKI_NEW_ARRAY(int64_t, count);
    }
    if (!self || !sorted || !self->begin || !self->members) {
        lki_free(sorted);
        free_classes(self);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++) sorted[i] = (labelled){labels[i], i};
    qsort(sorted, (size_t)count, sizeof *sorted, by_label);
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || sorted[i].label != sorted[i - 1].label) self->begin[self->class_count++] = i;
        self->members[i] = sorted[i].index;
    }
    self->begin[self->class_count] = count;
    lki_free(sorted);
    return self;
}

static int64_t class_size(const classes *self, int64_t c)
{
    return self->begin[c + 1] - self->begin[c];
}

/* `wanted` members of a class: all different where there are enough, with replacement where not. `scratch`
 * has room for the class. */
static void choose(const classes *self, int64_t c, int64_t wanted, lk_generator *generator, int64_t *scratch,
                   int64_t *out)
{
    int64_t size = class_size(self, c);
    const int64_t *members = self->members + self->begin[c];
    if (wanted > size) {
        for (int64_t i = 0; i < wanted; i++) out[i] = members[lk_randint(size, generator)];
        return;
    }
    lk_randperm(scratch, size, generator);
    for (int64_t i = 0; i < wanted; i++) out[i] = members[scratch[i]];
}

static int64_t extreme_class_size(const classes *self, bool largest)
{
    int64_t found = class_size(self, 0);
    for (int64_t c = 1; c < self->class_count; c++) {
        int64_t size = class_size(self, c);
        if (largest ? size > found : size < found) found = size;
    }
    return found;
}

/* ---- Balance class ---- */

static lk_status draw_balanced(lk_sampler *sampler, const lki_draw *draw, int64_t *indices, int64_t *count)
{
    const classes *self = sampler->context;
    int64_t largest = extreme_class_size(self, true);
    int64_t *scratch = LKI_NEW_ARRAY(int64_t, largest > sampler->length ? largest : sampler->length);
    int64_t *grouped = LKI_NEW_ARRAY(int64_t, sampler->length);
    if (scratch && grouped) {
        for (int64_t c = 0; c < self->class_count; c++)
            choose(self, c, self->samples_per_class, draw->generator, scratch,
                   grouped + c * self->samples_per_class);
        lk_randperm(scratch, sampler->length, draw->generator);
        for (int64_t i = 0; i < sampler->length; i++) indices[i] = grouped[scratch[i]];
        *count = sampler->length;
    }
    lk_status status = scratch && grouped ? LK_OK : LK_ERR_NOMEM;
    lki_free(scratch);
    lki_free(grouped);
    return status;
}

lk_sampler *lk_balance_class_sampler_with(const int64_t *labels, int64_t count,
                                          const lk_balance_class_sampler_options *given)
{
    LKI_TAKE(lk_balance_class_sampler_options, options, given, lki_sampler_broken());
    const char *mode = options.mode ? options.mode : "downsampling";
    bool up = strcmp(mode, "upsampling") == 0;
    if (!up && strcmp(mode, "downsampling") != 0) {
        lki_fail(LK_ERR_INVALID,
                 "balance sampler: mode: expected \"downsampling\" or \"upsampling\", found \"%s\"", mode);
        return lki_sampler_broken();
    }
    if (options.samples_per_class < 0) {
        lki_fail(LK_ERR_INVALID, "balance sampler: samples_per_class: expected at least 1, found %lld",
                 (long long)options.samples_per_class);
        return lki_sampler_broken();
    }
    classes *self = group(labels, count);
    if (!self) return lki_sampler_broken();
    self->samples_per_class =
        options.samples_per_class ? options.samples_per_class : extreme_class_size(self, up);
    return lki_sampler_create(self->samples_per_class * self->class_count, draw_balanced, self, free_classes);
}

/* ---- Batch balance ---- */

static lk_status draw_batches(lk_sampler *sampler, const lki_draw *draw, int64_t *indices, int64_t *count)
{
    const classes *self = sampler->context;
    int64_t largest = extreme_class_size(self, true);
    int64_t *scratch = LKI_NEW_ARRAY(int64_t, largest);
    int64_t *chosen = LKI_NEW_ARRAY(int64_t, self->class_count);
    if (scratch && chosen) {
        int64_t *out = indices;
        for (int64_t batch = 0; batch < self->num_batches; batch++) {
            lk_randperm(chosen, self->class_count, draw->generator);
            for (int64_t k = 0; k < self->num_classes; k++, out += self->num_samples)
                choose(self, chosen[k], self->num_samples, draw->generator, scratch, out);
        }
        *count = sampler->length;
    }
    lk_status status = scratch && chosen ? LK_OK : LK_ERR_NOMEM;
    lki_free(scratch);
    lki_free(chosen);
    return status;
}

static lk_status check_batch_balance(const classes *self, int64_t num_classes, int64_t num_samples,
                                     int64_t num_batches)
{
    if (num_classes < 2 || num_classes > self->class_count)
        return lki_fail(LK_ERR_INVALID, "batch-balance sampler: num_classes: expected 2 to %lld, found %lld",
                        (long long)self->class_count, (long long)num_classes);
    if (num_samples < 2)
        return lki_fail(LK_ERR_INVALID, "batch-balance sampler: num_samples: expected at least 2, found %lld",
                        (long long)num_samples);
    if (num_batches < 0)
        return lki_fail(LK_ERR_INVALID, "batch-balance sampler: num_batches: expected at least 1, found %lld",
                        (long long)num_batches);
    if (extreme_class_size(self, false) < 2)
        return lki_fail(LK_ERR_INVALID, "batch-balance sampler: each class needs at least 2 samples");
    return LK_OK;
}

lk_sampler *lk_batch_balance_class_sampler_with(const int64_t *labels, int64_t count, int64_t num_classes,
                                                int64_t num_samples,
                                                const lk_batch_balance_class_sampler_options *given)
{
    LKI_TAKE(lk_batch_balance_class_sampler_options, options, given, lki_sampler_broken());
    classes *self = group(labels, count);
    if (!self || check_batch_balance(self, num_classes, num_samples, options.num_batches)) {
        free_classes(self);
        return lki_sampler_broken();
    }
    int64_t batch_size = num_classes * num_samples;
    self->num_classes = num_classes;
    self->num_samples = num_samples;
    self->num_batches = options.num_batches ? options.num_batches : count / batch_size;
    lk_sampler *sampler =
        lki_sampler_create(self->num_batches * batch_size, draw_batches, self, free_classes);
    if (sampler->status == LK_OK) sampler->batch_size = batch_size;
    return sampler;
}

/* ---- Mini-epochs ---- */

/* state[0] is the number of the next mini-epoch, state[1] the seed of the current order. Each order is a
 * permutation of 0..length-1 of its own, so these two numbers are all there is to save. */
typedef struct mini_epoch {
    int64_t length, mini_length, steps, divider;
    bool per_epoch, per_mini_epoch;
} mini_epoch;

/* A mini-epoch that there is, whatever number a checkpoint has. */
static int64_t current_step(const lk_sampler *sampler)
{
    const mini_epoch *self = sampler->context;
    return (int64_t)((uint64_t)sampler->state[0] % (uint64_t)self->divider);
}

static int64_t mini_epoch_length(const lk_sampler *sampler, int rank, int world)
{
    (void)rank, (void)world;
    const mini_epoch *self = sampler->context;
    int64_t step = current_step(sampler);
    if (step < self->steps || self->steps == 0)
        return self->steps == 0 && !self->per_epoch && !self->per_mini_epoch ? self->length
                                                                             : self->mini_length;
    return self->length - step * self->mini_length;
}

/* A mini-epoch longer than the data repeats samples, drawn with replacement. */
static void draw_with_repeats(const mini_epoch *self, lk_generator *generator, int64_t *indices)
{
    for (int64_t i = 0; i < self->mini_length; i++) indices[i] = lk_randint(self->length, generator);
}

static lk_status draw_mini_epoch(lk_sampler *sampler, const lki_draw *draw, int64_t *indices, int64_t *count)
{
    const mini_epoch *self = sampler->context;
    int64_t step = current_step(sampler);
    bool shuffled = self->per_mini_epoch || self->per_epoch;
    *count = mini_epoch_length(sampler, 0, 1);
    if (self->per_mini_epoch || (self->per_epoch && step == 0))
        sampler->state[1] = (int64_t)lki_draw_seed(draw->generator);
    sampler->state[0] = step + 1;
    if (!shuffled) {
        for (int64_t i = 0; i < *count; i++) indices[i] = step * self->mini_length + i;
        return LK_OK;
    }
    lk_generator generator;
    lk_generator_seed(&generator, (uint64_t)sampler->state[1]);
    if (self->length < self->mini_length) {
        draw_with_repeats(self, &generator, indices);
        return LK_OK;
    }
    int64_t *order = LKI_NEW_ARRAY(int64_t, self->length);
    if (!order) return LK_ERR_NOMEM;
    lk_randperm(order, self->length, &generator);
    memcpy(indices, order + step * self->mini_length, (size_t)*count * sizeof *order);
    lki_free(order);
    return LK_OK;
}

lk_sampler *lk_mini_epoch_sampler_with(int64_t length, int64_t mini_epoch_length_,
                                       const lk_mini_epoch_sampler_options *given)
{
    LKI_TAKE(lk_mini_epoch_sampler_options, options, given, lki_sampler_broken());
    const char *shuffle = options.shuffle ? options.shuffle : "";
    bool per_epoch = strcmp(shuffle, "per_epoch") == 0,
         per_mini_epoch = strcmp(shuffle, "per_mini_epoch") == 0;
    mini_epoch *self = NULL;
    if (*shuffle && !per_epoch && !per_mini_epoch)
        lki_fail(LK_ERR_INVALID,
                 "mini-epoch sampler: shuffle: expected \"per_mini_epoch\" or \"per_epoch\", found \"%s\"",
                 shuffle);
    else if (length < 1 || mini_epoch_length_ < 1)
        lki_fail(LK_ERR_INVALID, "mini-epoch sampler: %s: expected at least 1 sample, found %lld",
                 length < 1 ? "length" : "mini_epoch_len",
                 (long long)(length < 1 ? length : mini_epoch_length_));
    else
        self = LKI_NEW(mini_epoch);
    if (!self) return lki_sampler_broken();
    int64_t steps = length / mini_epoch_length_;
    bool remainder = length % mini_epoch_length_ != 0;
    int64_t divider = steps == 0 ? 1 : steps + (remainder && !options.drop_last);
    *self = (mini_epoch){length, mini_epoch_length_, steps, divider, per_epoch, per_mini_epoch};
    lk_sampler *sampler = lki_sampler_create(mini_epoch_length_, draw_mini_epoch, self, NULL);
    if (sampler->status == LK_OK) sampler->next_length = mini_epoch_length;
    return sampler;
}
