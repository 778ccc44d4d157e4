#!/usr/bin/python3
"""What PyTorch 1.13 says of the first epochs of four programs of examples/minimal, from the same seed.

    minimal_examples.py

The numbers stand in examples/CMakeLists.txt.
"""
import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def classes(begin, end):
    return lambda x: x[:, begin:end].argmax(1)


def labels(end, limit):
    return lambda x: (x[:, :end] > limit).float()


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared, self.head1, self.head2 = nn.Linear(10, 64), nn.Linear(64, 4), nn.Linear(64, 6)

    def forward(self, x):
        code = F.relu(self.shared(x))
        return self.head1(code), self.head2(code)


def samples(count, targets):
    x = torch.rand(count, 10)
    return TensorDataset(x, *[target(x) for target in targets])


def mean(loader, function):
    total = count = 0
    for x, *y in loader:
        total += function(x, y) * len(x)
        count += len(x)
    return total / count


def run(name, make, targets, criterion, lr, model_first=False):
    torch.manual_seed(42)
    model = make() if model_first else None
    train, valid = samples(2000, targets), samples(500, targets)
    model = model or make()
    optimizer = optim.Adam(model.parameters(), lr=lr)

    def loss(x, y):
        out = model(x)
        out = out if isinstance(out, tuple) else (out,)
        return sum(criterion(a, b) for a, b in zip(out, y)) / len(y)

    def step(x, y):
        value = loss(x, y)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return value.item()

    print(name)
    for epoch in (1, 2):
        trained = mean(DataLoader(train, batch_size=32, shuffle=True), step)
        with torch.no_grad():
            tested = mean(DataLoader(valid, batch_size=32), lambda x, y: loss(x, y).item())
        print("    epoch %d  train loss %.4f  valid loss %.4f" % (epoch, trained, tested))


def main():
    torch.set_num_threads(1)
    run("multiclass", lambda: nn.Linear(10, 4), [classes(0, 4)], F.cross_entropy, 0.02)
    run("multilabel", lambda: nn.Linear(10, 4), [labels(4, 0.5)], F.binary_cross_entropy_with_logits, 0.05)
    run("multihead", Heads, [classes(0, 4), classes(4, 10)], F.cross_entropy, 0.02, model_first=True)
    run("recsys", lambda: nn.Linear(10, 10), [labels(10, 0.8)], F.binary_cross_entropy_with_logits, 0.02)


if __name__ == "__main__":
    main()
