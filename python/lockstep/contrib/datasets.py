"""Catalyst's datasets, scaled as Catalyst scales them. The short name, lockstep.MNIST, has pixels from 0 to 1."""
from .._components import finder

__getattr__ = finder(__name__, "catalyst.contrib.datasets")
