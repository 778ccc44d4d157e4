"""Trains a job in PyTorch, in f32 or f64, with the semantics of PyTorch and of Catalyst's callbacks.

Several ranks are emulated in this process: each has a generator of its own and the share of a DistributedSampler, and the
gradients are averaged as DistributedDataParallel does.
"""
import os
import sys
import warnings

import numpy as np
import torch
from torch.optim import lr_scheduler
from torch.utils.data import (DataLoader, DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler,
                              WeightedRandomSampler)

import models

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import nn_lamb  # noqa: E402


# Catalyst calls set_epoch with the number of the epoch.
FIRST_EPOCH = 1

# A cross entropy of more classes times places than this does not give its samples' losses away in training (sample_losses.c).
MOST_CELLS = 1024


class Diverged(Exception):
    """A loss or a weight is not finite: nothing can be compared."""


class Trace:
    """What a run leaves: initial and final weights by name, and (loader, epoch, loss) for each batch and each epoch."""

    def __init__(self):
        self.initial, self.final, self.batches, self.epochs = {}, {}, [], []
        self.reached = None  # for each parameter, which of its numbers have ever had a gradient that is not exactly zero


# ---- What a config names ----

def tensor(value, dtype):
    return torch.tensor(value, dtype=dtype)


def make_model(spec):
    return models.build(spec)


def make_criterion(spec, dtype):
    keys = {k: v for k, v in spec.items() if k != "_target_"}
    for key in ("weight", "pos_weight"):
        if key in keys:
            keys[key] = tensor(keys[key], dtype)
    return getattr(torch.nn, spec["_target_"])(**keys)


def make_optimizer(spec, model):
    keys = {k: v for k, v in spec.items() if k not in ("_target_", "params")}
    parts = {"model.parameters": model, "body.parameters": model[0], "head.parameters": model[-1]}
    if isinstance(spec["params"], list):
        groups = [dict(group, params=list(parts[group["params"]["_var_"]].parameters())) for group in spec["params"]]
    else:  # what is not trained is frozen
        groups = list(parts[spec["params"]["_var_"]].parameters())
        for p in model.parameters():
            p.requires_grad_(any(p is trained for trained in groups))
    lambs = {"LAMB": "Lamb", "CatalystLamb": "CatalystLamb"}
    name = spec["_target_"]
    made = getattr(nn_lamb, lambs[name]) if name in lambs else getattr(torch.optim, name)
    return made(groups, **keys)


def make_scheduler(spec, optimizer):
    name, keys = spec["_target_"], {k: v for k, v in spec.items() if k != "_target_"}
    if name == "SequentialLR":
        keys["schedulers"] = [make_scheduler(part, optimizer) for part in keys["schedulers"]]
    if name == "WarmupLR":
        warm = lr_scheduler.LinearLR(optimizer, keys.get("start_factor", 1 / 3), total_iters=keys["steps"])
        then = make_scheduler(keys["then"], optimizer)
        return lr_scheduler.SequentialLR(optimizer, [warm, then], [keys["steps"]])
    return getattr(lr_scheduler, name)(optimizer, **keys)


def steps_every_batch(spec, callbacks):
    for callback in callbacks:
        if callback["_target_"] == "Scheduler":
            return callback["mode"] == "batch"
    return spec["_target_"] in ("OneCycleLR", "CyclicLR")


def make_sampler(spec, count, rank, ranks):
    keys = {k: v for k, v in spec.items() if k not in ("_target_", "dataset", "data_source")}
    name, data = spec["_target_"], range(count)
    if name == "DistributedSampler":
        return DistributedSampler(data, ranks, rank, **keys)
    if name == "SequentialSampler":
        return SequentialSampler(data)
    if name == "RandomSampler":
        return RandomSampler(data, **keys)
    if name == "SubsetRandomSampler":
        return SubsetRandomSampler(keys["indices"])
    return WeightedRandomSampler(**keys)


class Indices:
    """A dataset of its own indices: the loader says which samples, and rows are taken at once."""

    def __init__(self, indices):
        self.indices = list(indices)

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, position):
        return self.indices[position]


def make_loader(spec, count, rank, ranks, train):
    keys = {"batch_size": spec.get("batch_size", 1), "drop_last": spec.get("drop_last", False)}
    if not train and ranks > 1:
        return DataLoader(Indices(range(rank, count, ranks)), **keys), None
    if "sampler" in spec:
        sampler = make_sampler(spec["sampler"], count, rank, ranks)
        return DataLoader(Indices(range(count)), sampler=sampler, **keys), sampler
    if ranks > 1:
        sampler = DistributedSampler(range(count), ranks, rank, shuffle=spec.get("shuffle", True))
        return DataLoader(Indices(range(count)), sampler=sampler, **keys), sampler
    generator = torch.Generator().manual_seed(spec["seed"]) if "seed" in spec else None
    return DataLoader(Indices(range(count)), shuffle=spec.get("shuffle", False), generator=generator, **keys), None


