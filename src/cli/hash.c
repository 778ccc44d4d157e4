/* One content hash of the weights in a checkpoint: equal weights have equal hashes, whatever file they lie
 * in. */
#include "cli/commands.h"

#include <lockstep/checkpoint.h>

typedef struct hash_options {
    lki_texts files;
} hash_options;

static int print_hash(const char *path)
{
    char hash[LK_HASH_LENGTH + 1];
    lk_state_dict *dict = lk_load_checkpoint(path);
    if (!dict) return lki_report(LKI_EXIT_FAILED);
    lk_status status = lk_weights_hash(dict, hash);
    lk_state_dict_free(dict);
    if (status) return lki_report(LKI_EXIT_FAILED);
    printf("%s  %s\n", hash, path);
    return LKI_EXIT_DONE;
}

static int run(const void *pointer)
{
    const hash_options *options = pointer;
    int exit_code = LKI_EXIT_DONE;
    for (int i = 0; i < options->files.count; i++) {
        int code = print_hash(options->files.items[i]);
        if (code) exit_code = code;
    }
    return exit_code;
}

const lki_command lki_command_hash = {
    .name = "hash",
    .usage = "FILE ...",
    .summary = "Prints a hash of the weights in each checkpoint.",
    .options_nbytes = sizeof(hash_options),
    .positional = "a file of weights: safetensors, PyTorch's or NumPy's",
    .positional_offset = offsetof(hash_options, files),
    .positional_minimum = 1,
    .run = run,
};
