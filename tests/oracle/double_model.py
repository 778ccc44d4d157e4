#!/usr/bin/env python3
"""Writes tests/golden/train/double.txt: a model in float64, trained by PyTorch. One line per optimizer: its name, then the
losses of the batches and the parameters and running statistics at the end.

    /usr/bin/python3 tests/oracle/double_model.py
"""
import pathlib
import torch

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


def fill(shape, start):
    count = 1
    for n in shape:
        count *= n
    return torch.tensor([((start + 7 * i) % 11 - 5) / 8 for i in range(count)], dtype=torch.float64).reshape(shape)


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "golden" / "train"
    with open(folder / "double.txt", "w") as out:
        for name, make in OPTIMIZERS.items():
            model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).double()
            with torch.no_grad():
                for k, p in enumerate(model.parameters()):
                    p.copy_(fill(tuple(p.shape), k) + (1.25 if k == 2 else 0))
            optimizer = make(model.parameters())
            numbers = []
            for i in range(5):
                x, y = fill((6, 3), 3 * i), fill((6, 2), 5 * i + 1)
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                numbers.append(loss.item())
            for t in list(model.parameters()) + [model[1].running_mean, model[1].running_var]:
                numbers += t.detach().flatten().tolist()
            out.write(name + " " + " ".join(f"{v:.17g}" for v in numbers) + "\n")


if __name__ == "__main__":
    main()
