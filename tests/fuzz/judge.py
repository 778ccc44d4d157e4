"""Trains a job with the command, and says whether its numbers are PyTorch's.

PyTorch trains it in f32 and in f64. The distance between these two is the drift: how far rounding alone leads. A number is off
if it is further from both of them than FACTOR times the drift and a small floor. A job that seems off is tried again with
nudged last bits in PyTorch, which shows the drift of chaotic jobs better, before it is called so. Errors are hundreds of
tolerances away, so the wider factor of that second look costs little.
"""
import json
import os
import shutil
import struct
import subprocess

import numpy as np
import torch

import jobs
import oracle

FACTOR, NUDGED_FACTOR = 10, 30
FLOOR = 4e-6
# Of a tensor's numbers: the noise of sums that cancel is no error where nothing else is left. Running statistics are those of
# activations, which are larger.
SMALLEST_SCALE, SMALLEST_RUNNING_SCALE = 1e-3, 0.1
NUDGES = 6
SECONDS = 120

DTYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32, "U8": np.uint8, "BOOL": np.bool_}


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[at["data_offsets"][0]:at["data_offsets"][1]], DTYPES[at["dtype"]]).reshape(at["shape"])
            for name, at in header.items()}


# ---- The command's side ----

class Ours:
    """What the command left: its exit code, its words, and the same trace as PyTorch's."""

    def __init__(self, code, words):
        self.code, self.words, self.trace = code, words, oracle.Trace()


def environment(job):
    return dict(os.environ, LOCKSTEP_CPU_LEVEL=job["level"])


def keep_to_cores(job):
    """The command has as many threads as it may use cores."""
    cores = sorted(os.sched_getaffinity(0))
    first = os.getpid() % len(cores)
    os.sched_setaffinity(0, (cores[first:] + cores)[:job["threads"]])


def command_line(command, job, config):
    words = [command, "run", "-C", config, "--device", job["device"]]
    return words + (["--nproc", str(job["ranks"]), "--comm", job["comm"]] if job["ranks"] > 1 else [])


def call(words, job, folder):
    try:
        done = subprocess.run(words, cwd=folder, env=environment(job), preexec_fn=lambda: keep_to_cores(job),
                              capture_output=True, text=True, timeout=SECONDS)
        return done.returncode, (done.stdout + done.stderr).strip()
    except subprocess.TimeoutExpired:
        return 124, "no end after %d s" % SECONDS


def read_metrics(path, trace):
    with open(path) as file:
        for line in file:
            entry = json.loads(line)
            loss = entry.get("metrics", {}).get("loss")
            if loss is not None and entry["scope"] in ("batch", "epoch"):
                kind = trace.batches if entry["scope"] == "batch" else trace.epochs
                kind.append((entry["loader"], entry["epoch"] - 1, float(loss)))


