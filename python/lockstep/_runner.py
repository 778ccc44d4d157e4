"""Runners and callbacks."""
import ctypes
import os

from ._components import Component, Handle, Module, Request
from ._library import (MOMENTS, RANK_FUNCTION, SLOT, STATUS_INVALID, STATUS_OK, TAKE_PREDICTION, CallbackOps,
                       DistributedRunOptions, EvaluateOptions, LockstepError, Runner, check, lk, raise_error)
from ._tensors import as_array, borrow, view, Freed


def metrics_dict(address):
    """A copy of an lk_metrics."""
    count = lk.lk_metrics_count(address) if address else 0
    return {lk.lk_metrics_name(address, i).decode(): lk.lk_metrics_value(address, i) for i in range(count)}


class Metrics(dict):
    """The metrics of a moment of a run. Setting a value reports it."""

    def __init__(self, address):
        super().__init__(metrics_dict(address))
        self._address = address

    def __setitem__(self, name, value):
        check(lk.lk_metrics_set(self._address, name.encode(), float(value)))
        super().__setitem__(name, value)


class RunState:
    """What a callback reads of the run, under Catalyst's names."""
    _TEXTS = ("loader_key", "valid_loader", "valid_metric", "logdir", "input_key", "output_key", "target_key", "loss_key")
    _METRICS = ("batch_metrics", "loader_metrics", "epoch_metrics")
    _SETTABLE = ("need_early_stop", "need_loader_stop")

    def __init__(self, pointer):
        object.__setattr__(self, "_pointer", pointer)

    def __getattr__(self, name):
        if name.startswith("_") or name not in [field for field, _ in Runner._fields_]:
            raise AttributeError("a run has no %r" % name)
        value = getattr(self._pointer.contents, name)
        if name in self._METRICS:
            return Metrics(value)
        if name in self._TEXTS:
            return value.decode() if value is not None else None
        return value

    def __setattr__(self, name, value):
        if name not in self._SETTABLE:
            raise AttributeError("%r of a run cannot be set" % name)
        setattr(self._pointer.contents, name, bool(value))

    def tensor(self, key):
        """A copy of a tensor of this batch: a field, or an output of the model."""
        found = lk.lk_runner_tensor(self._pointer, key.encode())
        if not found:
            raise LockstepError("this batch has no tensor %r" % key)
        return view(found, None).copy()


_pending = []  # what callbacks have raised: it travels past the library


def _guarded(function, *arguments):
    try:
        function(*arguments)
        return STATUS_OK
    except BaseException as error:  # also KeyboardInterrupt: no exception may pass through C
        _pending.append(error)
        return lk.lk_fail(STATUS_INVALID, b"%s", ("%s: %s" % (type(error).__name__, error)).encode())


def _checked(status):
    """As check, but what a callback has raised is raised again, itself."""
    pending = list(_pending)
    _pending.clear()
    if status and pending:
        raise pending[0]
    check(status)


class Callback:
    """Your own callback: override on_epoch_end and its kin, each of which gets the run (RunState)."""
    order = 100

    def __init__(self, order=100):
        self.order = int(order)

    def _make(self):
        # Slots live as long as the handle, which the runner keeps.
        ops = CallbackOps(struct_size=ctypes.sizeof(CallbackOps), name=type(self).__name__.encode())
        slots = [ops]
        for moment in MOMENTS:
            method = getattr(self, "on_" + moment, None)
            if method is None:
                continue
            slot = SLOT(lambda callback, runner, method=method: _guarded(method, RunState(runner)))
            setattr(ops, "on_" + moment, slot)
            slots.append(slot)
        address = lk.lk_callback_create(ctypes.byref(ops), None, getattr(self, "order", 100))
        if not address:
            raise_error()
        return Handle("callback", address, slots)


def _with_callbacks(callbacks):
    """Callbacks in Python become callbacks of the library."""
    if isinstance(callbacks, dict):
        return {key: _with_callbacks([value])[0] for key, value in callbacks.items()}
    single = isinstance(callbacks, (Component, Callback))
    return [each._make() if isinstance(each, Callback) else each for each in ([callbacks] if single else callbacks)]


