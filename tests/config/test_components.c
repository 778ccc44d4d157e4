/* The library's own components: their tables are sound, agree with PyTorch's signatures, and each can be
 * built. */
#include "lktest.h"

#include "config/build.h"
#include "config/components/components.h"
#include "config/config.h"
#include "config/registry.h"

#include <lockstep/checkpoint.h>
#include <lockstep/config.h>
#include <lockstep/data.h>
#include <lockstep/nn.h>
#include <lockstep/optim.h>
#include <lockstep/random.h>
#include <lockstep/scheduler.h>

#include <unistd.h>

typedef struct world {
    lk_config *config;
    lki_plan plan;
} world;

static lk_status open_world(world *w, const char *text)
{
    w->config = lk_config_create();
    w->plan = (lki_plan){.tree = &w->config->tree};
    LKI_TRY(lk_config_load_text(w->config, "c.yml", text));
    LKI_TRY(lki_plan_make(&w->plan));
    return lki_plan_build(&w->plan);
}

static void close_world(world *w)
{
    lki_plan_fini(&w->plan);
    lk_config_free(w->config);
}

static void *object_at(const world *w, const char *key)
{
    return lki_node_object(lki_node_get(w->config->tree.root, key))->pointer;
}

static void check_default(const lk_component *component, const lk_parameter *parameter)
{
    char text[512];
    int64_t whole;
    double number;
    bool flag, fine = true;
    const char *value = parameter->default_value;
    if (!value || !*value) return;
    bool is_word = parameter->choices && lki_choice_index(parameter->choices, value) >= 0;
    switch (parameter->type) {
    case LK_PARAMETER_INT:
    case LK_PARAMETER_INT64: fine = is_word || lki_parse_int(value, &whole); break;
    case LK_PARAMETER_FLOAT: fine = lki_parse_float(value, &number); break;
    case LK_PARAMETER_BOOL: fine = lki_parse_bool(value, &flag); break;
    case LK_PARAMETER_STRING: fine = !parameter->choices || is_word; break;
    case LK_PARAMETER_OBJECT:
    case LK_PARAMETER_OBJECTS:
    case LK_PARAMETER_ANY: fine = false; break;
    default: break;
    }
    snprintf(text, sizeof text, "%s: %s has the default \"%s\"", component->name, parameter->name, value);
    if (!fine) fail_msg("%s", text);
}

static void count_name(const char *name, const lk_component *component, void *context)
{
    (void)context;
    if (lk_component_find(name) != component) fail_msg("two components are called %s", name);
}

static void test_tables(void **state)
{
    (void)state;
    const lk_component *component;
    int count = 0;
    for (; (component = lk_component_at(count)); count++) {
        assert_non_null(component->build);
        if (!component->help || !*component->help) fail_msg("%s has no help", component->name);
        if (component->rest && lki_component_parameter_index(component, component->rest) < 0)
            fail_msg("%s has no parameter %s", component->name, component->rest);
        for (const lk_parameter *p = component->parameters; p && p->name; p++) {
            if (!p->help || !*p->help) fail_msg("%s: %s has no help", component->name, p->name);
            if (&component->parameters[lki_component_parameter_index(component, p->name)] != p)
                fail_msg("%s has %s twice", component->name, p->name);
            if (p->implied && !lk_component_find(p->implied)) fail_msg("%s implies %s", p->name, p->implied);
            check_default(component, p);
        }
    }
    assert_true(count > 80);
    lki_registry_each_name(count_name, NULL);
}

static void test_signatures_are_pytorchs(void **state)
{
    (void)state;
    char command[2048];
    if (system("/usr/bin/python3 -c 'import torch, yaml' 2>/dev/null")) {
        print_message("PyTorch and PyYAML are not installed\n");
        skip();
    }
    snprintf(command, sizeof command,
             "'%s/lockstep' components --markdown | /usr/bin/python3 %s/tests/oracle/config_signatures.py",
             LK_BUILD_DIR, LK_SOURCE_DIR);
    assert_int_equal(system(command), 0);
}

