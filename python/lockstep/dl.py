"""Runners, callbacks, engines and loggers: catalyst.dl."""
from . import utils
from ._components import finder
from ._runner import Callback, SupervisedRunner

__all__ = ["Callback", "SupervisedRunner", "utils"]
__getattr__ = finder(__name__, "catalyst.dl", "catalyst.callbacks", "catalyst.engines", "catalyst.loggers")
