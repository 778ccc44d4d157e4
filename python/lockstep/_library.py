"""The C library: how it is found, the functions that this package calls, and its errors."""
import ctypes
import ctypes.util
import os

MAX_DIMS = 8

STATUS_OK, STATUS_INVALID, STATUS_STOPPED = 0, 1, 14  # lk_status, in <lockstep/status.h>

# lk_component_kind, in the order of LK_COMPONENT_KIND_LIST in <lockstep/config.h>.
KINDS = ("module criterion optimizer scheduler dataset loader sampler transform callback logger engine runner estimator "
         "metric parameters tensor function call").split()
KIND = {name: number for number, name in enumerate(KINDS)}


class LockstepError(RuntimeError):
    """What the library says went wrong, in one line."""


class Shape(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int), ("dim", ctypes.c_int64 * MAX_DIMS)]


class Tensor(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("shape", Shape), ("stride", ctypes.c_int64 * MAX_DIMS), ("data", ctypes.c_void_p),
                ("buffer", ctypes.c_void_p)]


class Component(ctypes.Structure):
    """The beginning of lk_component."""
    _fields_ = [("name", ctypes.c_char_p), ("aliases", ctypes.c_char_p), ("kind", ctypes.c_int), ("help", ctypes.c_char_p)]


class GivenObject(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("kind", ctypes.c_int), ("object", ctypes.c_void_p), ("taken", ctypes.c_bool)]


class Runner(ctypes.Structure):
    """The public part of lk_runner, <lockstep/runner.h>."""
    _fields_ = (
        [("ops", ctypes.c_void_p), ("context", ctypes.c_void_p)]
        + [(name, ctypes.c_char_p) for name in ("input_key", "output_key", "target_key", "loss_key")]
        + [(name, ctypes.c_void_p) for name in ("engine", "model", "criterion", "optimizer", "scheduler", "step")]
        + [("rank", ctypes.c_int), ("world_size", ctypes.c_int), ("is_master", ctypes.c_bool), ("logdir", ctypes.c_char_p),
           ("seed", ctypes.c_uint64)]
        + [(name, ctypes.c_int64) for name in ("num_epochs", "epoch_step", "batch_step", "sample_step")]
        + [("loader", ctypes.c_void_p), ("loader_key", ctypes.c_char_p)]
        + [(name, ctypes.c_bool) for name in ("is_train_loader", "is_valid_loader", "is_infer_loader")]
        + [(name, ctypes.c_int64) for name in ("loader_batch_size", "loader_batch_len", "loader_sample_len",
                                               "loader_batch_step", "loader_sample_step")]
        + [("batch", ctypes.c_void_p), ("batch_size", ctypes.c_int64), ("counted_batch_size", ctypes.c_int64)]
        + [(name, ctypes.c_void_p) for name in ("batch_metrics", "loader_metrics", "epoch_metrics")]
        + [("valid_loader", ctypes.c_char_p), ("valid_metric", ctypes.c_char_p)]
        + [(name, ctypes.c_bool) for name in ("minimize_valid_metric", "need_early_stop", "need_loader_stop")]
        + [("exception", ctypes.c_int), ("verbose", ctypes.c_bool)])


SLOT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Runner))
STATE_SLOT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
FREE_SLOT = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
RANK_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
TAKE_PREDICTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Tensor), ctypes.c_void_p, ctypes.c_void_p)

# LK_MOMENT_LIST in <lockstep/sys/callback.h>.
MOMENTS = ("experiment_start epoch_start loader_start batch_start sample forward criterion backward step batch_end loader_end "
           "epoch_end settled experiment_end exception").split()


class CallbackOps(ctypes.Structure):
    _fields_ = ([("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("save_state", STATE_SLOT),
                 ("load_state", STATE_SLOT), ("free", FREE_SLOT)] + [("on_" + moment, SLOT) for moment in MOMENTS])


class EvaluateOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("model", ctypes.c_void_p), ("criterion", ctypes.c_void_p),
                ("callbacks", ctypes.c_void_p), ("callback_count", ctypes.c_int), ("resume", ctypes.c_char_p),
                ("device", ctypes.c_char_p), ("seed", ctypes.c_uint64), ("verbose", ctypes.c_bool)]


class DistributedRunOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("nproc", ctypes.c_int), ("no_pinning", ctypes.c_bool)]


