"""A small residual network trained by PyTorch in f32 and under autocast(bfloat16), on the CPU.

    /usr/bin/python3 tests/oracle/autocast.py > tests/golden/train/autocast.txt

A row a step: the loss in f32, the loss under autocast. Weights and pictures are those of torch.manual_seed(5), which the library
draws too.
"""
import torch
from torch import nn

STEPS = 30


class Residual(nn.Module):
    def __init__(self, path):
        super().__init__()
        self.path = path

    def forward(self, x):
        return self.path(x) + x


def make():
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1),
        Residual(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                               nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))),
        nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 10))
    x = torch.randn(16, 3, 16, 16)
    return model, x, torch.arange(16) * 7 % 10


def losses(low):
    model, x, y = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
            out = model(x)
        loss = nn.functional.cross_entropy(out.float(), y)
        loss.backward()
        optimizer.step()
        yield loss.item()


for wide, low in zip(losses(False), losses(True)):
    print(f"{wide:.8f} {low:.8f}")
