/* The orders of samples: torch.utils.data's samplers and Catalyst's. */
#include "config/components/components.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/dataset.h"
#include "data/sampler.h"

#include <lockstep/data.h>

#include <string.h>

/* A sampler carries its error along to the loader; here it can be told with the sampler's own line. */
static lk_status built(lk_sampler *sampler, void **out)
{
    lk_status status = lki_sampler_check(sampler);
    if (status)
        lk_sampler_free(sampler);
    else
        *out = sampler;
    return status;
}

static int64_t length_of(lk_args *args, const char *name)
{
    return lk_dataset_length(lk_arg_peek(args, name));
}

static lk_status check_length(const lk_component *self, lk_args *args, const char *name)
{
    return lki_dataset_check_length(lk_arg_peek(args, name), self->name);
}

static lk_status build_sequential(const lk_component *self, lk_args *args, void **out)
{
    LKI_TRY(check_length(self, args, "data_source"));
    return built(lk_sequential_sampler(length_of(args, "data_source")), out);
}

static lk_status build_random(const lk_component *self, lk_args *args, void **out)
{
    LKI_TRY(check_length(self, args, "data_source"));
    if (lk_arg_given(args, "num_samples") && lk_arg_int64(args, "num_samples") < 1)
        return lki_fail(LK_ERR_CONFIG, "num_samples: expected at least 1, found %lld",
                        (long long)lk_arg_int64(args, "num_samples"));
    return built(lk_random_sampler(length_of(args, "data_source"),
                                   .replacement = lk_arg_bool(args, "replacement"),
                                   .num_samples = lk_arg_int64(args, "num_samples")),
                 out);
}

static lk_status build_subset_random(const lk_component *self, lk_args *args, void **out)
{
    int count = lk_arg_count(args, "indices");
    LKI_SCOPED int64_t *indices = LKI_NEW_ARRAY(int64_t, count + 1);
    (void)self;
    if (!indices) return LK_ERR_NOMEM;
    for (int i = 0; i < count; i++) indices[i] = lk_arg_int_at(args, "indices", i);
    return built(lk_subset_random_sampler(indices, count), out);
}

static lk_status build_weighted(const lk_component *self, lk_args *args, void **out)
{
    lk_tensor *weights = NULL, *wide = NULL;
    (void)self;
    LKI_TRY(lki_arg_tensor(args, "weights", &weights));
    wide = lk_tensor_cast(weights, LK_F64);
    lk_tensor_free(weights);
    if (!wide) return lki_last_status();
    lk_sampler *sampler =
        lk_weighted_random_sampler(wide->data, lk_tensor_count(wide), lk_arg_int64(args, "num_samples"),
                                   .no_replacement = !lk_arg_bool(args, "replacement"));
    lk_tensor_free(wide);
    return built(sampler, out);
}

static lk_distributed_sampler_options distributed_options(lk_args *args)
{
    return *LK_OPTIONS(lk_distributed_sampler_options, .num_replicas = lk_arg_int(args, "num_replicas"),
                       .rank = lk_arg_int(args, "rank"), .no_shuffle = !lk_arg_bool(args, "shuffle"),
                       .seed = (uint64_t)lk_arg_int64(args, "seed"),
                       .drop_last = lk_arg_bool(args, "drop_last"));
}

static lk_status build_distributed(const lk_component *self, lk_args *args, void **out)
{
    LKI_TRY(check_length(self, args, "dataset"));
    lk_distributed_sampler_options options = distributed_options(args);
    return built(lk_distributed_sampler_with(length_of(args, "dataset"), &options), out);
}

static lk_status build_wrapper(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    lk_distributed_sampler_options options = distributed_options(args);
    return built(lk_distributed_sampler_wrapper_with(lk_arg_take(args, "sampler"), &options), out);
}