# Name: what it returns, and what it takes.
_TENSOR = ctypes.POINTER(Tensor)
_FUNCTIONS = {
    "lk_error": (ctypes.c_char_p, []),
    "lk_error_status": (ctypes.c_int, []),
    "lk_fail": (ctypes.c_int, None),  # variadic: called with "%s" and one text
    "lk_manual_seed": (None, [ctypes.c_uint64]),
    "lk_component_at": (ctypes.POINTER(Component), [ctypes.c_int]),
    "lk_component_find": (ctypes.POINTER(Component), [ctypes.c_char_p]),
    "lk_component_make": (ctypes.c_int, [ctypes.c_char_p, ctypes.POINTER(GivenObject), ctypes.c_int, ctypes.c_int,
                                         ctypes.POINTER(ctypes.c_void_p)]),
    "lk_component_dispose": (None, [ctypes.c_int, ctypes.c_void_p]),
    "lk_estimator_components": (ctypes.c_int, []),
    "lk_components_load": (ctypes.c_int, [ctypes.c_char_p]),
    "lk_tensor_borrow": (_TENSOR, [ctypes.c_int, Shape, ctypes.c_void_p]),
    "lk_tensor_cast": (_TENSOR, [_TENSOR, ctypes.c_int]),
    "lk_tensor_view": (_TENSOR, [_TENSOR]),
    "lk_tensor_free": (None, [_TENSOR]),
    "lk_module_state_dict": (ctypes.c_void_p, [ctypes.c_void_p]),
    "lk_module_load_state_dict": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p]),
    "lk_state_dict_create": (ctypes.c_void_p, []),
    "lk_state_dict_free": (None, [ctypes.c_void_p]),
    "lk_state_dict_put": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, _TENSOR]),
    "lk_state_dict_count": (ctypes.c_int64, [ctypes.c_void_p]),
    "lk_state_dict_name": (ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int64]),
    "lk_state_dict_tensor": (_TENSOR, [ctypes.c_void_p, ctypes.c_int64]),
    "lk_load_checkpoint": (ctypes.c_void_p, [ctypes.c_char_p]),
    "lk_save_safetensors": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_void_p]),
    "lk_save_pth": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_void_p]),
    "lk_save_npz": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_void_p]),
    "lk_weights_hash": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]),
    "lk_metrics_count": (ctypes.c_int, [ctypes.c_void_p]),
    "lk_metrics_name": (ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int]),
    "lk_metrics_value": (ctypes.c_double, [ctypes.c_void_p, ctypes.c_int]),
    "lk_metrics_set": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_double]),
    "lk_runner_tensor": (_TENSOR, [ctypes.POINTER(Runner), ctypes.c_char_p]),
    "lk_runner_loader_metrics": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]),
    "lk_callback_create": (ctypes.c_void_p, [ctypes.POINTER(CallbackOps), ctypes.c_void_p, ctypes.c_int]),
    "lk_predict_batch": (_TENSOR, [ctypes.c_void_p, _TENSOR]),
    "lk_predict_loader_with": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, TAKE_PREDICTION, ctypes.c_void_p,
                                              ctypes.POINTER(EvaluateOptions)]),
    "lk_text_free": (None, [ctypes.c_void_p]),
    "lk_byte_tokenizer": (ctypes.c_void_p, []),
    "lk_char_tokenizer": (ctypes.c_void_p, [ctypes.c_char_p]),
    "lk_char_tokenizer_of": (ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_size_t]),
    "lk_bpe_tokenizer": (ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_char_p]),
    "lk_tokenizer_free": (None, [ctypes.c_void_p]),
    "lk_tokenizer_vocab_size": (ctypes.c_int64, [ctypes.c_void_p]),
    "lk_tokenizer_find": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_char_p]),
    "lk_tokenizer_encode": (_TENSOR, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]),
    "lk_tokenizer_decode": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                                              ctypes.POINTER(ctypes.c_size_t)]),
    "lk_tokenizer_save": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]),
    "lk_tokenize_file_with": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]),
    "lk_rank": (ctypes.c_int, []),
    "lk_world_size": (ctypes.c_int, []),
    "lk_distributed_run_with": (ctypes.c_int, [RANK_FUNCTION, ctypes.c_void_p, ctypes.POINTER(DistributedRunOptions)]),
}


def _candidates():
    """Where the library may be: LOCKSTEP_LIBRARY, above the package, and where the system looks."""
    named = os.environ.get("LOCKSTEP_LIBRARY")
    if named:
        return [named]
    here = os.path.dirname(os.path.abspath(__file__))
    found = [os.path.join(here, *[".."] * up, "liblockstep.so") for up in (1, 2, 3, 4)]
    found.append(os.path.join(here, "..", "..", "build", "liblockstep.so"))  # in the source tree
    return [path for path in found if os.path.exists(path)] + [ctypes.util.find_library("lockstep") or "liblockstep.so"]


def _load():
    """PyDLL keeps Python's lock during a call: a forked rank then holds it, too, and no call needs it from another thread."""
    reasons = []
    for path in _candidates():
        try:
            library = ctypes.PyDLL(path)
        except OSError as error:
            reasons.append(str(error))
            continue
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
        return library
    raise ImportError("lockstep: the library cannot be opened (%s); set LOCKSTEP_LIBRARY to its path" % "; ".join(reasons))


lk = _load()
lk.lk_estimator_components()


def check(status):
    """Raises the library's sentence if a call failed."""
    if status == STATUS_STOPPED:
        raise KeyboardInterrupt(lk.lk_error().decode())
    if status != STATUS_OK:
        raise_error()


def raise_error():
    """Places of texts that this package made say nothing to its user."""
    sentence = lk.lk_error().decode(errors="replace")
    parts = sentence.split(": ")
    raise LockstepError(": ".join(part for part in parts if not part.startswith("arguments:") and part != "arguments"))
