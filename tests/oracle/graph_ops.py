#!/usr/bin/python3
"""PyTorch's values, gradients and second gradients of ops: writes tests/golden/graph/ops.txt, for tests/graph/test_ops.c.

Each line is a kind, a case and its numbers. "value": the result. "grad": the gradient of input A, of the result summed with
the weights 1, 2, 3, ... "second": the gradient of A, of g summed with those weights, where g is the gradient of A of the
sum of the squares of the result. "random": what is drawn, in that order, after manual_seed(7).
Run it with Debian's python3 (package python3-torch): /usr/bin/python3 tests/oracle/graph_ops.py
"""
import math
import pathlib

import torch
import torch.nn.functional as F

INDEX = torch.tensor([2, 0, 1, 2])
PLACES = torch.tensor([[0, 1, 2, 1], [2, 0, 0, 0]])
DISTINCT = torch.tensor([[0, 1, 2, 1], [2, 0, 0, 2]])


def picture(x):
    return x.reshape(1, 1, 3, 4)


def cells(x):
    return x.reshape(2, 2, 3)


# name: (function of A and B, whether it has a gradient, whether it has a second gradient)
CASES = {
    "floor": (lambda a, b: torch.floor(a), 1, 0),
    "ceil": (lambda a, b: torch.ceil(a), 1, 0),
    "round": (lambda a, b: torch.round(a * 2) / 2 + a, 1, 0),
    "argsort": (lambda a, b: torch.argsort(a, 1, descending=True), 0, 0),
    "argmin": (lambda a, b: torch.argmin(a, 0), 0, 0),
    "any": (lambda a, b: torch.any(a > 1.2, 1), 0, 0),
    "all": (lambda a, b: torch.all(a > -1.2, 0), 0, 0),
    "one_hot": (lambda a, b: F.one_hot(INDEX, 3), 0, 0),
    "equal": (lambda a, b: INDEX[:, None] == torch.arange(3), 0, 0),
    "not_equal": (lambda a, b: INDEX[:, None] != torch.arange(3), 0, 0),
    "less": (lambda a, b: a < b, 0, 0),
    "less_equal": (lambda a, b: INDEX[:, None] <= INDEX, 0, 0),
    "arange": (lambda a, b: torch.arange(1, -2, -0.5), 0, 0),
    "topk_index": (lambda a, b: torch.topk(a, 2, 1)[1], 0, 0),
    "stack": (lambda a, b: torch.stack([a, b, a * b], -1), 1, 1),
    "split": (lambda a, b: torch.split(a, 3, 1)[0].sum(1) * torch.split(a, 3, 1)[1][:, 0], 1, 1),
    "split_sizes": (lambda a, b: torch.cat([p * k for k, p in enumerate(torch.split(a.exp(), [1, 2, 1], 1))], 1), 1, 1),
    "chunk": (lambda a, b: torch.chunk(a, 2, 1)[0] * torch.chunk(a, 2, 1)[1], 1, 1),
    "unbind": (lambda a, b: torch.unbind(a, 0)[0] * torch.unbind(a, 0)[2], 1, 1),
    "squeeze": (lambda a, b: a.unsqueeze(1).squeeze(1) * a, 1, 1),
    "flip": (lambda a, b: torch.flip(a, (0, 1)) * a, 1, 1),
    "roll": (lambda a, b: torch.roll(a, -3, 1) * a, 1, 1),
    "repeat": (lambda a, b: a.repeat(2, 1, 3), 1, 1),
    "triu": (lambda a, b: torch.triu(a, 1), 1, 1),
    "tril": (lambda a, b: torch.tril(a, -1), 1, 1),
    "masked_fill": (lambda a, b: a.masked_fill(b > 0, 0.5), 1, 1),
    "min": (lambda a, b: torch.amin(a, (1,)), 1, 1),
    "logsumexp": (lambda a, b: torch.logsumexp(a, (0, 1)), 1, 1),
    "norm_0": (lambda a, b: torch.linalg.vector_norm(a, 0, 1), 0, 0),
    "norm_1": (lambda a, b: torch.linalg.vector_norm(a, 1, 1), 1, 1),
    "norm_2": (lambda a, b: torch.linalg.vector_norm(a, 2, (0, 1)), 1, 1),
    "norm_3": (lambda a, b: torch.linalg.vector_norm(a, 3, 0), 1, 1),
    "norm_3_zeros": (lambda a, b: torch.linalg.vector_norm(torch.triu(a, 2), 3, 1), 1, 0),
    "norm_half_zeros": (lambda a, b: torch.linalg.vector_norm(torch.triu(a, 2), 0.5, 1), 1, 0),
    "norm_inf": (lambda a, b: torch.linalg.vector_norm(a, math.inf, 1), 1, 0),
    "cumsum": (lambda a, b: torch.cumsum(a * a, 1), 1, 1),
    "cumprod": (lambda a, b: torch.cumprod(a, 0), 1, 0),
    "sort": (lambda a, b: torch.sort(a, 1)[0] * b, 1, 1),
    "topk": (lambda a, b: torch.topk(a, 2, 0, largest=False)[0], 1, 1),
    "index_select": (lambda a, b: torch.index_select(a, 0, INDEX) ** 2, 1, 1),
    "index_add": (lambda a, b: torch.index_add(b, 1, INDEX, a * b), 1, 1),
    "scatter": (lambda a, b: torch.scatter(a * a, 0, DISTINCT, b[:2]), 1, 1),
    "scatter_source": (lambda a, b: torch.scatter(b, 0, DISTINCT, (a * a)[:2]), 1, 1),
    "scatter_add": (lambda a, b: torch.scatter_add(b, 0, PLACES, (a * a)[:2]), 1, 1),
    "einsum_matmul": (lambda a, b: torch.einsum("ij,kj->ik", a, b), 1, 1),
    "einsum_implicit": (lambda a, b: torch.einsum("ji,jk", a, b), 1, 1),
    "einsum_sum": (lambda a, b: torch.einsum("ij->j", a), 1, 1),
    "einsum_transpose": (lambda a, b: torch.einsum("ij->ji", a), 1, 1),
    "einsum_elementwise": (lambda a, b: torch.einsum("ij,ij->ij", a, b), 1, 1),
    "einsum_dot": (lambda a, b: torch.einsum("ij,ij->", a, b), 1, 1),
    "einsum_batched": (lambda a, b: torch.einsum("abc,adc->dba", cells(a), cells(b)), 1, 1),
    "einsum_lonely": (lambda a, b: torch.einsum("ij,kl->lj", a, b), 1, 1),
    "detach": (lambda a, b: a * a.detach(), 1, 1),
    "tanh": (lambda a, b: torch.tanh(a), 1, 1),
    "sigmoid": (lambda a, b: torch.sigmoid(a), 1, 1),
    "relu": (lambda a, b: torch.relu(a), 1, 1),
    "elu": (lambda a, b: F.elu(a, 1.3), 1, 1),
    "gelu": (lambda a, b: F.gelu(a), 1, 1),
    "gelu_tanh": (lambda a, b: F.gelu(a, approximate="tanh"), 1, 1),
    "silu": (lambda a, b: F.silu(a), 1, 1),
    "softplus": (lambda a, b: F.softplus(a, 2, 1), 1, 1),
    "div": (lambda a, b: b / a, 1, 1),
    "var": (lambda a, b: torch.var(a, 1), 1, 1),
    "softmax": (lambda a, b: torch.softmax(a, 1), 1, 1),
    "log_softmax": (lambda a, b: torch.log_softmax(a, 0), 1, 1),
    "matmul": (lambda a, b: a @ b.t(), 1, 1),
    "linear": (lambda a, b: torch.tanh(F.linear(a, b, b[:, 0])), 1, 1),
    "conv": (lambda a, b: torch.tanh(F.conv2d(picture(a), picture(b)[:, :, :2, :2], padding=1)), 1, 1),
    "conv_weight": (lambda a, b: torch.tanh(F.conv2d(picture(b), picture(a)[:, :, :2, :2], padding=1, stride=2)), 1, 1),
    "conv_transpose": (lambda a, b: torch.tanh(F.conv_transpose2d(picture(a), picture(b)[:, :, :2, :2], stride=2)), 1, 1),
    "max_pool": (lambda a, b: F.max_pool2d(picture(a), 2, 1), 1, 1),
    "avg_pool": (lambda a, b: torch.tanh(F.avg_pool2d(picture(a), 2, 1)), 1, 1),
    "batch_norm": (lambda a, b: F.batch_norm(a, None, None, b[0], b[1], True), 1, 1),
    "layer_norm": (lambda a, b: F.layer_norm(a, (4,), b[0], b[1]), 1, 1),
    "group_norm": (lambda a, b: F.group_norm(a.reshape(1, 4, 3), 2, b[0], b[1]), 1, 1),
    "cross_entropy": (lambda a, b: F.cross_entropy(a, INDEX[:3], label_smoothing=0.1), 1, 1),
    "mse": (lambda a, b: F.mse_loss(a, b), 1, 1),
    "bce_with_logits": (lambda a, b: F.binary_cross_entropy_with_logits(a, torch.sigmoid(b)), 1, 1),
    "smooth_l1": (lambda a, b: F.smooth_l1_loss(a, b), 1, 1),
}


