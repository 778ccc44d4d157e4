#!/usr/bin/python3
"""As nn_contrib.py, for the losses that score regions, embeddings and recommendations.

    nn_contrib_losses.py [FOLDER]

Each definition is written down here from the paper's formula or from what Catalyst 22.04 documents. Writes
nn/contrib_more_losses.lkg for tests/nn/test_contrib_losses.c.
"""
import math
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nn_contrib import PAIRS, given, write  # noqa: E402
from nn_parity import loss  # noqa: E402


def region(score, mode="macro", class_dim=1, weights=None, eps=1e-7):
    def value(x, t):
        axis = class_dim % x.dim()
        x, t = x.transpose(0, axis).flatten(1), t.to(x.dtype).transpose(0, axis).flatten(1)
        sums = [(x * t).sum(1), (x * (1 - t)).sum(1), ((1 - x) * t).sum(1), (x ** 2).sum(1) + (t ** 2).sum(1)]
        if mode == "micro":
            sums = [s.sum() for s in sums]
        per_class = score(*sums, eps)
        if mode == "weighted":
            return 1 - (torch.tensor(weights) * per_class).sum()
        return 1 - per_class.mean()
    return value


def nothing(tp, fp, fn):
    return (tp + fp + fn == 0).to(tp.dtype)


def dice(tp, fp, fn, squares, eps):
    return (2 * tp + eps * nothing(tp, fp, fn)) / (2 * tp + fp + fn + eps)


def smoothing_dice(tp, fp, fn, squares, eps):
    return 2 * tp / (squares + eps)


def iou(tp, fp, fn, squares, eps):
    return (tp + eps * nothing(tp, fp, fn)) / (tp + fp + fn + eps)


def trevsky(alpha, beta):
    def score(tp, fp, fn, squares, eps):
        return (tp + eps * nothing(tp, fp, fn)) / (tp + beta * fp + alpha * fn + eps)
    return score


def focal_trevsky(alpha, beta, gamma, **options):
    one = region(trevsky(alpha, beta), **options)
    return lambda x, t: sum(one(x[i:i + 1], t[i:i + 1]) ** gamma for i in range(len(x))) / len(x)


def focal_each(x, t, gamma, alpha, threshold):
    p = torch.where(t == 1, torch.sigmoid(x), 1 - torch.sigmoid(x))
    entropy = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    if threshold is not None:
        weight = torch.where(p < threshold, torch.ones_like(p), ((1 - p) / threshold) ** gamma)
        return weight * entropy
    balance = 1 if alpha is None else torch.where(t == 1, torch.tensor(alpha), torch.tensor(1 - alpha))
    return (1 - p) ** gamma * entropy * balance


def focal(gamma=2.0, alpha=0.25, threshold=None, ignore=None, reduction="mean", classes=False):
    def value(x, y):
        count = y != ignore if ignore is not None else torch.ones_like(y, dtype=torch.bool)
        if not count.any():
            return (x * 0).sum()
        if classes:
            each = sum(focal_each(x[:, c], (y == c).to(x.dtype), gamma, alpha, threshold) for c in range(x.shape[1]))
        else:
            each = focal_each(x, torch.where(count, y, torch.zeros_like(y)).to(x.dtype), gamma, alpha, threshold)
        return each if reduction == "none" else getattr(torch, reduction)(each[count])
    return value


def jaccard_extension(errors, truth):
    """The sum over the errors in descending order, each times the growth of the Jaccard loss."""
    if len(errors) == 0:
        return errors.sum()
    order = torch.sort(errors, descending=True, stable=True).indices
    truth = truth[order]
    loss = 1 - (truth.sum() - truth.cumsum(0)) / (truth.sum() + (1 - truth).cumsum(0))
    growth = torch.diff(loss, prepend=torch.zeros(1))
    return (F.relu(errors[order]) * growth.detach()).sum()


def hinge_of(x, t, ignore):
    x, t = x.flatten(), t.flatten()
    keep = t != ignore if ignore is not None else torch.ones_like(t, dtype=torch.bool)
    x, t = x[keep], t[keep].to(x.dtype)
    return jaccard_extension(1 - x * (2 * t - 1), t)


