/* Mixup and cutmix of batches, as callbacks: what the transforms of a loader do, before the model sees a
 * batch. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "data/transform.h"
#include "run/shards.h"

#include <string.h>

typedef struct mix_context {
    lk_transform *transform;
    bool everywhere; /* for other loaders than those for training, too */
} mix_context;

static bool is_train_key(const char *key)
{
    return strncmp(key, "train", 5) == 0;
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    const mix_context *own = callback->context;
    const lki_run *run = runner->run;
    if (lki_run_shards(runner))
        return lki_fail(LK_ERR_UNSUPPORTED,
                        "%sCallback: shards are mixed each for itself: give the loader batch_transforms "
                        "instead, or leave shards out",
                        callback->ops->name);
    for (int i = 0; i < run->loaders.count; i++) {
        const lki_run_loader *entry = &run->loaders.items[i];
        if (!own->everywhere && !is_train_key(entry->key)) continue;
        lk_status status = lki_transform_check_batch(own->transform, lk_loader_dataset(entry->loader));
        if (status) return lki_fail_prefix(status, "loader \"%s\"", entry->key);
    }
    return LK_OK;
}

static lk_status mix(lk_callback *callback, lk_runner *runner)
{
    const mix_context *own = callback->context;
    lk_pass pass = {runner->seed, runner->epoch_step};
    if ((!own->everywhere && !runner->is_train_loader) || runner->batch->count == 0) return LK_OK;
    return lki_transform_apply_batch(own->transform, &pass, (lk_batch *)runner->batch);
}

static void free_context(lk_callback *callback)
{
    mix_context *own = callback->context;
    lk_transform_free(own->transform);
    lki_free(own);
}

static lk_callback *create(const lk_callback_ops *ops, lk_transform *transform,
                           const lk_mix_callback_options *options)
{
    lk_callback *callback = transform ? lki_callback_new(ops, sizeof(mix_context), LK_ORDER_INTERNAL) : NULL;
    if (callback)
        *(mix_context *)callback->context = (mix_context){transform, options->no_on_train_only};
    else
        lk_transform_free(transform);
    return callback;
}

static lk_mix_options mix_of(const lk_mix_callback_options *options)
{
    lk_mix_options made = {LK_SIZE(lk_mix_options), .alpha = options->alpha};
    memcpy(made.keys, options->keys, sizeof made.keys);
    return made;
}

lk_callback *lk_mixup_callback_with(const lk_mix_callback_options *given)
{
    LKI_TAKE(lk_mix_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops), .name = "Mixup",
                                        .on_experiment_start = start, .on_batch_start = mix,
                                        .free = free_context};
    lk_mix_options transform = mix_of(&options);
    return create(&ops, lk_mixup_with(&transform), &options);
}

lk_callback *lk_cutmix_callback_with(const lk_mix_callback_options *given)
{
    LKI_TAKE(lk_mix_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops), .name = "Cutmix",
                                        .on_experiment_start = start, .on_batch_start = mix,
                                        .free = free_context};
    lk_mix_options transform = mix_of(&options);
    return create(&ops, lk_cutmix_with(&transform), &options);
}
