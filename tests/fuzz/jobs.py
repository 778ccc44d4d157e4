"""Draws whole training jobs: a config as `lockstep run` takes it, and its data.

Job k of seed s is always the same one, as long as the command lists the same components. A job is a dict: `config` (the
config's parts, which the PyTorch side reads too), `ranks`, `device`, `level`, `threads`, and `arrays` (the data).
"""
import json
import os
import random

import numpy as np

import catalogue
import models

BATCHES, LARGE_BATCHES = [1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 32, 33, 64], [16, 17, 24, 32, 33, 50]
ACCUMULATION = 0.15
LAYOUTS = ["dense", "dense", "sparse", "padded", "onehot", "outlying", "constant", "tiny", "large"]

REGRESSION = ["MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss"]
# Of targets of 1 and -1. They are made of several ops, whose loss of an epoch on several ranks counts the padding (see
# lk_criterion_callback), so they are drawn for one rank.
MARGINS = ["SoftMarginLoss", "HingeEmbeddingLoss"]
CLASSES = ["CrossEntropyLoss", "CrossEntropyLoss", "NLLLoss"]
SCORES = ["BCELoss", "BCEWithLogitsLoss", "KLDivLoss"]


# ---- Data ----

def draw_features(rng, numbers, shape, layout):
    """Features of one layout; `numbers` is NumPy's generator."""
    x = numbers.standard_normal(shape).astype(np.float32)
    if layout == "sparse":
        x *= numbers.random(shape) < rng.choice([0.05, 0.15, 0.3])
    elif layout == "padded":
        rows = x.reshape(-1, shape[-1])
        rows[numbers.random(len(rows)) < 0.7] = 0
    elif layout == "onehot":
        x[:] = 0
        rows = x.reshape(-1, shape[-1])
        rows[np.arange(len(rows)), numbers.integers(0, shape[-1], len(rows))] = 1
    elif layout == "outlying":
        flat = x.reshape(-1)
        flat[numbers.integers(0, flat.size, max(1, flat.size // 500))] = 1e4
    elif layout == "constant":
        x[..., numbers.random(shape[-1]) < 0.5] = 0.75
    elif layout == "tiny":
        x *= np.float32(1e-3)
    elif layout == "large":
        x *= np.float32(30)
    return np.ascontiguousarray(x)


def draw_input(rng, large):
    """The kind of the samples and their shape."""
    kind = rng.choice(["vector", "vector", "vector", "tokens", "series", "sequence", "picture", "picture", "volume"])
    few = [3, 8, 16, 32] if large else [1, 2, 3, 4, 8]
    if kind == "vector":
        return kind, (rng.choice(models.WIDE if large or rng.random() < 0.2 else models.WIDTHS),)
    if kind == "tokens":
        return kind, (rng.choice([1, 2, 5, 9, 12]),)
    if kind == "series":
        return kind, (rng.choice([1, 2, 5, 9]), rng.choice([1, 2, 4, 6, 8, 12, 16, 32]))
    if kind == "sequence":
        return kind, (rng.choice(few + [16]), rng.choice([1, 2, 5, 9, 16, 17, 33, 64]))
    if kind == "picture" and large:
        return kind, (rng.choice(few), rng.choice([7, 8, 13, 16]), rng.choice([8, 11, 14, 16]))
    if kind == "picture":
        return kind, (rng.choice(few), rng.choice([1, 3, 7, 8, 13, 16, 28]), rng.choice([1, 2, 5, 8, 11, 16, 28]))
    return kind, (rng.choice([1, 2, 3]), rng.choice([1, 3, 4, 7]), rng.choice([2, 4, 5, 8]), rng.choice([2, 3, 5, 8]))


# ---- Model and loss, with targets that suit them ----

def class_weights(numbers, classes):
    return [round(float(w), 3) for w in 0.2 + 2 * numbers.random(classes)]


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return (e / e.sum(axis=axis, keepdims=True)).astype(np.float32)


def draw_class_loss(rng, numbers, kinds, shape, count):
    """A loss over classes on axis 1, and targets: indices, or probabilities."""
    name = rng.choice(CLASSES)
    spec = {"_target_": name, **catalogue.options(rng, kinds["criterion"][name], ["weight", "ignore_index"])}
    if rng.random() < 0.3:
        spec["weight"] = class_weights(numbers, shape[0])
    if name == "CrossEntropyLoss" and rng.random() < 0.2:
        return spec, softmax(numbers.standard_normal((count,) + shape), 1)
    targets = numbers.integers(0, shape[0], (count,) + shape[1:])
    if rng.random() < 0.3:
        spec["ignore_index"] = rng.choice([-100, 0, shape[0] - 1, -1])
        targets[numbers.random(targets.shape) < 0.2] = spec["ignore_index"]
    return spec, targets.astype(np.int64)


def draw_score_loss(rng, numbers, kinds, shape, count):
    name = rng.choice(SCORES)
    spec = {"_target_": name, **catalogue.options(rng, kinds["criterion"][name], ["weight", "pos_weight"])}
    whole = (count,) + shape
    if name == "KLDivLoss":
        targets = softmax(numbers.standard_normal(whole), 1)
        return spec, np.log(targets) if spec.get("log_target") else targets
    for key in ("weight", "pos_weight"):
        if key in kinds["criterion"][name].keys and rng.random() < 0.3:
            spec[key] = class_weights(numbers, shape[-1])
    soft = rng.random() < 0.3
    return spec, (numbers.random(whole) if soft else numbers.random(whole) < 0.4).astype(np.float32)


def draw_regression_loss(rng, numbers, kinds, shape, count):
    name = rng.choice(REGRESSION)
    spec = {"_target_": name, **catalogue.options(rng, kinds["criterion"][name])}
    return spec, numbers.standard_normal((count,) + shape).astype(np.float32)


def draw_margin_loss(rng, numbers, kinds, shape, count):
    name = rng.choice(MARGINS)
    spec = {"_target_": name, **catalogue.options(rng, kinds["criterion"][name])}
    return spec, np.sign(numbers.random((count,) + shape) - 0.5).astype(np.float32)


def draw_head(rng, specs, shape, task):
    """Layers that give what the loss takes."""
    head = []
    if len(shape) == 1 or rng.random() < 0.6 or (task == "classes" and shape[0] < 2):
        if len(shape) > 1:
            head.append({"_target_": "Flatten"})
        width = rng.choice([2, 3, 5, 10, 16, 17, 20, 33]) if task == "classes" else rng.choice([1, 2, 5, 17])
        head.append({"_target_": "Linear", "in_features": int(np.prod(shape)), "out_features": width})
        shape = (width,)
    return head, shape


LAST = {"NLLLoss": {"_target_": "LogSoftmax", "dim": 1}, "KLDivLoss": {"_target_": "LogSoftmax", "dim": 1},
        "BCELoss": {"_target_": "Sigmoid"}}


def has_parameters(specs):
    return models.parameter_count(models.nn.Sequential(*[models.build(s) for s in specs])) > 0


def draw_model(rng, kinds, kind, shape, large):
    """The layers before the head, and the shape after them."""
    drawer, first, vocabulary = models.Drawer(rng, kinds, large), [], 0
    if kind == "tokens":
        vocabulary = rng.choice([2, 5, 30, 300])
        embedding = {"_target_": "Embedding", "num_embeddings": vocabulary, "embedding_dim": rng.choice([1, 4, 8, 16, 33])}
        if rng.random() < 0.4:
            embedding["padding_idx"] = rng.choice([0, vocabulary - 1])
        if rng.random() < 0.25:
            embedding.update(_target_="EmbeddingBag", mode=rng.choice(["mean", "sum", "max"]))
        elif rng.random() < 0.25: # not of bags: PyTorch 1.13 divides their gradients by the counts of other rows
            embedding["scale_grad_by_freq"] = True
        first = [embedding]
    specs, shape = drawer.layers(shape, rng.choice([0, 1, 2, 3, 3, 4, 6]), kind == "tokens", first)
    return specs, shape, vocabulary


# ---- Optimizer, schedule, loaders, callbacks ----

def draw_optimizer(rng, kinds, criterion, grouped):
    name = rng.choice(sorted(n for n in kinds["optimizer"] if n in KNOWN_OPTIMIZERS))
    component = kinds["optimizer"][name]
    spec = {"_target_": name, **catalogue.options(rng, component, ["params", "maximize", "lr"])}
    spec["lr"] = catalogue.value(rng, component, component.keys["lr"])
    if criterion.get("reduction") == "sum" and name == "SGD":
        spec["lr"] /= 50
    if spec.get("nesterov"):
        spec["momentum"] = spec.get("momentum", 0.9)
        spec.pop("dampening", None)
    if "momentum" not in spec:
        spec.pop("dampening", None)
    if "maximize" in component.keys and rng.random() < 0.05:
        spec["maximize"] = True
    spec["params"] = {"_var_": "model.parameters"}
    if grouped and rng.random() < 0.25:
        spec["params"] = {"_var_": rng.choice(["body.parameters", "head.parameters"])}
    elif grouped:
        keys = [k for k in ("momentum", "weight_decay", "betas", "eps")
                if k in component.keys and k in kinds["parameters"]["param_group"].keys and rng.random() < 0.4]
        second = {"params": {"_var_": "head.parameters"}, "lr": spec["lr"] * rng.choice([0, 0.1, 0.5, 2])}
        second.update({k: catalogue.value(rng, component, component.keys[k]) for k in keys})
        if spec.get("nesterov"):
            second.pop("momentum", None)
        spec["params"] = [{"params": {"_var_": "body.parameters"}}, second]
    return spec


BY_SIGN = {"Rprop"}  # rules that take the sign of a gradient
KNOWN_OPTIMIZERS = {"SGD", "Adam", "AdamW", "LAMB", "CatalystLamb", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adadelta", "Adamax", "ASGD", "Rprop"}

EPOCH_SCHEDULES = ["StepLR", "MultiStepLR", "ExponentialLR", "ConstantLR", "LinearLR", "PolynomialLR", "CosineAnnealingLR",
                   "CosineAnnealingWarmRestarts"]
BATCH_SCHEDULES = ["OneCycleLR", "CyclicLR"]


def draw_plain_schedule(rng, kinds, name, optimizer, steps):
    skip = ["optimizer", "total_steps", "epochs", "steps_per_epoch"]
    spec = {"_target_": name, **catalogue.options(rng, kinds["scheduler"][name], skip)}
    if name in BATCH_SCHEDULES and not ("betas" in optimizer or optimizer.get("momentum")):
        spec["cycle_momentum"] = False # PyTorch refuses to move a momentum that is not there
    if name == "OneCycleLR" and rng.random() < 0.3:
        spec.update(epochs=2, steps_per_epoch=steps)
    elif name == "OneCycleLR":
        spec["total_steps"] = steps + rng.choice([0, 1, 7])
    return spec


def draw_schedule(rng, kinds, optimizer, steps, plain_mean):
    """The schedule and, if it must be said, the callback that says when it steps. A plateau is looked for in an epoch's loss: the
    mean must be over samples."""
    kind = rng.choice(["epoch", "epoch", "batch", "plateau", "sequential", "warmup", "by batch"])
    if kind == "plateau" and plain_mean:
        return {"_target_": "ReduceLROnPlateau",
                **catalogue.options(rng, kinds["scheduler"]["ReduceLROnPlateau"], ["optimizer"], 0.6)}, None
    if kind == "batch":
        return draw_plain_schedule(rng, kinds, rng.choice(BATCH_SCHEDULES), optimizer, steps), None
    if kind in ("epoch", "by batch", "plateau"):
        spec = draw_plain_schedule(rng, kinds, rng.choice(EPOCH_SCHEDULES), optimizer, steps)
        mode = "batch" if kind == "by batch" else rng.choice([None, "epoch"])
        return spec, mode and {"_target_": "Scheduler", "mode": mode}
    names = rng.sample(["StepLR", "ExponentialLR", "ConstantLR", "LinearLR", "CosineAnnealingLR", "PolynomialLR"], 2)
    parts = [draw_plain_schedule(rng, kinds, name, optimizer, steps) for name in names]
    mode = {"_target_": "Scheduler", "mode": rng.choice(["batch", "epoch"])}
    if kind == "warmup":
        return {"_target_": "WarmupLR", **catalogue.options(rng, kinds["scheduler"]["WarmupLR"], ["optimizer", "then"]),
                "then": parts[1]}, mode
    return {"_target_": "SequentialLR", "schedulers": parts, "milestones": [rng.choice([1, 2, 4])]}, mode


def draw_sampler(rng, numbers, ranks, count):
    """A sampler, or None. On several ranks only those whose share PyTorch defines."""
    data = {"_var_": "train_data"}
    if ranks > 1 or rng.random() < 0.2:
        spec = {"_target_": "DistributedSampler", "dataset": data}
        for key, values in (("shuffle", [True, False]), ("seed", [0, 3]), ("drop_last", [True, False])):
            if rng.random() < 0.5:
                spec[key] = rng.choice(values)
        return spec
    kind = rng.choice(["SequentialSampler", "RandomSampler", "RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler"])
    if kind == "SequentialSampler":
        return {"_target_": kind, "data_source": data}
    if kind == "SubsetRandomSampler":
        return {"_target_": kind, "indices": sorted(rng.sample(range(count), max(2, count // 2)))}
    if kind == "WeightedRandomSampler":
        spec = {"_target_": kind, "weights": class_weights(numbers, count), "num_samples": max(2, count // 2)}
        if rng.random() < 0.5:
            spec["replacement"] = rng.choice([True, False])
        return spec
    spec = {"_target_": kind, "data_source": data}
    if rng.random() < 0.5:
        spec["replacement"] = True
        if rng.random() < 0.5:
            spec["num_samples"] = max(2, count // 2)
    return spec


# Callbacks that only look: the numbers must be the same with them.
LOOKERS = {"any": ["GradientNorm", "TerminateOnNaN", "Timer"], "regression": ["MSE", "MAE", "R2Squared"],
           "classes": ["Accuracy", "PrecisionRecallF1Support"]}


def draw_callbacks(rng, kinds, criterion, flat_classes):
    callbacks = []
    task = "regression" if criterion["_target_"] in REGRESSION else "classes" if flat_classes else "any"
    if rng.random() < 0.15:
        callbacks.append({"_target_": rng.choice(LOOKERS["any"] + LOOKERS[task])})
    if rng.random() < 0.12:
        name = rng.choice(["L1WeightDecay", "L2WeightDecay", "EMA", "SWA"])
        callbacks.append({"_target_": name, **catalogue.options(rng, kinds["callback"][name])})
    clip = {}
    if rng.random() < 0.25:
        norm = rng.random() < 0.6
        clip = {"grad_clip_fn": "clip_grad_norm_" if norm else "clip_grad_value_",
                "grad_clip_params": {"max_norm": rng.choice([0.05, 0.5, 2.0])} if norm
                else {"clip_value": rng.choice([0.01, 0.1, 1.0])}}
    if clip and rng.random() < 0.3:
        callbacks.append({"_target_": "Backward", **clip})
        clip = {}
    steps = {"accumulation_steps": rng.choice([2, 3])} if rng.random() < ACCUMULATION else {}
    if clip or steps:
        callbacks.append({"_target_": "Optimizer", "metric_key": "loss", **steps, **clip})
    return callbacks


def draw_loaders(rng, numbers, ranks, count, valid_count, large):
    batch = min(rng.choice(LARGE_BATCHES if large else BATCHES), count)
    train = {"_target_": "DataLoader", "batch_size": batch,
             "dataset": {"_var_": "train_data", "_target_": "TensorDataset", "tensors": ["X.npy", "y.npy"]}}
    if rng.random() < 0.3:
        train["sampler"] = draw_sampler(rng, numbers, ranks, count)
    elif rng.random() < 0.7:
        train["shuffle"] = rng.random() < 0.7
    if ranks == 1 and train.get("shuffle") and rng.random() < 0.3:
        train["seed"] = rng.choice([1, 7])
    if rng.random() < 0.3:
        train["drop_last"] = rng.random() < 0.7
    if rng.random() < 0.3:
        train["num_workers"] = rng.choice([1, 2])
        if rng.random() < 0.5:
            train["prefetch_factor"] = rng.choice([1, 3])
    loaders = {"train": train}
    if valid_count:
        loaders["valid"] = {"_target_": "DataLoader", "batch_size": rng.choice(BATCHES),
                            "dataset": {"_target_": "TensorDataset", "tensors": ["X_valid.npy", "y_valid.npy"]}}
    return loaders


# ---- The job ----

def draw(seed, number, attempt, kinds, most_ranks=(1, 3), levels=("base",), device=None, comms=("shm",)):
    """Job `number` of a seed; a later attempt if PyTorch itself refuses an earlier one."""
    rng = random.Random("%d:%d:%d" % (seed, number, attempt))
    numbers = np.random.default_rng(rng.getrandbits(60))
    ranks = rng.choice([r for r in (1, 1, 2, 3) if most_ranks[0] <= r <= most_ranks[1]] or [most_ranks[0]])
    large = rng.random() < 0.35
    kind, shape = draw_input(rng, large)
    count, valid = rng.choice([4, 7, 16, 31, 48, 60, 100]), rng.choice([0, 5, 16, 23])
    if int(np.prod(shape)) > 1200 or large:
        count, valid = rng.choice([16, 33, 50]), min(valid, 16)
    body, inner, vocabulary = draw_model(rng, kinds, kind, shape, large)
    task = rng.choice(["classes", "classes", "scores", "regression"])
    head, out = draw_head(rng, body, inner, task)
    loss = {"classes": draw_class_loss, "scores": draw_score_loss, "regression": draw_regression_loss}[task]
    if task == "regression" and ranks == 1 and rng.random() < 0.2:
        loss = draw_margin_loss
    criterion, targets = loss(rng, numbers, kinds, out, count + valid)
    if criterion["_target_"] in LAST:
        head.append(LAST[criterion["_target_"]])
    layout = "whole" if kind == "tokens" else rng.choice(LAYOUTS + (["sparse", "padded", "onehot"] * 2 if large else []))
    features = (numbers.integers(0, vocabulary, (count + valid,) + shape) if kind == "tokens"
                else draw_features(rng, numbers, (count + valid,) + shape, layout))
    grouped = bool(body and head) and rng.random() < 0.25 and has_parameters(body) and has_parameters(head)
    flat_classes = targets.dtype == np.int64 and targets.ndim == 1 and "ignore_index" not in criterion
    if norms_one_number(body + head):
        kinds = dict(kinds, optimizer={k: v for k, v in kinds["optimizer"].items() if k not in BY_SIGN})
    config = draw_call(rng, numbers, kinds, criterion, flat_classes, ranks, count, valid, grouped, large)
    config["model"] = draw_shell(body, head, grouped)
    arrays = {"X.npy": features[:count], "y.npy": targets[:count]}
    if valid:
        arrays.update({"X_valid.npy": features[count:], "y_valid.npy": targets[count:]})
    return {"name": "%d:%d" % (seed, number), "config": config, "ranks": ranks, "layout": layout, "arrays": arrays,
            "device": device or rng.choice(["cpu"] * 5 + ["ref"]), "level": rng.choice(list(levels) + [levels[-1]]),
            "threads": rng.choice([1, 1, 2]), "comm": rng.choice(["shm"] * 4 + list(comms))}


def norms_one_number(specs):
    """Whether a norm may be over one number. Its gradient is 0; PyTorch's is rounding, of which a rule takes the sign."""
    for spec in specs:
        width = spec.get("normalized_shape", spec.get("d_model", 0))
        if int(np.prod(width)) == 1 or spec["_target_"] in ("GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"):
            return True
        if norms_one_number(spec.get("args", [])):
            return True
    return False


def draw_shell(body, head, grouped):
    if grouped:
        parts = [{"_var_": "body", "_target_": "Sequential", "args": body}, {"_var_": "head", "_target_": "Sequential", "args": head}]
        return {"_var_": "model", "_target_": "Sequential", "args": parts}
    return {"_var_": "model", "_target_": "Sequential", "args": body + head}


def draw_call(rng, numbers, kinds, criterion, flat_classes, ranks, count, valid, grouped, large):
    epochs = rng.choice([1, 2] if large else [1, 2, 3])
    loaders = draw_loaders(rng, numbers, ranks, count, valid, large)
    if count > 40 and loaders["train"]["batch_size"] < 4:
        epochs = 1
    call = {"criterion": criterion, "loaders": loaders, "num_epochs": epochs, "seed": rng.choice([1, 42, 12345])}
    call["optimizer"] = draw_optimizer(rng, kinds, criterion, grouped)
    call["callbacks"] = draw_callbacks(rng, kinds, criterion, flat_classes)
    if rng.random() < 0.5:
        steps = epochs * -(-count // loaders["train"]["batch_size"])
        call["scheduler"], callback = draw_schedule(
            rng, kinds, call["optimizer"], steps, not {"weight", "ignore_index"} & set(criterion))
        call["callbacks"] += [callback] if callback else []
        if call["scheduler"]["_target_"] == "ReduceLROnPlateau" and not large:
            call["num_epochs"] = rng.choice([3, 4])  # fewer cannot show what a plateau does
    return call


def config_text(config, first=()):
    """The config as YAML: a line for each part, which are flow maps (JSON is YAML)."""
    lines = ["runner:", "  _target_: SupervisedRunner", "  model: " + json.dumps(config["model"]), "run:", "  - _call_: train"]
    for key, value in config.items():
        if key != "model" and value not in ([], None):
            lines.append("    %s: %s" % (key, json.dumps(value)))
    return "\n".join(lines + list(first)) + "\n"


def write(job, folder):
    """The folder that `lockstep run -C config.yml` trains in."""
    os.makedirs(folder, exist_ok=True)
    for name, array in job["arrays"].items():
        np.save(os.path.join(folder, name), array)
    logged = ["    logdir: logs", "    loggers: [{_target_: JSONLLogger, path: metrics.jsonl, log_batch_metrics: y}]"]
    with open(os.path.join(folder, "config.yml"), "w") as file:
        file.write(config_text(job["config"], logged))
    still = dict(job["config"], num_epochs=1, optimizer={"_target_": "SGD", "params": {"_var_": "model.parameters"}, "lr": 0.0},
                 scheduler=None, callbacks=[{"_target_": "BatchOverfit", "portions": {"train": 1}}])
    with open(os.path.join(folder, "initial.yml"), "w") as file:
        file.write(config_text(still, ["    logdir: initial"]))
    with open(os.path.join(folder, "job.json"), "w") as file:
        json.dump({k: v for k, v in job.items() if k != "arrays"}, file, indent=1)
