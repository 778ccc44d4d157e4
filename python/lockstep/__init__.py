"""Lockstep from Python: trains neural networks in C, with the names of PyTorch and Catalyst.

    from lockstep import dl, nn, optim
    from lockstep.contrib.datasets import MNIST
    from lockstep.utils.data import DataLoader

    model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))
    loaders = {"train": DataLoader(MNIST("data", train=True), batch_size=32)}
    runner = dl.SupervisedRunner()
    runner.train(model=model, criterion=nn.CrossEntropyLoss(), optimizer=optim.Adam(model.parameters(), lr=0.02),
                 loaders=loaders, num_epochs=1, verbose=True)

Whatever a config can name is a class here (`lockstep components`). Arrays of NumPy are read where they lie, and tensors of
other libraries through DLPack."""
import os

from . import contrib, data, dl, metrics, nn, optim, sapsan, text, utils, vision
from ._components import finder, load, names, save, weights_hash
from ._library import LockstepError, check, lk

__all__ = ["LockstepError", "contrib", "data", "dl", "load", "load_components", "manual_seed", "metrics", "names", "nn", "optim",
           "rank", "sapsan", "save", "text", "utils", "vision", "weights_hash", "world_size"]


def manual_seed(seed):
    """Seeds the default generator, as torch.manual_seed does: initial weights and orders of samples follow PyTorch's."""
    lk.lk_manual_seed(seed)


def rank():
    """This process's rank; 0 if it is alone."""
    return lk.lk_rank()


def world_size():
    return lk.lk_world_size()


def load_components(path):
    """Opens a shared object with components of your own, written in C (see docs/config.md)."""
    check(lk.lk_components_load(os.fspath(path).encode()))


__getattr__ = finder(__name__, "torch")
