#!/usr/bin/python3
"""Writes tests/golden/models/zoo.txt from torchvision 0.14 and the plain modules of models_plain.py:

    names MODEL TENSORS PARAMETERS HASH    names and shapes of the state dict; the published number of parameters
    first MODEL HASH                       the weights after torch.manual_seed(7)
    output MODEL NUMBERS                   of weights and an input by one formula (fill), in evaluation

    models_zoo.py [FILE]
"""
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models_plain as plain  # noqa: E402
from torchvision import models as tv  # noqa: E402
from torchvision.models.resnet import BasicBlock, Bottleneck  # noqa: E402

torch.set_num_threads(1)
MASK = (1 << 64) - 1


def names_hash(state):
    value = 14695981039346656037
    for name, tensor in state.items():
        for byte in (name + " " + " ".join(str(d) for d in tensor.shape) + "\n").encode():
            value = (value ^ byte) * 1099511628211 & MASK
    return value


def bits_hash(state):
    total = 0
    for tensor in state.values():
        if tensor.dtype != torch.float32:
            continue
        bits = tensor.numpy().reshape(-1).view(np.uint32).astype(np.uint64)
        with np.errstate(over="ignore"):
            total = (total * 31 + int((bits * (2 * np.arange(bits.size, dtype=np.uint64) + 1)).sum())) & MASK
    return total


def units(count, salt):
    i = np.arange(count, dtype=np.uint64)
    return ((i * 2654435761 + salt * 40503) % 65536).astype(np.float64) / 65536 - 0.5


def fill(state):
    """Weights by one formula, which test_zoo.c has too."""
    for k, (name, tensor) in enumerate(state.items()):
        if tensor.dtype != torch.float32:
            continue
        u = units(tensor.numel(), k)
        if tensor.dim() >= 2:
            u = u * 2 * np.sqrt(3 * tensor.shape[0] / tensor.numel())
        elif name.endswith(("weight", "running_var")):
            u = 1 + 0.2 * u
        else:
            u = 0.2 * u
        tensor.copy_(torch.from_numpy(u.astype(np.float32)).reshape(tensor.shape))


def picture(*shape):
    return torch.from_numpy(units(int(np.prod(shape)), 99).astype(np.float32) * 2).reshape(shape)


def tokens(count, length, vocab):
    i = np.arange(count * length, dtype=np.int64)
    return torch.from_numpy(i * i * 7 % vocab).reshape(count, length)


def output(name, model, *inputs):
    model.eval()
    with torch.no_grad():
        fill(model.state_dict())
        y = model(*inputs)
    ys = y if isinstance(y, tuple) else (y,)
    flat = torch.cat([part.reshape(-1) for part in ys])
    step = max(1, flat.numel() // 8)
    return f"output {name} " + " ".join(f"{v:.7g}" for v in flat[::step][:8].tolist())


def first(name, make):
    torch.manual_seed(7)
    return f"first {name} {bits_hash(make().state_dict()):016x}"


NAMES = {
    "resnet18": 11689512, "resnet34": 21797672, "resnet50": 25557032, "resnet101": 44549160, "resnet152": 60192808,
    "vgg11": 132863336, "vgg13": 133047848, "vgg16": 138357544, "vgg19": 143667240,
    "vgg11_bn": 132868840, "vgg13_bn": 133053736, "vgg16_bn": 138365992, "vgg19_bn": 143678248,
    "mobilenet_v2": 3504872, "mobilenet_v3_small": 2542856, "mobilenet_v3_large": 5483032, "efficientnet_b0": 5288548,
    "vit_b_16": 86567656,
}
PLAIN = {
    "unet": (plain.UNet, 31037698), "unet_bilinear": (lambda: plain.UNet(bilinear=True), 17262977 + 65),
    "gpt2": (plain.GPT2, 124439808), "gpt2_medium": (lambda: plain.GPT2(1024, 24, 16), 354823168),
    "gpt2_large": (lambda: plain.GPT2(1280, 36, 20), 774030080), "gpt2_xl": (lambda: plain.GPT2(1600, 48, 25), 1557611200),
    "bert": (plain.Bert, 109482240),
}


def sizes():
    for name, count in NAMES.items():
        # First weights do not matter here, and make most of the time.
        make, init = getattr(tv, name), torch.nn.init
        kept = {key: getattr(init, key) for key in ("kaiming_uniform_", "kaiming_normal_", "normal_", "uniform_", "xavier_uniform_", "trunc_normal_")}
        for key in kept:
            setattr(init, key, lambda tensor, *a, **k: tensor)
        yield name, make(), count
        for key, function in kept.items():
            setattr(init, key, function)
    for name, (make, count) in PLAIN.items():
        real = torch.Tensor.normal_, torch.Tensor.uniform_
        torch.Tensor.normal_ = torch.Tensor.uniform_ = lambda self, *a, **k: self
        yield name, make(), count
        torch.Tensor.normal_, torch.Tensor.uniform_ = real


def main():
    lines = []
    for name, model, count in sizes():
        assert sum(p.numel() for p in model.parameters()) == count, (name, sum(p.numel() for p in model.parameters()))
        state = model.state_dict()
        lines.append(f"names {name} {len(state)} {count} {names_hash(state):016x}")
    b0 = tv.efficientnet._efficientnet_conf("efficientnet_b0", width_mult=0.25, depth_mult=1.0)
    small = {
        "resnet18": lambda: plain.small_resnet(BasicBlock, [2, 2, 2, 2], 4),
        "resnet50": lambda: plain.small_resnet(Bottleneck, [3, 4, 6, 3], 4, small_input=True, zero=True),
        "mobilenet_v2": lambda: tv.mobilenet_v2(width_mult=0.25, num_classes=10),
        "mobilenet_v3_small": lambda: tv.mobilenet_v3_small(width_mult=0.25, num_classes=10),
        "mobilenet_v3_large": lambda: tv.mobilenet_v3_large(width_mult=0.25, num_classes=10),
        "efficientnet_b0": lambda: tv.efficientnet._efficientnet(b0[0], 0.2, b0[1], None, True, num_classes=10),
        "vit_b_16": lambda: tv.VisionTransformer(32, 16, 2, 2, 16, 32, num_classes=10),
        "unet": lambda: plain.UNet(4, 3, 2),
        "unet_bilinear": lambda: plain.UNet(4, 3, 2, True),
        "char_lstm": lambda: plain.CharLSTM(20, 4, 8),
    }
    # The heads of ViT begin with 0.
    for name, make in small.items():
        lines.append(first(name, make))
    for name, make in small.items():
        x = tokens(2, 5, 20) if name == "char_lstm" else picture(2, 3, 32, 32) if name != "unet" else picture(1, 3, 33, 35)
        lines.append(output(name, make(), x))
    lines.append(output("gpt2", plain.GPT2(8, 2, 2, 20, 6), tokens(2, 5, 20)))
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    lines.append(output("bert", plain.Bert(8, 2, 2, 20, 6), tokens(2, 5, 20), mask, tokens(2, 5, 2)))
    here = os.path.dirname(os.path.abspath(__file__))
    with open(sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../golden/models/zoo.txt"), "w") as file:
        file.write("\n".join(lines) + "\n")


main()
