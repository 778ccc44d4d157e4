#!/usr/bin/python3
"""Random predictions and what scikit-learn, or the definition in NumPy, says of them, for tests/metric/test_more.c.

    /usr/bin/python3 metric_more.py SEED > more.txt

tests/golden/metric/more.txt is the output for seed 0. Each case is

    case KIND batch_size dims_of_outputs ... 0 dims_of_targets ... 0
    scores ...
    targets ...
    expect NAME VALUE
    end
"""
import sys
import warnings
from collections import Counter

import numpy as np
from sklearn import metrics as sk

warnings.filterwarnings("ignore")
nan = float("nan")


def say(kind, batch, scores, targets, expected):
    print("case", kind, batch, *scores.shape, 0, *targets.shape, 0)
    print("scores", *(f"{v:.9g}" for v in scores.ravel()))
    print("targets", *(f"{v:.9g}" for v in targets.ravel()))
    for name, value in expected:
        print("expect", name, f"{value:.17g}")
    print("end")


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def ap_values(indicator, scores):
    support = indicator.sum(0)
    per_class = np.array([sk.average_precision_score(indicator[:, c], scores[:, c]) if support[c] else nan
                          for c in range(indicator.shape[1])])
    there = support > 0
    macro = per_class[there].mean() if there.any() else nan
    weighted = np.average(per_class[there], weights=support[there]) if there.any() else nan
    micro = sk.average_precision_score(indicator.ravel(), scores.ravel()) if there.any() else nan
    name = "average_precision"
    yield from [(name, macro), (name + "/_macro", macro), (name + "/_micro", micro), (name + "/_weighted", weighted)]
    for c in range(indicator.shape[1]):
        yield f"{name}/class_{c:02d}", per_class[c]
    for c in range(indicator.shape[1]):
        precision, recall, thresholds = sk.precision_recall_curve(indicator[:, c], scores[:, c])
        if not there[c]:
            continue
        for i, (p, r) in enumerate(zip(precision, recall)):
            yield f"curve/{c}/{i}/0", p
            yield f"curve/{c}/{i}/1", r
            if i < len(thresholds):
                yield f"curve/{c}/{i}/2", thresholds[i]


def calibration(probabilities, targets, bins):
    best = probabilities.max(1)
    right = probabilities.argmax(1) == targets
    place = np.minimum((best * bins).astype(int), bins - 1)
    errors, sizes = [], []
    for b in range(bins):
        chosen = place == b
        if chosen.any():
            errors.append(abs(best[chosen].mean() - right[chosen].mean()))
            sizes.append(chosen.sum())
    return [("ece", np.average(errors, weights=sizes)), ("mce", max(errors))]


def classes(rng, n, count, batch, ties, present):
    scores = rng.standard_normal((n, count)).astype(np.float32) * 2
    if ties:
        scores = np.round(scores)
    targets = rng.choice(present, n)
    predicted = scores.argmax(1)
    labels = list(range(count))
    expected = [("cohen_kappa", sk.cohen_kappa_score(targets, predicted, labels=labels)),
                ("matthews", sk.matthews_corrcoef(targets, predicted))]
    order = np.argsort(-scores, axis=1, kind="stable")
    for k in (1, 2):
        hit = (order[:, :k] == targets[:, None]).any(1)
        per_class = np.array([hit[targets == c].mean() if (targets == c).any() else nan for c in labels])
        expected.append((f"accuracy{k:02d}", hit.mean()))
        expected.append((f"accuracy{k:02d}/_macro", np.nanmean(per_class)))
        expected += [(f"accuracy{k:02d}/class_{c:02d}", per_class[c]) for c in labels]
    expected += calibration(softmax(scores.astype(float), 1), targets, 10)
    expected += ap_values(np.eye(count, dtype=int)[targets], scores)
    say("classes", batch, scores, targets, expected)


def probabilities(rng, n, batch):
    """Probabilities on the borders of bins, and one that is 1."""
    scores = rng.integers(0, 11, (n, 1)) / 10
    scores = np.concatenate([scores, 1 - scores], 1).astype(np.float32)
    targets = rng.integers(0, 2, n)
    say("probabilities", batch, scores, targets, calibration(scores.astype(float), targets, 10))


