"""Sapsan's estimators of physical fields: CNN3d, PICAE, PIMLturb and KRR.

    from lockstep import sapsan

    config = sapsan.CNN3dConfig(n_epochs=5, patience=10, min_delta=1e-5, ddp=True)
    estimator = sapsan.CNN3d(config=config, loaders={"train": ..., "valid": ...})
    estimator.train(pictures="pictures")"""
import sys

from ._components import Request, find


class Config(dict):
    """An estimator's options, by name."""

    def __init__(self, **options):
        super().__init__(options)


CNN3dConfig = PICAEConfig = PIMLturbConfig = KRRConfig = Config


class Estimator:
    """One of the library's estimators. `lockstep help CNN3dEstimator` lists the options."""
    _component = None

    def __init__(self, config=None, loaders=None, **options):
        self.config, self.loaders, self.kept = dict(config or {}, **options), loaders, []

    def _call(self, name, arguments):
        request = Request()
        estimator = {"_target_": self._component._target, "loaders": request.value(self.loaders)}
        estimator.update((key, request.value(value)) for key, value in self.config.items())
        tree = {"_call_": name, "estimator": estimator}
        tree.update((key, request.value(value)) for key, value in arguments.items() if value is not None)
        request.send(tree, "call", self)

    def train(self, **arguments):
        """Trains, then measures, saves and draws what it predicts: `lockstep help train_estimator`."""
        self._call("train_estimator", arguments)

    def evaluate(self, load, **arguments):
        """Measures a saved estimator: `lockstep help evaluate_estimator`."""
        self._call("evaluate_estimator", dict(arguments, load=load))


def __getattr__(name):
    component = None if name.startswith("_") else find(name, ("sapsan.lib.estimators",))
    if component is None:
        raise AttributeError("Sapsan has no %r; `lockstep components` lists the estimators" % name)
    if component._kind != "estimator":
        return component
    made = type(name, (Estimator,), {"__doc__": component.__doc__, "_component": component})
    setattr(sys.modules[__name__], name, made)
    return made