static void test_reference_page_is_what_the_command_prints(void **state)
{
    (void)state;
    char command[2048];
    snprintf(command, sizeof command, "'%s/lockstep' components --markdown | diff - '%s/docs/components.md'",
             LK_BUILD_DIR, LK_SOURCE_DIR);
    if (system(command)) fail_msg("docs/components.md is not what the command prints: run make docs");
}

/* Every module with the number of weights that PyTorch gives it. */
static void test_modules(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t weights;
    } cases[] = {
        {"{_target_: torch.nn.Linear, in_features: 5, out_features: 3}", 18},
        {"{_target_: Linear, args: [5, 3], bias: n}", 15},
        {"{_target_: Sequential, args: [{_target_: Linear, args: [2, 3]}, ReLU, {_target_: Linear, args: [3, "
         "1]}]}",
         13},
        {"{_target_: Sequential, args: {first: {_target_: Linear, args: [2, 3]}, act: ReLU}}", 9},
        {"{_target_: torch.nn.Sequential}", 0},
        {"{_target_: Residual, args: [{_target_: Linear, args: [2, 2]}]}", 6},
        {"{_target_: Conv1d, in_channels: 2, out_channels: 4, kernel_size: 3}", 28},
        {"{_target_: Conv2d, args: [2, 4, 3], padding: same, padding_mode: reflect}", 76},
        {"{_target_: Conv2d, args: [2, 4, [3, 5]], stride: [2, 1], padding: [1, 0], bias: n, groups: 2}", 60},
        {"{_target_: Conv2d, args: [2, 4, 3], padding: valid, dilation: 2}", 76},
        {"{_target_: Conv3d, args: [1, 2, 3]}", 56},
        {"{_target_: ConvTranspose1d, args: [2, 4, 3], output_padding: 1, stride: 2}", 28},
        {"{_target_: ConvTranspose2d, args: [2, 4, 3]}", 76},
        {"{_target_: ConvTranspose3d, args: [2, 1, 2]}", 17},
        {"{_target_: MaxPool1d, kernel_size: 2}", 0},
        {"{_target_: MaxPool2d, kernel_size: [2, 3], stride: 1, padding: 1, ceil_mode: y}", 0},
        {"{_target_: MaxPool3d, args: [2, 2]}", 0},
        {"{_target_: AvgPool1d, kernel_size: 2}", 0},
        {"{_target_: AvgPool2d, kernel_size: 2, count_include_pad: n, divisor_override: 3}", 0},
        {"{_target_: AvgPool3d, kernel_size: 2}", 0},
        {"{_target_: AdaptiveAvgPool1d, output_size: 4}", 0},
        {"{_target_: AdaptiveAvgPool2d, args: [[4, 5]]}", 0},
        {"{_target_: AdaptiveAvgPool3d, output_size: 1}", 0},
        {"{_target_: BatchNorm1d, num_features: 6}", 12},
        {"{_target_: BatchNorm2d, args: [6], affine: n, momentum: 0}", 0},
        {"{_target_: BatchNorm3d, args: [6], track_running_stats: n}", 12},
        {"{_target_: LayerNorm, normalized_shape: [3, 4]}", 24},
        {"{_target_: LayerNorm, normalized_shape: 4, elementwise_affine: n}", 0},
        {"{_target_: GroupNorm, num_groups: 2, num_channels: 6}", 12},
        {"{_target_: Dropout, p: 0}", 0},
        {"{_target_: Embedding, num_embeddings: 10, embedding_dim: 4, padding_idx: 0}", 40},
        {"Flatten", 0},
        {"{_target_: Unflatten, dim: 1, unflattened_size: [2, -1]}", 0},
        {"{_target_: Identity, args: [54, unused]}", 0},
        {"{_target_: ReLU, inplace: y}", 0},
        {"SiLU", 0},
        {"Tanh", 0},
        {"Sigmoid", 0},
        {"{_target_: LeakyReLU, negative_slope: 0.2}", 0},
        {"{_target_: ELU, alpha: 2}", 0},
        {"{_target_: GELU, approximate: tanh}", 0},
        {"{_target_: Softplus, beta: 2}", 0},
        {"{_target_: Softmax, dim: 1}", 0},
        {"{_target_: LogSoftmax, dim: -1}", 0},
        {"{_target_: Upsample, scale_factor: 2, mode: bilinear}", 0},
        {"{_target_: Upsample, size: [4, 8]}", 0},
        {"{_target_: MultiheadAttention, embed_dim: 8, num_heads: 2, batch_first: y}", 288},
        {"{_target_: TransformerEncoderLayer, d_model: 8, nhead: 2, dim_feedforward: 16, activation: gelu}",
         600},
        {"{_target_: TransformerEncoder, encoder_layer: {_target_: TransformerEncoderLayer, d_model: 8, "
         "nhead: 2, "
         "dim_feedforward: 16}, num_layers: 2, norm: {_target_: LayerNorm, args: [8]}}",
         1216},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        world w;
        snprintf(text, sizeof text, "a: {_target_: Sequential, args: [%s]}", cases[i].text);
        if (open_world(&w, text)) fail_msg("%s: %s", cases[i].text, lk_error());
        int64_t weights = lk_module_param_count(object_at(&w, "a"));
        if (weights != cases[i].weights) fail_msg("%s: %lld weights", cases[i].text, (long long)weights);
        close_world(&w);
    }
}

