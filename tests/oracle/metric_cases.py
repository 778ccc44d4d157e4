#!/usr/bin/python3
"""Random predictions and what scikit-learn says of them, as text that tests/metric/test_oracle.c reads.

    /usr/bin/python3 metric_cases.py SEED > cases.txt

tests/golden/metric/cases.txt is the output for seed 0. Each case is

    case KIND samples classes batch_size zero_division
    scores ...        samples x classes (f32, nine digits)
    targets ...       samples, or samples x classes
    expect NAME VALUE
    end
"""
import sys
import warnings

import numpy as np
from sklearn import metrics as sk

warnings.filterwarnings("ignore")


def auc_or_nan(y, s):
    return sk.roc_auc_score(y, s) if 0 < y.sum() < len(y) else float("nan")


def spread(values, counts):
    """Mean and standard deviation of batch values that stand for `counts` samples."""
    values, counts = np.asarray(values, float), np.asarray(counts, float)
    n = counts.sum()
    mean = (values * counts).sum() / n
    var = (counts * (values - mean) ** 2).sum() / (n - 1) if n > 1 else 0.0
    return mean, np.sqrt(var)


def batches(n, size):
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def auc_values(indicator, scores):
    classes = indicator.shape[1]
    per_class = np.array([auc_or_nan(indicator[:, c], scores[:, c]) for c in range(classes)])
    defined = ~np.isnan(per_class)
    support = indicator.sum(0)
    if defined.all() and classes > 1:
        macro = sk.roc_auc_score(indicator, scores, average="macro")
        weighted = sk.roc_auc_score(indicator, scores, average="weighted")
    elif defined.any():
        macro = per_class[defined].mean()
        weighted = np.average(per_class[defined], weights=support[defined])
    else:
        macro = weighted = float("nan")
    micro = auc_or_nan(indicator.ravel(), scores.ravel())
    yield from {"auc": macro, "auc/_macro": macro, "auc/_micro": micro, "auc/_weighted": weighted}.items()
    for c in range(classes):
        yield f"auc/class_{c:02d}", per_class[c]


def prf_values(y, p, classes, zero_division):
    names = ("precision", "recall", "f1", "support")
    labels = list(range(classes))
    for average in ("macro", "micro", "weighted"):
        values = sk.precision_recall_fscore_support(y, p, labels=labels, average=average, zero_division=zero_division)
        for name, value in zip(names[:3], values):
            yield f"{name}/_{average}", value
    per_class = sk.precision_recall_fscore_support(y, p, labels=labels, zero_division=zero_division)
    for name, values in zip(names, per_class):
        for c in range(classes):
            yield f"{name}/class_{c:02d}", values[c]


def print_case(kind, scores, targets, batch, zero_division, expected):
    print("case", kind, scores.shape[0], scores.shape[1], batch, zero_division)
    print("scores", *(f"{v:.9g}" for v in scores.ravel()))
    print("targets", *(f"{v:.9g}" for v in targets.ravel()))
    for name, value in expected:
        print("expect", name, f"{value:.17g}")
    print("end")


def multiclass(rng, n, classes, batch, zero_division, ties, present):
    scores = rng.standard_normal((n, classes)).astype(np.float32) * 3
    if ties:
        scores = np.round(scores)
    targets = rng.choice(present, n)
    predicted = scores.argmax(1)
    order = np.argsort(-scores, axis=1, kind="stable")
    expected = []
    for k in [1] + ([3] if classes > 3 else []) + ([5] if classes > 5 else []):
        hit = (order[:, :k] == targets[:, None]).any(1)
        parts = batches(n, batch)
        mean, std = spread([hit[b].mean() for b in parts], [b.stop - b.start for b in parts])
        expected += [(f"accuracy{k:02d}", mean), (f"accuracy{k:02d}/std", std)]
    assert abs(expected[0][1] - sk.accuracy_score(targets, predicted)) < 1e-12
    expected += prf_values(targets, predicted, classes, zero_division)
    expected += auc_values(np.eye(classes, dtype=int)[targets], scores)
    matrix = sk.confusion_matrix(targets, predicted, labels=list(range(classes)))
    expected += [(f"confusion/{r}/{c}", matrix[r, c]) for r in range(classes) for c in range(classes)]
    print_case("multiclass", scores, targets, batch, zero_division, expected)


