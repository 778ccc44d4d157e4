#!/usr/bin/python3
"""Asks torch.nn.utils.prune of PyTorch 1.13 which weights it sets to 0, and writes train/pruning.lkg.

    train_pruning.py [FOLDER]

For each case: the weight, and what is left of it after pruning once and twice.
"""
import os
import sys

import torch
from torch import nn
from torch.nn.utils import prune

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nn_golden import Golden  # noqa: E402

CASES = [
    ("l1", (6, 7), prune.l1_unstructured, {"amount": 0.3}),
    ("l1_half", (5, 1), prune.l1_unstructured, {"amount": 0.5}),
    ("l1_count", (6, 7), prune.l1_unstructured, {"amount": 11}),
    ("ln_rows", (6, 7), prune.ln_structured, {"amount": 0.4, "n": 2, "dim": 0}),
    ("ln_columns", (6, 7), prune.ln_structured, {"amount": 2, "n": 1, "dim": 1}),
    ("ln_last", (4, 3, 5), prune.ln_structured, {"amount": 0.4, "n": 3, "dim": -1}),
    ("ln_infinite", (6, 7), prune.ln_structured, {"amount": 0.4, "n": float("inf"), "dim": 0}),
]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
    assert torch.__version__.startswith("1.13"), "the oracle is PyTorch 1.13, not " + torch.__version__
    golden = Golden()
    torch.manual_seed(0)
    for name, shape, method, options in CASES:
        module = nn.Module()
        module.weight = nn.Parameter(torch.randn(shape))
        golden.add(name + "/weight", module.weight.detach().clone())
        for time in ("once", "twice"):
            method(module, "weight", **options)
            golden.add(name + "/" + time, module.weight.detach().clone())
    golden.write(os.path.join(folder, "train", "pruning.lkg"))


if __name__ == "__main__":
    main()
