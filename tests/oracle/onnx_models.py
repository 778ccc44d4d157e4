"""Models that the command exports to ONNX, compared with what the command itself predicts.

    /usr/bin/python3 tests/oracle/onnx_models.py write LOCKSTEP FOLDER     exports them, and asks onnx's checker
    node tests/oracle/onnx_run.js FOLDER                                   runs them with onnxruntime
    /usr/bin/python3 tests/oracle/onnx_models.py compare FOLDER            1e-5

Each model is exported with batches of one size and run with another.
"""
import json
import pathlib
import subprocess
import sys

import numpy as np
import torch
from torch import nn

command, folder = sys.argv[1], pathlib.Path(sys.argv[-1])
torch.manual_seed(0)


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        for index, layer in enumerate(layers):
            self.add_module(str(index), layer)


CONV = "{_target_: Conv2d, args: "
ENCODER = "{_target_: TransformerEncoderLayer, d_model: 16, nhead: 4, dim_feedforward: 32, batch_first: y"
MODELS = {
    "convnet": ((6, 1, 28, 28), CONV + "[1, 8, 3]}, {_target_: BatchNorm2d, args: [8]}, ReLU,"
                "{_target_: MaxPool2d, args: [2]}, Flatten, {_target_: Linear, args: [1352, 10]}",
                nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                              nn.Linear(1352, 10))),
    "mlp": ((5, 7), "{_target_: Linear, args: [7, 9]}, GELU, {_target_: Linear, args: [9, 8]}, SiLU,"
            "{_target_: LayerNorm, args: [8]}, {_target_: Linear, args: [8, 8]}, Tanh, {_target_: Dropout, p: 0.5},"
            "{_target_: Linear, args: [8, 6]}, Softplus, LeakyReLU, ELU, Sigmoid, {_target_: Softmax, dim: 1}",
            nn.Sequential(nn.Linear(7, 9), nn.GELU(), nn.Linear(9, 8), nn.SiLU(), nn.LayerNorm(8), nn.Linear(8, 8),
                          nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 6), nn.Softplus(), nn.LeakyReLU(), nn.ELU(),
                          nn.Sigmoid(), nn.Softmax(1))),
    "encoder": ((6, 5, 16), ENCODER + "}, " + ENCODER + ", norm_first: y, activation: gelu}, Flatten,"
                "{_target_: Linear, args: [80, 3]}",
                nn.Sequential(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
                              nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True,
                                                         activation="gelu"), nn.Flatten(), nn.Linear(80, 3))),
    "picture": ((6, 3, 12, 12), CONV + "[3, 8, 3], padding: 1, bias: n}, {_target_: GroupNorm, args: [2, 8]}, ReLU,"
                "{_target_: Residual, args: [" + CONV + "[8, 8, 3], padding: 1, groups: 4}]},"
                "{_target_: AvgPool2d, args: [2]}, {_target_: Upsample, scale_factor: 2},"
                "{_target_: ConvTranspose2d, args: [8, 4, 2], stride: 2}, {_target_: AdaptiveAvgPool2d, args: [1]}, Flatten",
                nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.GroupNorm(2, 8), nn.ReLU(),
                              Residual(nn.Conv2d(8, 8, 3, padding=1, groups=4)), nn.AvgPool2d(2),
                              nn.Upsample(scale_factor=2), nn.ConvTranspose2d(8, 4, 2, stride=2),
                              nn.AdaptiveAvgPool2d(1), nn.Flatten())),
    "conv1d": ((6, 2, 20), "{_target_: Conv1d, args: [2, 4, 3], stride: 2}, {_target_: BatchNorm1d, args: [4]}, ReLU,"
               "{_target_: MaxPool1d, args: [2]}, Flatten",
               nn.Sequential(nn.Conv1d(2, 4, 3, stride=2), nn.BatchNorm1d(4), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten())),
    "conv3d": ((6, 1, 8, 8, 8), "{_target_: Conv3d, args: [1, 3, 3], padding: 1}, ReLU, {_target_: MaxPool3d, args: [2]},"
               "{_target_: ConvTranspose3d, args: [3, 2, 2], stride: 2},"
               "{_target_: Upsample, scale_factor: 2, mode: trilinear}, Flatten",
               nn.Sequential(nn.Conv3d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2),
                             nn.ConvTranspose3d(3, 2, 2, stride=2), nn.Upsample(scale_factor=2, mode="trilinear"),
                             nn.Flatten())),
    "sizes": ((6, 2, 2, 10), "{_target_: MaxPool2d, args: [[1, 3]], stride: [1, 2], ceil_mode: y},"
              "{_target_: Upsample, scale_factor: 0.5, mode: bilinear},"
              "{_target_: Upsample, scale_factor: 1.6, mode: bilinear}, Flatten, {_target_: Linear, args: [6, 3]}",
              nn.Sequential(nn.MaxPool2d((1, 3), stride=(1, 2), ceil_mode=True), nn.Upsample(scale_factor=0.5, mode="bilinear"),
                            nn.Upsample(scale_factor=1.6, mode="bilinear"), nn.Flatten(), nn.Linear(6, 3))),
    "words": ((6, 4), "{_target_: Embedding, args: [11, 5]}, Flatten, {_target_: Linear, args: [20, 2]},"
              "{_target_: LogSoftmax, dim: 1}",
              nn.Sequential(nn.Embedding(11, 5), nn.Flatten(), nn.Linear(20, 2), nn.LogSoftmax(1))),
}
CONFIG = """
runner: {{_target_: SupervisedRunner, model: {{_target_: Sequential, args: [{model}]}}}}
run:
  - _call_: train
    criterion: MSELoss
    optimizer: {{_target_: SGD, lr: 0.01}}
    loaders:
      valid:
        _target_: DataLoader
        dataset: {{_target_: TensorDataset, args: [{folder}/{name}.x.npy, {folder}/{name}.y.npy]}}
        batch_size: 4
"""