static void check_buildable(const char *const *texts)
{
    for (; *texts; texts++) {
        char text[700];
        world w;
        snprintf(text, sizeof text, "a: %s", *texts);
        if (open_world(&w, text)) fail_msg("%s: %s", *texts, lk_error());
        assert_non_null(object_at(&w, "a"));
        close_world(&w);
    }
}

static void test_criteria(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{_target_: torch.nn.CrossEntropyLoss}",
        "{_target_: CrossEntropyLoss, weight: [1, 2, 3], ignore_index: 0, label_smoothing: 0.1, reduction: "
        "sum}",
        "{_target_: NLLLoss, weight: {_target_: torch.tensor, data: [1, 2]}}",
        "{_target_: BCELoss}",
        "{_target_: BCEWithLogitsLoss, pos_weight: [2.0]}",
        "{_target_: MSELoss, reduction: none}",
        "{_target_: L1Loss}",
        "{_target_: SmoothL1Loss, beta: 0.5}",
        "{_target_: HuberLoss, args: [sum, 2.0]}",
        "{_target_: KLDivLoss, reduction: batchmean, log_target: y}",
        NULL,
    };
    check_buildable(texts);
}

static void test_schedulers(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{_target_: torch.optim.lr_scheduler.StepLR, step_size: 3}",
        "{_target_: MultiStepLR, milestones: [2, 4], gamma: 0.5}",
        "{_target_: ExponentialLR, gamma: 0.9}",
        "{_target_: ConstantLR}",
        "{_target_: LinearLR, total_iters: 7}",
        "{_target_: PolynomialLR, power: 2}",
        "{_target_: CosineAnnealingLR, T_max: 10}",
        "{_target_: CosineAnnealingWarmRestarts, T_0: 4, T_mult: 2}",
        "{_target_: OneCycleLR, max_lr: 0.1, total_steps: 100}",
        "{_target_: CyclicLR, base_lr: 0.01, max_lr: 0.1, mode: exp_range}",
        "{_target_: ReduceLROnPlateau, mode: max, patience: 0}",
        "{_target_: SequentialLR, schedulers: [{_target_: ConstantLR}, {_target_: StepLR, step_size: 2}], "
        "milestones: [3]}",
        "{_target_: WarmupLR, steps: 5, then: {_target_: ExponentialLR, gamma: 0.9}}",
        NULL,
    };
    check_buildable(texts);
}

