/* The names that a file of tensors may mention.
 *
 * PyTorch's own, and those that people keep beside their tensors: containers, numbers, paths. None of them is
 * ever called. All others are refused, because a file that names os.system wants to run something. */
#include "checkpoint/pickle.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <string.h>

static const char *const allowed[] = {
    "torch._utils _rebuild_tensor",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_parameter_with_state",
    "torch._tensor _rebuild_from_type_v2",
    "torch._utils _rebuild_sparse_tensor",
    "torch._utils _rebuild_qtensor",
    "torch FloatStorage",
    "torch DoubleStorage",
    "torch HalfStorage",
    "torch BFloat16Storage",
    "torch LongStorage",
    "torch IntStorage",
    "torch ShortStorage",
    "torch CharStorage",
    "torch ByteStorage",
    "torch BoolStorage",
    "torch ComplexFloatStorage",
    "torch ComplexDoubleStorage",
    "torch QInt8Storage",
    "torch QUInt8Storage",
    "torch QInt32Storage",
    "torch.storage UntypedStorage",
    "torch.storage TypedStorage",
    "torch.storage _UntypedStorage",
    "torch.storage _TypedStorage",
    "torch.serialization _get_layout",
    "torch.torch_version TorchVersion",
    "torch.nn.parameter Parameter",
    "torch.nn.parameter Buffer",
    "torch Tensor",
    "torch Size",
    "torch device",
    "torch float16",
    "torch float32",
    "torch float64",
    "torch bfloat16",
    "torch uint8",
    "torch int8",
    "torch int16",
    "torch int32",
    "torch int64",
    "torch bool",
    "collections OrderedDict",
    "collections defaultdict",
    "collections Counter",
    "collections deque",
    "argparse Namespace",
    "datetime datetime",
    "datetime timedelta",
    "pathlib Path",
    "pathlib PosixPath",
    "pathlib PurePosixPath",
    "_codecs encode",
    "numpy ndarray",
    "numpy dtype",
    "numpy.core.multiarray scalar",
    "numpy.core.multiarray _reconstruct",
    "numpy._core.multiarray scalar",
    "numpy._core.multiarray _reconstruct",
};

/* Of Python's own types: "builtins" in version 3, "__builtin__" in version 2. */
static const char *const builtin_types[] = {"set",     "frozenset", "list", "tuple", "dict",
                                            "int",     "float",     "bool", "str",   "bytes",
                                            "complex", "bytearray", "slice"};

static bool is_builtin_type(const char *name)
{
    static const char *const modules[] = {"builtins ", "__builtin__ "};
    for (size_t m = 0; m < 2; m++) {
        size_t length = strlen(modules[m]);
        if (strncmp(name, modules[m], length) != 0) continue;
        for (size_t i = 0; i < sizeof builtin_types / sizeof *builtin_types; i++)
            if (strcmp(name + length, builtin_types[i]) == 0) return true;
    }
    return false;
}

/* A name that a terminal can show. */
static bool is_plain(const char *name)
{
    for (; *name; name++)
        if (*name < ' ' || *name > '~') return false;
    return true;
}

lk_status lki_pickle_check_global(const char *path, const char *name)
{
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (strcmp(allowed[i], name) == 0) return LK_OK;
    if (is_builtin_type(name)) return LK_OK;
    LKI_SCOPED char *shown =
        lki_strdup(strlen(name) < 200 && is_plain(name) ? name : "something unprintable");
    if (!shown) return LK_ERR_NOMEM;
    char *space = strchr(shown, ' ');
    if (space && strcmp(shown, name) == 0) *space = '.';
    return lki_fail(LK_ERR_UNSUPPORTED,
                    "%s: it asks Python for %s, which no file of tensors needs; nothing was run: save the "
                    "model's state_dict() alone",
                    path, shown);
}
