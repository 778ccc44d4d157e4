"""Python classes for the library's components.

The library has one registry: whatever a config can name is a class here, with the same names and defaults. Layers, datasets
and tensors are built at once, so that they draw their random numbers in the order of the program. Everything else is a
description, which becomes an object when a runner's method is called."""
import ctypes
import json

import numpy

from ._library import KIND, GivenObject, LockstepError, check, lk, raise_error
from ._tensors import as_array, borrow, view

_EAGER = ("module", "dataset", "tensor")
_classes = {}


class Handle:
    """An object of the library. It is freed with its handle, unless something has taken it."""

    def __init__(self, kind, address, kept=()):
        self.kind, self.address, self.owner = kind, address, None
        self.kept = list(kept)  # Python objects whose memory the object uses

    def __del__(self):
        if self.address and self.owner is None and lk is not None:
            lk.lk_component_dispose(KIND[self.kind], self.address)
            self.address = None


class Request:
    """The text of one call of lk_component_make, and the objects that it names."""

    def __init__(self):
        self.handles, self.names, self.described = [], {}, {}

    def give(self, handle):
        if id(handle) not in self.names:
            self.names[id(handle)] = "given%d" % len(self.handles)
            self.handles.append(handle)
        return self.names[id(handle)]

    def value(self, value):
        """What stands for a Python value in the text."""
        if isinstance(value, Component):
            return value._describe(self)
        if isinstance(value, Parameters):
            return {"_var_": self.give(value.module._handle) + ".parameters"}
        if isinstance(value, Handle):
            return {"_var_": self.give(value)}
        if isinstance(value, dict):
            return {str(key): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        if isinstance(value, numpy.generic):
            return value.item()
        if isinstance(value, numpy.ndarray) or hasattr(value, "__dlpack__"):
            return {"_var_": self.give(tensor_handle(value))}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, type) and issubclass(value, Component):
            return value._target
        raise LockstepError("%s: a config has no form for %r" % (type(value).__name__, value))

    def send(self, tree, kind, taker):
        """Builds or calls what `tree` says; objects that were handed over belong to `taker` afterwards."""
        given = (GivenObject * max(len(self.handles), 1))()
        for i, handle in enumerate(self.handles):
            if not handle.address:
                raise LockstepError("a %s that was freed is used again" % handle.kind)
            given[i] = GivenObject(self.names[id(handle)].encode(), KIND[handle.kind], handle.address, False)
        out = ctypes.c_void_p()
        text = json.dumps(tree, ensure_ascii=False).encode()
        status = lk.lk_component_make(text, given, len(self.handles), KIND[kind], ctypes.byref(out))
        for i, handle in enumerate(self.handles):
            taker.kept.append(handle)
            if given[i].taken:
                handle.owner = taker
                if status:
                    handle.address = None  # freed with what was to hold it
        check(status)
        return out.value


def tensor_handle(value):
    array = as_array(value)
    return Handle("tensor", ctypes.cast(borrow(array), ctypes.c_void_p).value, [array])


class Component:
    """A component of the library. `lockstep help NAME` lists its arguments."""
    _target, _kind = None, None

    def __init__(self, *args, **kwargs):
        self._args, self._kwargs, self._handle = args, kwargs, None
        if self._kind in _EAGER:
            self._handle = Handle(self._kind, None)
            request = Request()
            self._handle.address = request.send(self._tree(request), self._kind, self._handle)

    def _tree(self, request):
        tree = {"_target_": self._target}
        if self._args:
            tree["args"] = [request.value(value) for value in self._args]
        tree.update((name, request.value(value)) for name, value in self._kwargs.items())
        return tree

    def _describe(self, request):
        """Described once, and named after that: a loader or an optimizer that is used twice is the same one."""
        if self._handle:
            return {"_var_": request.give(self._handle)}
        if id(self) in request.described:
            return {"_var_": request.described[id(self)]}
        name = "described%d" % len(request.described)
        request.described[id(self)] = name
        return dict(self._tree(request), _var_=name)

    def __repr__(self):
        words = [repr(value) for value in self._args] + ["%s=%r" % item for item in self._kwargs.items()]
        return "%s(%s)" % (type(self).__name__, ", ".join(words))


class Parameters:
    """The parameters of a module, for an optimizer."""

    def __init__(self, module):
        self.module = module

    def __iter__(self):
        return iter(self.module.state_dict().values())


