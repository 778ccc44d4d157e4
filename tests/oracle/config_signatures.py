"""Compares the parameter tables of our components with the signatures of the PyTorch classes whose names they bear.

Reads `lockstep components --markdown` from standard input. Every parameter must exist in PyTorch under the same name, in the
same positional order and with the same default, but for the few below that are ours alone.
"""
import inspect
import math
import re
import sys

import torch
import torch.utils.data.distributed
import yaml

# Ours alone: they come after PyTorch's own, or are named there in another way (*args).
OURS = {
    "DataLoader": {"seed", "batch_transforms"},
    "TensorDataset": {"keys", "dtype"},
    "random_split": {"part", "seed", "transform", "generator"},  # a function of several parts there
    "HuberLoss": {"size_average", "reduce"},
    "rand": {"size"},
    "randn": {"size"},
    "tensor": {"data"},
    "NAdam": {"maximize"},  # as in PyTorch 2
    "RAdam": {"maximize"},
    "LSTM": {"returns"},
    "GRU": {"returns"},
    "MultiheadAttention": {"is_causal"},
    "TransformerEncoderLayer": {"is_causal"},
    "TransformerEncoder": {"is_causal"},
    "TransformerDecoderLayer": {"is_causal"},
    "TransformerDecoder": {"is_causal"},
    "Transformer": {"is_causal"},
    "RNN": {"returns", "nonlinearity"},  # in PyTorch 1.13 one of **kwargs
}
# PyTorch's own that nothing here can mean: devices and dtypes, closures, and switches of its implementation.
THEIRS = {
    "device", "dtype", "generator", "pin_memory_device", "foreach", "capturable", "differentiable", "fused", "scale_fn",
    "scale_mode", "_weight", "add_bias_kv", "add_zero_attn",
    "enable_nested_tensor", "mask_check", "requires_grad", "out", "layout", "args", "kwargs",
}
# Where the default differs on purpose: the optimizer and its parameters are known to the run.
FREE_DEFAULTS = {"params", "optimizer", "prefetch_factor", "num_samples", "dim", "indices", "scale_factor"}
SWITCHES = {"foreach", "fused"}  # of optimizers: accepted without an effect, also where PyTorch 1.13 has none
# Parameters without an effect have no default.
NO_EFFECT = {("Embedding", "norm_type"), ("EmbeddingBag", "norm_type")}


def ours(text):
    """{name: (full name, [(parameter, default text)])} of the components that name a torch class."""
    found = {}
    text = re.sub(r"\n  (?=\S)", " ", text)  # an item goes on in indented lines
    for section in re.split(r"^## |^### ", text, flags=re.M)[1:]:
        name = section.split("\n", 1)[0]
        full = re.search(r"`(torch\.[\w.]+)", section)
        if full and "torch.nn.utils." not in section and "torch.nn.functional." not in section:  # functions are passed on
            rows = re.findall(r"^- `(\w+)`: .*?; (required|optional|default .*?); ", section, flags=re.M)
            found[name] = (full.group(1), rows)
    return found


def locate(full):
    thing = torch
    for part in full.split(".")[1:]:
        thing = getattr(thing, part)
    return thing


def parameters_of(name, target):
    """Recurrent layers hand *args and **kwargs on to their base class."""
    if name not in ("LSTM", "GRU", "RNN"):
        return inspect.signature(target).parameters
    theirs = dict(inspect.signature(torch.nn.RNNBase).parameters)
    for other in ("mode",) if name == "LSTM" else ("mode", "proj_size"):  # only an LSTM has projections
        del theirs[other]
    return theirs


def same_default(text, theirs):
    if text == "required":
        return theirs is inspect.Parameter.empty or repr(theirs) == "<required parameter>"
    if text == "optional":
        return theirs is None or theirs == -1 or theirs is False or theirs == 0
    mine = yaml.safe_load(text[len("default "):])
    if isinstance(mine, str):
        try:
            mine = float(mine)
        except ValueError:
            pass
    if callable(theirs):
        theirs = theirs.__name__
    if isinstance(theirs, (tuple, list)):
        return list(theirs) == mine
    if isinstance(theirs, (int, float)) and not isinstance(theirs, bool):
        return math.isclose(float(mine), theirs, rel_tol=1e-12)
    return mine == theirs or str(mine) == str(theirs) or (theirs is None and mine is False)


def main():
    problems, checked = [], 0
    for name, (full, rows) in ours(sys.stdin.read()).items():
        target = locate(full)
        try:
            parameters = parameters_of(name, target)
        except ValueError:
            continue  # a builtin function
        theirs = {k: p for k, p in parameters.items() if k not in THEIRS}
        variadic = {k for k, p in theirs.items() if p.kind == p.VAR_POSITIONAL}
        mine = [row for row in rows if row[0] not in OURS.get(name, ()) and row[0] not in SWITCHES]
        checked += 1
        for parameter, default in mine:
            if parameter not in theirs:
                if parameter != "args":
                    problems.append(f"{full}: it has no {parameter}")
            elif parameter not in variadic and parameter not in FREE_DEFAULTS and (name, parameter) not in NO_EFFECT:
                if not same_default(default, theirs[parameter].default):
                    problems.append(f"{full}: {parameter}: {default}, there {theirs[parameter].default}")
        missing = [k for k in theirs if k not in dict(mine) and k not in variadic]
        if missing:
            problems.append(f"{full}: missing {missing}")
        shared = [p for p, _ in mine if p in theirs]
        if shared != [k for k in theirs if k in shared]:
            problems.append(f"{full}: the order is {shared}")
    print("\n".join(problems))
    if problems or checked < 60:
        sys.exit(f"{len(problems)} differences in {checked} components")


main()
