#!/usr/bin/env python3
"""Writes tests/golden/train/unreached.txt: parameters that some losses do not reach, trained by PyTorch.

A trunk and two heads; each batch's loss goes through one head, and the fourth layer is in no loss. Gradients are set to
None before each batch, so that the optimizer leaves alone what no gradient reaches. One line per optimizer: its name, then
all parameters after the last batch. Run with PyTorch 1.13 or newer:

    /usr/bin/python3 tests/oracle/unreached_parameters.py
"""
import pathlib
import torch

HEADS = [1, 1, 0, 1, 0, 0, 1, 0]  # which head the loss of each batch goes through
ROWS = [4, 3]                     # the rows of a batch say which head it is


def fill(shape, start):
    count = 1
    for n in shape:
        count *= n
    return torch.tensor([((start + 7 * i) % 11 - 5) / 8 for i in range(count)], dtype=torch.float64).reshape(shape)


def make_model():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1), torch.nn.Linear(2, 1), torch.nn.Linear(2, 2))
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            p.copy_(fill(tuple(p.shape), k))
    return model.float()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.05),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.05),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, weight_decay=0.05),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.05, weight_decay=0.05),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.05, lambd=0.1, t0=2),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.05),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.05, initial_accumulator_value=0.1),
}


def train(make_optimizer, accumulation):
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    optimizer.zero_grad(set_to_none=True)
    for i, head in enumerate(HEADS):
        x = fill((ROWS[head], 3), 3 * i).float()
        loss = (model[1 + head](model[0](x)) ** 2).mean()
        loss.backward()
        if (i + 1) % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "golden" / "train"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "unreached.txt", "w") as out:
        for accumulation in (1, 2):
            for name, make in OPTIMIZERS.items():
                values = train(make, accumulation)
                out.write(f"{name} {accumulation} " + " ".join(f"{v:.9g}" for v in values.tolist()) + "\n")


if __name__ == "__main__":
    main()
