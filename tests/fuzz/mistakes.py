"""The fuzzer's own test: PyTorch's side trains a job with one known mistake, and the comparison must call it off.

A tolerance that is too wide would pass everything. Each mistake is tried on jobs that it touches, and must be caught in at least
a third of them: some are too chaotic, or too short, to show it.
"""
import concurrent.futures
import contextlib
import copy
import os
import shutil
import tempfile
from unittest import mock

import numpy as np
import torch

import judge
import oracle

TRIES = 3  # per worker
MOST_JOBS = 400


# ---- Mistakes: each takes a copy of a job and makes it wrong, or returns False if it has nothing to be wrong about ----

def scale(spec, key, factor):
    if not spec.get(key):
        return False
    spec[key] *= factor


def drop(spec, key, default=None):
    if key not in spec or spec[key] == default:
        return False
    del spec[key]


def weight_decay_is_nine_tenths(job):
    return scale(job["config"]["optimizer"], "weight_decay", 0.9)


def momentum_is_a_little_less(job):
    return scale(job["config"]["optimizer"], "momentum", 0.95)


def rate_is_a_thousandth_more(job):
    return scale(job["config"]["optimizer"], "lr", 1.001)


def nesterov_is_ignored(job):
    return drop(job["config"]["optimizer"], "nesterov", False)


def second_beta_is_ignored(job):
    if "betas" not in job["config"]["optimizer"]:
        return False
    job["config"]["optimizer"]["betas"][1] = 0.95


def schedule_is_ignored(job):
    return drop(job["config"], "scheduler")


def a_group_has_the_other_rate(job):
    groups = job["config"]["optimizer"]["params"]
    return drop(groups[1], "lr") if isinstance(groups, list) else False


