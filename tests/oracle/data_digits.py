#!/usr/bin/python3
"""How hard the synthetic digits are: trains a linear model and a small convnet on them with PyTorch.

Reads two files of labels (N bytes) followed by pictures (N x 784 bytes), as tests/data/test_digits.c writes them when
LOCKSTEP_DUMP_DIGITS names a folder. Run: /usr/bin/python3 tests/oracle/data_digits.py TRAIN TEST
A linear model must reach 85 to 97 %, the convnet more.
"""
import sys

import torch
from torch import nn


def load(path):
    data = torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.uint8)
    count = len(data) // 785
    return data[count:].reshape(count, 1, 28, 28).float() / 255, data[:count].long()


def accuracy(model, train, test, epochs, lr):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(epochs):
        for index in torch.randperm(len(train[1])).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(train[0][index]), train[1][index]).backward()
            optimizer.step()
    with torch.no_grad():
        return (model(test[0]).argmax(1) == test[1]).float().mean().item()


torch.manual_seed(0)
torch.set_num_threads(1)
train, test = load(sys.argv[1]), load(sys.argv[2])
print(f"linear  {accuracy(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), train, test, 10, 2e-3):.4f}")
convnet = nn.Sequential(
    nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 10)
)
print(f"convnet {accuracy(convnet, train, test, 4, 2e-3):.4f}")
