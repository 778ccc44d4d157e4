"""Catalyst's layers: pools of whole pictures, squeeze and excitation, and heads for metric learning."""
from .._components import finder

__getattr__ = finder(__name__, "catalyst.contrib.layers")
