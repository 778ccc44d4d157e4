#include "run/same_run.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "engine/cpu_level.h"
#include "run/run.h"
#include "step/same_training.h"

#include <lockstep/version.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* ---- Before the engine: which kernels all of them have ---- */

/* A description of fixed size; of ordered things all ranks take the least. */
typedef struct kind_word {
    char version[32], architecture[32];
    int32_t cpu_level;
} kind_word;

static lk_status own_kind(kind_word *word)
{
    struct utsname machine;
    lki_cpu_level level;
    LKI_TRY(lki_cpu_level_of_machine(&level));
    memset(word, 0, sizeof *word); /* it travels whole */
    snprintf(word->version, sizeof word->version, "%s", lk_version());
    snprintf(word->architecture, sizeof word->architecture, "%.31s",
             uname(&machine) == 0 ? machine.machine : "unknown");
    word->cpu_level = level;
    return LK_OK;
}

static lk_status refuse(int rank, const char *what, const char *theirs, const char *first)
{
    return lki_fail(LK_ERR_PEER,
                    "the ranks cannot compute alike: rank %d has %s %.31s where rank 0 has %.31s", rank, what,
                    theirs, first);
}

lk_status lki_agree_on_kernels(lk_runner *runner)
{
    lki_run *run = runner->run;
    lk_comm *comm = run->ranks.comm;
    kind_word own;
    run->engine.cpu_level = 0;
    run->engine.mixed_cpus = false;
    if (!comm || comm->size == 1) return LK_OK;
    LKI_TRY(own_kind(&own));
    LKI_SCOPED kind_word *words = LKI_NEW_ARRAY(kind_word, comm->size);
    if (!words) return LK_ERR_NOMEM;
    LKI_TRY(lk_comm_all_gather(comm, &own, words, sizeof own, LK_U8));
    int least = words[0].cpu_level;
    for (int r = 1; r < comm->size; r++) {
        if (strcmp(words[r].version, words[0].version) != 0)
            return refuse(r, "lockstep", words[r].version, words[0].version);
        if (strcmp(words[r].architecture, words[0].architecture) != 0)
            return refuse(r, "an architecture of", words[r].architecture, words[0].architecture);
        run->engine.mixed_cpus = run->engine.mixed_cpus || words[r].cpu_level != words[0].cpu_level;
        if (words[r].cpu_level < least) least = words[r].cpu_level;
    }
    if (run->engine.mixed_cpus) run->engine.cpu_level = least;
    return LK_OK;
}

/* ---- Once it is open: what the run is made of ---- */

enum { PROBED_SAMPLES = 8, PROBED_NBYTES = 4096, PROBED_PLACES = 16 };

/* FNV-1a. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t nbytes)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < nbytes; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

/* Of an array in memory, the beginning, the end and places in between. */
static uint64_t hash_stored(uint64_t hash, const char *data, size_t nbytes)
{
    size_t piece = nbytes < PROBED_NBYTES ? nbytes : (size_t)PROBED_NBYTES;
    for (int i = 0; i < PROBED_PLACES; i++)
        hash = hash_bytes(hash, data + (nbytes - piece) / (PROBED_PLACES - 1) * (size_t)i, piece);
    return hash_bytes(hash, data + nbytes - piece, piece);
}

static size_t sample_nbytes(const lk_field *field)
{
    return (size_t)lk_shape_count(field->shape) * lk_dtype_nbytes(field->dtype);
}

/* A few samples, as they are read for an epoch. */
static lk_status hash_samples(lk_dataset *dataset, uint64_t *hash)
{
    int fields = lk_dataset_field_count(dataset);
    int64_t length = lk_dataset_length(dataset), indices[PROBED_SAMPLES];
    int64_t count = length < PROBED_SAMPLES ? length : PROBED_SAMPLES;
    void *destinations[LK_MAX_FIELDS];
    size_t total = 0;
    for (int64_t i = 0; i < count; i++) indices[i] = count > 1 ? (length - 1) / (count - 1) * i : 0;
    for (int f = 0; f < fields; f++)
        total += sample_nbytes(lk_dataset_field(dataset, f)) * (size_t)count + 64;
    LKI_SCOPED char *block = lki_calloc(total + 64, "a few samples");
    if (!block) return LK_ERR_NOMEM;
    size_t used = 0;
    for (int f = 0; f < fields; f++) {
        destinations[f] = block + used;
        used += (sample_nbytes(lk_dataset_field(dataset, f)) * (size_t)count + 63) / 64 * 64;
    }
    LKI_TRY(lk_dataset_gather(dataset, NULL, indices, count, destinations));
    for (int f = 0; f < fields; f++)
        *hash =
            hash_bytes(*hash, destinations[f], sample_nbytes(lk_dataset_field(dataset, f)) * (size_t)count);
    return LK_OK;
}

/* What the data is, as far as can be seen quickly: *known is false for samples that are drawn anew each time
 * they are read, of which nothing can be said. */
