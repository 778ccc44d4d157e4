"""Optimizers: torch.optim."""
from . import lr_scheduler
from .._components import finder

__all__ = ["lr_scheduler"]
__getattr__ = finder(__name__, "torch.optim", "catalyst.contrib.optimizers")