def lovasz_binary(per_image=False, ignore=None):
    def value(x, t):
        if per_image:
            return sum(hinge_of(a, b, ignore) for a, b in zip(x, t)) / len(x)
        return hinge_of(x, t, ignore)
    return value


def lovasz_multi_label(per_image=False, ignore=None):
    one = lovasz_binary(per_image, ignore)
    return lambda x, t: sum(one(x[:, i], t[:, i]) for i in range(x.shape[1])) / x.shape[1]


def lovasz_multi_class(per_image=False, ignore=None):
    def flat(x, t):  # x: (n, classes, pixels)
        keep = (t != ignore if ignore is not None else torch.ones_like(t, dtype=torch.bool)).flatten()
        t = t.flatten()[keep]
        found = []
        for c in range(x.shape[1]):
            truth = (t == c).to(x.dtype)
            if truth.sum() > 0:
                found.append(jaccard_extension((truth - x[:, c].flatten()[keep]).abs(), truth))
        return sum(found) / len(found) if found else (x * 0).sum()

    def value(x, t):
        x = x.unsqueeze(1) if x.dim() == 3 else x
        if per_image:
            return sum(flat(x[i:i + 1], t[i:i + 1]) for i in range(len(x))) / len(x)
        return flat(x, t)
    return value


def reduced(each, reduction):
    return each if reduction == "none" else getattr(torch, reduction)(each)


def off_diagonal(square):
    return square.masked_fill(torch.eye(len(square), dtype=torch.bool), float("-inf"))


def nt_xent(tau, reduction="mean"):
    def value(x, y):
        z = F.normalize(torch.cat([x, y]))
        near = (F.normalize(x) * F.normalize(y)).sum(1) / tau
        return reduced(torch.logsumexp(off_diagonal(z @ z.T / tau), 1) - torch.cat([near, near]), reduction)
    return value


def supervised(tau, where="in", reduction="mean"):
    def value(x, y):
        z = F.normalize(x)
        all_pairs = off_diagonal(z @ z.T / tau)
        each, counts = [], []
        for i in range(len(y)):
            own = [j for j in range(len(y)) if j != i and y[j] == y[i]]
            counts.append(bool(own))
            if not own:
                each.append((x * 0).sum())
            else:
                pairs = all_pairs[i][own]
                near = pairs.exp().mean().log() if where == "in" else pairs.mean()
                each.append(torch.logsumexp(all_pairs[i], 0) - near)
        each = torch.stack(each)
        if reduction == "mean":
            return each.sum() / max(1, sum(counts))
        return reduced(each, reduction)
    return value


def barlow(offdiag_lambda=1.0, eps=1e-12):
    def value(x, y):
        a = (x - x.mean(0)) / (x.var(0) + eps).sqrt()
        b = (y - y.mean(0)) / (y.var(0) + eps).sqrt()
        c = a.T @ b / len(x)
        on = torch.diagonal(c)
        return ((on - 1) ** 2).sum() + offdiag_lambda * ((c ** 2).sum() - (on ** 2).sum())
    return value


def circle(m, gamma):
    def value(x, y):
        sims = x @ x.T
        pairs = [(i, j) for i in range(len(y)) for j in range(i + 1, len(y))]
        sp = [sims[i, j] for i, j in pairs if y[i] == y[j]]
        sn = [sims[i, j] for i, j in pairs if y[i] != y[j]]
        if not sp or not sn:
            return (x * 0).sum()
        sp, sn = torch.stack(sp), torch.stack(sn)
        ap, an = F.relu(1 + m - sp.detach()), F.relu(sn.detach() + m)
        p = -gamma * ap * (sp - (1 - m))
        n = gamma * an * (sn - m)
        return F.softplus(torch.logsumexp(n, 0) + torch.logsumexp(p, 0))
    return value


def distance(margin=1.0, reduction="mean"):
    def value(d, y):
        y = y.to(d.dtype)
        each = (1 - y) * d ** 2 + y * F.relu(margin - d) ** 2
        return each.sum() / 2 / len(y) if reduction == "mean" else reduced(each, reduction)
    return value


def pairwise(x, y):
    return F.cross_entropy(x @ y.T, torch.arange(len(x)))


