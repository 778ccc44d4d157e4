#!/usr/bin/python3
"""As nn_contrib.py, for the pools, blocks and heads of lockstep/contrib.h, written down here from their definitions.

    nn_contrib_layers.py [FOLDER]

Writes nn/contrib_more_layers.lkg and nn/factorized.lkg for tests/nn/test_contrib_layers.c. A head gets the classes TARGET with every batch.
"""
import math
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nn_golden import Golden  # noqa: E402
from nn_parity import layer  # noqa: E402

TARGET = torch.tensor([2, 0, 3, 1, 2, 2])


class Avg(nn.Module):
    def forward(self, x):
        return x.mean((2, 3), keepdim=True)


class Max(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, x.shape[2:])


class Attn(nn.Module):
    def __init__(self, features, activation=nn.Sigmoid):
        super().__init__()
        self.attn = nn.Sequential(nn.Conv2d(features, 1, 1, bias=False), activation())

    def forward(self, x):
        return (x * self.attn(x)).sum((2, 3), keepdim=True)


class SideBySide(nn.ModuleDict):
    def forward(self, x):
        return torch.cat([module(x) for module in self.values()], 1)


class GeM(nn.Module):
    def __init__(self, p=3.0, trained=False, eps=1e-7):
        super().__init__()
        self.p = nn.Parameter(torch.ones(1) * p) if trained else p
        self.eps = eps

    def forward(self, x):
        return x.clamp(min=self.eps).pow(self.p).mean((2, 3), keepdim=True).pow(1 / self.p)


class CSE(nn.Module):
    def __init__(self, channels, r):
        super().__init__()
        self.linear1 = nn.Linear(channels, channels // r)
        self.linear2 = nn.Linear(channels // r, channels)

    def forward(self, x):
        weights = torch.sigmoid(self.linear2(F.relu(self.linear1(x.mean((2, 3))))))
        return x * weights[:, :, None, None]


class SSE(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 1, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.conv(x))


class SCSE(nn.Module):
    def __init__(self, channels, r):
        super().__init__()
        self.cse_block = CSE(channels, r)
        self.sse_block = SSE(channels)

    def forward(self, x):
        return self.cse_block(x) + self.sse_block(x)


class RMS(nn.Module):
    def __init__(self, width, epsilon=1e-8, bias=False):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else 0
        self.epsilon = epsilon

    def forward(self, x):
        return self.scale * x / (x.pow(2).mean(-1, keepdim=True).sqrt() + self.epsilon) + self.bias


class Head(nn.Module):
    def __init__(self, features, classes, s=64.0, m=0.5, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, features))
        nn.init.xavier_uniform_(self.weight)
        self.s, self.m, self.eps = s, m, eps

    def cosines(self, x):
        return F.linear(F.normalize(x), F.normalize(self.weight))

    def angles(self, x):
        return torch.acos(self.cosines(x).clamp(self.eps - 1, 1 - self.eps))

    def forward(self, x):
        return self.cosines(x)


def at_class(x):
    return F.one_hot(TARGET, x.shape[1]).bool()


class Arc(Head):
    def forward(self, x):
        theta = self.angles(x)
        moved = at_class(theta) & (theta <= math.pi - self.m)
        return self.s * torch.cos(torch.where(moved, theta + self.m, theta))


class SubCenter(Arc):
    def __init__(self, features, classes, k=3, **options):
        state = torch.get_rng_state()
        super().__init__(features, classes, **options)
        torch.set_rng_state(state)
        self.weight = nn.Parameter(torch.empty(k, features, classes))
        nn.init.xavier_uniform_(self.weight)

    def cosines(self, x):
        return (F.normalize(x) @ F.normalize(self.weight, dim=1)).max(0)[0]


class Cos(Head):
    def forward(self, x):
        return self.s * (self.cosines(x) - self.m * at_class(self.cosines(x)))


class AM(Head):
    def forward(self, x):
        c = self.cosines(x).clamp(self.eps - 1, 1 - self.eps)
        return self.s * torch.where(at_class(c), c - self.m, c)


class Curricular(nn.Module):
    def __init__(self, features, classes, s=64.0, m=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features, classes))
        nn.init.normal_(self.weight, std=0.01)
        self.register_buffer("t", torch.zeros(1))
        self.s, self.m = s, m

    def forward(self, x):
        c = (F.normalize(x) @ F.normalize(self.weight, dim=0)).clamp(-1, 1)
        near = c.gather(1, TARGET[:, None])
        moved = near * math.cos(self.m) - (1 - near ** 2).sqrt() * math.sin(self.m)
        too_far = near <= math.cos(math.pi - self.m)
        near_moved = torch.where(too_far, near - math.sin(math.pi - self.m) * self.m, moved)
        if self.training:
            self.t = near.detach().mean() * 0.01 + 0.99 * self.t
        others = torch.where(c > moved, c * (self.t + c), c)
        return self.s * torch.where(at_class(c), near_moved, others)