def two_samples_are_swapped(job):
    for array in job["arrays"].values():
        array[[0, len(array) // 2]] = array[[len(array) // 2, 0]]
    return job["config"]["loaders"]["train"]["batch_size"] * job["ranks"] * 2 <= len(job["arrays"]["X.npy"])


def one_sample_comes_twice(job):
    job["arrays"]["X.npy"][0] = job["arrays"]["X.npy"][1]


def the_short_batch_is_dropped(job):
    loader = job["config"]["loaders"]["train"]
    if "sampler" in loader or job["ranks"] > 1 or loader.get("drop_last") or len(job["arrays"]["X.npy"]) % loader["batch_size"] == 0:
        return False
    loader["drop_last"] = True


def another_order(job):
    loader = job["config"]["loaders"]["train"]
    if "sampler" in loader or not loader.get("shuffle") or loader["batch_size"] * job["ranks"] >= len(job["arrays"]["X.npy"]):
        return False
    loader["shuffle"] = False


def gradients_of_ranks_are_summed(job):
    return job["config"]["optimizer"]["_target_"] == "SGD" and job["ranks"] > 1 and scale(job["config"]["optimizer"], "lr", job["ranks"])


def first_layers(job, *names):
    found = []

    def look(spec):
        if isinstance(spec, dict):
            if spec.get("_target_") in names:
                found.append(spec)
            for part in spec.values():
                look(part)
        elif isinstance(spec, list):
            for part in spec:
                look(part)
    look(job["config"]["model"])
    return found


def dropout_drops_a_little_more(job):
    return any([scale(spec, "p", 1.08) is None for spec in first_layers(job, "Dropout") if spec.get("p", 0) < 0.9])


def batch_norm_follows_faster(job):
    layers = first_layers(job, "BatchNorm1d", "BatchNorm2d", "BatchNorm3d")
    for spec in layers:
        spec["momentum"] = 0.11
    return any(spec.get("track_running_stats", True) for spec in layers)


def norms_have_another_eps(job):
    layers = first_layers(job, "LayerNorm", "GroupNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d")
    for spec in layers:
        spec["eps"] = spec.get("eps", 1e-5) + 0.01
    return bool(layers)


def loss_has_no_class_weights(job):
    return drop(job["config"]["criterion"], "weight")


def loss_is_not_smoothed(job):
    return drop(job["config"]["criterion"], "label_smoothing")


def ignored_targets_count(job):
    criterion = job["config"]["criterion"]
    if criterion.get("ignore_index", -1) < 0:
        return False
    return drop(criterion, "ignore_index")


def gradients_are_not_clipped(job):
    callbacks = job["config"]["callbacks"]
    return any([drop(callback, "grad_clip_fn") is None for callback in callbacks])


def clipping_is_a_little_tighter(job):
    for callback in job["config"]["callbacks"]:
        if callback.get("grad_clip_params", {}).get("max_norm", 1) < 1:
            callback["grad_clip_params"]["max_norm"] *= 0.98
            return True
    return False


def a_wide_sparse_row_is_read_one_column_off(job):
    x = job["arrays"]["X.npy"]
    first = job["config"]["model"]["args"][0]
    first = first["args"][0] if first.get("args") else first
    if first["_target_"] != "Linear" or x.shape[-1] < 256 or job["layout"] not in ("sparse", "padded"):
        return False
    row = int(np.argmax(np.any(x != 0, axis=tuple(range(1, x.ndim)))))
    x[row] = np.roll(x[row], 1)


CHANGES = [weight_decay_is_nine_tenths, momentum_is_a_little_less, rate_is_a_thousandth_more, nesterov_is_ignored,
           second_beta_is_ignored, schedule_is_ignored, a_group_has_the_other_rate, two_samples_are_swapped, one_sample_comes_twice,
           the_short_batch_is_dropped, another_order, gradients_of_ranks_are_summed, dropout_drops_a_little_more,
           batch_norm_follows_faster, norms_have_another_eps, loss_has_no_class_weights, loss_is_not_smoothed, ignored_targets_count,
           gradients_are_not_clipped, clipping_is_a_little_tighter, a_wide_sparse_row_is_read_one_column_off]


# ---- Mistakes in the arithmetic of PyTorch's side ----

class LateMomentum(torch.optim.SGD):
    """The first gradient does not enter the momentum."""

    def step(self):
        kept = [group["momentum"] for group in self.param_groups]
        if not getattr(self, "began", False):
            for group in self.param_groups:
                group["momentum"], group["nesterov"] = 0, False
        self.began = True
        super().step()
        for group, momentum in zip(self.param_groups, kept):
            group["momentum"] = momentum


class EarlyCorrection(torch.optim.Adam):
    """The bias correction counts one step too many."""

    def step(self):
        super().step()
        if not getattr(self, "began", False):
            for state in self.state.values():
                state["step"] += 1
        self.began = True


def momentum_begins_one_step_late(job):
    optimizer = job["config"]["optimizer"]
    applies = optimizer["_target_"] == "SGD" and optimizer.get("momentum") and not optimizer.get("nesterov")
    return mock.patch.object(torch.optim, "SGD", LateMomentum) if applies else False


def bias_correction_is_one_step_ahead(job):
    return mock.patch.object(torch.optim, "Adam", EarlyCorrection) if job["config"]["optimizer"]["_target_"] == "Adam" else False


def weights_begin_with_another_bit(job):
    def build(spec, make=oracle.make_model):
        model = make(spec)
        with torch.no_grad():
            p = next(p for p in model.parameters() if p.numel())
            p.view(-1)[0] = torch.nextafter(p.view(-1)[0], torch.tensor(9.0))
        return model
    return mock.patch.object(oracle, "make_model", build)


PATCHES = [momentum_begins_one_step_late, bias_correction_is_one_step_ahead, weights_begin_with_another_bit]


# ---- Keys that might be ignored: every drawn key, left out on PyTorch's side ----

def is_default(kinds, name, key, value):
    component = next((kind[name] for kind in kinds.values() if name in kind), None)
    default = component.keys[key].default if component and key in component.keys else None
    return default is not None and str(value).lower() in (default.lower(), default.lower() + ".0")


def ignored_keys(spec, kinds, path=()):
    if isinstance(spec, dict):
        for key in spec:
            if "_target_" in spec and not is_default(kinds, spec["_target_"], key, spec[key]) and key not in ("_target_", "_var_", "args", "params", "dataset", "data_source", "tensors",
                                                "batch_size", "num_workers", "prefetch_factor"):
                yield spec["_target_"] + "." + key, path + (key,)
            yield from ignored_keys(spec[key], kinds, path + (key,))
    elif isinstance(spec, list):
        for index, part in enumerate(spec):
            yield from ignored_keys(part, kinds, path + (index,))


def leave_out(path):
    def change(job):
        at = job["config"]
        for step in path[:-1]:
            at = at[step]
        del at[path[-1]]
    return change


# ---- Trying them ----

class Trial:
    """The command's numbers for one job, to be compared with several wrong jobs."""

    def __init__(self, options, kinds, number, folder):
        import fuzz
        self.job, theirs = fuzz.draw(options, kinds, number)
        verdict = judge.judge(options.command, self.job, folder, theirs)
        self.usable = verdict.status == "equal"
        self.ours = verdict.ours
        self.initial = self.usable and judge.read_initial(options.command, self.job, folder)[0]

    def catches(self, change):
        """True if the mistake is called off, False if not, None if the job has no place for it."""
        wrong = dict(self.job, config=copy.deepcopy(self.job["config"]), arrays={k: v.copy() for k, v in self.job["arrays"].items()})
        patch = change(wrong)
        if patch is False:
            return None
        try:
            with patch if change in PATCHES else contextlib.nullcontext():
                theirs = judge.Theirs(wrong)
                report = judge.compare(self.ours, theirs, self.initial)
                if np.isfinite(report[0][0]) and report[0][0] > 1:
                    theirs.nudge()
                    report = judge.compare(self.ours, theirs, self.initial)
        except oracle.Diverged:
            return True
        except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AssertionError):
            return None
        return bool(report[0][0] > 1)


def scratch():
    return tempfile.mkdtemp(prefix="lockstep-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def try_mistakes(options, kinds, numbers):
    """{name: [caught, tried]} over the jobs of these numbers."""
    torch.set_num_threads(1)
    tally, folder = {change.__name__: [0, 0] for change in CHANGES + PATCHES}, scratch()
    for number in numbers:
        wanted = [change for change in CHANGES + PATCHES if tally[change.__name__][1] < TRIES]
        if not wanted:
            break
        trial = Trial(options, kinds, number, folder)
        for change in wanted if trial.usable else []:
            caught = trial.catches(change)
            if caught is not None:
                tally[change.__name__][0] += caught
                tally[change.__name__][1] += 1
    shutil.rmtree(folder, ignore_errors=True)
    return tally


def try_keys(options, kinds, numbers):
    """The same for every drawn key that PyTorch's side does not hear of."""
    torch.set_num_threads(1)
    tally, folder = {}, scratch()
    for number in numbers:
        trial = Trial(options, kinds, number, folder)
        for name, path in ignored_keys(trial.job["config"], kinds) if trial.usable else []:
            if tally.get(name, [0, 0])[1] < TRIES:
                caught = trial.catches(leave_out(path))
                if caught is not None:
                    entry = tally.setdefault(name, [0, 0])
                    entry[0] += caught
                    entry[1] += 1
    shutil.rmtree(folder, ignore_errors=True)
    return tally


def in_parallel(options, kinds, work, count):
    """Adds up what the workers found; worker w has every n-th job."""
    with concurrent.futures.ProcessPoolExecutor(options.workers) as pool:
        parts = [pool.submit(work, options, kinds, list(range(w, count, options.workers))) for w in range(options.workers)]
        total = {}
        for part in parts:
            for name, (caught, tried) in part.result().items():
                entry = total.setdefault(name, [0, 0])
                entry[0] += caught
                entry[1] += tried
    return total


def self_test(options, kinds):
    """Tries every mistake; 1 if one is not caught."""
    total, failed = in_parallel(options, kinds, try_mistakes, MOST_JOBS), 0
    for name, (caught, tried) in total.items():
        good = tried > 0 and 3 * caught >= tried
        failed += not good
        print("%-8s %2d of %2d  %s" % ("caught" if good else "MISSED", caught, tried, name.replace("_", " ")))
    print("self-test: %d of %d mistakes caught" % (len(total) - failed, len(total)))
    return 1 if failed else 0


def key_test(options, kinds):
    """Shows, for every key that is drawn, how often a command that ignored it would be caught."""
    total = in_parallel(options, kinds, try_keys, options.jobs)
    for name, (caught, tried) in sorted(total.items(), key=lambda item: item[1][0] / item[1][1]):
        print("%2d of %2d  %s" % (caught, tried, name))
    never = [name for name, (caught, _) in total.items() if not caught]
    print("keys: %d, never caught: %s" % (len(total), ", ".join(sorted(never)) or "none"))
    return 0