/* Labels come as numbers, as a file, or from the targets of a dataset. */
static lk_status read_labels(lk_args *args, lk_tensor **out)
{
    lk_tensor *given = NULL;
    if (lk_arg_given(args, "labels") == lk_arg_given(args, "dataset"))
        return lki_fail(LK_ERR_CONFIG, "either labels or a dataset to take them from");
    if (lk_arg_given(args, "dataset")) return lki_dataset_labels(lk_arg_peek(args, "dataset"), out);
    LKI_TRY(lki_arg_tensor(args, "labels", &given));
    *out = lk_tensor_cast(given, LK_I64);
    lk_tensor_free(given);
    return *out ? LK_OK : lki_last_status();
}

static lk_status build_balance_class(const lk_component *self, lk_args *args, void **out)
{
    const char *mode = lk_arg_string(args, "mode");
    bool is_word = lki_choice_index("downsampling|upsampling", mode) >= 0;
    lk_tensor *labels = NULL;
    (void)self;
    if (!is_word && lk_arg_int(args, "mode") < 1)
        return lki_fail(LK_ERR_CONFIG, "mode: expected downsampling, upsampling or at least 1, found %s",
                        mode);
    LKI_TRY(read_labels(args, &labels));
    lk_sampler *sampler =
        lk_balance_class_sampler(labels->data, lk_tensor_count(labels), .mode = is_word ? mode : NULL,
                                 .samples_per_class = is_word ? 0 : lk_arg_int(args, "mode"));
    lk_tensor_free(labels);
    return built(sampler, out);
}

static lk_status build_batch_balance(const lk_component *self, lk_args *args, void **out)
{
    lk_tensor *labels = NULL;
    (void)self;
    LKI_TRY(read_labels(args, &labels));
    lk_sampler *sampler = lk_batch_balance_class_sampler(
        labels->data, lk_tensor_count(labels), lk_arg_int(args, "num_classes"),
        lk_arg_int(args, "num_samples"), .num_batches = lk_arg_int64(args, "num_batches"));
    lk_tensor_free(labels);
    return built(sampler, out);
}

static lk_status build_mini_epoch(const lk_component *self, lk_args *args, void **out)
{
    const char *shuffle = lk_arg_string(args, "shuffle");
    (void)self;
    /* Catalyst's "real" redraws the whole epoch. */
    if (shuffle && !strcmp(shuffle, "real")) shuffle = "per_epoch";
    return built(lk_mini_epoch_sampler(lk_arg_int64(args, "data_len"), lk_arg_int64(args, "mini_epoch_len"),
                                       .drop_last = lk_arg_bool(args, "drop_last"), .shuffle = shuffle),
                 out);
}

#define DATA_SOURCE LKI_OBJECT("data_source", DATASET, LKI_REQUIRED, "the dataset, as in {_var_: data}")
#define LABELS      LKI_TENSOR("labels", LKI_OPTIONAL, "the class of each sample: numbers or a .npy file")
#define LABELLED    LKI_OBJECT("dataset", DATASET, LKI_OPTIONAL, "or the dataset whose targets are the classes")
#define SHARES                                                                                               \
    LKI_INT("num_replicas", LKI_OPTIONAL, "ranks; the run's own where left out"),                            \
        LKI_INT("rank", LKI_OPTIONAL, "which of them; the run's own where left out"),                        \
        LKI_BOOL("shuffle", "true", "a new order for every epoch"), LKI_INT64("seed", "0", "of the order"),  \
        LKI_BOOL("drop_last", "false", "leave samples out instead of repeating some")

static const lk_parameter sequential_parameters[] = {DATA_SOURCE, {0}};
static const lk_parameter random_parameters[] = {
    DATA_SOURCE,
    LKI_BOOL("replacement", "false", "a sample may be drawn twice"),
    LKI_INT64("num_samples", LKI_OPTIONAL, "how many; as many as there are where left out"),
    {0},
};
static const lk_parameter subset_random_parameters[] = {LKI_INTS("indices", LKI_REQUIRED, "which samples"),
                                                        {0}};