def multilabel(rng, n, classes, batch, zero_division, ties, always=None, never=None):
    scores = rng.random((n, classes)).astype(np.float32)
    if ties:
        scores = (np.round(scores * 4) / 4).astype(np.float32)
    targets = (rng.random((n, classes)) < 0.3).astype(int)
    if always is not None:
        targets[:, always] = 1
    if never is not None:
        targets[:, never] = 0
    predicted = (scores > np.float32(0.5)).astype(int)
    parts = batches(n, batch)
    mean, std = spread([(predicted[b] == targets[b]).mean() for b in parts], [(b.stop - b.start) * classes for b in parts])
    expected = [("accuracy", mean), ("accuracy/std", std)]
    expected += prf_values(targets, predicted, classes, zero_division) if classes > 1 else []
    expected += auc_values(targets, scores)
    for c in range(classes if classes > 1 else 0):
        expected.append((f"iou/class_{c:02d}", sk.jaccard_score(targets[:, c], predicted[:, c], zero_division=1)))
        expected.append((f"dice/class_{c:02d}", sk.f1_score(targets[:, c], predicted[:, c], zero_division=1)))
    if classes > 1:
        expected.append(("iou/_micro", sk.jaccard_score(targets, predicted, average="micro")))
        expected.append(("dice/_micro", sk.f1_score(targets, predicted, average="micro")))
    print_case("multilabel", scores, targets, batch, zero_division, expected)


def regression(rng, n, width, batch, offset, constant=False):
    targets = (rng.standard_normal((n, width)) + offset).astype(np.float32)
    if constant:
        targets[:, 0] = 2
    scores = (targets + 0.3 * rng.standard_normal((n, width))).astype(np.float32)
    y, s = targets.astype(float), scores.astype(float)
    expected = [("r2squared", sk.r2_score(y, s)), ("mse", sk.mean_squared_error(y, s)), ("mae", sk.mean_absolute_error(y, s))]
    print_case("regression", scores, targets, batch, 0, expected)


def ranking(rng, n, items, batch, zero_division, ties, graded=False, empty=False):
    """Recommendations by their definitions; ndcg also by scikit-learn, without ties."""
    scores = rng.standard_normal((n, items)).astype(np.float32)
    if ties:
        scores = np.round(scores).astype(np.float32)
    targets = rng.integers(0, 4 if graded else 2, (n, items)).astype(float)
    if empty:
        targets[::3] = 0
    order = np.argsort(-scores.astype(float), axis=1, kind="stable")
    ranked = np.take_along_axis(targets, order, 1)
    expected = []
    for k in (1, 3, 5):
        first, m = ranked[:, :k], min(k, items)
        total = targets.sum(1)
        hit = np.where(total != 0, first.sum(1) / np.where(total != 0, total, 1), zero_division)
        best = first.argmax(1)
        mrr = np.where(first.max(1) != 0, 1 / (best + 1.0), 0)
        precision = np.cumsum(first, 1) / np.arange(1, m + 1) * first
        count = (precision != 0).sum(1)
        ap = np.where(count != 0, precision.sum(1) / np.where(count != 0, count, 1), 0)
        discount = 1 / np.log2(np.arange(m) + 2.0)
        dcg = ((2 ** first - 1) * discount).sum(1)
        ideal = ((2 ** -np.sort(-targets, 1)[:, :k] - 1) * discount).sum(1)
        ndcg = np.where(ideal != 0, dcg / np.where(ideal != 0, ideal, 1), 0)
        if not ties and items > 1:
            assert abs(ndcg.mean() - sk.ndcg_score(2 ** targets - 1, scores, k=k)) < 1e-9
        for name, values in (("hitrate", hit), ("mrr", mrr), ("map", ap), ("ndcg", ndcg)):
            slices = batches(n, batch)
            _, std = spread([values[b].mean() for b in slices], [b.stop - b.start for b in slices])
            expected += [(f"{name}{k:02d}", values.mean()), (f"{name}{k:02d}/std", std)]
    print_case("ranking", scores, targets, batch, zero_division, expected)


def main():
    rng = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    multiclass(rng, 200, 10, 32, 0, ties=False, present=range(10))
    multiclass(rng, 200, 10, 32, 1, ties=True, present=range(10))
    multiclass(rng, 150, 7, 16, 0, ties=True, present=[0, 2, 5])      # classes that never occur
    multiclass(rng, 40, 4, 7, 1, ties=True, present=[2])              # one class only: nothing has an AUC
    multiclass(rng, 300, 2, 64, 0, ties=False, present=[0, 1])
    multiclass(rng, 1, 3, 32, 0, ties=False, present=[1])
    multilabel(rng, 200, 5, 32, 0, ties=False)
    multilabel(rng, 200, 5, 32, 1, ties=True, always=1, never=3)      # one-sided classes
    multilabel(rng, 120, 1, 32, 0, ties=True)
    regression(rng, 200, 1, 32, 0)
    regression(rng, 200, 3, 32, 0, constant=True)
    regression(rng, 200, 2, 32, 1000)                                 # a mean far above the spread
    ranking(rng, 60, 8, 16, 0, ties=False)
    ranking(rng, 60, 4, 16, 1, ties=True, graded=True, empty=True)
    ranking(rng, 1, 2, 16, 0, ties=False)


main()
