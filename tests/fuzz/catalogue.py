"""What the command itself says that a config can name: every component with its keys, and values to draw for them.

The fuzzer draws from this list, so a new activation, loss, optimizer or key is drawn, or reported as not drawn, without a
change here.
"""
import re
import subprocess
from collections import namedtuple

Key = namedtuple("Key", "name type required default help")
Component = namedtuple("Component", "name kind keys")

# Values for keys whose type and default do not say what is sensible: by component and key, or by key alone. Rates and decays are
# large enough that one which is ignored shows in a few steps.
VALUES = {
    "lr": [0.003, 0.01, 0.02, 0.05],
    "momentum": [0.3, 0.5, 0.9],
    "weight_decay": [0.01, 0.1, 0.3],
    "dampening": [0.1, 0.5],
    "betas": [[0.9, 0.99], [0.5, 0.9], [0.8, 0.999], [0.0, 0.99]],
    "Adagrad.eps": [1e-10, 1e-6, 1e-3],
    "Adam.eps": [1e-8, 1e-6, 1e-3],
    "AdamW.eps": [1e-8, 1e-6, 1e-3],
    "LAMB.eps": [1e-6, 1e-3],
    "CatalystLamb.eps": [1e-6, 1e-3],
    "RMSprop.eps": [1e-8, 1e-6, 1e-3],
    "eps": [1e-5, 1e-3, 0.1],
    "layer_norm_eps": [1e-5, 1e-3, 0.1],
    "Adagrad.lr": [0.01, 0.05],
    "Adam.lr": [0.001, 0.003, 0.01],
    "AdamW.lr": [0.001, 0.003, 0.01],
    "LAMB.lr": [0.001, 0.01],
    "CatalystLamb.lr": [0.001, 0.01],
    "RMSprop.lr": [0.001, 0.003],
    "lr_decay": [0.01, 0.3],
    "initial_accumulator_value": [0.1, 1.0],
    "alpha": [0.5, 0.9, 0.99],
    "ELU.alpha": [0.3, 1.0, 2.0],
    "BatchNorm1d.momentum": [0.01, 0.1, 0.5, 1.0],
    "BatchNorm2d.momentum": [0.01, 0.1, 0.5, 1.0],
    "BatchNorm3d.momentum": [0.01, 0.1, 0.5, 1.0],
    "negative_slope": [0.0, 0.01, 0.2],
    "Softplus.beta": [0.5, 1, 3],
    "threshold": [0.5, 2, 20],
    "Softmax.dim": [-1, 1],
    "LogSoftmax.dim": [-1, 1],
    "Softmin.dim": [-1, 1],
    "Hardtanh.min_val": [-2.0, -0.5],
    "Hardtanh.max_val": [0.3, 1.5],
    "p": [0.0, 0.1, 0.5, 0.9],
    "dropout": [0.0, 0.1, 0.5],
    "label_smoothing": [0.05, 0.1, 0.5],
    "beta": [0.1, 1.0, 2.5],
    "delta": [0.1, 1.0, 2.5],
    "gamma": [0.1, 0.5, 0.9],
    "CyclicLR.gamma": [0.9, 0.99],
    "factor": [0.1, 0.5],
    "power": [0.5, 1.0, 2.0],
    "eta_min": [0.0, 0.001],
    "start_factor": [0.1, 0.5, 1.0],
    "end_factor": [0.3, 1.0],
    "step_size": [1, 2],
    "milestones": [[1], [1, 2], [2]],
    "total_iters": [1, 2, 3, 5],
    "T_max": [1, 2, 3, 5],
    "T_0": [1, 2, 3],
    "T_mult": [1, 2],
    "steps": [1, 2, 3],
    "pct_start": [0.1, 0.3, 0.7],
    "div_factor": [2, 25],
    "final_div_factor": [10, 1e4],
    "base_momentum": [0.7, 0.8],
    "max_momentum": [0.9, 0.95],
    "OneCycleLR.max_lr": [0.01, 0.05],
    "base_lr": [0.001, 0.005],
    "CyclicLR.max_lr": [0.01, 0.05],
    "step_size_up": [1, 2, 5],
    "step_size_down": [1, 3],
    "patience": [0, 1],
    "ReduceLROnPlateau.threshold": [1e-4, 0.1],
    "cooldown": [0, 1],
    "min_lr": [0.0, 0.004],
    "ReduceLROnPlateau.eps": [1e-8],
    "rate": [0.01, 0.1],
    "decay": [0.5, 0.9],
    "update_every": [1, 2],
    "swa_start": [1, 2],
}

