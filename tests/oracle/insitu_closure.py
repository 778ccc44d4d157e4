#!/usr/bin/env python3
"""Writes tests/golden/insitu/closure.txt: the loss curve of examples/insitu/closure.c, by NumPy and PyTorch in one process: the
same solver on one rank, and the same network trained on the cells of the ranks that learn, the first half of the ring.

    /usr/bin/python3 tests/oracle/insitu_closure.py
"""
import pathlib
import numpy as np
import torch

COARSE, RATIO, SUBSTEPS, STEPS, REPEATS = 64, 8, 16, 60, 4
NU, DT = 1e-3, 0.5 / COARSE


def wave(at):
    at = at - np.floor(at)
    return 16 * (at * (1 - at)) ** 2


def advance(v, h, dt):
    left, right = np.roll(v, 1), np.roll(v, -1)
    return v - dt / h * (v - left) + NU * dt / (h * h) * (right - 2 * v + left)


def main():
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    at = (np.arange(COARSE * RATIO) + 0.5) / (COARSE * RATIO)
    fine = wave(at) + 0.5 * wave(3 * at) + 0.25 * wave(5 * at + 0.3)
    folder = pathlib.Path(__file__).resolve().parent.parent / "golden" / "insitu"
    folder.mkdir(exist_ok=True)
    with open(folder / "closure.txt", "w") as out:
        for number in range(1, STEPS + 1):
            coarse = fine.reshape(COARSE, RATIO).mean(1)
            x = np.stack([np.roll(coarse, 2 - k) for k in range(5)], 1)
            coarse = advance(coarse, 1 / COARSE, DT)
            for _ in range(SUBSTEPS):
                fine = advance(fine, 1 / (COARSE * RATIO), DT / SUBSTEPS)
            y = ((fine.reshape(COARSE, RATIO).mean(1) - coarse) / DT)[:, None]
            for _ in range(REPEATS):
                loss = torch.nn.functional.mse_loss(net(torch.from_numpy(x[: COARSE // 2])), torch.from_numpy(y[: COARSE // 2]))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            out.write(f"{number} {loss.item():.17g}\n")


if __name__ == "__main__":
    main()