static lk_status hash_data(lk_dataset *dataset, uint64_t *hash, bool *known)
{
    const uint64_t start = 14695981039346656037u;
    uint64_t again = start;
    bool stored = true;
    *hash = start;
    *known = true;
    for (int f = 0; f < lk_dataset_field_count(dataset); f++) {
        lk_storage storage;
        if (!lk_dataset_storage(dataset, f, &storage)) {
            stored = false;
            continue;
        }
        size_t count = (size_t)lk_shape_count(lk_dataset_field(dataset, f)->shape);
        *hash = hash_stored(*hash, storage.data,
                            count * lk_dtype_nbytes(storage.dtype) * (size_t)lk_dataset_length(dataset));
    }
    if (stored || lk_dataset_length(dataset) == 0) return LK_OK;
    *known = lk_dataset_length(dataset) != LK_LENGTH_UNKNOWN;
    if (!*known) return LK_OK;
    uint64_t first = start;
    LKI_TRY(hash_samples(dataset, &first));
    LKI_TRY(hash_samples(dataset, &again));
    *known = first == again;
    *hash = first;
    return LK_OK;
}

static lk_status describe_loader(FILE *out, const lki_run_loader *entry)
{
    const lk_loader_options *options = lki_loader_options(entry->loader);
    lk_dataset *dataset = lk_loader_dataset(entry->loader);
    uint64_t hash;
    bool known;
    char shape[160];
    fprintf(out, "loader \"%s\"\n", entry->key);
    fprintf(out, "batch size %lld of loader \"%s\"\n", (long long)lk_loader_batch_size(entry->loader),
            entry->key);
    if (lki_loader_is_stream(entry->loader))
        fprintf(out, "a stream in loader \"%s\"\n", entry->key);
    else
        fprintf(out, "%lld samples in loader \"%s\"\n", (long long)lk_dataset_length(dataset), entry->key);
    fprintf(out, "shuffle %s, drop_last %s, %s in loader \"%s\"\n",
            options->shuffle      ? "on"
            : options->no_shuffle ? "off"
                                  : "by default",
            options->drop_last ? "on" : "off", options->sampler ? "a sampler" : "no sampler", entry->key);
    fprintf(out, "portion %g of loader \"%s\"\n", entry->portion, entry->key);
    for (int f = 0; f < lk_dataset_field_count(dataset); f++) {
        const lk_field *field = lk_dataset_field(dataset, f);
        fprintf(out, "field \"%s\" %s %s of loader \"%s\"\n", field->name, lk_dtype_name(field->dtype),
                lk_shape_format(shape, sizeof shape, field->shape), entry->key);
    }
    LKI_TRY(hash_data(dataset, &hash, &known));
    if (known)
        fprintf(out, "data with the hash %016llx in loader \"%s\"\n", (unsigned long long)hash, entry->key);
    else
        fprintf(out, "data that changes in loader \"%s\"\n", entry->key);
    return LK_OK;
}

static lk_status describe_run(FILE *out, const lk_runner *runner)
{
    const lki_run *run = runner->run;
    const lk_engine *engine = runner->engine;
    fprintf(out, "device %s%s%s\n", lk_engine_name(engine), engine->ops->kernels ? ", " : "",
            engine->ops->kernels ? engine->ops->kernels(engine) : "");
    fprintf(out, "comm %s\n", run->ranks.comm->ops->name);
    fprintf(out, "precision %s\n", lk_dtype_name(run->batch.step_options.precision));
    fprintf(out, "seed %llu\n", (unsigned long long)runner->seed);
    fprintf(out, "num_epochs %lld\n", (long long)runner->num_epochs);
    fprintf(out, "limit of %d batches per epoch\n", run->loaders.batch_limit);
    fprintf(out, "shards %d\n", run->given.options.shards);
    fprintf(out, "max_steps %lld\n", (long long)run->given.options.max_steps);
    fprintf(out, "max_minutes %g\n", run->given.options.max_minutes);
    fprintf(out, "valid_every %lld\n", (long long)run->given.options.valid_every);
    fprintf(out, "freeze %s\n", run->given.options.freeze ? run->given.options.freeze : "nothing");
    fprintf(out, "save_every %d\n", run->given.options.save_every);
    fprintf(out, "save_every_minutes %g\n", run->given.options.save_every_minutes);
    fprintf(out, "profile %s\n", run->given.options.profile ? "on" : "off");
    fprintf(out, "scheduler %s\n", runner->scheduler ? lk_scheduler_name(runner->scheduler) : "none");
    fprintf(out, "%d loaders\n", run->loaders.count);
    for (int i = 0; i < run->loaders.count; i++) LKI_TRY(describe_loader(out, &run->loaders.items[i]));
    return LK_OK;
}

lk_status lki_check_same_run(lk_runner *runner)
{
    lk_comm *comm = runner->run->ranks.comm;
    char *text = NULL;
    size_t nbytes = 0;
    if (!comm || comm->size == 1) return LK_OK;
    FILE *out = open_memstream(&text, &nbytes);
    if (!out) return lki_fail(LK_ERR_NOMEM, "out of memory for the description of the run");
    lk_status status = describe_run(out, runner);
    if (fclose(out) != 0 && status == LK_OK)
        status = lki_fail(LK_ERR_NOMEM, "out of memory for the description of the run");
    if (status == LK_OK) status = lki_check_same_text(comm, "the ranks were told different things", text);
    free(text);
    return status;
}
