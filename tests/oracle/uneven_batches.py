#!/usr/bin/env python3
"""Writes tests/golden/train/uneven.txt: a model trained by PyTorch in one process with 38 rows per batch, plain and with a
weight per row, under a schedule that moves after every update. Ranks that divide the rows must come to the same numbers. One
line per case: loss, weighting and dtype, then the losses of the batches and the parameters at the end.

    /usr/bin/python3 tests/oracle/uneven_batches.py
"""
import pathlib
import torch

ROWS, BATCHES = 38, 6


def fill(shape, start, dtype):
    count = 1
    for n in shape:
        count *= n
    return torch.tensor([((start + 7 * i) % 11 - 5) / 8 for i in range(count)], dtype=dtype).reshape(shape)


def mean(rows, weights):
    return rows.mean() if weights is None else (weights * rows).sum() / weights.sum()


def train(kind, weighted, dtype):
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(dtype)
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            p.copy_(fill(tuple(p.shape), k, dtype))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    weights = torch.tensor([i % 5 / 4 for i in range(ROWS)], dtype=dtype) if weighted else None
    numbers = []
    for i in range(BATCHES):
        y = model(fill((ROWS, 3), 3 * i, dtype))
        if kind == "mse":
            rows = ((y - fill((ROWS, 2), 5 * i + 1, dtype)) ** 2).mean(1)
        else:
            rows = torch.nn.functional.cross_entropy(y, torch.tensor([(i + k) % 2 for k in range(ROWS)]), reduction="none")
        loss = mean(rows, weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        numbers.append(loss.item())
    for p in model.parameters():
        numbers += p.detach().flatten().tolist()
    return numbers


def main():
    path = pathlib.Path(__file__).resolve().parent.parent / "golden" / "train" / "uneven.txt"
    with open(path, "w") as out:
        for kind in ("mse", "ce"):
            for weighted in (0, 1):
                for name, dtype in (("f32", torch.float32), ("f64", torch.float64)):
                    values = train(kind, weighted, dtype)
                    out.write(f"{kind} {weighted} {name} " + " ".join(f"{v:.17g}" for v in values) + "\n")


if __name__ == "__main__":
    main()