def triplet_pairwise(margin=0.3, reduction="mean"):
    def value(x, y):
        s = x @ y.T
        each = [F.relu(margin - s[i, i] + max(s[i, j] for j in range(len(x)) if j != i)) for i in range(len(x))]
        return reduced(torch.stack(each), reduction)
    return value


def margin_loss(alpha=0.2, beta=1.0, skip=(-1,)):
    def value(x, y):
        z = F.normalize(x)
        total, count = (x * 0).sum(), 0
        for i in range(len(y)):
            for j in range(len(y)):
                if int(y[i]) in skip and int(y[j]) in skip:
                    continue
                d = ((z[i] - z[j]) ** 2).sum()
                total = total + F.relu(alpha + (1 if y[i] == y[j] else -1) * (d - beta))
                count += 1
        return total / (count + 1e-8)
    return value


def warp(max_num_trials=None):
    def value(x, t):
        keys = torch.rand(x.shape)
        total = (x * 0).sum()
        labels = x.shape[1]
        for i in range(len(x)):
            found = torch.nonzero(t[i]).flatten()
            if len(found) == 0:
                continue
            j = int(found[0])
            order = sorted((k for k in range(labels) if k != j), key=lambda k: float(keys[i, k]))
            for trial, k in enumerate(order[:max_num_trials], 1):
                if 1 + x[i, k] - x[i, j] >= 0:
                    total = total + math.log(math.floor((labels - 1) / trial)) * (1 + x[i, k] - x[i, j])
                    break
        return total
    return value


def quantile(atoms, delta):
    def value(x, t):
        tau = torch.linspace(1 / (2 * atoms), 1 - 1 / (2 * atoms), atoms)
        d = t[:, None, :] - x[:, :, None]
        return (F.huber_loss(d, d * 0, delta=delta, reduction="none")
                * (tau[None, :, None] - (d < 0).float()).abs() / atoms).mean()
    return value


def huber_v0(delta=1.0, reduction="mean"):
    return lambda x, t: reduced(F.huber_loss(x, t, delta=delta, reduction="none").mean(1), reduction)


def wing(w=5.0, c=0.5, reduction="mean"):
    def value(x, t):
        d = (t - x).abs()
        return reduced(torch.where(d < w, w * torch.log(1 + d / c), d - (w - w * math.log(1 + w / c))), reduction)
    return value


def naive(averages=True):
    return lambda x, t: -(F.log_softmax(x, 1) * t).sum() / (len(x) if averages else 1)


def symmetric(alpha=1.0, beta=1.0):
    def value(x, y):
        t = F.one_hot(y, x.shape[1]).float()
        p, q = x.clamp(1e-7, 1), t.clamp(1e-4, 1)
        return alpha * -(q * p.log()).sum(1).mean() + beta * -(p * q.log()).sum(1).mean()
    return value


def mask(*shape):
    return lambda numbers: (torch.rand(shape, generator=numbers) < 0.4).float()


def mask_without_class(numbers):
    y = (torch.rand((2, 3, 4, 3), generator=numbers) < 0.4).float()
    y[:, 1] = 0
    return y


def classes(count, *shape):
    return lambda numbers: torch.randint(count, shape, generator=numbers)


def normal(*shape):
    return lambda numbers: torch.randn(shape, generator=numbers)


def seeded():
    torch.manual_seed(7)
    return nn.Identity()


class Gate(nn.Module):
    """Class 1 is 0 everywhere, also in the prediction."""

    def forward(self, x):
        return torch.sigmoid(x) * torch.tensor([1.0, 0.0, 1.0]).reshape(1, 3, 1, 1)


class Softmax(nn.Module):
    def forward(self, x):
        return torch.softmax(x, 1)


class Unit(nn.Module):
    def forward(self, x):
        return F.normalize(x)


class Rounded(nn.Module):
    """Many equal errors."""

    def forward(self, x):
        return x + (torch.round(x) - x).detach()


