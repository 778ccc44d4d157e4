"""Reads what `lockstep predict` and `lockstep evaluate` wrote, as its users would. Usage: outputs_check.py FOLDER"""
import csv
import json
import sys

import numpy


def check(condition, *words):
    if not condition:
        sys.exit("outputs: " + " ".join(str(w) for w in words))


folder = sys.argv[1] + "/"
array = numpy.load(folder + "out.npy")
check(array.shape == (200, 10) and array.dtype == numpy.float32, array.shape)

rows = list(csv.DictReader(open(folder + "out.csv")))
check(list(rows[0]) == ["sample"] + ["logits_%d" % i for i in range(10)], list(rows[0]))
check([int(r["sample"]) for r in rows] == list(range(200)), "samples")
read = numpy.array([[r["logits_%d" % i] for i in range(10)] for r in rows]).astype(numpy.float32)
check((read == array).all(), "the CSV has other numbers")
for name in ("out.json", "printed.json"):
    read = numpy.array(json.load(open(folder + name)), dtype=numpy.float32)
    check(read.shape == array.shape and (read == array).all(), name, "has other numbers")
read = numpy.array([json.loads(line) for line in open(folder + "out.jsonl")], dtype=numpy.float32)
check((read == array).all(), "the JSON lines have other numbers")

printed = json.load(open(folder + "metrics_printed.json"))
check(printed == json.load(open(folder + "metrics.json")), "metrics.json is not what was printed")
rows = {r["metric"]: float(r["value"]) for r in csv.DictReader(open(folder + "metrics.csv"))}
check(rows == printed, "metrics.csv is not what was printed")
text = open(folder + "metrics.txt").read()
lines = text.split("\n\n")
for line in lines[0].splitlines():
    name, value = line.rsplit(": ", 1)
    check(float(value) == printed[name], line)
check(not any("/class_" in line for line in lines[0].splitlines()), "a class outside of the table")
header, *table = lines[1].splitlines()
check(len(table) == 10, "classes", len(table))
for number, line in enumerate(table):
    cells = dict(zip(header.split(), line.split()))
    check(int(cells.pop("class")) == number, line)
    check(set(cells) == {"precision", "recall", "f1", "support"}, header)
    for name, value in cells.items():
        check(abs(float(value) - printed["%s/class_%02d" % (name, number)]) <= 5e-5, number, name)
check(sum(printed["support/class_%02d" % c] for c in range(10)) == 200, "support")