static void test_optimizers(void **state)
{
    (void)state;
    world w;
    lkt_ok(open_world(
        &w, "m: {_var_: model, _target_: Linear, args: [2, 2]}\n"
            "sgd: {_target_: torch.optim.SGD, params: {_var_: model.parameters}, lr: 0.1, momentum: 0.9}\n"
            "zero: {_target_: SGD, args: [{_var_: model.parameters}, 0.0]}\n"
            "adam: {_target_: Adam, params: {_var_: model.parameters}, betas: [0.5, 0.9]}\n"
            "adamw: AdamW\n"
            "lamb: {_target_: catalyst.contrib.optimizers.Lamb, lr: 0.01}\n"
            "rmsprop: {_target_: RMSprop, momentum: 0.3}\n"
            "adagrad: {_target_: Adagrad}\n"));
    lkt_close(lk_optimizer_lr(object_at(&w, "sgd"), 0), 0.1, 1e-12);
    lkt_close(lk_optimizer_momentum(object_at(&w, "sgd"), 0), 0.9, 1e-12);
    assert_true(lk_optimizer_lr(object_at(&w, "zero"), 0) == 0);
    lkt_close(lk_optimizer_lr(object_at(&w, "adam"), 0), 1e-3, 1e-12);
    lkt_close(lk_optimizer_momentum(object_at(&w, "adam"), 0), 0.5, 1e-12);
    lkt_close(lk_optimizer_lr(object_at(&w, "lamb"), 0), 0.01, 1e-12);
    lkt_close(lk_optimizer_momentum(object_at(&w, "rmsprop"), 0), 0.3, 1e-12);
    close_world(&w);
}

static void test_parameter_groups(void **state)
{
    (void)state;
    world w;
    lkt_ok(open_world(
        &w, "model:\n  _target_: Sequential\n  args:\n"
            "  - {_var_: trunk, _target_: Linear, args: [2, 2]}\n  - {_var_: head, _target_: Linear, args: "
            "[2, 1]}\n"
            "a:\n  _target_: SGD\n  lr: 0.5\n  params:\n  - {params: {_var_: trunk.parameters}, lr: 0.1}\n"
            "  - {params: {_var_: head.parameters}, momentum: 0.9}\n"));
    assert_int_equal(lk_optimizer_group_count(object_at(&w, "a")), 3);
    lkt_close(lk_optimizer_lr(object_at(&w, "a"), 0), 0.1, 1e-12);
    lkt_close(lk_optimizer_lr(object_at(&w, "a"), 1), 0.5, 1e-12);
    lkt_close(lk_optimizer_momentum(object_at(&w, "a"), 1), 0.9, 1e-12);
    close_world(&w);
}

static void test_data(void **state)
{
    (void)state;
    world w;
    lkt_ok(open_world(
        &w, "x: {_var_: x, _target_: torch.rand, args: [10, 3]}\n"
            "data: {_var_: data, _target_: torch.utils.data.TensorDataset, args: [{_var_: x}, "
            "{_target_: tensor, data: [0, 0, 1, 1, 1, 1, 1, 2, 2, 2]}]}\n"
            "some: {_target_: Subset, dataset: {_var_: data}, indices: [1, 3]}\n"
            "all: {_target_: ConcatDataset, datasets: [{_var_: data}, {_var_: data}]}\n"
            "loader: {_target_: torch.utils.data.DataLoader, dataset: {_var_: data}, batch_size: 4, "
            "num_workers: 1, pin_memory: y, sampler: {_target_: RandomSampler, data_source: {_var_: data}}}\n"
            "one: {_target_: SequentialSampler, data_source: {_var_: data}}\n"
            "two: {_target_: SubsetRandomSampler, indices: [1, 2, 3]}\n"
            "three: {_target_: WeightedRandomSampler, weights: [1, 2, 3], num_samples: 7}\n"
            "four: {_target_: DistributedSampler, dataset: {_var_: data}, num_replicas: 2, rank: 1}\n"
            "five: {_target_: BalanceClassSampler, labels: [0, 0, 1], mode: upsampling}\n"
            "six: {_target_: catalyst.data.BalanceClassSampler, dataset: {_var_: data}}\n"
            "seven: {_target_: BalanceClassSampler, dataset: {_var_: data}, mode: 4}\n"
            "eight: {_target_: BatchBalanceClassSampler, dataset: {_var_: data}, num_classes: 2, "
            "num_samples: 2}\n"
            "nine: {_target_: MiniEpochSampler, data_len: 10, mini_epoch_len: 4}\n"
            "ten: {_target_: DistributedSamplerWrapper, sampler: {_target_: RandomSampler, data_source: "
            "{_var_: data}}, num_replicas: 2, rank: 0}\n"));
    assert_int_equal(lk_dataset_length(object_at(&w, "data")), 10);
    assert_int_equal(lk_dataset_find_field(object_at(&w, "data"), "targets"), 1);
    assert_int_equal(lk_dataset_length(object_at(&w, "some")), 2);
    assert_int_equal(lk_dataset_length(object_at(&w, "all")), 20);
    assert_int_equal(lk_loader_batch_size(object_at(&w, "loader")), 4);
    assert_int_equal(lk_sampler_length(object_at(&w, "one")), 10);
    assert_int_equal(lk_sampler_length(object_at(&w, "three")), 7);
    assert_int_equal(lk_sampler_length(object_at(&w, "four")),
                     5); /* this rank's share, as len() in PyTorch */
    assert_int_equal(lk_sampler_length(object_at(&w, "ten")), 5);
    assert_int_equal(lk_sampler_length(object_at(&w, "five")), 4);
    assert_int_equal(lk_sampler_length(object_at(&w, "six")), 6);
    assert_int_equal(lk_sampler_length(object_at(&w, "seven")), 12);
    close_world(&w);
}