# ---- One rank's generator and batch norms' numbers ----

class Ranks:
    """The generators of the emulated ranks. Batch norms keep the numbers of rank 0, as DistributedDataParallel's do."""

    def __init__(self, count, model):
        self.states = [torch.get_rng_state()] * count
        self.buffers = list(model.buffers())

    def run(self, rank, work):
        kept = [b.clone() for b in self.buffers] if rank else []
        torch.set_rng_state(self.states[rank])
        result = work()
        self.states[rank] = torch.get_rng_state()
        for buffer, value in zip(self.buffers, kept):
            buffer.copy_(value)
        return result


# ---- The run ----

class Run:
    """`nudge`, a seed, changes the last bits of weights and gradients: how far that leads is how chaotic the job is. Gradients
    that are exactly zero in `exact`, the trace of an f64 run, stay zero: rounding alone does not move them."""

    def __init__(self, job, dtype, nudge=0, exact=None):
        self.job, self.config, self.dtype, self.trace = job, job["config"], dtype, Trace()
        self.noise = torch.Generator().manual_seed(nudge) if nudge else None
        torch.manual_seed(self.config["seed"])
        self.model = make_model(self.config["model"])
        self.trace.initial = {k: v.numpy().copy() for k, v in self.model.state_dict().items()}
        if nudge:
            self.nudge_weights()
        self.model.to(dtype)
        self.ranks = Ranks(job["ranks"], self.model)
        self.criterion = make_criterion(self.config["criterion"], dtype)
        self.optimizer = make_optimizer(self.config["optimizer"], self.model)
        self.callbacks = self.config.get("callbacks", [])
        self.scheduler = make_scheduler(self.config["scheduler"], self.optimizer) if self.config.get("scheduler") else None
        self.data = {key: self.take(names) for key, names in
                     (("train", ("X.npy", "y.npy")), ("valid", ("X_valid.npy", "y_valid.npy"))) if names[0] in job["arrays"]}
        self.loaders = {key: [make_loader(self.config["loaders"][key], len(self.data[key][0]), rank, job["ranks"], key == "train")
                              for rank in range(job["ranks"])] for key in self.data}
        self.reached = exact.reached if exact else None
        self.trace.reached = [torch.zeros(p.shape, dtype=torch.bool) for p in self.model.parameters()]
        self.watch_sums()
        self.accumulated = 0
        self.averages, self.averaged, self.batches = None, 0, 0

    def take(self, names):
        arrays = [torch.from_numpy(np.ascontiguousarray(self.job["arrays"][name])) for name in names]
        return [a if a.dtype == torch.int64 else a.to(self.dtype) for a in arrays]

    def nudge_weights(self):
        with torch.no_grad():
            for p in self.model.parameters():
                p.mul_(1 + 2e-7 * (torch.rand(p.shape, generator=self.noise) - 0.5))

    def nudge_gradients(self, parameters):
        """Where terms cancel, what is left is rounding, of the size of the terms: gradients of 1e-9 may have either sign."""
        largest = [float(p.grad.abs().max()) if p.grad is not None and p.grad.numel() else 0.0 for p in parameters]
        for p, own, reached in zip(parameters, largest, self.reached):
            if p.grad is not None:
                size = 6e-8 * max(own, 0.1 * max(largest))
                p.grad += size * (2 * torch.rand(p.shape, generator=self.noise) - 1) * reached

    def watch_sums(self):
        """A bias whose gradient is a sum of numbers that cancel exactly here, as behind a norm of two values, is reached too:
        added in another order they leave rounding."""
        places = {id(p): i for i, p in enumerate(self.model.parameters())}
        for module in self.model.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(self.weight_watcher(self.trace.reached[places[id(module.weight)]]))
            bias = getattr(module, "bias", None)
            if isinstance(bias, torch.nn.Parameter) and hasattr(module, "weight"):
                module.register_forward_hook(self.bias_watcher(self.trace.reached[places[id(bias)]],
                                                               isinstance(module, (torch.nn.Linear, torch.nn.LayerNorm))))

    @staticmethod
    def weight_watcher(reached):
        """A linear layer's weight is reached where an input and a gradient meet, also if their products cancel."""
        def watch(_module, inputs, output):
            x = (inputs[0].detach() != 0).reshape(-1, reached.shape[1]).float()
            if output.requires_grad:
                output.register_hook(lambda g: note(g, x))

        def note(gradient, x):
            reached.logical_or_((gradient != 0).reshape(-1, reached.shape[0]).float().T @ x > 0)
        return watch

    @staticmethod
    def bias_watcher(reached, is_last):
        def note(gradient):
            axes = range(gradient.dim() - reached.dim()) if is_last else [d for d in range(gradient.dim()) if d != 1]
            terms = (gradient != 0)
            for axis in sorted(axes, reverse=True):
                terms = terms.any(axis)
            reached.logical_or_(terms)

        def watch(_module, _inputs, output):
            if output.requires_grad:
                output.register_hook(note)
        return watch

    def callback(self, *names):
        return next((c for c in self.callbacks if c["_target_"] in names), {})

    def loss_of(self, key, indices):
        """The loss of a batch, and the outputs that it is of."""
        x, y = self.data[key]
        outputs = self.model(x[indices])
        loss = self.criterion(outputs, y[indices])
        if not np.isfinite(loss.item()) or abs(loss.item()) > 1e15:
            raise Diverged
        return loss, outputs.detach()

    def is_sample_mean(self):
        """Whether the loss of a batch is a mean, to which each sample adds a sum and a weight."""
        return self.config["criterion"].get("reduction", "mean") in ("mean", "batchmean")

    def knows_samples(self, key):
        """Whether an epoch's loss is that of all samples as one batch; else it is the mean of the batches' losses by their samples.
        In training only a plain cross entropy of few cells gives the samples' losses away."""
        spec, targets = self.config["criterion"], self.data[key][1]
        if key != "train":
            return self.is_sample_mean()
        plain = spec["_target_"] == "CrossEntropyLoss" and targets.dtype == torch.int64 and not spec.get("label_smoothing")
        return plain and self.is_sample_mean() and self.classes * targets[0].numel() <= MOST_CELLS

    def divisor(self, key, indices):
        """What the mean of a batch divides by: the class weights of its targets, or the number of its samples."""
        spec, targets = self.config["criterion"], self.data[key][1][indices]
        if spec["_target_"] not in ("CrossEntropyLoss", "NLLLoss") or targets.dtype != torch.int64:
            return float(len(indices))
        counted = targets[targets != spec.get("ignore_index", -100)]
        weights = tensor(spec["weight"], self.dtype)[counted] if "weight" in spec else torch.ones(counted.shape)
        return float(weights.sum())

    def part(self, key, indices, loss, outputs, padding=0):
        """What a batch adds to its epoch's loss: (loss, weight). The last `padding` samples do not count: they repeat others. A sum
        cannot be divided again: there they are left out of the weight alone."""
        self.classes = outputs.shape[1] if outputs.dim() > 1 else 1
        counted = indices[:len(indices) - padding]
        if not len(counted):
            return 0.0, 0.0
        if padding and self.is_sample_mean():
            loss = self.criterion(outputs[:len(counted)], self.data[key][1][counted]).item()
        weight = self.divisor(key, counted) if self.knows_samples(key) else float(len(counted))
        return (loss, weight) if np.isfinite(loss) else (0.0, 0.0)

    def note_epoch(self, key, epoch, parts):
        weight = sum(part[1] for part in parts)
        if not weight:
            raise Diverged
        self.trace.epochs.append((key, epoch, sum(loss * own for loss, own in parts) / weight))

    # -- one batch --

    def backward(self, batches):
        """Adds the mean gradient of all ranks to what is there; each rank's loss and outputs."""
        results, parameters = [], list(self.model.parameters())
        before = [p.grad for p in parameters]
        sums = [None] * len(parameters)
        for rank, indices in enumerate(batches):
            for p in parameters:
                p.grad = None
            loss, outputs = self.ranks.run(rank, lambda: self.loss_of("train", indices))
            self.ranks.run(rank, loss.backward)
            results.append((loss.item(), outputs))
            for i, p in enumerate(parameters):
                if p.grad is not None:
                    part = p.grad / len(batches)
                    sums[i] = part if sums[i] is None else sums[i] + part
        for p, old, new in zip(parameters, before, sums):
            p.grad = new if old is None else old if new is None else old + new
        return results

    def adjust_gradients(self):
        for p, reached in zip(self.model.parameters(), self.trace.reached):
            if p.grad is not None:
                reached |= p.grad != 0
        if self.noise:
            self.nudge_gradients(list(self.model.parameters()))
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        for callback in self.callbacks:
            name = callback["_target_"]
            for p in parameters:
                if name == "L1WeightDecay":
                    p.grad += callback.get("rate", 5e-4) * p.detach().sign()
                elif name == "L2WeightDecay" and p.norm() > 0:
                    p.grad += callback.get("rate", 5e-4) * p.detach() / p.detach().norm()
        for callback in self.callbacks:
            clip = callback.get("grad_clip_fn")
            if clip:
                getattr(torch.nn.utils, clip)(parameters, **callback["grad_clip_params"])

    def train_batch(self, batches):
        results = self.backward(batches)
        self.adjust_gradients()
        self.accumulated += 1
        if self.accumulated % self.callback("Optimizer").get("accumulation_steps", 1) == 0:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        if self.scheduler and steps_every_batch(self.config["scheduler"], self.callbacks):
            self.scheduler.step()
        self.batches += 1
        ema = self.callback("EMA")
        if ema and self.batches % ema.get("update_every", 1) == 0:
            self.average(1 - ema.get("decay", 0.999))
        return results

    def average(self, share):
        if not self.averaged:
            self.averages = [p.detach().clone() for p in self.model.parameters()]
        for a, p in zip(self.averages, self.model.parameters()):
            a += (p.detach() - a) * share
        self.averaged += 1

    # -- loaders and epochs --

    def train_loader(self, epoch):
        loaders = self.loaders["train"]
        for _, sampler in loaders:
            if isinstance(sampler, DistributedSampler):
                sampler.set_epoch(epoch + FIRST_EPOCH)
        self.model.train()
        passes = [self.ranks.run(rank, lambda: iter(loader)) for rank, (loader, _) in enumerate(loaders)]
        parts, seen = [], 0
        while True:
            batches = [self.ranks.run(rank, lambda: next(each, None)) for rank, each in enumerate(passes)]
            if batches[0] is None:
                break
            results = self.train_batch(batches)
            self.trace.batches.append(("train", epoch, results[0][0]))
            seen += len(batches[0])
            parts += [self.part("train", indices, *result, padding_of(loaders, rank, seen))
                      for rank, (indices, result) in enumerate(zip(batches, results))]
        self.note_epoch("train", epoch, parts)
        return self.trace.epochs[-1][2]

    def valid_loader(self, epoch):
        self.model.eval()
        parts = []
        with torch.no_grad():
            for rank, (loader, _) in enumerate(self.loaders["valid"]):
                for indices in self.ranks.run(rank, lambda: list(loader)):
                    loss, outputs = self.loss_of("valid", indices)
                    if rank == 0:
                        self.trace.batches.append(("valid", epoch, loss.item()))
                    parts.append(self.part("valid", indices, loss.item(), outputs))
        self.note_epoch("valid", epoch, parts)

    def swap_averages(self):
        with torch.no_grad():
            for a, p in zip(self.averages, self.model.parameters()):
                kept = p.detach().clone()
                p.copy_(a)
                a.copy_(kept)

    def epoch(self, epoch):
        metric = self.train_loader(epoch)
        swa = self.callback("SWA")
        if swa and epoch + 1 >= swa.get("swa_start"):
            self.average(1 / (self.averaged + 1))
        swapped = self.averaged > 0 and (bool(self.callback("EMA")) or bool(swa))
        if swapped:
            self.swap_averages()
        if "valid" in self.loaders:
            self.valid_loader(epoch)
        self.trace.final = {k: v.numpy().copy() for k, v in self.model.state_dict().items()}
        if swapped:
            self.swap_averages()
        if self.scheduler and not steps_every_batch(self.config["scheduler"], self.callbacks):
            needs_metric = isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau)
            self.scheduler.step(metric) if needs_metric else self.scheduler.step()


def padding_of(loaders, rank, seen):
    """How many samples at the end of a rank's batch only make the ranks' shares equal, once the rank has seen so many."""
    sampler = loaders[rank][1]
    if not isinstance(sampler, DistributedSampler) or seen < sampler.num_samples:
        return 0
    padding = sampler.total_size - len(sampler.dataset)
    return int(padding > 0 and rank >= len(loaders) - padding)


def train(job, dtype=torch.float32, nudge=0, exact=None):
    """Trains; raises Diverged if numbers are not finite, and PyTorch's own errors for jobs that it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = Run(job, dtype, nudge, exact)
        for epoch in range(job["config"]["num_epochs"]):
            run.epoch(epoch)
    if not all(np.isfinite(v).all() for v in run.trace.final.values()):
        raise Diverged
    return run.trace