class SupervisedRunner:
    """Trains a model on (features, targets). A subclass may define get_engine, get_model, get_criterion, get_optimizer(model),
    get_scheduler(optimizer), get_loaders, get_callbacks and get_loggers; what `train` is given comes first."""

    def __init__(self, model=None, engine=None, **keys):
        self._model, self._engine = model, engine
        self.kept = []  # all that the C runner refers to
        make = Request()
        tree = dict({"_target_": "SupervisedRunner"}, **{name: make.value(value) for name, value in keys.items()})
        self._handle = Handle("runner", None)
        self._handle.address = make.send(tree, "runner", self._handle)
        self._callbacks = None
        if type(self).handle_batch is not SupervisedRunner.handle_batch:
            raise LockstepError("handle_batch cannot be written in Python: its ops are recorded once, in C; write the model's "
                                "part as a component in C and load it with lockstep.load_components")

    def handle_batch(self, batch):
        """Not called: the library runs the batch. See the error of a subclass that overrides it."""
        raise LockstepError("handle_batch is the library's")

    @property
    def _runner(self):
        return ctypes.cast(self._handle.address, ctypes.POINTER(Runner))

    @property
    def loader_metrics(self):
        """The metrics of the loader that ran last."""
        return metrics_dict(self._runner.contents.loader_metrics)

    @property
    def epoch_metrics(self):
        """The metrics of the last epoch: those of each loader by its key, and "_epoch_"."""
        found = {key: metrics_dict(lk.lk_runner_loader_metrics(self._handle.address, key.encode())) for key in self._loader_keys}
        return dict(found, _epoch_=metrics_dict(self._runner.contents.epoch_metrics))

    _loader_keys = ()

    @property
    def model(self):
        return self._model

    def _from_getters(self, arguments):
        """What a subclass provides, if the call does not."""
        def fill(name, *inputs):
            getter = getattr(self, "get_" + name, None)
            if arguments.get(name) is None and getter is not None:
                value = getter(*inputs)
                if value is not None:
                    arguments[name] = value

        for name in ("engine", "loaders", "model", "criterion"):
            fill(name)
        fill("optimizer", arguments.get("model", self._model))
        fill("scheduler", arguments.get("optimizer"))
        fill("callbacks")
        fill("loggers")

    def _datasets(self, arguments):
        """Catalyst's `datasets`: with get_datasets_fn, a function that makes them from the other entries."""
        datasets = arguments.get("datasets")
        if not datasets or "get_datasets_fn" not in datasets:
            return
        loader_keys = ("batch_size", "num_workers", "drop_last", "per_gpu_scaling")
        function = datasets["get_datasets_fn"]
        rest = {key: value for key, value in datasets.items() if key not in loader_keys and key != "get_datasets_fn"}
        made = function(**rest)
        arguments["datasets"] = dict({key: datasets[key] for key in loader_keys if key in datasets}, **made)

    def _call(self, name, arguments):
        self._take_model(arguments)
        if arguments.get("engine") is None and self._engine is not None:
            arguments["engine"] = self._engine
        if arguments.get("callbacks") is not None:
            arguments["callbacks"] = _with_callbacks(arguments["callbacks"])
        for key in ("logdir", "resume", "output"):
            if key in arguments and arguments[key] is not None:
                arguments[key] = os.fspath(arguments[key])
        request = Request()
        request.give(self._handle)
        tree = {"_call_": name}
        tree.update((key, request.value(value)) for key, value in arguments.items() if value is not None)
        _pending.clear()
        try:
            request.send(tree, "call", self)
        except LockstepError:
            if _pending:
                error = _pending[0]
                _pending.clear()
                raise error
            raise

    def _take_model(self, arguments):
        """The model is handed over once. A module that is part of another object cannot be trained by itself."""
        model = arguments.pop("model", None) or self._model
        if model is None:
            return
        if not isinstance(model, Module):
            raise LockstepError("model: expected a module of lockstep.nn, found %s" % type(model).__name__)
        self._model = model
        if model._handle.owner is self:
            return
        if model._handle.owner is not None:
            raise LockstepError("model: this module belongs to another model or runner")
        arguments["model"] = model

    def train(self, **arguments):
        """Trains. Takes Catalyst's arguments: `lockstep help train` lists them all."""
        arguments = dict(arguments)
        self._from_getters(arguments)
        self._datasets(arguments)
        loaders = arguments.get("loaders") or {}
        self._loader_keys = tuple(loaders) or tuple(
            key for key in (arguments.get("datasets") or {})
            if key not in ("batch_size", "num_workers", "drop_last", "per_gpu_scaling"))
        self._call("train", arguments)

    def evaluate_loader(self, loader, callbacks=None, **arguments):
        """Computes the metrics of the model on a loader and returns them by name."""
        self._call("evaluate_loader", dict(arguments, loader=loader, callbacks=callbacks))
        return self.loader_metrics

    def predict_batch(self, batch):
        """The model's output for an array of samples, or for a dict with one under the input key: {output key: array}."""
        state = RunState(self._runner)
        array = as_array(batch[state.input_key] if isinstance(batch, dict) else batch)
        self._need_model()
        tensor = borrow(array)
        try:
            output = lk.lk_predict_batch(self._handle.address, tensor)
        finally:
            lk.lk_tensor_free(tensor)
        if not output:
            raise_error()
        return {state.output_key: view(output, Freed(output))}

    def _need_model(self):
        if not self._runner.contents.model:
            raise LockstepError("the runner has no model yet: train it first")

    def predict_loader(self, loader, model=None, resume=None, device=None):
        """The model's outputs for all batches of a loader, in order: a list of {output key: array}."""
        if model is not None and (model._handle.owner is not self):
            raise LockstepError("model: predict with the runner that has trained it")
        self._need_model()
        holder = Handle("loader", None)
        request = Request()
        address = request.send(loader._tree(request), "loader", holder)
        self.kept.append(holder)
        key, outputs = RunState(self._runner).output_key, []
        take = TAKE_PREDICTION(lambda output, batch, context: _guarded(lambda: outputs.append({key: view(output, None).copy()})))
        options = EvaluateOptions(struct_size=ctypes.sizeof(EvaluateOptions),
                                  resume=os.fspath(resume).encode() if resume else None,
                                  device=device.encode() if device else None)
        _pending.clear()
        _checked(lk.lk_predict_loader_with(self._handle.address, address, take, None, ctypes.byref(options)))
        return outputs


def distributed_cmd_run(function, distributed=True, *arguments, nproc=0):
    """Runs function(*arguments) as every rank: on this machine's GPUs or cores, or as the rank that a launcher says."""
    if not distributed:
        return function(*arguments)
    options = DistributedRunOptions(struct_size=ctypes.sizeof(DistributedRunOptions), nproc=nproc)
    _pending.clear()
    entry = RANK_FUNCTION(lambda context: _guarded(lambda: function(*arguments)))
    _checked(lk.lk_distributed_run_with(entry, None, ctypes.byref(options)))
    return None

