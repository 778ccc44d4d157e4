"""catalyst.contrib."""
from . import datasets, layers
from .._components import finder

__all__ = ["datasets", "layers"]
__getattr__ = finder(__name__, "catalyst.contrib")
