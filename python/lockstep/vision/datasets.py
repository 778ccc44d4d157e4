"""Data sets of pictures: torchvision.datasets."""
from .._components import finder

__getattr__ = finder(__name__, "torchvision.datasets")