def tokens(rng, n, vocabulary, length, batch, ignored):
    scores = rng.standard_normal((n, vocabulary, length) if length else (n, vocabulary)).astype(np.float32) * 3
    targets = rng.integers(0, vocabulary, (n, length) if length else n)
    logs = np.log(softmax(scores.astype(float), 1))
    own = np.take_along_axis(logs, np.expand_dims(targets, 1), 1).squeeze(1)
    keep = targets != ignored
    value = np.exp(-own[keep].mean()) if keep.any() else nan
    say("tokens", batch, scores, targets, [("perplexity", value)])


def bleu(outputs, references, order, smooth):
    matched, total, said, wanted = [0] * order, [0] * order, 0, 0
    for out, ref in zip(outputs, references):
        said, wanted = said + len(out), wanted + len(ref)
        for n in range(1, order + 1):
            a = Counter(tuple(out[i:i + n]) for i in range(len(out) - n + 1))
            b = Counter(tuple(ref[i:i + n]) for i in range(len(ref) - n + 1))
            matched[n - 1] += sum((a & b).values())
            total[n - 1] += sum(a.values())
    p = [(m + (smooth and i > 0), t + (smooth and i > 0)) for i, (m, t) in enumerate(zip(matched, total))]
    if any(m == 0 for m, _ in p):
        return 0.0
    penalty = 1.0 if said > wanted else np.exp(1 - wanted / said)
    return penalty * np.exp(np.mean([np.log(m / t) for m, t in p]))


def sentences(rng, n, out_length, ref_length, batch):
    references = rng.integers(1, 6, (n, ref_length))
    outputs = rng.integers(1, 6, (n, out_length))
    for i in range(n):
        m = min(out_length, ref_length)
        same = rng.random(m) < 0.7
        outputs[i, :m][same] = references[i, :m][same]
        outputs[i, rng.integers(1, out_length + 1):] = 0
        references[i, rng.integers(1, ref_length + 1):] = 0
    lists = [[[t for t in row if t != 0] for row in rows.tolist()] for rows in (outputs, references)]
    expected = [("bleu", bleu(*lists, 4, False)), ("two_bleu", bleu(*lists, 2, False)),
                ("smooth_bleu", bleu(*lists, 4, True))]
    say("sentences", batch, outputs.astype(np.float32), references, expected)


def regions(rng, n, count, batch):
    scores = rng.random((n, count, 3, 2)).astype(np.float32)
    targets = (rng.random((n, count, 3, 2)) < 0.3).astype(float)
    targets[:, 1], scores[:, 1] = 0, 0
    s = scores.astype(float)
    tp, fp, fn = ((a * b).sum((0, 2, 3)) for a, b in ((s, targets), (s, 1 - targets), (1 - s, targets)))

    def score(tp, fp, fn):
        return 1.0 if tp + fp + fn == 0 else tp / (tp + 0.7 * fp + 0.3 * fn)
    per_class = [score(*three) for three in zip(tp, fp, fn)]
    expected = [("trevsky", np.mean(per_class)), ("trevsky/_macro", np.mean(per_class)),
                ("trevsky/_micro", score(tp.sum(), fp.sum(), fn.sum()))]
    expected += [(f"trevsky/class_{c:02d}", v) for c, v in enumerate(per_class)]
    say("regions", batch, scores, targets, expected)


def main():
    rng = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    classes(rng, 60, 5, 16, False, range(5))
    classes(rng, 60, 4, 16, True, [0, 2])          # classes that never occur, equal scores
    classes(rng, 40, 2, 7, True, [0, 1])
    classes(rng, 1, 3, 8, False, [1])              # a single sample
    probabilities(rng, 60, 16)
    tokens(rng, 20, 7, 5, 8, 3)
    tokens(rng, 30, 4, 0, 8, -1)
    tokens(rng, 1, 4, 0, 8, -1)
    sentences(rng, 12, 9, 8, 5)
    sentences(rng, 3, 4, 12, 2)
    sentences(rng, 1, 3, 3, 2)                     # too short for n-grams of 4
    regions(rng, 6, 3, 4)


main()
