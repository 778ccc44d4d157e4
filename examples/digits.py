#!/usr/bin/env python3
"""Trains a classifier of drawn digits, asks it about one of them, and gives its weights to whoever reads NumPy's files. A script for
Catalyst differs in the first lines alone. Ranks: ./digits.py --ddp"""
import sys

import numpy

import lockstep
from lockstep import dl, nn, optim
from lockstep.utils.data import DataLoader

lockstep.manual_seed(42)
model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 32), nn.ReLU(), nn.Linear(32, 10))
train = lockstep.SyntheticDigits(train=True)
valid = lockstep.SyntheticDigits()
runner = dl.SupervisedRunner()
runner.train(
    model=model,
    criterion=nn.CrossEntropyLoss(),
    optimizer=optim.Adam(model.parameters(), lr=0.01),
    loaders={"train": DataLoader(train, batch_size=32, shuffle=True), "valid": DataLoader(valid, batch_size=100)},
    callbacks=[dl.AccuracyCallback(input_key="logits", target_key="targets", num_classes=10)],
    num_epochs=2,
    ddp="--ddp" in sys.argv[1:],
)

if lockstep.rank() == 0:
    logits = runner.predict_batch(numpy.zeros((1, 1, 28, 28), numpy.float32))["logits"]
    assert logits.shape == (1, 10)
    model.save("digits.npz")
    print("weights %s, accuracy %.3f" % (lockstep.weights_hash(model.state_dict())[:16], runner.epoch_metrics["valid"]["accuracy01"]))
