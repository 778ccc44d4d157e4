"""Trains with PyTorch what tests/train/test_slow_live.c trains with the library, and writes down what happened.

    /usr/bin/python3 train_live.py OUT [MNIST]

For each job: OUT/<job>_losses.npy (the first 200 steps), OUT/<job>_order.npy (the samples of those steps, where the
loader shuffles) and OUT/<job>_epochs.npy (one row an epoch: train loss, valid loss, valid accuracy).
"""
import gzip
import os
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

STEPS = 200


class Indexed(Dataset):
    """A dataset that gives the index with the sample."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index] + (index,)


def read_idx(root, name):
    with gzip.open(os.path.join(root, name)) as file:
        data = file.read()
    rank = data[3]
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(rank)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def mnist(root, train, count=None):
    prefix = "train" if train else "t10k"
    pictures = read_idx(root, prefix + "-images-idx3-ubyte.gz")[:count]
    labels = read_idx(root, prefix + "-labels-idx1-ubyte.gz")[:count]
    x = torch.from_numpy(pictures.copy()).float().div(255).unsqueeze(1)
    return TensorDataset(x, torch.from_numpy(labels.astype(np.int64)))


def evaluate(model, criterion, loader):
    model.eval()
    loss, correct, count = 0.0, 0, 0
    with torch.no_grad():
        for x, y, _ in loader:
            out = model(x)
            loss += criterion(out, y).item() * len(x)
            if y.dtype == torch.int64:
                correct += (out.argmax(1) == y).sum().item()
            count += len(x)
    model.train()
    return loss / count, correct / count


def train(out, job, model, criterion, optimizer, train_data, valid_data, epochs, shuffle=False, scheduler=None):
    loader = DataLoader(Indexed(train_data), batch_size=32, shuffle=shuffle)
    valid_loader = DataLoader(Indexed(valid_data), batch_size=32)
    losses, order, rows = [], [], []
    for _ in range(epochs):
        total, count = 0.0, 0
        for x, y, index in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
            count += len(x)
            if len(losses) < STEPS:
                losses.append(loss.item())
                order.append(index.numpy())
        rows.append([total / count, *evaluate(model, criterion, valid_loader)])
        if scheduler:
            scheduler.step()
    np.save(os.path.join(out, job + "_losses.npy"), np.array(losses, np.float64))
    np.save(os.path.join(out, job + "_epochs.npy"), np.array(rows, np.float64))
    np.save(os.path.join(out, job + "_order.npy"), np.concatenate(order).astype(np.int64))


def regression(out):
    torch.manual_seed(42)
    data = TensorDataset(torch.rand(10000, 10), torch.rand(10000))
    model = nn.Linear(10, 1)
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 6])
    train(out, "regression", model, nn.MSELoss(), optimizer, data, data, 8, scheduler=scheduler)


def linear(out, root, job, shuffle):
    torch.manual_seed(42)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    train(out, job, model, nn.CrossEntropyLoss(), optimizer, mnist(root, True), mnist(root, False), 2, shuffle=shuffle)


# Max pooling and ReLU over MNIST's flat background jump at ties: there PyTorch's own two convolutions part by percents
# within 200 steps. These two models stay within 1e-6 of their double-precision selves, so that a difference is a fault.
def convolution(out, root):
    torch.manual_seed(42)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2),
                          nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10))
    train_on_few(out, root, "convolution", model)


def pooling(out, root):
    torch.manual_seed(42)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(8, 16, 3),
                          nn.BatchNorm2d(16), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 10))
    train_on_few(out, root, "pooling", model)


def train_on_few(out, root, job, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
    train(out, job, model, nn.CrossEntropyLoss(), optimizer, mnist(root, True, 3200), mnist(root, False, 1000), 2,
          shuffle=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    regression(sys.argv[1])
    if len(sys.argv) > 2:
        linear(sys.argv[1], sys.argv[2], "linear", False)
        linear(sys.argv[1], sys.argv[2], "linear_shuffled", True)
        convolution(sys.argv[1], sys.argv[2])
        pooling(sys.argv[1], sys.argv[2])
