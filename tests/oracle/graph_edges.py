#!/usr/bin/python3
"""PyTorch's gradients at ties, kinks and other edges: writes tests/golden/graph/edges.txt, for tests/graph/test_edges.c.

Each line is a case and the gradients of its inputs, one after another, of the result summed with the weights 1, 2, 3, ...
Run it with Debian's python3 (package python3-torch): /usr/bin/python3 tests/oracle/graph_edges.py
"""
import pathlib

import torch
import torch.nn.functional as F

X = [-1, -0.5, 0, 0, 0.5, 1]
Y = [-1, 0.5, 0, 1, 0.5, -1]
TIES = [[1, 3, 3], [2, 2, 2]]
UNIT = [0, 1, 0.5, 0, 1, 0.25]
BITS = [0, 1, 1, 1, 0, 0]

CASES = {
    "maximum": (torch.maximum, X, Y),
    "minimum": (torch.minimum, X, Y),
    "abs": (torch.abs, X),
    "relu": (torch.relu, X),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), X),
    "elu": (lambda x: F.elu(x, 1.3), X),
    "gelu": (F.gelu, X),
    "softplus": (lambda x: F.softplus(x, 2, 1), X),
    "clamp": (lambda x: torch.clamp(x, -0.5, 0.5), X),
    "sqrt": (torch.sqrt, [0, 0.25, 1, 4]),
    "log": (torch.log, [0, 0.25, 1, 4]),
    "div": (torch.div, X, [1, 2, 4, 0, -1, 0.5]),
    "pow": (torch.pow, [0, 0, 0, 2, 2, -1, 0], [0, 1, 2, 0, 3, 2, -1]),
    "pow_scalar_0": (lambda x: torch.pow(x, 0), X),
    "pow_scalar_1": (lambda x: torch.pow(x, 1), X),
    "pow_scalar_2": (lambda x: torch.pow(x, 2), X),
    "amax": (lambda x: torch.amax(x, (1,)), TIES),
    "amax_all": (torch.amax, TIES),
    "max_pool": (lambda x: F.max_pool1d(x.reshape(1, 1, 6), 3, 1), [1, 2, 2, 2, 1, 2]),
    "mse_broadcast": (lambda x, t: F.mse_loss(x.reshape(3, 1), t), [1, 2, 4], [0.5, 3, 4]),
    "l1": (lambda x, t: F.l1_loss(x, t, reduction="none"), X, Y),
    "smooth_l1": (lambda x, t: F.smooth_l1_loss(x, t, reduction="none", beta=1.0), X, Y),
    "smooth_l1_0": (lambda x, t: F.smooth_l1_loss(x, t, reduction="sum", beta=0.0), X, Y),
    "huber": (lambda x, t: F.huber_loss(x, t, reduction="none", delta=1.0), X, Y),
    "bce": (lambda x: F.binary_cross_entropy(x, torch.tensor(BITS, dtype=torch.float64)), UNIT),
    "embedding_padding": (lambda w: F.embedding(torch.tensor([0, 2, 1, 1, 0, 1]), w.reshape(3, 2), padding_idx=1), X),
    "dropout_1": (lambda x: F.dropout(x, 1.0), X),
    "cross_entropy_ignored": (lambda x: F.cross_entropy(x.reshape(2, 3), torch.tensor([-100, 1])), X),
    "softmax_large": (lambda x: F.softmax(x * 2000, 0), X),
    "where": (lambda a, b: torch.where(a > b, a, b), X, Y),
}


def gradients(function, *inputs):
    leaves = [torch.tensor(numbers, dtype=torch.float64, requires_grad=True) for numbers in inputs]
    result = function(*leaves)
    weights = torch.arange(1, result.numel() + 1, dtype=torch.float64).reshape(result.shape)
    (result * weights).sum().backward()
    return [number for leaf in leaves for number in leaf.grad.flatten().tolist()]


target = pathlib.Path(__file__).parent.parent / "golden" / "graph" / "edges.txt"
with open(target, "w", encoding="utf-8") as file:
    for name, case in CASES.items():
        print(name, *(f"{number:.17g}" for number in gradients(*case)), file=file)