#define BATCHES_OF_SIX                                                                                       \
    "{_target_: DataLoader, dataset: {_target_: TensorDataset, args: [{_target_: rand, args: [12, 3]}]}, "   \
    "batch_sampler: {_target_: BatchBalanceClassSampler, labels: [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1], "     \
    "num_classes: 2, num_samples: 3}"

/* A batch sampler says how large the batches are; PyTorch cannot tell a batch_size of 1 from none. */
static void test_batch_samplers(void **state)
{
    (void)state;
    static const char *const more[] = {"", ", batch_size: 1", ", batch_size: 6", ", shuffle: n",
                                       ", batch_size: 1, shuffle: n, drop_last: n"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        char text[700];
        lk_pass_size size;
        world w;
        snprintf(text, sizeof text, "a: " BATCHES_OF_SIX "%s}", more[i]);
        lkt_ok(open_world(&w, text));
        assert_int_equal(lk_loader_batch_size(object_at(&w, "a")), 6);
        lkt_ok(lk_loader_begin(object_at(&w, "a"), NULL, &size));
        assert_int_equal(size.batch_count, 2);
        close_world(&w);
    }
}

static void test_files_and_transforms(void **state)
{
    (void)state;
    world w;
    char text[4096], folder[1024];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("config_files"));
    snprintf(text, sizeof text, "%s/a.csv", folder);
    FILE *file = fopen(text, "w");
    fputs("x,y,class\n1,2,0\n3,4,1\n", file);
    fclose(file);
    snprintf(text, sizeof text,
             "digits:\n  _target_: SyntheticDigits\n  count: 20\n  transform:\n    _target_: "
             "torchvision.transforms.Compose\n"
             "    transforms:\n    - {_target_: torchvision.transforms.ToTensor}\n"
             "    - {_target_: Normalize, mean: [0.5], std: [0.5]}\n    - {_target_: RandomCrop, size: 28, "
             "padding: 2}\n"
             "    - RandomHorizontalFlip\n    - {_target_: RandomVerticalFlip, p: 1}\n    - {_target_: "
             "RandomAffine, degrees: "
             "10, scale: [0.9, 1.1]}\n    - {_target_: Cutout, size: 4}\n"
             "plain: {_target_: SyntheticDigits, train: n, count: 5, transform: ToTensor}\n"
             "drawn: {_target_: MNIST, root: /no/such, train: n, missing: digits}\n"
             "csv: {_target_: CSVDataset, path: %s/a.csv, class_targets: y}\n"
             "two: {_target_: CSVDataset, path: %s/a.csv, target_columns: [y, class]}\n"
             "mixed:\n  _target_: DataLoader\n  batch_size: 4\n  batch_transforms: [Mixup, {_target_: "
             "Cutmix, alpha: 0.5}]\n"
             "  dataset: {_target_: SyntheticDigits, count: 8, transform: [{_target_: OneHot, num_classes: "
             "10}]}\n",
             folder, folder);
    lkt_ok(open_world(&w, text));
    assert_int_equal(lk_dataset_length(object_at(&w, "digits")), 20);
    assert_int_equal(lk_dataset_field(object_at(&w, "digits"), 0)->shape.rank, 3);
    assert_int_equal(lk_dataset_field(object_at(&w, "plain"), 0)->shape.dim[0], 1);
    assert_int_equal(lk_dataset_length(object_at(&w, "drawn")), 2000);
    assert_int_equal(lk_dataset_length(object_at(&w, "csv")), 2);
    assert_int_equal(lk_dataset_field(object_at(&w, "two"), 0)->shape.dim[0], 1);
    close_world(&w);
}

