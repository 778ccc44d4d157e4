"""Catalyst's metrics, for BatchMetricCallback and LoaderMetricCallback: catalyst.metrics."""
from ._components import finder

__getattr__ = finder(__name__, "catalyst.metrics")
