#!/usr/bin/python3
"""One epoch of the linear model on MNIST in PyTorch, as Catalyst's first script runs it: seed 42 before the model, batches
of 32 in order, Adam 0.02, pixels / 255. Writes the test set's logits, labels and batch losses as .npy files.

    metric_mnist.py FOLDER_OF_MNIST OUT_FOLDER
"""
import gzip
import sys

import numpy as np
import torch


def images(name):
    raw = gzip.open(f"{sys.argv[1]}/{name}-images-idx3-ubyte.gz").read()
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 784).copy()).float() / 255


def labels(name):
    raw = gzip.open(f"{sys.argv[1]}/{name}-labels-idx1-ubyte.gz").read()
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=8).astype(np.int64))


torch.set_num_threads(1)
x, y, xv, yv = images("train"), labels("train"), images("t10k"), labels("t10k")
torch.manual_seed(42)
model = torch.nn.Linear(784, 10)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
criterion = torch.nn.CrossEntropyLoss()
for i in range(0, len(x), 32):
    loss = criterion(model(x[i:i + 32]), y[i:i + 32])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    logits = model(xv)
    losses = [float(criterion(logits[i:i + 32], yv[i:i + 32])) for i in range(0, len(xv), 32)]
np.save(f"{sys.argv[2]}/logits.npy", logits.numpy())
np.save(f"{sys.argv[2]}/targets.npy", yv.numpy())
np.save(f"{sys.argv[2]}/losses.npy", np.array(losses))
