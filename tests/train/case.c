#include "case.h"

#include "graph/home.h"

#include <lockstep/checkpoint.h>

#include <sys/stat.h>
#include <unistd.h>

static double draw(lk_generator *generator)
{
    return 2 * lk_generator_f64(generator) - 1;
}

lk_dataset *lkt_points(int64_t count, uint64_t seed)
{
    lk_generator generator;
    lk_generator_seed(&generator, seed);
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(count, LKT_FEATURES));
    lk_tensor *y = lk_tensor_create(LK_I64, LK_SHAPE(count));
    for (int64_t i = 0; i < count; i++) {
        int64_t label = (int64_t)(lk_generator_u64(&generator) % LKT_CLASSES);
        lk_tensor_set(y, i, (double)label);
        for (int k = 0; k < LKT_FEATURES; k++)
            lk_tensor_set(x, i * LKT_FEATURES + k, draw(&generator) + (k % LKT_CLASSES == label ? 0.7 : 0));
    }
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

lk_dataset *lkt_curve(int64_t count, uint64_t seed)
{
    lk_generator generator;
    lk_generator_seed(&generator, seed);
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(count, LKT_FEATURES));
    lk_tensor *y = lk_tensor_create(LK_F32, LK_SHAPE(count, 1));
    for (int64_t i = 0; i < count; i++) {
        double sum = 0.5;
        for (int k = 0; k < LKT_FEATURES; k++) {
            double value = draw(&generator);
            lk_tensor_set(x, i * LKT_FEATURES + k, value);
            sum += value * (k + 1);
        }
        lk_tensor_set(y, i, sum + 0.1 * draw(&generator));
    }
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

lk_module *lkt_linear_model(void)
{
    lk_manual_seed(7);
    return lk_sequential(lk_linear(LKT_FEATURES, LKT_CLASSES));
}

lk_module *lkt_deep_model(void)
{
    lk_manual_seed(7);
    return lk_sequential(lk_linear(LKT_FEATURES, 16), lk_batch_norm1d(16), lk_relu(), lk_dropout(0.3),
                         lk_linear(16, LKT_CLASSES));
}

const char *lkt_hash(const lk_module *model)
{
    static char hashes[4][LK_HASH_LENGTH + 1];
    static int next;
    char *hash = hashes[next++ % 4];
    lk_param_list params;
    lk_state_dict *state = lk_state_dict_create();
    lkt_ok(lk_module_params(model, &params));
    for (int i = 0; i < params.count; i++) {
        lkt_ok(lki_param_pull(params.items[i].param)); /* it may be on a GPU */
        lkt_ok(lk_state_dict_put(state, params.items[i].path, lk_tensor_view(params.items[i].param->value)));
    }
    lkt_ok(lk_weights_hash(state, hash));
    lk_param_list_free(&params);
    lk_state_dict_free(state);
    return hash;
}

void lkt_weights(const lk_module *model, const char *path, double *out, int count)
{
    const lk_param *param = lk_module_param(model, path);
    lkt_not_null(param);
    for (int i = 0; i < count; i++) out[i] = lk_tensor_get(param->value, i);
}

const char *lkt_path(const char *folder, const char *format, ...)
{
    static char paths[8][2048];
    static int next;
    char *path = paths[next++ % 8];
    size_t used = (size_t)snprintf(path, sizeof paths[0], "%s/", folder);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path + used, sizeof paths[0] - used, format, arguments);
    va_end(arguments);
    return path;
}

bool lkt_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

char *lkt_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("there is no %s", path);
    fseek(file, 0, SEEK_END);
    long nbytes = ftell(file);
    rewind(file);
    char *text = calloc((size_t)nbytes + 1, 1);
    assert_int_equal(fread(text, 1, (size_t)nbytes, file), nbytes);
    fclose(file);
    return text;
}

/* The field with this number of a line of CSV. */
static const char *field(const char *line, int index)
{
    for (; index > 0; index--) {
        line = strpbrk(line, ",\n");
        if (!line || *line == '\n') return NULL;
        line++;
    }
    return line;
}

double lkt_csv(const char *logdir, const char *loader, int row, const char *metric)
{
    char *text = lkt_read(lkt_path(logdir, "csv_logger/%s.csv", loader));
    const char *line = text, *name;
    int column = 0;
    size_t length = strlen(metric);
    while ((name = field(text, column)) &&
           (strncmp(name, metric, length) != 0 || !strchr(",\r\n", name[length])))
        column++;
    if (!name) fail_msg("%s.csv has no column %s", loader, metric);
    for (int i = 0; i < row; i++) {
        line = strchr(line, '\n');
        if (!line || !line[1]) fail_msg("%s.csv has no row %d", loader, row);
        line++;
    }
    double value = strtod(field(line, column), NULL);
    free(text);
    return value;
}

int lkt_csv_rows(const char *logdir, const char *loader)
{
    const char *path = lkt_path(logdir, "csv_logger/%s.csv", loader);
    if (!lkt_exists(path)) return 0;
    char *text = lkt_read(path);
    int rows = -1;
    for (const char *at = text; *at; at++) rows += *at == '\n';
    free(text);
    return rows;
}

const char *lkt_shared(void)
{
    const char *given = getenv("LOCKSTEP_SHARED");
    if (given && lkt_exists(given)) return given;
    static const char *const places[] = {LK_SOURCE_DIR "/../shared", LK_SOURCE_DIR "/../../shared"};
    for (int i = 0; i < 2; i++)
        if (lkt_exists(lkt_path(places[i], "data/mnist"))) return places[i];
    return NULL;
}