def numbers(offset):
    return torch.tensor([1.7 * math.sin(1.3 * k + offset) for k in range(12)], dtype=torch.float64).reshape(3, 4)


def weighted(y):
    return (y * torch.arange(1, y.numel() + 1, dtype=torch.float64).reshape(y.shape)).sum()


def line(kind, name, values):
    print(kind, name, *("%.17g" % v for v in values.double().flatten().tolist()), file=file)


target = pathlib.Path(__file__).parent.parent / "golden" / "graph" / "ops.txt"
with open(target, "w", encoding="utf-8") as file:
    for name, (function, has_gradient, has_second) in CASES.items():
        a, b = numbers(0.5).requires_grad_(), numbers(2.0)
        y = function(a, b)
        line("value", name, y)
        if has_gradient:
            line("grad", name, torch.autograd.grad(weighted(y), a, retain_graph=True)[0])
        if has_second:
            (g,) = torch.autograd.grad((y * y).sum(), a, create_graph=True)
            line("second", name, torch.autograd.grad(weighted(g), a)[0])
    torch.manual_seed(7)
    line("random", "uniform", torch.empty(20).uniform_(-1, 3))
    line("random", "normal", torch.empty(20).normal_(0.5, 2))
    line("random", "few_normal", torch.empty(5).normal_(0.5, 2))
    line("random", "bernoulli", torch.empty(20).bernoulli_(0.3))
