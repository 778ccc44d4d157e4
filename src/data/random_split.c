/* Random parts of a dataset, with PyTorch's permutation. */
#include <lockstep/vision.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/dataset.h"

#include <math.h>

enum { MAX_PARTS = 1024 };

/* Fractions, unless the numbers are lengths: as PyTorch, which takes them for fractions if their sum is
 * about 1. */
static bool are_fractions(const double *lengths, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) sum += lengths[i];
    return fabs(sum - 1) <= 1e-9;
}

/* Each part is rounded down; what is left over goes to the parts in turn. */
static lk_status count_fractions(const double *lengths, int count, int64_t total, int64_t *counts)
{
    int64_t left = total;
    for (int i = 0; i < count; i++) {
        if (!(lengths[i] >= 0 && lengths[i] <= 1))
            return lki_fail(LK_ERR_INVALID, "random_split: lengths: expected fractions from 0 to 1, found %g",
                            lengths[i]);
        counts[i] = (int64_t)floor((double)total * lengths[i]);
        left -= counts[i];
    }
    for (int64_t i = 0; i < left; i++) counts[i % count]++;
    /* A sum a little above 1 may ask for a sample too many. */
    for (int i = 0; left < 0; i = (i + 1) % count)
        if (counts[i] > 0) counts[i]--, left++;
    return LK_OK;
}

static lk_status count_parts(const double *lengths, int count, int64_t total, int64_t *counts)
{
    if (are_fractions(lengths, count)) return count_fractions(lengths, count, total, counts);
    double sum = 0;
    for (int i = 0; i < count; i++) {
        sum += lengths[i];
        if (!(lengths[i] >= 0) || lengths[i] != floor(lengths[i]) || lengths[i] > 0x1p53)
            return lki_fail(LK_ERR_INVALID,
                            "random_split: lengths: expected whole numbers whose sum is %lld, or fractions "
                            "whose sum is 1, found %g",
                            (long long)total, lengths[i]);
        counts[i] = (int64_t)lengths[i];
    }
    if (sum == (double)total) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "random_split: lengths: their sum is %g, the dataset has %lld samples",
                    sum, (long long)total);
}

static void draw(int64_t *order, int64_t count, const lk_random_split_options *options)
{
    lk_generator own, *generator = options->generator ? options->generator : lk_default_generator();
    if (options->seed) {
        lk_generator_seed(&own, options->seed);
        generator = &own;
    }
    lk_randperm(order, count, generator);
}

static lk_status make_parts(lk_dataset *dataset, const int64_t *counts, const int64_t *order, int count,
                            lk_dataset **parts)
{
    for (int i = 0; i < count; i++) {
        parts[i] = lk_subset(lk_dataset_share(dataset), order, counts[i]);
        order += counts[i];
        if (parts[i]) continue;
        while (i-- > 0) lk_dataset_free(parts[i]);
        return lki_last_status();
    }
    return LK_OK;
}

static lk_status split(lk_dataset *dataset, const double *lengths, int count, lk_dataset **parts,
                       const lk_random_split_options *given)
{
    LKI_TRY(lki_dataset_check_length(dataset, "random_split"));
    int64_t total = lk_dataset_length(dataset);
    LKI_TAKE(lk_random_split_options, options, given, lki_last_status());
    if (count < 1 || count > MAX_PARTS || !lengths)
        return lki_fail(LK_ERR_INVALID, "random_split: lengths: expected 1 to %d, found %d", MAX_PARTS,
                        count);
    if (options.seed && options.generator)
        return lki_fail(LK_ERR_INVALID, "random_split: either a seed or a generator, not both");
    LKI_SCOPED int64_t *counts = LKI_NEW_ARRAY(int64_t, count);
    LKI_SCOPED int64_t *order = LKI_NEW_ARRAY(int64_t, total + 1);
    LKI_SCOPED lk_dataset **made = LKI_NEW_ARRAY(lk_dataset *, count);
    if (!counts || !order || !made) return LK_ERR_NOMEM;
    LKI_TRY(count_parts(lengths, count, total, counts));
    draw(order, total, &options);
    LKI_TRY(make_parts(dataset, counts, order, count, made));
    for (int i = 0; i < count; i++) parts[i] = made[i];
    return LK_OK;
}

lk_status lk_random_split_with(lk_dataset *dataset, const double *lengths, int count, lk_dataset **parts,
                               const lk_random_split_options *given)
{
    if (!dataset) return lki_last_status();
    lk_status status = split(dataset, lengths, count, parts, given);
    lk_dataset_free(dataset);
    return status;
}
