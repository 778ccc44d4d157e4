/* The models against torchvision 0.14 and plain PyTorch: names, shapes and numbers of parameters, first
 * weights bit for bit, and outputs of the same weights (tests/oracle/models_zoo.py). And published
 * checkpoints. */
#include "lktest.h"

#include "nn/module.h"

#include <lockstep/checkpoint.h>
#include <lockstep/models.h>
#include <lockstep/nodes.h>
#include <lockstep/random.h>
#include <lockstep/runner.h>
#include <lockstep/step.h>

#include <inttypes.h>

typedef struct zoo_model {
    const char *name;
    lk_module *(*whole)(void);
    lk_module *(*small)(void);
} zoo_model;

/* clang-format off */
#define MODELS(X) \
    X(resnet18, lk_resnet18(), lk_resnet18(.width = 4, .num_classes = 10)) \
    X(resnet34, lk_resnet34(), NULL) \
    X(resnet50, lk_resnet50(), lk_resnet50(.width = 4, .num_classes = 10, .small_input = true, .zero_init_residual = true)) \
    X(resnet101, lk_resnet101(), NULL) \
    X(resnet152, lk_resnet152(), NULL) \
    X(vgg11, lk_vgg11(), NULL) \
    X(vgg13, lk_vgg13(), NULL) \
    X(vgg16, lk_vgg16(), NULL) \
    X(vgg19, lk_vgg19(), NULL) \
    X(vgg11_bn, lk_vgg11(.batch_norm = true), NULL) \
    X(vgg13_bn, lk_vgg13(.batch_norm = true), NULL) \
    X(vgg16_bn, lk_vgg16(.batch_norm = true), NULL) \
    X(vgg19_bn, lk_vgg19(.batch_norm = true), NULL) \
    X(mobilenet_v2, lk_mobilenet_v2(), lk_mobilenet_v2(.width_mult = 0.25, .num_classes = 10)) \
    X(mobilenet_v3_small, lk_mobilenet_v3_small(), lk_mobilenet_v3_small(.width_mult = 0.25, .num_classes = 10)) \
    X(mobilenet_v3_large, lk_mobilenet_v3_large(), lk_mobilenet_v3_large(.width_mult = 0.25, .num_classes = 10)) \
    X(efficientnet_b0, lk_efficientnet_b0(), lk_efficientnet_b0(.width_mult = 0.25, .num_classes = 10)) \
    X(vit_b_16, lk_vit_b_16(), lk_vit_b_16(.image_size = 32, .num_layers = 2, .num_heads = 2, .hidden_dim = 16, .mlp_dim = 32, .num_classes = 10)) \
    X(unet, lk_unet(), lk_unet(.width = 4)) \
    X(unet_bilinear, lk_unet(.bilinear = true), lk_unet(.width = 4, .bilinear = true)) \
    X(gpt2, lk_gpt2(), lk_gpt2(.vocab_size = 20, .n_positions = 6, .n_embd = 8, .n_layer = 2, .n_head = 2)) \
    X(gpt2_medium, lk_gpt2_medium(), NULL) \
    X(gpt2_large, lk_gpt2_large(), NULL) \
    X(gpt2_xl, lk_gpt2_xl(), NULL) \
    X(bert, lk_bert(), lk_bert(.vocab_size = 20, .max_position_embeddings = 6, .hidden_size = 8, .num_hidden_layers = 2, .num_attention_heads = 2)) \
    X(char_lstm, NULL, lk_char_lstm(20, .embedding_dim = 4, .hidden_size = 8))
/* clang-format on */

#define X(name, whole, small)                                                                                \
    static lk_module *make_whole_##name(void)                                                                \
    {                                                                                                        \
        return whole;                                                                                        \
    }                                                                                                        \
    static lk_module *make_small_##name(void)                                                                \
    {                                                                                                        \
        return small;                                                                                        \
    }
MODELS(X)
#undef X
static const zoo_model models[] = {
#define X(name, whole, small) {#name, make_whole_##name, make_small_##name},
    MODELS(X)
#undef X
};

