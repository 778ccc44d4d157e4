"""Transforms of pictures: torchvision.transforms."""
from .._components import finder

__getattr__ = finder(__name__, "torchvision.transforms")
