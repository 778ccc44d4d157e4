"""Datasets, loaders and samplers: torch.utils.data."""
from .._components import find, finder

_find = finder(__name__, "torch.utils.data", "torch.utils.data.distributed")


def random_split(dataset, lengths, seed=0, transforms=None):
    """The parts of a dataset, as torch.utils.data.random_split with a generator of this seed. `transforms` has a list of
    transforms, or None, for each part."""
    part = find("random_split", ("torch.utils.data",))
    lengths = list(lengths)
    transforms = list(transforms) if transforms is not None else [None] * len(lengths)
    if len(transforms) != len(lengths):
        raise ValueError("random_split: %d lengths, but transforms for %d parts" % (len(lengths), len(transforms)))
    return [part(dataset=dataset, lengths=lengths, part=i, seed=seed, **({} if t is None else {"transform": t}))
            for i, t in enumerate(transforms)]


def __getattr__(name):
    return _find(name)
