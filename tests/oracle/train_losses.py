#!/usr/bin/python3
"""The losses of 50 training steps in PyTorch, for tests/train/test_losses.c, test_slow_losses.c and test_cuda.c.

    train_losses.py [FOLDER [DEVICE]]    writes FOLDER/train/losses.lkg; default: tests/golden beside this script, cpu
    train_losses.py --growth NAME RATE   how far apart float32 and float64 come, step by step, with SGD at that rate

The golden file is PyTorch 1.13's on a CPU. Any later version can write one too, also on a GPU: the tests read it from the
folder that LOCKSTEP_GOLDEN names. First weights and data are drawn on the CPU, by seeds that tests/train/case_losses.c knows.
"""
import os
import sys

import numpy as np
import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from models import cnn3d, resnet_8, resnet_18  # noqa: E402
from nn_golden import Golden  # noqa: E402

STEPS, BATCHES = 50, 5

# model, loss, optimizer, shape of the input, shape of the target (of rank 1: classes)
WORKLOADS = {
    "MNIST-linear": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), nn.CrossEntropyLoss,
                     lambda p: torch.optim.Adam(p, lr=1e-3), (32, 1, 28, 28), (32,)),
    "toy MLP": (lambda: nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10)), nn.CrossEntropyLoss,
                lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9), (128, 784), (128,)),
    "CNN3d": (lambda: cnn3d(3, 12288), nn.SmoothL1Loss,
              lambda p: torch.optim.Adam(p, lr=1e-3), (8, 3, 16, 16, 16), (8, 12288)),
    "ResNet-8": (resnet_8, nn.CrossEntropyLoss,
                 lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9), (16, 3, 32, 32), (16,)),
    "ResNet-18": (lambda: resnet_18(10), nn.CrossEntropyLoss,
                  lambda p: torch.optim.SGD(p, lr=1e-6, momentum=0.9), (8, 3, 48, 48), (8,)),
}


def train(name, device="cpu", dtype=torch.float32, rate=None, nudge=False):
    make, criterion, optimizer, input_shape, target_shape = WORKLOADS[name]
    torch.manual_seed(0)
    model = make().to(dtype).to(device)
    if nudge:  # one weight, by one unit in its last place
        weight = next(model.parameters()).data.view(-1)
        weight[0] = torch.nextafter(weight[0], weight[0] + 1)
    step = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9) if rate else optimizer(model.parameters())
    losses = np.zeros(STEPS)
    for i in range(STEPS):
        torch.manual_seed(100 + i % BATCHES)
        x = torch.rand(input_shape)
        y = torch.randint(10, target_shape) if len(target_shape) == 1 else torch.rand(target_shape)
        y = y.to(dtype) if y.is_floating_point() else y
        step.zero_grad()
        loss = criterion()(model(x.to(dtype).to(device)), y.to(device))
        loss.backward()
        step.step()
        losses[i] = loss.item()
    return losses


def growth(name, rate):
    truth = train(name, dtype=torch.float64, rate=rate)
    float32 = train(name, rate=rate)
    nudged = train(name, rate=rate, nudge=True)
    print("step  loss in float64   float32 - float64   one weight one ulp off - float32")
    for i in range(STEPS):
        print("%4d  %15.9f   %17.1e   %32.1e" % (i + 1, truth[i], float32[i] - truth[i], nudged[i] - float32[i]))


def main():
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if len(sys.argv) > 1 and sys.argv[1] == "--growth":
        growth(sys.argv[2], float(sys.argv[3]))
        return
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
    golden = Golden()
    for name in WORKLOADS:
        golden.add(name, train(name, *sys.argv[2:3]))
    golden.write(os.path.join(sys.argv[1] if len(sys.argv) > 1 else folder, "train/losses.lkg"))


main()