static const lk_parameter weighted_parameters[] = {
    LKI_TENSOR("weights", LKI_REQUIRED, "a weight for each sample: numbers or a .npy file"),
    LKI_INT64("num_samples", LKI_REQUIRED, "how many to draw"),
    LKI_BOOL("replacement", "true", "a sample may be drawn twice"),
    {0},
};
static const lk_parameter distributed_parameters[] = {
    LKI_OBJECT("dataset", DATASET, LKI_REQUIRED, "the dataset, as in {_var_: data}"), SHARES, {0}};
static const lk_parameter wrapper_parameters[] = {
    LKI_OBJECT("sampler", SAMPLER, LKI_REQUIRED, "the order that is divided"), SHARES, {0}};
static const lk_parameter balance_class_parameters[] = {
    LABELS,
    {.name = "mode",
     .type = LK_PARAMETER_INT,
     .default_value = "downsampling",
     .choices = "downsampling|upsampling",
     .help = "as many of each class as the smallest has, as the largest has, or this number"},
    LABELLED,
    {0},
};
static const lk_parameter batch_balance_parameters[] = {
    LABELS,
    LKI_INT("num_classes", LKI_REQUIRED, "classes in a batch"),
    LKI_INT("num_samples", LKI_REQUIRED, "samples of each"),
    LKI_INT64("num_batches", LKI_OPTIONAL, "batches per epoch; by default as many as the data gives"),
    LABELLED,
    {0},
};
static const lk_parameter mini_epoch_parameters[] = {
    LKI_INT64("data_len", LKI_REQUIRED, "samples of the dataset"),
    LKI_INT64("mini_epoch_len", LKI_REQUIRED, "samples of a mini-epoch"),
    LKI_BOOL("drop_last", "false", "leave the short last one out"),
    LKI_CHOICE("shuffle", LKI_OPTIONAL, "per_mini_epoch|per_epoch|real", "when the order is drawn anew"),
    {0},
};

const lk_component lki_sampler_components[] = {
    {"SequentialSampler", "torch.utils.data.SequentialSampler", LK_KIND_SAMPLER,
     "The samples in their order.", .parameters = sequential_parameters, .build = build_sequential},
    {"RandomSampler", "torch.utils.data.RandomSampler", LK_KIND_SAMPLER, "The samples in a random order.",
     .parameters = random_parameters, .build = build_random},
    {"SubsetRandomSampler", "torch.utils.data.SubsetRandomSampler", LK_KIND_SAMPLER,
     "Some samples in a random order.", .parameters = subset_random_parameters, .build = build_subset_random},
    {"WeightedRandomSampler", "torch.utils.data.WeightedRandomSampler", LK_KIND_SAMPLER,
     "Samples drawn with given weights.", .parameters = weighted_parameters, .build = build_weighted},
    {"DistributedSampler",
     "torch.utils.data.DistributedSampler torch.utils.data.distributed.DistributedSampler", LK_KIND_SAMPLER,
     "An equal share of the samples for each rank.", .parameters = distributed_parameters,
     .build = build_distributed},
    {"DistributedSamplerWrapper",
     "catalyst.data.DistributedSamplerWrapper catalyst.data.sampler.DistributedSamplerWrapper",
     LK_KIND_SAMPLER, "An equal share of another sampler's order for each rank.",
     .parameters = wrapper_parameters, .build = build_wrapper},
    {"BalanceClassSampler", "catalyst.data.BalanceClassSampler catalyst.data.sampler.BalanceClassSampler",
     LK_KIND_SAMPLER, "As many samples of every class.", .parameters = balance_class_parameters,
     .build = build_balance_class},
    {"BatchBalanceClassSampler",
     "catalyst.data.BatchBalanceClassSampler catalyst.data.sampler.BatchBalanceClassSampler", LK_KIND_SAMPLER,
     "Batches of a few classes with as many samples of each.", .parameters = batch_balance_parameters,
     .build = build_batch_balance},
    {"MiniEpochSampler", "catalyst.data.MiniEpochSampler catalyst.data.sampler.MiniEpochSampler",
     LK_KIND_SAMPLER, "An epoch in several parts.", .parameters = mini_epoch_parameters,
     .build = build_mini_epoch},
    {0},
};
