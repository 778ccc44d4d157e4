"""torch.utils, and Catalyst's function that starts ranks."""
from . import data
from .._runner import distributed_cmd_run

__all__ = ["data", "distributed_cmd_run"]