static const zoo_model *find_model(const char *name)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (!strcmp(models[i].name, name)) return &models[i];
    fail_msg("no model \"%s\"", name);
    return NULL;
}

static FILE *open_golden(void)
{
    char path[1024];
    const char *folder = getenv("LOCKSTEP_GOLDEN");
    snprintf(path, sizeof path, "%s/models/zoo.txt", folder ? folder : LK_SOURCE_DIR "/tests/golden");
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s: cannot be read", path);
    return file;
}

/* ---- names ---- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

static uint64_t hash_names(const lk_param_list *list)
{
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < list->count; i++) {
        char number[32];
        const lk_shape *shape = &list->items[i].param->value->shape;
        hash = hash_text(hash, list->items[i].path);
        for (int k = 0; k < shape->rank; k++) {
            snprintf(number, sizeof number, " %" PRId64, shape->dim[k]);
            hash = hash_text(hash, number);
        }
        if (!shape->rank) hash = hash_text(hash, " "); /* "name " + "" in the oracle */
        hash = hash_text(hash, "\n");
    }
    return hash;
}

static void check_names(const char *name, const char *rest)
{
    int count;
    int64_t params;
    uint64_t hash;
    lk_param_list list;
    assert_int_equal(sscanf(rest, "%d %" SCNd64 " %" SCNx64, &count, &params, &hash), 3);
    lk_skip_init(true);
    lk_module *model = find_model(name)->whole();
    lk_skip_init(false);
    lkt_not_null(model);
    lkt_ok(lki_module_names(model, &list));
    bool same = list.count == count && lk_module_param_count(model) == params && hash_names(&list) == hash;
    for (int i = 0; i < list.count && !same; i++) print_error("%s\n", list.items[i].path);
    if (!same)
        fail_msg("%s: %d tensors and %" PRId64 " parameters, expected %d and %" PRId64, name, list.count,
                 lk_module_param_count(model), count, params);
    lk_param_list_free(&list);
    lk_module_free(model);
}

/* ---- first weights ---- */

static void check_first(const char *name, const char *rest)
{
    uint64_t expected, total = 0;
    lk_param_list list;
    assert_int_equal(sscanf(rest, "%" SCNx64, &expected), 1);
#ifndef __x86_64__ /* its truncated normals go through the C library, which rounds otherwise elsewhere */
    if (!strcmp(name, "vit_b_16")) return;
#endif
    lk_manual_seed(7);
    lk_module *model = find_model(name)->small();
    lkt_not_null(model);
    lkt_ok(lki_module_names(model, &list));
    for (int i = 0; i < list.count; i++) {
        const lk_tensor *value = list.items[i].param->value;
        const uint32_t *bits = value->data;
        uint64_t sum = 0;
        if (value->dtype != LK_F32) continue;
        for (int64_t k = 0; k < lk_tensor_count(value); k++) sum += bits[k] * (2 * (uint64_t)k + 1);
        total = total * 31 + sum;
    }
    if (total != expected) fail_msg("%s: the first weights are not torchvision's", name);
    lk_param_list_free(&list);
    lk_module_free(model);
}

/* ---- outputs ---- */

