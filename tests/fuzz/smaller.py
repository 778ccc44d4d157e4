"""Makes a failing job smaller: drops layers, options and callbacks while it still fails."""
import copy
import time

import judge
import models

TRIALS, SECONDS = 60, 60


def without(job, path):
    """A copy of the job with one entry of its config taken out."""
    job = dict(job, config=copy.deepcopy(job["config"]))
    at = job["config"]
    for step in path[:-1]:
        at = at[step]
    del at[path[-1]]
    return job


def optional_paths(spec, path=()):
    """Every list entry and every key that might be left out, outermost first."""
    if isinstance(spec, dict):
        for key, value in spec.items():
            if key not in ("_target_", "_var_", "model", "criterion", "loaders", "optimizer", "params", "dataset", "tensors", "args"):
                yield path + (key,)
            yield from optional_paths(value, path + (key,))
    elif isinstance(spec, list):
        for index in reversed(range(len(spec))):
            if isinstance(spec[index], dict):
                yield path + (index,)
                yield from optional_paths(spec[index], path + (index,))


def candidates(job):
    if job["ranks"] > 1:
        yield dict(job, ranks=1)
    if job["config"]["num_epochs"] > 1:
        yield dict(job, config=dict(job["config"], num_epochs=1))
    count = len(job["arrays"]["X.npy"])
    if count > 2:
        yield dict(job, arrays={name: array[:(count + 1) // 2] for name, array in job["arrays"].items()})
    for path in optional_paths(job["config"]):
        if path not in (("num_epochs",), ("seed",)):
            yield without(job, path)


def sentence(verdict):
    """What the command refused, without the place in the config."""
    return verdict.report[0][1].split(": ")[-1] if verdict.status != "off" else ""


def try_one(command, job, before, folder):
    """The verdict if the job fails in the same way, else None."""
    try:
        models.build(job["config"]["model"])
        theirs = judge.Theirs(job)
        verdict = judge.judge(command, job, folder, theirs)
    except Exception:  # PyTorch refuses the smaller job in any of many ways
        return None
    return verdict if verdict.status == before.status and sentence(verdict) == sentence(before) else None


def smaller(command, job, verdict, folder):
    """The smallest job that was found, and its verdict, with its files in `folder`; the job itself if it does not fail again."""
    whole, first, trials, changed, end = job, verdict, 0, True, time.time() + SECONDS
    while changed and trials < TRIALS and time.time() < end:
        changed = False
        for candidate in candidates(job):
            trials += 1
            found = try_one(command, candidate, verdict, folder)
            if found:
                job, verdict, changed = candidate, found, True
                break
            if trials >= TRIALS or time.time() > end:
                break
    last = judge.judge(command, job, folder)
    return (job, last) if last.status == first.status else (whole, first)
