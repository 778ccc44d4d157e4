#!/usr/bin/python3
"""Trains Sapsan's CNN3d in PyTorch on the real velocity at 16^3 and prints the losses that test_cnn3d.c holds.

    /usr/bin/python3 estimator_cnn3d.py SHARED/data/sapsan/cnn_krr/t0/u_dim32_fm15.h5      needs h5py
"""
import sys

import h5py
import torch
from torch import nn

u = torch.tensor(h5py.File(sys.argv[1], "r")["u00000"][:, ::2, ::2, ::2])[None]


class CNN3d(nn.Module):
    def __init__(self, d, outputs):
        super().__init__()
        self.conv3d = nn.Conv3d(d, 2 * d, 2, stride=2, padding=1)
        self.pool = nn.MaxPool3d(2, padding=1)
        self.conv3d2 = nn.Conv3d(2 * d, 2 * d, 2, stride=2, padding=1)
        self.pool2 = nn.MaxPool3d(2, padding=1)
        self.conv3d3 = nn.Conv3d(2 * d, 4 * d, 2, stride=2, padding=1)
        self.pool3 = nn.MaxPool3d(2)
        self.relu = nn.ReLU()
        self.linear = nn.Linear(4 * d, 8 * d)
        self.linear2 = nn.Linear(8 * d, outputs)

    def forward(self, x):
        x = self.relu(self.pool(self.conv3d(x)))
        x = self.relu(self.pool2(self.conv3d2(x)))
        x = self.pool3(self.conv3d3(x)).flatten(1)
        return self.linear2(self.relu(self.linear(x)))


torch.manual_seed(0)
model = CNN3d(u.shape[1], u[0].numel())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(100):
    loss = nn.functional.smooth_l1_loss(model(u), u.flatten(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step < 5 or step == 99:
        print(step + 1, "%.9e" % loss.item())
