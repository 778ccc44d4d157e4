"""Schedules of the learning rate: torch.optim.lr_scheduler."""
from .._components import finder

__getattr__ = finder(__name__, "torch.optim.lr_scheduler")
