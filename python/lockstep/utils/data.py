"""Datasets, loaders and samplers: torch.utils.data."""
from .._components import finder

__getattr__ = finder(__name__, "torch.utils.data", "torch.utils.data.distributed")