def train_ours(command, job, folder):
    """Runs the command in a folder that jobs.write has filled."""
    for name in ("logs", "initial"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    code, words = call(command_line(command, job, "config.yml"), job, folder)
    ours = Ours(code, words)
    if code == 0:
        read_metrics(os.path.join(folder, "metrics.jsonl"), ours.trace)
        ours.trace.final = read_safetensors(os.path.join(folder, "logs/checkpoints/model.last.safetensors"))
    return ours


def read_initial(command, job, folder):
    """The weights before the first update: those of a run whose rate is zero."""
    code, words = call(command_line(command, dict(job, device="cpu"), "initial.yml"), job, folder)
    if code != 0:
        return None, words
    return read_safetensors(os.path.join(folder, "initial/checkpoints/model.last.safetensors")), ""


# ---- PyTorch's side ----

class Theirs:
    """PyTorch's runs of one job: f32, f64, and as many nudged ones as were asked for."""

    def __init__(self, job):
        self.job = job
        self.plain, self.exact, self.nudged = oracle.train(job), oracle.train(job, torch.float64), []

    def nudge(self):
        for seed in range(1, NUDGES + 1):
            try:
                self.nudged.append(oracle.train(self.job, nudge=seed, exact=self.exact))
            except oracle.Diverged:
                pass

    def drift(self, pick):
        """What rounding may explain: some times the largest distance of an f32 run from the f64 run; `pick` takes an array from a trace."""
        exact = pick(self.exact).astype(np.float64)
        return (NUDGED_FACTOR if self.nudged else FACTOR) * np.max([np.abs(pick(run) - exact) for run in [self.plain] + self.nudged], axis=0)


# ---- Comparing ----

def excess(ours, plain, exact, drift, scale):
    """How many tolerances a number is away from PyTorch's: above 1 is off. The drift comes with its factor."""
    ours = ours.astype(np.float64)
    distance = np.minimum(np.abs(ours - exact), np.abs(ours - plain))
    with np.errstate(invalid="ignore"):
        ratio = distance / (drift + FLOOR * scale + 1e-30)
    return np.where(np.isfinite(ours), ratio, np.inf)


def compare_losses(ours, theirs, kind, loader, report):
    """`kind` is a list of a trace: "batches" or "epochs"."""
    def entries(trace):
        return [entry for entry in getattr(trace, kind) if entry[0] == loader]

    def pick(trace):
        return np.array([loss for _, _, loss in entries(trace)])
    labels, mine = [entry[:2] for entry in entries(theirs.plain)], pick(ours.trace)
    if [entry[:2] for entry in entries(ours.trace)] != labels:
        report.append((np.inf, "%s of %s: PyTorch has %d losses, the command %d" % (kind, loader, len(labels), len(mine))))
        return
    plain, exact = pick(theirs.plain), pick(theirs.exact)
    # What has drifted once stays so: the tolerance never shrinks.
    ratio = excess(mine, plain, exact, np.maximum.accumulate(theirs.drift(pick)), np.abs(exact) + 1e-3)
    worst = int(np.argmax(ratio > 1)) if (ratio > 1).any() else int(np.argmax(ratio))
    report.append((float(ratio.max()), "%s: loss %d (%s, epoch %d) is %.9g, PyTorch's %.9g, in f64 %.9g"
                   % (kind, worst, *labels[worst], mine[worst], plain[worst], exact[worst])))


def compare_weights(ours, theirs, report):
    if sorted(ours.trace.final) != sorted(theirs.plain.final):
        report.append((np.inf, "weights: the command has %s, PyTorch %s" % (sorted(ours.trace.final), sorted(theirs.plain.final))))
        return
    for name, plain in theirs.plain.final.items():
        mine, exact = ours.trace.final[name], theirs.exact.final[name]
        if mine.shape != plain.shape:
            report.append((np.inf, "weights: %s is %s, PyTorch's %s" % (name, mine.shape, plain.shape)))
        elif mine.size:
            drift = theirs.drift(lambda trace: trace.final[name]).max()
            ratio = excess(mine, plain, exact, drift, max(np.abs(exact).max(), SMALLEST_RUNNING_SCALE if ".running_" in name else SMALLEST_SCALE))
            at = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
            report.append((float(ratio.max()), "weights: %s%s is %.9g, PyTorch's %.9g, in f64 %.9g"
                           % (name, list(map(int, at)), mine[at], plain[at], exact[at])))


def compare_initial(initial, theirs, report):
    for name, value in theirs.plain.initial.items():
        if name.endswith(("running_mean", "running_var", "num_batches_tracked")):
            continue
        if name not in initial or initial[name].tobytes() != np.ascontiguousarray(value).tobytes():
            report.append((np.inf, "initial weights: %s has other bits than PyTorch's" % name))


def compare(ours, theirs, initial):
    """[(excess, sentence)], the worst first."""
    report = []
    for loader in theirs.job["config"]["loaders"]:
        compare_losses(ours, theirs, "batches", loader, report)
        compare_losses(ours, theirs, "epochs", loader, report)
    compare_weights(ours, theirs, report)
    compare_initial(initial, theirs, report)
    return sorted(report, key=lambda entry: -entry[0])


class Verdict:
    def __init__(self, status, report=(), ours=None, theirs=None):
        self.status, self.report, self.ours, self.theirs = status, list(report), ours, theirs

    @property
    def excess(self):
        return self.report[0][0] if self.report else 0.0

    def chaos(self):
        """The largest relative drift of a weight: how little the job can tell."""
        if not self.theirs:
            return 0.0
        parts = [(self.theirs.drift(lambda t: t.final[n]).max() / FACTOR, np.abs(v).max()) for n, v in self.theirs.exact.final.items() if v.size]
        return max([float(d / (s + 1e-3)) for d, s in parts] or [0.0])


def judge(command, job, folder, theirs=None):
    """Trains the job on both sides. `theirs` may be what PyTorch made of it earlier, or of a wrong job (the self-test)."""
    theirs = theirs or Theirs(job)
    jobs.write(job, folder)
    ours = train_ours(command, job, folder)
    if ours.code != 0:
        status = "refused" if ours.code in (1, 2) else "crashed"
        return Verdict(status, [(np.inf, "exit code %d: %s" % (ours.code, ours.words.splitlines()[-1] if ours.words else "no word"))],
                       ours, theirs)
    initial, words = read_initial(command, job, folder)
    if initial is None:
        return Verdict("refused", [(np.inf, "initial.yml: " + words)], ours, theirs)
    report = compare(ours, theirs, initial)
    if report[0][0] > 1 and np.isfinite(report[0][0]):
        theirs.nudge()
        report = compare(ours, theirs, initial)
    return Verdict("off" if report[0][0] > 1 else "equal", report, ours, theirs)
