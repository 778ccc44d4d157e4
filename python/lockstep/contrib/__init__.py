"""catalyst.contrib."""
from . import datasets
from .._components import finder

__all__ = ["datasets"]
__getattr__ = finder(__name__, "catalyst.contrib")
