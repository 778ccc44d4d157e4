#!/usr/bin/python3
"""The same training in PyTorch with the conversions written out, for tests/cli/test_dtypes.c.

Run: dtypes_live.py FOLDER class|regression FEATURES.npy TARGETS.npy; it prints the loss of each epoch.
"""
import pathlib
import sys

import numpy as np
import torch

folder, kind, features, targets = pathlib.Path(sys.argv[1]), *sys.argv[2:5]
x = torch.from_numpy(np.load(folder / features)).float()
y = torch.from_numpy(np.load(folder / targets))
y = y.long() if kind == "class" else y.float()

torch.manual_seed(42)
model = torch.nn.Linear(5, 3 if kind == "class" else 1)
criterion = torch.nn.CrossEntropyLoss() if kind == "class" else torch.nn.BCEWithLogitsLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    total = 0.0
    for begin in range(0, len(x), 8):
        out = model(x[begin:begin + 8])
        loss = criterion(out, y[begin:begin + 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(out)
    print(f"{total / len(x):.9g}")