static void write_bytes(const char *folder, const char *name, const unsigned char *bytes, size_t nbytes)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, nbytes, file), nbytes);
    fclose(file);
}

static float first_pixel(const world *w, const char *key)
{
    float pixel;
    int64_t label, zero = 0;
    lkt_ok(lk_dataset_gather(object_at(w, key), &(lk_pass){0}, &zero, 1, (void *[]){&pixel, &label}));
    return pixel;
}

/* A transform takes the place of Catalyst's own scaling: ToTensor gives 0..1 whatever it is called. */
static void test_transforms_of_catalysts_mnist(void **state)
{
    (void)state;
    static const unsigned char image[] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 51};
    static const unsigned char label[] = {0, 0, 8, 1, 0, 0, 0, 1, 7};
    world w;
    char text[4096], folder[1024];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("config_mnist"));
    write_bytes(folder, "train-images-idx3-ubyte", image, sizeof image);
    write_bytes(folder, "train-labels-idx1-ubyte", label, sizeof label);
    snprintf(text, sizeof text,
             "shared: &mnist {_target_: catalyst.contrib.datasets.MNIST, root: %s, train: y, download: y}\n"
             "scaled: *mnist\n"
             "none: {<<: *mnist, transform: ~}\n"
             "tensor: {<<: *mnist, transform: {_target_: catalyst.data.ToTensor}}\n"
             "same: {<<: *mnist, transform: catalyst.data.transforms.ToTensor}\n"
             "normal:\n  <<: *mnist\n  transform:\n    _target_: catalyst.data.transforms.Compose\n"
             "    transforms:\n    - catalyst.data.ToTensor\n"
             "    - {_target_: catalyst.data.transforms.Normalize, mean: [0.1], std: [0.5]}\n",
             folder);
    lkt_ok(open_world(&w, text));
    lkt_close(first_pixel(&w, "scaled"), (51 - .1307) / .3081, 1e-4);
    lkt_close(first_pixel(&w, "none"), (51 - .1307) / .3081, 1e-4);
    lkt_close(first_pixel(&w, "tensor"), .2, 1e-6);
    lkt_close(first_pixel(&w, "same"), .2, 1e-6);
    lkt_close(first_pixel(&w, "normal"), .2, 1e-6);
    close_world(&w);
}

static void test_tensors_from_files(void **state)
{
    (void)state;
    world w;
    char text[4096], folder[1024];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("config_tensors"));
    lk_state_dict *dict = lk_state_dict_create();
    lkt_ok(lk_state_dict_put(dict, "x", lk_tensor_full(LK_F32, LK_SHAPE(4, 2), 1)));
    snprintf(text, sizeof text, "%s/one.safetensors", folder);
    lkt_ok(lk_save_safetensors(text, dict));
    lkt_ok(lk_state_dict_put(dict, "y", lk_tensor_full(LK_I64, LK_SHAPE(4), 1)));
    snprintf(text, sizeof text, "%s/two.safetensors", folder);
    lkt_ok(lk_save_safetensors(text, dict));
    lk_state_dict_free(dict);
    snprintf(text, sizeof text,
             "a:\n  _target_: torch.utils.data.TensorDataset\n  args:\n  - %s/one.safetensors\n"
             "  - {_target_: torch.load, f: %s/two.safetensors, name: y, _mode_: call}\n"
             "b: {_target_: SafetensorsDataset, path: %s/two.safetensors, features: x, targets: y}\n",
             folder, folder, folder);
    lkt_ok(open_world(&w, text));
    assert_int_equal(lk_dataset_length(object_at(&w, "a")), 4);
    assert_int_equal(lk_dataset_length(object_at(&w, "b")), 4);
    close_world(&w);
    snprintf(text, sizeof text, "a: {_target_: TensorDataset, args: [%s/two.safetensors]}\n", folder);
    lkt_fails(open_world(&w, text), LK_ERR_CONFIG, "two.safetensors, name: x}");
    lkt_contains(lk_error(), "it has 2 tensors: say which one, as in {_target_: torch.load, f: ");
    close_world(&w);
    /* What the message says to write. */
    snprintf(text, sizeof text,
             "a: {_target_: TensorDataset, args: [{_target_: torch.load, f: %s/two.safetensors, name: x}]}\n",
             folder);
    lkt_ok(open_world(&w, text));
    close_world(&w);
    lkt_ok(open_world(&w, "a: {_target_: catalyst.callbacks.SkipCheckpointCallback, logdir: ./logs}\n"));
    close_world(&w);
}