class Ada(Head):
    def __init__(self, features, classes, dynamical=True, **options):
        super().__init__(features, classes, **options)
        s = math.sqrt(2) * math.log(classes - 1)
        if dynamical:
            del self.s
            self.register_buffer("s", torch.ones(1) * s)
        else:
            self.s = s
        self.dynamical = dynamical

    def forward(self, x):
        c = self.cosines(x)
        if self.training and self.dynamical:
            with torch.no_grad():
                other = (torch.exp(self.s * c) * ~at_class(c)).sum(1).mean()
                median = self.angles(x)[at_class(c)].median().clamp(max=math.pi / 4)
                self.s = (torch.log(other) / torch.cos(median)).reshape(1)
        return self.s * c


class SoftMax(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, features))
        self.bias = nn.Parameter(torch.zeros(classes))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class Noise(nn.Module):
    def __init__(self, stddev):
        super().__init__()
        self.stddev = stddev

    def forward(self, x):
        return x + torch.empty_like(x).normal_(0, self.stddev) if self.training else x


def factorized(golden, name, linear, ratio):
    """The weights of a layer, and those of its factors: U sqrt(S) and sqrt(S) V^T."""
    u, s, vh = torch.linalg.svd(linear.weight.data, full_matrices=False)
    kept = int(len(s) * ratio) if ratio < 1 else len(s)
    u, vh = (u * s.sqrt())[:, :kept], (s.sqrt()[:, None] * vh)[:kept]
    x = torch.randn(3, linear.in_features)
    for path, value in (("weight", linear.weight.data), ("bias", linear.bias.data), ("u", u), ("vh", vh), ("x", x),
                        ("y", x @ (u @ vh).T + linear.bias.data)):
        golden.add(name + "/" + path, value)


P, V = (2, 4, 5, 3), (6, 5)
TIES = torch.tensor([[[[1.0, 2.0], [2.0, 0.0]], [[3.0, 3.0], [3.0, 3.0]]]])
SMALL = 0.2 * torch.randn(P, generator=torch.Generator().manual_seed(0))
LAYERS = [
    ("avg_pool", Avg, P),
    ("max_pool", Max, P),
    ("max_pool_ties", Max, TIES),
    ("concat_pool", lambda: SideBySide({"avg": Avg(), "max": Max()}), P),
    ("attn_pool", lambda: Attn(4), P),
    ("attn_pool_other", lambda: Attn(4, nn.Softsign), SMALL),
    ("avg_attn_pool", lambda: SideBySide({"avg": Avg(), "attn": Attn(4)}), P),
    ("max_attn_pool", lambda: SideBySide({"max": Max(), "attn": Attn(4)}), P),
    ("concat_attn_pool", lambda: SideBySide({"avg": Avg(), "max": Max(), "attn": Attn(4, nn.Softsign)}), P),
    ("gem", lambda: GeM(eps=0.1), P),
    ("gem_trained", lambda: GeM(2.2, True, 0.2), P),
    ("gem_infinite", Max, P),
    ("cse", lambda: CSE(6, 2), (2, 6, 5, 3)),
    ("sse", lambda: SSE(4), P),
    ("scse", lambda: SCSE(6, 3), (2, 6, 5, 3)),
    ("rms", lambda: RMS(5), (3, 4, 5)),
    ("rms_options", lambda: RMS(5, 0.1, True), (4, 5)),
    ("arc", lambda: Arc(5, 4, s=1.3), V),
    ("arc_far", lambda: Arc(5, 4, s=1.3, m=2.5), V),
    ("sub_center", lambda: SubCenter(5, 4, k=2, s=1.3, m=0.35), V),
    ("cos", lambda: Cos(5, 4, s=1.3, m=0.35), V),
    ("am", lambda: AM(5, 4, s=1.3), V),
    ("curricular", lambda: Curricular(5, 4, s=1.3), V),
    ("curricular_far", lambda: Curricular(5, 4, s=1.3, m=2.5), V),
    ("ada", lambda: Ada(5, 4), V),
    ("ada_fixed", lambda: Ada(5, 4, dynamical=False), V),
    ("product", lambda: Head(5, 4), V),
    ("softmax", lambda: SoftMax(5, 4), V),
    ("noise", lambda: Noise(0.3), V),
]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
    assert torch.__version__.startswith("1.13"), "the oracle is PyTorch 1.13, not " + torch.__version__
    golden = Golden()
    for case in LAYERS:
        layer(golden, *case)
    golden.write(os.path.join(folder, "nn", "contrib_more_layers.lkg"))
    golden = Golden()
    torch.manual_seed(0)
    factorized(golden, "whole", nn.Linear(7, 5), 1)
    factorized(golden, "tall", nn.Linear(4, 9), 0.5)
    factorized(golden, "wide", nn.Linear(9, 4), 0.6)
    golden.write(os.path.join(folder, "nn", "factorized.lkg"))


if __name__ == "__main__":
    main()
