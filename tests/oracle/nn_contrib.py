#!/usr/bin/python3
"""As nn_more.py, for the losses and layers of lockstep/contrib.h, written down here from their definitions.

    nn_contrib.py [FOLDER]

Writes nn/contrib_losses.lkg and nn/contrib_layers.lkg for tests/nn/test_contrib.c.
"""
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nn_golden import Golden  # noqa: E402
from nn_parity import layer, loss  # noqa: E402


def given(*numbers):
    return lambda generator: torch.tensor(numbers)


def triplet_mean(anchor, positive, negative, margin):
    return F.triplet_margin_loss(torch.stack(anchor), torch.stack(positive), torch.stack(negative), margin=margin)


def all_triplets(margin):
    def value(x, y):
        found = [(x[a], x[p], x[n]) for a in range(len(y)) for p in range(a + 1, len(y)) for n in range(len(y))
                 if y[a] == y[p] and y[a] != y[n]]
        return triplet_mean(*zip(*found), margin) if found else (x * 0).sum()
    return value


def hard_triplets(margin, normalize=False):
    def value(x, y):
        seen = F.normalize(x.detach()) if normalize else x.detach()
        found = []
        for a in range(len(y)):
            d = ((seen - seen[a]) ** 2).sum(1)
            positives = [i for i in range(len(y)) if y[i] == y[a] and i != a]
            negatives = [i for i in range(len(y)) if y[i] != y[a]]
            if positives and negatives:
                found.append((x[a], x[max(positives, key=lambda i: d[i])], x[min(negatives, key=lambda i: d[i])]))
        return triplet_mean(*zip(*found), margin) if found else (x * 0).sum()
    return value


def hard_clusters(margin):
    def value(x, y):
        labels = sorted(set(y.tolist()))
        means = {c: x[y == c].mean(0) for c in labels}
        found = []
        for c in labels:
            own = [i for i in range(len(y)) if y[i] == c]
            far = max(own, key=lambda i: float(((x[i] - means[c]) ** 2).sum()))
            near = min((o for o in labels if o != c), key=lambda o: float(((means[o] - means[c]) ** 2).sum()))
            found.append((means[c], x[far], means[near]))
        return triplet_mean(*zip(*found), margin)
    return value


PAIRS = given(0, 1, 0, 2, 1, 2)
E = (6, 5)
LOSSES = [
    ("triplets_all", nn.Identity, lambda: all_triplets(0.5), E, PAIRS),
    ("triplets_all_one_class", nn.Identity, lambda: all_triplets(0.5), E, given(1, 1, 1, 1, 1, 1)),
    ("triplets_hard", nn.Identity, lambda: hard_triplets(0.5), E, PAIRS),
    ("triplets_hard_normalized", nn.Identity, lambda: hard_triplets(1.0, True), E, PAIRS),
    ("triplets_hard_single", nn.Identity, lambda: hard_triplets(2.0), E, given(0, 0, 0, 0, 1, 2)),
    ("triplets_clusters", nn.Identity, lambda: hard_clusters(0.5), E, PAIRS),
]


class Normalize(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, x):
        return F.normalize(x, **self.options)


LAYERS = [
    ("normalize", lambda: Normalize(), (4, 6)),
    ("normalize_options", lambda: Normalize(p=1.5, dim=0, eps=0.5), (4, 6)),
]


def write(folder, name, add, cases):
    golden = Golden()
    for case in cases:
        add(golden, *case)
    golden.write(os.path.join(folder, "nn", name))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
    assert torch.__version__.startswith("1.13"), "the oracle is PyTorch 1.13, not " + torch.__version__
    write(folder, "contrib_losses.lkg", loss, LOSSES)
    write(folder, "contrib_layers.lkg", layer, LAYERS)


if __name__ == "__main__":
    main()