/* The same numbers as a script that seeds, then builds in the same order. */
static void test_weights_are_drawn_in_file_order(void **state)
{
    (void)state;
    world w;
    lk_manual_seed(42);
    lkt_ok(open_world(&w, "a: {_target_: Linear, args: [3, 2]}\nb: {_target_: Sequential, args: [{_target_: "
                          "Linear, args: [2, 2]}]}\n"));
    lk_manual_seed(42);
    lk_module *a = lk_linear(3, 2), *b = lk_linear(2, 2);
    const lk_tensor *mine = lk_module_param(object_at(&w, "b"), "0.weight")->value,
                    *theirs = lk_module_param(b, "weight")->value;
    for (int i = 0; i < 4; i++) assert_true(lk_tensor_get(mine, i) == lk_tensor_get(theirs, i));
    lk_module_free(a);
    lk_module_free(b);
    close_world(&w);
}

static void test_mistakes_of_components(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a: {_target_: Conv2d, args: [1, 1, [3, 3, 3]]}",
         "c.yml:1: Conv2d: kernel_size: expected 1 or 2 numbers, found 3"},
        {"a: {_target_: Conv2d, args: [1, 1, 3], stride: 0}", "stride: expected at least 1, found 0"},
        {"a: {_target_: Conv2d, args: [1, 1, 3], padding: sam}",
         "padding: expected an integer, found \"sam\""},
        {"a: {_target_: Conv2d, args: [0, 1, 3]}", "c.yml:1: Conv2d: "},
        {"a: {_target_: Linear, args: [-1, 2]}", "c.yml:1: Linear: "},
        {"a: {_target_: MaxPool2d, kernel_size: 2, return_indices: y}", "return_indices"},
        {"a: {_target_: CrossEntropyLoss, size_average: n}", "write reduction"},
        {"a: {_target_: SGD}", "c.yml:1: SGD: \"lr\" is missing"},
        {"a: {_target_: Adam, betas: [0.5]}", "betas: expected two numbers, found 1"},
        {"a: {_target_: Adam, lr: -1}", "c.yml:1: Adam: "},
        {"a: {_target_: StepLR, step_size: 0}", "step_size: expected at least 1, found 0"},
        {"a: {_target_: DataLoader, dataset: {_target_: TensorDataset, args: [no.npy]}}",
         "c.yml:1: TensorDataset: "},
        {"a: {_target_: TensorDataset, args: []}", "TensorDataset: \"tensors\" is missing"},
        {"a: {_target_: TensorDataset, args: [{_target_: rand, args: [2]}, {_target_: rand, args: [3]}]}",
         "c.yml:1: TensorDataset: "},
        {"a: {_target_: TensorDataset, args: [{_target_: rand, args: [2]}, no.npy]}", "no.npy"},
        {"a: {_target_: nn.Linear}", "unknown component \"nn.Linear\"; did you mean \"Linear\"?"},
        {"a: {_target_: MNIST, root: /no/such/folder}", "c.yml:1: MNIST: "},
        {"d: {_var_: d, _target_: TensorDataset, args: [{_target_: rand, args: [2]}]}\n"
         "a: {_target_: DataLoader, dataset: {_var_: d}, batch_size: 0}",
         "c.yml:2: DataLoader: batch_size: expected at least 1, found 0"},
        {"a: " BATCHES_OF_SIX ", batch_size: 4}",
         "c.yml:1: DataLoader: batch_size: the sampler makes batches of 6, not 4"},
        {"a: " BATCHES_OF_SIX ", drop_last: y}", "drop_last: a batch_sampler makes whole batches"},
        {"a: " BATCHES_OF_SIX ", shuffle: y}", "shuffle: a loader with a sampler has its order already"},
        {"a: " BATCHES_OF_SIX ", sampler: {_target_: SubsetRandomSampler, indices: [1]}}",
         "either a sampler or a batch_sampler, not both"},
        {"d: {_var_: d, _target_: TensorDataset, args: [{_target_: rand, args: [2]}]}\n"
         "a: {_target_: BalanceClassSampler, dataset: {_var_: d}}",
         "BalanceClassSampler: the dataset has no targets"},
        {"a: {_target_: Normalize, mean: [1, 2], std: [1]}",
         "c.yml:1: Normalize: mean and std: expected as many"},
        {"a: {_target_: RandomHorizontalFlip, p: 2}", "p: expected a number above 0 and up to 1"},
        {"a: {_target_: CSVDataset, path: no.csv}", "c.yml:1: CSVDataset: "},
        {"a: {_target_: CSVDataset, path: no.csv, delimiter: ab}", "delimiter: expected one character"},
        {"a: {_target_: torch.load, f: no.npy}", "c.yml:1: torch.load: no.npy"},
        {"a: {_target_: ImageFolder, root: /no/such}", "c.yml:1: ImageFolder: "},
        {"a: {_target_: SyntheticDigits, count: 2, transform: Mixup}", "c.yml:1: SyntheticDigits: "},
        {"a: {_target_: BalanceClassSampler}", "either labels or a dataset"},
        {"a: {_target_: BalanceClassSampler, labels: [0, 1], mode: 0}",
         "mode: expected downsampling, upsampling or at least 1, found 0"},
        {"a: {_target_: Conv2d, args: [1, 1, 3], stride: 2, padding: same}",
         "padding \"same\" needs stride 1"},
        {"a: {_target_: DataLoader, dataset: SyntheticDigits, batch_transforms: ToTensor}",
         "belongs to a dataset (lk_transformed, in a config transform)"},
        {"a: {_target_: DataLoader, dataset: SyntheticDigits, batch_transforms: Mixup}",
         "for classes lk_one_hot, in a config OneHot"},
        {"a: {_target_: BalanceClassSampler, labels: [0, 1], mode: sideways}", "mode: expected an integer"},
        {"a: {_target_: WeightedRandomSampler, weights: [1, x], num_samples: 3}",
         "weights: expected a number, found \"x\""},
        {"a: {_target_: WeightedRandomSampler, weights: [-1, 2], num_samples: 3}",
         "c.yml:1: WeightedRandomSampler: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world w;
        if (open_world(&w, cases[i].text) == LK_OK) fail_msg("no error from:\n%s", cases[i].text);
        if (!strstr(lk_error(), cases[i].message))
            fail_msg("from:\n%s\nexpected: %s\nfound:    %s", cases[i].text, cases[i].message, lk_error());
        close_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_signatures_are_pytorchs),
        cmocka_unit_test(test_reference_page_is_what_the_command_prints),
        cmocka_unit_test(test_modules),
        cmocka_unit_test(test_criteria),
        cmocka_unit_test(test_schedulers),
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_parameter_groups),
        cmocka_unit_test(test_data),
        cmocka_unit_test(test_batch_samplers),
        cmocka_unit_test(test_files_and_transforms),
        cmocka_unit_test(test_transforms_of_catalysts_mnist),
        cmocka_unit_test(test_tensors_from_files),
        cmocka_unit_test(test_weights_are_drawn_in_file_order),
        cmocka_unit_test(test_mistakes_of_components),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
