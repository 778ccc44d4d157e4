"""Pictures: torchvision's data sets and transforms."""
from . import datasets, transforms

__all__ = ["datasets", "transforms"]