# What a loss must give to be trained on is one number; an optimizer that climbs would diverge with the usual losses.
LEFT_OUT = {"reduction": ["none"], "return_indices": [True]}


def read(command):
    """{kind: {name: Component}} from `lockstep components --markdown`."""
    text = subprocess.run([command, "components", "--markdown"], capture_output=True, text=True, check=True).stdout
    kinds, kind, keys = {}, None, None
    for line in re.sub(r"\n  (?=\S)", " ", text).splitlines():  # an item goes on in indented lines
        if line.startswith("## "):
            kind, keys = line[3:].strip(), None
        elif line.startswith("### "):
            name, keys = line[4:].strip(), {}
            kinds.setdefault(kind, {})[name] = Component(name, kind, keys)
        elif line.startswith("- `") and keys is not None:
            name, key_type, default, meaning = re.fullmatch(r"- `(\w+)`: (.*?); (.*?); (.*)", line).groups()
            keys[name] = Key(name, key_type, default == "required",
                             default[len("default "):] if default.startswith("default ") else None, meaning)
    return kinds


def has_effect(key):
    """False for keys that are taken for Catalyst's or PyTorch's sake, or only to be refused."""
    if key.type in ("no effect", "refused"):
        return False
    return not re.search(r"without effect|^refused|^not available|anything, unused", key.help)


def value(rng, component, key):
    """A value for a key, or None if nothing is known that would be sensible."""
    for name in (component.name + "." + key.name, key.name):
        if name in VALUES:
            return rng.choice(VALUES[name])
    left_out = LEFT_OUT.get(key.name, [])
    if key.type == "boolean":
        return rng.choice([v for v in (True, False) if v not in left_out])
    if re.fullmatch(r"[\w-]+(\|[\w-]+)+", key.type):
        return rng.choice([v for v in key.type.split("|") if v not in left_out])
    if key.type == "number" and key.default not in (None, "0"):
        return float(key.default) * rng.choice([0.5, 1, 2])
    return None


def options(rng, component, skip=(), chance=0.4):
    """{key: value} for some of the keys that are not in `skip`, and for all required ones."""
    drawn = {}
    for key in component.keys.values():
        if key.name in skip or not has_effect(key):
            continue
        if key.required or rng.random() < chance:
            found = value(rng, component, key)
            if found is not None:
                drawn[key.name] = found
    return drawn


def uses(spec, counts):
    """Adds up how often each component and each of its keys stands in a config."""
    if isinstance(spec, dict):
        if "_target_" in spec:
            name = spec["_target_"]
            counts[name] = counts.get(name, 0) + 1
            for key in spec:
                counts[name + "." + key] = counts.get(name + "." + key, 0) + 1
        for part in spec.values():
            uses(part, counts)
    elif isinstance(spec, list):
        for part in spec:
            uses(part, counts)
    elif isinstance(spec, str):
        counts[spec] = counts.get(spec, 0) + 1
    return counts


def not_drawn(kinds, counts):
    """The components, and the keys of drawn ones, that no job has named."""
    missing = []
    for kind in ("module", "criterion", "optimizer", "scheduler", "loader", "sampler", "callback"):
        for component in kinds.get(kind, {}).values():
            if component.name not in counts:
                missing.append(component.name)
                continue
            missing += [component.name + "." + key.name for key in component.keys.values()
                        if has_effect(key) and component.name + "." + key.name not in counts]
    return missing