def call(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)


def write(lockstep):
    try:
        import onnx
    except ImportError:
        onnx = None
    rng = np.random.default_rng(0)
    for name, (shape, text, model) in MODELS.items():
        x = rng.integers(0, 11, shape) if name == "words" else rng.normal(size=shape).astype(np.float32)
        for part in model.modules():
            if hasattr(part, "running_mean"):
                part.running_mean.uniform_(-1, 1)
                part.running_var.uniform_(0.5, 2)
        weights, config = folder / f"{name}.pth", folder / f"{name}.yml"
        torch.save(model.state_dict(), weights)
        np.save(folder / f"{name}.x.npy", x)
        np.save(folder / f"{name}.y.npy", np.zeros(len(x), dtype=np.float32))
        config.write_text(CONFIG.format(model=text, folder=folder, name=name))
        call(lockstep, "predict", "-C", config, "-c", weights, "-o", folder / f"{name}.p.npy")
        call(lockstep, "export", "--to", "onnx", "-C", config, "-c", weights, "-o", folder / f"{name}.onnx")
        (folder / f"{name}.x.bin").write_bytes(x.tobytes())
        if onnx:
            onnx.checker.check_model(onnx.load(str(folder / f"{name}.onnx")), full_check=True)
    (folder / "models.json").write_text(json.dumps({name: [list(model[0]), name == "words"] for name, model in MODELS.items()}))
    print(len(MODELS), "models", "accepted by onnx's checker" if onnx else "not checked: python3-onnx is not installed")


def compare():
    for name in MODELS:
        ours = np.load(folder / f"{name}.p.npy")
        theirs = np.frombuffer((folder / f"{name}.out.bin").read_bytes(), dtype=np.float32).reshape(ours.shape)
        apart = np.abs(ours - theirs).max()
        assert apart < 1e-5, (name, apart)
        print(f"{name}: onnxruntime's output is within {apart:.1g}")


folder.mkdir(parents=True, exist_ok=True)
write(sys.argv[2]) if command == "write" else compare()
