"""Distributions of a study's parameters, and densities of Parzen estimators, by SciPy: writes tests/golden/tune/ranges.txt
and tests/golden/tune/parzen.txt, for tests/tune/test_range.c and test_parzen.c.

    /usr/bin/python3 tests/oracle/tune_densities.py

ranges.txt: `NAME x p`, the probability p of a value of at most x. parzen.txt: `NAME`, the observations behind it, then lines
`= x log`, the logarithm of the density or probability of x. The estimator is Optuna's: see `widths`, `weights`."""
import math
import pathlib

import numpy
from scipy import stats

folder = pathlib.Path(__file__).resolve().parent.parent / "golden" / "tune"


def write_ranges(out):
    grid = numpy.linspace(0.05, 0.95, 19)
    for p in grid:
        out.write(f"uniform {stats.uniform(-2, 5).ppf(p)!r} {p!r}\n")
        out.write(f"log {stats.loguniform(1e-5, 10).ppf(p)!r} {p!r}\n")
    for x in range(3, 10):
        out.write(f"int {x} {stats.randint(3, 10).cdf(x)!r}\n")
    for index in range(5):  # 8, 16, 24, 32, 40
        out.write(f"int_step {8 + 8 * index} {stats.randint(0, 5).cdf(index)!r}\n")
    for x in range(1, 65):
        out.write(f"int_log {x} {stats.loguniform(0.5, 64.5).cdf(x + 0.5)!r}\n")
    for index in range(11):
        out.write(f"step {index / 10!r} {stats.randint(0, 11).cdf(index)!r}\n")
    for index in range(5):
        out.write(f"points {10.0 ** (index - 4)!r} {stats.randint(0, 5).cdf(index)!r}\n")
    for index in range(3):
        out.write(f"choice {index} {stats.randint(0, 3).cdf(index)!r}\n")


def weights(count):
    """Of the observations: 1, and rising from 1 / count to 1 for those before the last 25; of the prior 1."""
    full = [1.0] * min(count, 25)
    rising = list(numpy.linspace(1.0 / count, 1.0, num=count - 25)) if count > 25 else []
    all_of_them = numpy.array(rising + full + [1.0])
    return all_of_them / all_of_them.sum()


def widths(centres, low, high):
    """The larger gap to a neighbour, for the outermost the only one; between (high - low) / min(100, 1 + kernels) and
    high - low. The last centre is the prior's."""
    order = numpy.argsort(centres, kind="stable")
    ordered = numpy.concatenate([[low], numpy.array(centres)[order], [high]])
    gaps = numpy.maximum(ordered[1:-1] - ordered[:-2], ordered[2:] - ordered[1:-1])
    if len(ordered) >= 4:
        gaps[0] = ordered[2] - ordered[1]
        gaps[-1] = ordered[-2] - ordered[-3]
    out = numpy.empty(len(centres))
    out[order] = gaps
    out[-1] = high - low
    return numpy.clip(out, (high - low) / min(100.0, 1.0 + len(centres)), high - low)


def mixture(observed, low, high):
    centres = list(observed) + [(low + high) / 2]
    return [
        (w, stats.truncnorm((low - c) / s, (high - c) / s, loc=c, scale=s))
        for w, c, s in zip(weights(len(observed)), centres, widths(centres, low, high))
    ]


def write_numbers(out, name, observed, points, bounds, into, cell=None):
    low, high = bounds
    parts = mixture([into(x) for x in observed], low, high)
    out.write(f"{name} {' '.join(repr(float(x)) for x in observed)}\n")
    for x in points:
        if cell:
            left, right = max(cell(x)[0], low), min(cell(x)[1], high)
            value = sum(w * (part.cdf(right) - part.cdf(left)) for w, part in parts)
        else:
            value = sum(w * part.pdf(into(x)) for w, part in parts)
        out.write(f"= {float(x)!r} {math.log(value)!r}\n")


def write_choices(out, name, observed, count):
    kernels = len(observed) + 1
    rows = numpy.full((kernels, count), 1.0 / kernels)
    rows[numpy.arange(len(observed)), observed] += 1
    rows /= rows.sum(axis=1, keepdims=True)
    probability = weights(len(observed)) @ rows
    out.write(f"{name} {' '.join(str(x) for x in observed)}\n")
    for x in range(count):
        out.write(f"= {x} {math.log(probability[x])!r}\n")


def write_parzen(out):
    random = numpy.random.RandomState(7)
    same = lambda x: x
    for count in (0, 1, 2, 9, 40):
        some = random.uniform(-2, 3, count).round(4)
        write_numbers(out, "uniform", some, numpy.linspace(-2, 3, 11), (-2, 3), same)
    some = (10 ** random.uniform(-5, 1, 12)).round(7)
    write_numbers(out, "log", some, [1e-5, 1e-4, 0.003, 0.5, 10], (math.log(1e-5), math.log(10)), math.log)
    write_numbers(out, "int", [3, 3, 4, 9], range(3, 10), (2.5, 9.5), same, lambda x: (x - 0.5, x + 0.5))
    write_numbers(out, "int_step", [8, 40, 40], range(8, 41, 8), (4, 44), same, lambda x: (x - 4, x + 4))
    write_numbers(out, "int_log", [1, 2, 2, 60], [1, 2, 3, 8, 63, 64], (math.log(0.5), math.log(64.5)), math.log,
                  lambda x: (math.log(x - 0.5), math.log(x + 0.5)))
    write_numbers(out, "step", [0.1, 0.2, 0.9], [0.0, 0.2, 0.5, 1.0], (-0.05, 1.05), same, lambda x: (x - 0.05, x + 0.05))
    half = math.log(10) / 2
    write_numbers(out, "points", [1e-3, 1e-3, 1.0], [1e-4, 1e-3, 1e-2, 1e-1, 1.0], (math.log(1e-4) - half, half), math.log,
                  lambda x: (math.log(x) - half, math.log(x) + half))
    write_choices(out, "choice", [], 3)
    write_choices(out, "choice", [0, 2, 2, 2], 3)
    write_choices(out, "choice", [1] * 20 + [0] * 15, 3)


folder.mkdir(exist_ok=True)
with open(folder / "ranges.txt", "w") as file:
    write_ranges(file)
with open(folder / "parzen.txt", "w") as file:
    write_parzen(file)
