"""Transforms and samplers: catalyst.data."""
from ._components import finder

__getattr__ = finder(__name__, "catalyst.data", "torchvision.transforms", "catalyst.contrib.data")