static double unit(int64_t i, int salt)
{
    return (double)(((uint64_t)i * 2654435761u + (uint64_t)salt * 40503) % 65536) / 65536 - 0.5;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

/* The formula of models_zoo.py. */
static void fill(lk_module *model)
{
    lk_param_list list;
    lkt_ok(lki_module_names(model, &list));
    for (int k = 0; k < list.count; k++) {
        lk_tensor *value = list.items[k].param->value;
        int64_t count = lk_tensor_count(value);
        bool is_scale =
            ends_with(list.items[k].path, "weight") || ends_with(list.items[k].path, "running_var");
        if (value->dtype != LK_F32) continue;
        for (int64_t i = 0; i < count; i++) {
            double u = unit(i, k);
            if (value->shape.rank >= 2)
                u *= 2 * sqrt(3 * (double)value->shape.dim[0] / (double)count);
            else
                u = is_scale ? 1 + 0.2 * u : 0.2 * u;
            lk_tensor_set(value, i, u);
        }
        lk_param_changed(list.items[k].param);
    }
    lk_param_list_free(&list);
}

static lk_tensor *tokens(int64_t vocab)
{
    lk_tensor *tensor = lk_tensor_create(LK_I64, LK_SHAPE(2, 5));
    for (int64_t i = 0; i < 10; i++) lk_tensor_set(tensor, i, (double)(i * i * 7 % vocab));
    return tensor;
}

static lk_tensor *picture(lk_shape shape)
{
    lk_tensor *tensor = lk_tensor_create(LK_F32, shape);
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++) lk_tensor_set(tensor, i, 2 * unit(i, 99));
    return tensor;
}

static lk_value *run_model(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                           void *model)
{
    lk_value *outputs[2] = {NULL, NULL};
    (void)names;
    lk_module_call(model, inputs, count, outputs, count == 3 ? 2 : 1);
    lk_graph_output(graph, "y", outputs[0]);
    if (count == 3) lk_graph_output(graph, "pooled", outputs[1]);
    return NULL;
}

/* The oracle takes 8 numbers out of all outputs, one after the other. */
static void compare(const char *name, const char *rest, lk_step *step, bool is_bert)
{
    const lk_tensor *y = lk_step_output(step, "y"), *pooled = is_bert ? lk_step_output(step, "pooled") : NULL;
    int64_t count = lk_tensor_count(y), total = count + (pooled ? lk_tensor_count(pooled) : 0),
            stride = total / 8;
    for (int64_t i = 0; i < 8; i++) {
        int64_t at = i * (stride > 1 ? stride : 1);
        char *end;
        double expected = strtod(rest, &end);
        if (end == rest) break;
        rest = end;
        double actual = at < count ? lk_tensor_get(y, at) : lk_tensor_get(pooled, at - count);
        if (!(fabs(actual - expected) <= 2e-5 * (1 + fabs(expected))))
            fail_msg("%s: output %d is %.7g, expected %.7g", name, (int)at, actual, expected);
    }
}

static void check_output(const char *name, const char *rest)
{
    bool is_bert = !strcmp(name, "bert"),
         is_text = is_bert || !strcmp(name, "gpt2") || !strcmp(name, "char_lstm");
    lk_module *model = find_model(name)->small();
    lkt_not_null(model);
    fill(model);
    lk_tensor *x = is_text                 ? tokens(20)
                   : !strcmp(name, "unet") ? picture(LK_SHAPE(1, 3, 33, 35))
                                           : picture(LK_SHAPE(2, 3, 32, 32));
    lk_tensor *mask = lk_tensor_full(LK_I64, LK_SHAPE(2, 5), 1), *types = tokens(2);
    lk_tensor_set(mask, 8, 0), lk_tensor_set(mask, 9, 0);
    lk_step *step = lk_step(.model = model, .function = run_model, .context = model);
    lkt_not_null(step);
    lkt_ok(lk_step_evaluate(step, (lk_input[]){{"x", x}, {"mask", mask}, {"types", types}}, is_bert ? 3 : 1));
    compare(name, rest, step, is_bert);
    lk_step_free(step);
    lk_tensor_free(x);
    lk_tensor_free(mask);
    lk_tensor_free(types);
    lk_module_free(model);
}

static void each_line(const char *kind, void (*check)(const char *name, const char *rest), int least)
{
    char line[1024], of[16], name[64];
    int length, found = 0;
    FILE *file = open_golden();
    while (fgets(line, sizeof line, file)) {
        assert_int_equal(sscanf(line, "%15s %63s %n", of, name, &length), 2);
        if (strcmp(of, kind) != 0) continue;
        check(name, line + length);
        found++;
    }
    fclose(file);
    assert_true(found >= least);
}

static void names_and_shapes_are_the_published_ones(void **state)
{
    (void)state;
    each_line("names", check_names, 25);
}

