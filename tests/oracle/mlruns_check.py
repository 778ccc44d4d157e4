"""Reads a folder in MLflow's file-store layout, by the rules of its documentation, and compares it with the CSV
logs of the same run. Usage: mlruns_check.py MLRUNS EXPERIMENT RUN_NAME STATUS [LOGDIR]

A store is a folder of experiments (a folder with meta.yaml, named by its id), each a folder of runs (a folder
with meta.yaml, params/, metrics/, tags/, artifacts/). A param or a tag is a file with its value; a metric is a
file with a line "milliseconds value step" per value. Names may have slashes, which are folders.
"""
import csv
import os
import re
import sys
import time

import yaml

STATUS = {"RUNNING": 1, "SCHEDULED": 2, "FINISHED": 3, "FAILED": 4, "KILLED": 5}
NAME = re.compile(r"^[/\w.\- :]*$")


def check(condition, *words):
    if not condition:
        sys.exit("mlruns: " + " ".join(str(w) for w in words))


def read_files(folder):
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            key = os.path.relpath(path, folder)
            check(NAME.match(key) and os.path.normpath(key) == key, "the name", key)
            found[key] = open(path).read()
    return found


root, experiment, run_name, status = sys.argv[1:5]
experiments = {}
for name in os.listdir(root):
    meta = yaml.safe_load(open(os.path.join(root, name, "meta.yaml")))
    check(meta["experiment_id"] == name and meta["lifecycle_stage"] == "active", meta)
    check(isinstance(meta["creation_time"], int) and isinstance(meta["last_update_time"], int), meta)
    check(meta["artifact_location"].startswith("file:///"), meta)
    experiments[meta["name"]] = name
check(experiment in experiments, "no experiment", experiment)

home = os.path.join(root, experiments[experiment])
runs = []
for name in os.listdir(home):
    if name == "meta.yaml":
        continue
    meta = yaml.safe_load(open(os.path.join(home, name, "meta.yaml")))
    check(meta["run_id"] == meta["run_uuid"] == name and re.match(r"^[0-9a-f]{32}$", name), meta)
    check(meta["experiment_id"] == experiments[experiment], meta)
    check(set(meta) == {"artifact_uri", "end_time", "entry_point_name", "experiment_id", "lifecycle_stage", "run_id",
                        "run_name", "run_uuid", "source_name", "source_type", "source_version", "start_time", "status",
                        "tags", "user_id"}, sorted(meta))
    for folder in ("params", "metrics", "tags", "artifacts"):
        check(os.path.isdir(os.path.join(home, name, folder)), "no", folder)
    if meta["run_name"] == run_name:
        runs.append((name, meta))
check(len(runs) == 1, len(runs), "runs named", run_name)
name, meta = runs[0]
now = time.time() * 1000
check(meta["status"] == STATUS[status], "status", meta["status"])
check(now - 600000 < meta["start_time"] <= now, "start_time", meta["start_time"])
check((meta["end_time"] is None) == (status == "RUNNING"), "end_time", meta["end_time"])
run = os.path.join(home, name)
check(read_files(run + "/tags").get("mlflow.runName") == run_name, "tags")
metrics = {}
for key, text in read_files(run + "/metrics").items():
    metrics[key] = []
    for line in text.splitlines():
        stamp, value, step = line.split(" ")
        check(meta["start_time"] <= int(stamp) <= now, key, line)
        metrics[key].append((int(step), float(value)))

if len(sys.argv) > 5:
    logdir = sys.argv[5]
    params = read_files(run + "/params")
    check(params["optimizer"] == "Adam" and float(params["lr"]) == 0.01 and params["world_size"] == "2", params)
    for loader in ("train", "valid"):
        rows = list(csv.DictReader(open("%s/csv_logger/%s.csv" % (logdir, loader))))
        last = 0
        for column in rows[0]:
            if column in ("step", "time"):
                continue
            found = metrics["%s/%s" % (loader, column.replace("/", "."))]
            check([s for s, _ in found] == [int(r["step"]) for r in rows], loader, column, found)
            for (_, value), row in zip(found, rows):
                check(abs(value - float(row[column])) <= 1e-8 * max(1, abs(value)), loader, column)
        for row in rows:
            check(last <= float(row["time"]) <= now / 1000, "time", row["time"])
            last = float(row["time"])
    check(any(p.endswith(".png") for p in os.listdir(run + "/artifacts/valid")), "no picture")
