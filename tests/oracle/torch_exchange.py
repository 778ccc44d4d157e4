"""Weights from PyTorch to the command and back, with live PyTorch.

    /usr/bin/python3 tests/oracle/torch_exchange.py LOCKSTEP FOLDER
"""
import collections
import pathlib
import subprocess
import sys

import numpy as np
import torch

lockstep, folder = sys.argv[1], pathlib.Path(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)


def run(*words):
    done = subprocess.run([lockstep, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def same(expected, found, what):
    assert list(expected) == list(found), (what, list(expected), list(found))
    for name, tensor in expected.items():
        assert tensor.dtype == found[name].dtype, (what, name, tensor.dtype, found[name].dtype)
        assert tensor.shape == found[name].shape, (what, name)
        assert torch.equal(tensor, found[name]), (what, name)


def convnet():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(8 * 13 * 13, 10))


def odd_tensors():
    whole = torch.arange(120.0).reshape(4, 5, 6)
    tied = torch.randn(3, 3)
    return collections.OrderedDict(
        transposed=whole.permute(2, 0, 1), part=whole[1:3, ::2, 3], expanded=torch.ones(3, 1).expand(3, 4),
        tied=tied, tied_too=tied, scalar=torch.tensor(3.5), empty=torch.zeros(0, 4),
        double=torch.randn(3, dtype=torch.float64), half=torch.randn(3).half(), brain=torch.randn(3).bfloat16(),
        long=torch.tensor([-(2**40), 7]), int=torch.tensor([-5], dtype=torch.int32),
        byte=torch.tensor([0, 255], dtype=torch.uint8), bool=torch.tensor([True, False]))


models = {
    "convnet": convnet().state_dict(),
    "transformer": torch.nn.TransformerEncoderLayer(16, 4, 32).state_dict(),
    "odd": odd_tensors(),
}
old = {"_use_new_zipfile_serialization": False}
for name, state in models.items():
    first = None
    wraps = {
        "plain": state,
        "checkpoint": {"epoch": 3, "state_dict": state, "optimizer": {"state": {0: {"x": torch.ones(2)}}}},
        "model_state": {"model_state_dict": state, "loss": 0.5, "best": np.float64(2)},
        "model": {"model": state, "args": __import__("argparse").Namespace(lr=0.1)},
        "ddp": collections.OrderedDict(("module." + key, value) for key, value in state.items()),
        "compiled": collections.OrderedDict(("_orig_mod.module." + key, value) for key, value in state.items()),
        "dict": dict(state),
        "parameters": {key: torch.nn.Parameter(value) if value.is_floating_point() else value
                       for key, value in state.items()},
    }
    for wrap, value in wraps.items():
        for kind, options in {"zip": {}, "old": old, "zip4": {"pickle_protocol": 4}, "old4": {**old, "pickle_protocol": 4}}.items():
            path = folder / f"{name}.{wrap}.{kind}.pth"
            torch.save(value, path, **options)
            hash = run("hash", path).split()[0]
            first = first or hash
            assert hash == first, (path, hash, first)
    for kind in ("zip", "old"):
        for to in ("pth", "safetensors", "npz"):
            run("export", "--to", to, folder / f"{name}.checkpoint.{kind}.pth", "-o", folder / f"out.{to}")
            assert to == "npz" or run("hash", folder / f"out.{to}").split()[0] == first, (name, to)
        for weights_only in (False, True):
            same(state, torch.load(folder / "out.pth", weights_only=weights_only), name)
        with np.load(folder / "out.npz") as arrays:
            for key, tensor in state.items():
                wanted = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
                assert wanted.numpy().dtype == arrays[key].dtype, (name, key)
                assert np.array_equal(wanted.numpy(), arrays[key]), (name, key)
    run("import", folder / f"{name}.ddp.old.pth", "-o", folder / "in.safetensors")
    run("export", folder / "in.safetensors", "-o", folder / "again.pth")
    same(state, torch.load(folder / "again.pth", weights_only=True), name)
    run("import", folder / "out.npz", "-o", folder / "npz.safetensors")

# What the models give for these weights: 1e-5, as everywhere.
MODEL = {
    "convnet": "[{_target_: Conv2d, args: [1, 8, 3]}, {_target_: BatchNorm2d, args: [8]}, ReLU,"
               " {_target_: MaxPool2d, args: [2]}, Flatten, {_target_: Linear, args: [1352, 10]}]",
    "transformer": "[{_target_: TransformerEncoderLayer, d_model: 16, nhead: 4, dim_feedforward: 32,"
                   " batch_first: y}]",
}
INPUT = {"convnet": (6, 1, 28, 28), "transformer": (6, 5, 16)}
CONFIG = """
runner: {{_target_: SupervisedRunner, model: {{_target_: Sequential, args: {model}}}}}
run:
  - _call_: train
    criterion: CrossEntropyLoss
    optimizer: {{_target_: SGD, lr: 0.1}}
    loaders:
      valid:
        _target_: DataLoader
        dataset: {{_target_: TensorDataset, args: [{folder}/x.npy, {folder}/y.npy]}}
        batch_size: 4
"""
reference = {"convnet": convnet(), "transformer": torch.nn.Sequential(
    torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True))}
for name, model in reference.items():
    for part in model.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.uniform_(-1, 1)
            part.running_var.uniform_(0.5, 2)
    torch.save({"state_dict": torch.nn.DataParallel(model).state_dict()}, folder / "trained.pth", **old)
    x = torch.randn(INPUT[name])
    np.save(folder / "x.npy", x.numpy())
    np.save(folder / "y.npy", np.zeros(6, dtype=np.int64))
    (folder / "c.yml").write_text(CONFIG.format(model=MODEL[name], folder=folder))
    run("predict", "-C", folder / "c.yml", "-c", folder / "trained.pth", "-o", folder / "p.npy", "-l", "valid")
    with torch.no_grad():
        wanted = model.eval()(x).numpy()
    assert np.abs(np.load(folder / "p.npy") - wanted).max() < 1e-5, name
print("weights: equal to live PyTorch")