static void first_weights_are_torchvisions(void **state)
{
    (void)state;
    each_line("first", check_first, 10);
}

static void outputs_of_the_same_weights_are_pytorchs(void **state)
{
    (void)state;
    each_line("output", check_output, 12);
}

/* ---- training ---- */

/* Every parameter of every model is reached: one step changes all of them. */
static void every_model_trains(void **state)
{
    (void)state;
    static const char *const names[] = {"resnet18", "mobilenet_v3_small", "efficientnet_b0", "vit_b_16",
                                        "gpt2"};
    for (int k = 0; k < 5; k++) {
        bool is_text = k == 4;
        lk_manual_seed(1);
        lk_module *model = find_model(names[k])->small();
        lk_tensor *x = is_text ? tokens(20) : picture(LK_SHAPE(2, 3, 32, 32));
        lk_tensor *y = is_text ? tokens(8) : lk_tensor_full(LK_I64, LK_SHAPE(2), 3);
        lk_module *head = is_text ? lk_sequential(model, lk_transpose(1, 2)) : model;
        lk_criterion *criterion = lk_cross_entropy_loss();
        lk_optimizer *optimizer = lk_sgd(.lr = 0.1);
        lk_step *step = lk_step(.model = head, .criterion = criterion, .optimizer = optimizer);
        lkt_not_null(step);
        double first = 0, last = 0;
        for (int i = 0; i < 6; i++) {
            lkt_ok(lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}}, 2));
            last = lk_step_loss(step);
            if (i == 0) first = last;
        }
        if (!(last < first)) fail_msg("%s: the loss goes from %g to %g", names[k], first, last);
        lk_step_free(step);
        lk_optimizer_free(optimizer);
        lk_criterion_free(criterion);
        lk_tensor_free(x);
        lk_tensor_free(y);
        lk_module_free(head);
    }
}

/* ---- published checkpoints ---- */

static void put(lk_state_dict *dict, const char *name, lk_shape shape, double value)
{
    lkt_ok(lk_state_dict_put(dict, name, lk_tensor_full(LK_F32, shape, value)));
}

/* As on the hub: without "transformer.", with masks and without a head. */
static void a_published_gpt2_loads(void **state)
{
    (void)state;
    lk_module *model = find_model("gpt2")->small(), *other = find_model("gpt2")->small();
    char path[1100];
    snprintf(path, sizeof path, "%s/model.safetensors", lkt_scratch_folder("models_gpt2"));
    lk_state_dict *own = lk_module_state_dict(model), *file = lk_state_dict_create();
    for (int64_t i = 0; i < lk_state_dict_count(own); i++) {
        const char *name = lk_state_dict_name(own, i);
        if (strncmp(name, "transformer.", 12) == 0)
            lkt_ok(lk_state_dict_put(file, name + 12, lk_tensor_clone(lk_state_dict_tensor(own, i))));
    }
    put(file, "h.0.attn.bias", LK_SHAPE(1, 1, 6, 6), 1);
    lkt_ok(lk_save_safetensors(path, file));
    lkt_ok(lk_load_pretrained(other, path));
    lk_state_dict *loaded = lk_module_state_dict(other);
    char a[LK_HASH_LENGTH + 1], b[LK_HASH_LENGTH + 1];
    lkt_ok(lk_weights_hash(own, a));
    lkt_ok(lk_weights_hash(loaded, b));
    assert_string_equal(a, b);
    lk_state_dict_free(loaded);
    /* What does not fit is one line, and nothing has changed. */
    put(file, "wpe.weight", LK_SHAPE(7, 8), 0);
    lkt_ok(lk_save_safetensors(path, file));
    assert_int_equal(lk_load_pretrained(other, path), LK_ERR_SHAPE);
    lkt_contains(lk_error(), "\"transformer.wpe.weight\" has the shape (7, 8), but the model's has (6, 8)");
    lk_module *deeper = lk_gpt2(.vocab_size = 20, .n_positions = 7, .n_embd = 8, .n_layer = 3, .n_head = 2);
    assert_int_equal(lk_load_pretrained(deeper, path), LK_ERR_NOT_FOUND);
    lkt_contains(lk_error(), "the file has no \"transformer.h.2.ln_1.weight\"");
    lk_state_dict_free(own);
    lk_state_dict_free(file);
    lk_module_free(model);
    lk_module_free(other);
    lk_module_free(deeper);
}