I, S = nn.Identity, nn.Sigmoid
R = (2, 3, 4, 3)
M = mask(*R)
E = (6, 5)
ONE_EACH = given([0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0])
LOSSES = [
    ("dice", S, lambda: region(dice), R, M),
    ("dice_micro", S, lambda: region(dice, "micro"), R, M),
    ("dice_weighted", S, lambda: region(dice, "weighted", weights=[0.2, 0.5, 0.3], eps=0.5), R, M),
    ("dice_last_axis", S, lambda: region(dice, class_dim=-1), R, M),
    ("dice_empty_class", Gate, lambda: region(dice), R, mask_without_class),
    ("dice_one_number", S, lambda: region(dice), (1, 1), given([1.0])),
    ("smoothing_dice", S, lambda: region(smoothing_dice), R, M),
    ("smoothing_dice_micro", S, lambda: region(smoothing_dice, "micro"), R, M),
    ("iou", S, lambda: region(iou), R, M),
    ("iou_empty_class", Gate, lambda: region(iou, "weighted", weights=[1.0, 2.0, 0.5]), R, mask_without_class),
    ("trevsky", S, lambda: region(trevsky(0.3, 0.7)), R, M),
    ("trevsky_options", S, lambda: region(trevsky(0.3, 0.4), "micro", eps=0.1), R, M),
    ("focal_trevsky", S, lambda: focal_trevsky(0.3, 0.7, 4 / 3), R, M),
    ("focal_trevsky_options", S, lambda: focal_trevsky(0.2, 0.9, 2.0, mode="micro"), R, M),
    ("focal_binary", I, lambda: focal(), (4, 5), mask(4, 5)),
    ("focal_binary_options", I, lambda: focal(gamma=1.5, alpha=None, reduction="none"), (4, 5), mask(4, 5)),
    ("focal_binary_ignore", I, lambda: focal(alpha=0.75, ignore=2, reduction="sum"), (4, 5), classes(3, 4, 5)),
    ("focal_binary_reduced", I, lambda: focal(threshold=0.5), (4, 5), mask(4, 5)),
    ("focal_all_ignored", I, lambda: focal(ignore=1), (3,), given(1, 1, 1)),
    ("focal_multi_class", I, lambda: focal(classes=True), (6, 4), classes(4, 6)),
    ("focal_multi_class_ignore", I, lambda: focal(classes=True, ignore=-1, gamma=0.0), (5, 3), given(0, -1, 2, 1, -1)),
    ("focal_multi_class_reduced", I, lambda: focal(classes=True, threshold=0.3, reduction="none"), (6, 4),
     classes(4, 6)),
    ("lovasz_binary", I, lambda: lovasz_binary(), (2, 4, 3), mask(2, 4, 3)),
    ("lovasz_binary_per_image", I, lambda: lovasz_binary(True), (2, 4, 3), mask(2, 4, 3)),
    ("lovasz_binary_ignore", I, lambda: lovasz_binary(True, 255), (2, 2, 3),
     given([[0, 1, 255], [1, 255, 0]], [[255] * 3, [255] * 3])),
    ("lovasz_binary_one", I, lambda: lovasz_binary(), (1,), given(1)),
    ("lovasz_binary_none", I, lambda: lovasz_binary(), (5,), given(0, 0, 0, 0, 0)),
    ("lovasz_binary_ties", Rounded, lambda: lovasz_binary(), (12,), given(0, 1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 1)),
    ("lovasz_multi_label", I, lambda: lovasz_multi_label(), (2, 3, 4), mask(2, 3, 4)),
    ("lovasz_multi_label_per_image", I, lambda: lovasz_multi_label(True), (2, 3, 4), mask(2, 3, 4)),
    ("lovasz_multi_class", Softmax, lambda: lovasz_multi_class(), (2, 4, 3, 3), classes(3, 2, 3, 3)),
    ("lovasz_multi_class_per_image", Softmax, lambda: lovasz_multi_class(True, 1), (2, 3, 3, 3), classes(3, 2, 3, 3)),
    ("lovasz_multi_class_sigmoid", S, lambda: lovasz_multi_class(), (2, 3, 3), classes(2, 2, 3, 3)),
    ("lovasz_multi_class_none", Softmax, lambda: lovasz_multi_class(ignore=2), (1, 3, 2, 2),
     lambda numbers: torch.full((1, 2, 2), 2)),
    ("nt_xent", I, lambda: nt_xent(0.5), E, normal(*E)),
    ("nt_xent_none", I, lambda: nt_xent(0.1, "none"), E, normal(*E)),
    ("nt_xent_two", I, lambda: nt_xent(0.5, "sum"), (2, 5), normal(2, 5)),
    ("supervised_contrastive", I, lambda: supervised(0.5), E, PAIRS),
    ("supervised_contrastive_out", I, lambda: supervised(0.2, "out", "none"), E, given(0, 1, 0, 0, 1, 1)),
    ("supervised_contrastive_alone", I, lambda: supervised(0.5), E, given(0, 1, 0, 3, 1, 2)),
    ("barlow_twins", I, lambda: barlow(), E, normal(*E)),
    ("barlow_twins_options", I, lambda: barlow(0.01, 0.5), E, normal(*E)),
    ("circle", Unit, lambda: circle(0.25, 32.0), E, PAIRS),
    ("circle_one_class", Unit, lambda: circle(0.25, 8.0), E, given(1, 1, 1, 1, 1, 1)),
    ("contrastive_distance", S, lambda: distance(), (6,), given(0, 1, 1, 0, 1, 0)),
    ("contrastive_distance_options", S, lambda: distance(0.4, "sum"), (6,), given(0, 1, 1, 0, 1, 0)),
    ("contrastive_pairwise", I, lambda: pairwise, E, normal(*E)),
    ("triplet_pairwise", I, lambda: triplet_pairwise(), E, normal(*E)),
    ("triplet_pairwise_options", I, lambda: triplet_pairwise(1.5, "sum"), E, normal(*E)),
    ("margin", I, lambda: margin_loss(), E, PAIRS),
    ("margin_options", I, lambda: margin_loss(0.5, 0.7, (0, 2)), E, PAIRS),
    ("bpr", I, lambda: lambda p, n: -(1e-10 + torch.sigmoid(p - n)).log().mean(), (6,), normal(6)),
    ("bpr_options", I, lambda: lambda p, n: -(0.1 + torch.sigmoid(p - n)).log().mean(), (3, 2), normal(3, 2)),
    ("logistic", I, lambda: lambda p, n: (1 - torch.sigmoid(p) + torch.sigmoid(n)).mean(), (6,), normal(6)),
    ("hinge", I, lambda: lambda p, n: F.relu(1 - p + n).mean(), (6,), normal(6)),
    ("adaptive_hinge", I, lambda: lambda p, n: F.relu(1 - p + n.max(0).values).mean(), (6,), normal(4, 6)),
    ("warp", seeded, lambda: warp(), (4, 6), ONE_EACH),
    ("warp_trials", seeded, lambda: warp(2), (4, 6), ONE_EACH),
    ("huber_v0", I, lambda: huber_v0(), (4, 5), normal(4, 5)),
    ("huber_v0_options", I, lambda: huber_v0(0.3, "sum"), (4, 5), normal(4, 5)),
    ("quantile", I, lambda: quantile(51, 1.0), (3, 51), normal(3, 51)),
    ("quantile_options", I, lambda: quantile(4, 0.5), (3, 4), normal(3, 4)),
    ("wing", I, lambda: wing(), (4, 5), normal(4, 5)),
    ("wing_options", I, lambda: wing(0.7, 2.0, "sum"), (4, 5), normal(4, 5)),
    ("r_square", I, lambda: lambda x, t: 1 - F.mse_loss(x, t) / t.var(unbiased=False), (6, 2), normal(6, 2)),
    ("naive_cross_entropy", I, lambda: naive(), (4, 3), mask(4, 3)),
    ("naive_cross_entropy_sum", I, lambda: naive(False), (4, 3), mask(4, 3)),
    ("symmetric_cross_entropy", Softmax, lambda: symmetric(), (4, 3), classes(3, 4)),
    ("symmetric_cross_entropy_options", Softmax, lambda: symmetric(0.5, 2.0), (4, 3), classes(3, 4)),
    ("mean_output", I, lambda: lambda x, t: x.mean(), (4, 3), normal(4)),
]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
    assert torch.__version__.startswith("1.13"), "the oracle is PyTorch 1.13, not " + torch.__version__
    write(folder, "contrib_more_losses.lkg", loss, LOSSES)


if __name__ == "__main__":
    main()