class Module(Component):
    """A layer or a model. Its initial weights are drawn when it is made."""

    def parameters(self):
        return Parameters(self)

    def state_dict(self):
        """The weights and buffers by name. The arrays are views: they show what training makes of the weights."""
        owner = StateDict(lk.lk_module_state_dict(self._handle.address), self._handle)
        return owner.arrays()

    def load_state_dict(self, state):
        """Copies weights from a dict of arrays, or from a file of PyTorch, NumPy or safetensors."""
        owner = StateDict(lk.lk_load_checkpoint(str(state).encode())) if not isinstance(state, dict) else StateDict.of(state)
        check(lk.lk_module_load_state_dict(self._handle.address, owner.address))

    def save(self, path):
        """Writes the weights: .pth or .pt for PyTorch, .npz for NumPy, otherwise safetensors."""
        save(self.state_dict(), path)


class Dataset(Component):
    """Samples of one or more fields."""


class TensorComponent(Component):
    """A tensor. NumPy sees its numbers: numpy.asarray(tensor)."""

    def numpy(self):
        return view(ctypes.cast(self._handle.address, ctypes.POINTER(lk.lk_tensor_view.restype._type_)), self._handle)

    def __array__(self, dtype=None):
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **options):
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self):
        return (1, 0)

    @property
    def shape(self):
        return self.numpy().shape

    def size(self, axis=None):
        return self.shape if axis is None else self.shape[axis]

    def __len__(self):
        return len(self.numpy())

    def __getitem__(self, index):
        return self.numpy()[index]


class StateDict:
    """A dict of the library, freed with itself."""

    def __init__(self, address, kept=None):
        self.address, self.kept = address, [kept]
        if not address:
            raise_error()

    def __del__(self):
        if lk is not None:
            lk.lk_state_dict_free(self.address)

    @classmethod
    def of(cls, arrays):
        self = cls(lk.lk_state_dict_create())
        for name, value in arrays.items():
            array = as_array(value)
            self.kept.append(array)
            check(lk.lk_state_dict_put(self.address, str(name).encode(), borrow(array)))
        return self

    def arrays(self):
        count = lk.lk_state_dict_count(self.address)
        return {lk.lk_state_dict_name(self.address, i).decode(): view(lk.lk_state_dict_tensor(self.address, i), self)
                for i in range(count)}


def load(path):
    """The weights in a file, whoever wrote it (safetensors, PyTorch, NumPy), by name. Nothing in the file is run."""
    return StateDict(lk.lk_load_checkpoint(str(path).encode())).arrays()


def save(arrays, path):
    """Writes arrays by name: .pth or .pt for PyTorch, .npz for NumPy, otherwise safetensors."""
    writers = {"pth": lk.lk_save_pth, "pt": lk.lk_save_pth, "npz": lk.lk_save_npz}
    owner, path = StateDict.of(arrays), str(path)
    check(writers.get(path.rsplit(".", 1)[-1], lk.lk_save_safetensors)(path.encode(), owner.address))


def weights_hash(arrays):
    """The content hash that `lockstep hash` prints."""
    owner, text = StateDict.of(arrays), ctypes.create_string_buffer(65)
    check(lk.lk_weights_hash(owner.address, text))
    return text.value.decode()


_BASES = {"module": Module, "dataset": Dataset, "tensor": TensorComponent}


def find(name, prefixes):
    """The class of the first component that is called PREFIX.NAME, or NAME; None if there is none."""
    for full in ["%s.%s" % (prefix, name) for prefix in prefixes] + [name]:
        found = lk.lk_component_find(full.encode())
        if found:
            break
    else:
        return None
    component = found.contents
    kind = list(KIND)[component.kind]
    if kind == "call":
        return None
    if full not in _classes:
        _classes[full] = type(name, (_BASES.get(kind, Component),),
                              {"__doc__": "%s Arguments: lockstep help %s" % (component.help.decode(), component.name.decode()),
                               "_target": full, "_kind": kind})
    return _classes[full]


def names():
    """The short names of all components."""
    found, i = [], 0
    while lk.lk_component_at(i):
        found.append(lk.lk_component_at(i).contents.name.decode())
        i += 1
    return found


def finder(module, *prefixes):
    """The __getattr__ of a module whose names are components."""

    def get(name):
        found = None if name.startswith("_") else find(name, prefixes)
        if found is None:
            raise AttributeError("module %r has no component %r; `lockstep components` lists all" % (module, name))
        return found

    return get