/* bert-base-uncased has "bert." in front, and gamma and beta. */
static void a_published_bert_loads(void **state)
{
    (void)state;
    lk_module *model = find_model("bert")->small(), *other = find_model("bert")->small();
    char path[1100], name[300];
    snprintf(path, sizeof path, "%s/model.safetensors", lkt_scratch_folder("models_bert"));
    lk_state_dict *own = lk_module_state_dict(model), *file = lk_state_dict_create();
    for (int64_t i = 0; i < lk_state_dict_count(own); i++) {
        snprintf(name, sizeof name, "bert.%s", lk_state_dict_name(own, i));
        if (strstr(name, "LayerNorm.weight")) strcpy(strrchr(name, '.'), ".gamma");
        if (strstr(name, "LayerNorm.bias")) strcpy(strrchr(name, '.'), ".beta");
        lkt_ok(lk_state_dict_put(file, name, lk_tensor_clone(lk_state_dict_tensor(own, i))));
    }
    put(file, "cls.predictions.bias", LK_SHAPE(20), 1);
    lkt_ok(lk_save_safetensors(path, file));
    lkt_ok(lk_load_pretrained(other, path));
    lk_state_dict *loaded = lk_module_state_dict(other);
    char a[LK_HASH_LENGTH + 1], b[LK_HASH_LENGTH + 1];
    lkt_ok(lk_weights_hash(own, a));
    lkt_ok(lk_weights_hash(loaded, b));
    assert_string_equal(a, b);
    lk_state_dict_free(loaded);
    lk_state_dict_free(own);
    lk_state_dict_free(file);
    lk_module_free(model);
    lk_module_free(other);
}

static void expect_refused(lk_module *model, const char *sentence)
{
    assert_null(model);
    lkt_contains(lk_error(), sentence);
}

static void mistakes_are_one_line(void **state)
{
    (void)state;
    expect_refused(lk_resnet_with(42, NULL), "a depth of 18, 34, 50, 101 or 152, found 42");
    expect_refused(lk_resnet18(.groups = 2), "groups and width_per_group are for depths from 50 on");
    expect_refused(lk_resnet18(.num_classes = -1), "num_classes: expected at least 1, found -1");
    expect_refused(lk_vgg_with(12, NULL), "a depth of 11, 13, 16 or 19");
    expect_refused(lk_mobilenet_v2(.width_mult = -1), "width_mult");
    expect_refused(lk_vit_b_16(.image_size = 100), "image_size 100 is not a multiple of patch_size 16");
    expect_refused(lk_gpt2_with("gpt3", NULL), "found \"gpt3\"");
    expect_refused(lk_gpt2(.n_head = 5), "n_embd 768 is not a multiple of n_head 5");
    expect_refused(lk_bert(.num_attention_heads = 7), "hidden_size 768");
    lk_module *model = find_model("gpt2")->small();
    lk_graph *graph = lk_graph_create(false);
    assert_null(lk_module_forward(model, lk_graph_input(graph, "x", LK_I64, LK_SHAPE(1, 9))));
    lkt_contains(lk_error(), "a sequence of 9 tokens is longer than the 6 positions");
    lk_graph_free(graph);
    lk_module_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_shapes_are_the_published_ones),
        cmocka_unit_test(first_weights_are_torchvisions),
        cmocka_unit_test(outputs_of_the_same_weights_are_pytorchs),
        cmocka_unit_test(every_model_trains),
        cmocka_unit_test(a_published_gpt2_loads),
        cmocka_unit_test(a_published_bert_loads),
        cmocka_unit_test(mistakes_are_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
