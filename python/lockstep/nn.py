"""Layers and losses: torch.nn."""
from ._components import finder

__getattr__ = finder(__name__, "torch.nn")
