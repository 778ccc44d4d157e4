"""What Catalyst's callbacks make of a supervised run, as PyTorch 1.13 computes it; written to tests/golden/train/objective.lkg.

objective: two criteria (CriterionCallback), their weighted sum (MetricAggregationCallback), the backward half from that
sum with its gradients clipped (BackwardCallback), and plain SGD (OptimizerCallback).
several: a loss of three values, which the keys of one CriterionCallback name.
accumulate: three batches per update, ten per epoch: the callback's counter is never reset, so groups go on in the next epoch.
restart: the same with a count that begins with each epoch, as loops by hand have it; gradients stay.
order: DistributedSampler with set_epoch(1), set_epoch(2), as Catalyst's runner calls it.
"""
import os
import sys

import torch
import torch.nn.functional as F

from nn_golden import Golden

SAMPLES, BATCH, EPOCHS, SEED = 40, 4, 2, 7


def data(golden):
    numbers = torch.Generator().manual_seed(11)
    x = torch.randn((SAMPLES, 5), generator=numbers)
    y = torch.randn((SAMPLES, 3), generator=numbers)
    z = 10 + torch.randn((SAMPLES, 3), generator=numbers)
    golden.add("x", x)
    golden.add("y", y)
    golden.add("z", z)
    return x, y, z


def linear():
    torch.manual_seed(SEED)
    return torch.nn.Linear(5, 3)


def finish(golden, name, rows, model):
    golden.add(name + "/epochs", torch.tensor(rows, dtype=torch.float64))
    golden.add(name + "/weight", model.weight)
    golden.add(name + "/bias", model.bias)


def objective(golden, x, y, z):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows = []
    for _ in range(EPOCHS):
        sums = [0.0] * 4
        for i in range(0, SAMPLES, BATCH):
            output = model(x[i:i + BATCH])
            a, b = F.mse_loss(output, y[i:i + BATCH]), F.l1_loss(output, z[i:i + BATCH])
            loss = 0.75 * a + 0.25 * b
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            for k, value in enumerate((a, b, loss, norm)):
                sums[k] += value.item() * BATCH / SAMPLES
        rows.append(sums)
    finish(golden, "objective", rows, model)


def several(golden, x, y, z):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = torch.nn.TripletMarginLoss(margin=0.5, swap=True)
    rows = []
    for _ in range(EPOCHS):
        total = 0.0
        for i in range(0, SAMPLES, BATCH):
            loss = criterion(model(x[i:i + BATCH]), z[i:i + BATCH], y[i:i + BATCH])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * BATCH / SAMPLES
        rows.append([total])
    finish(golden, "several", rows, model)


def accumulate(golden, x, y, name, restarts):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    counter, rows = 0, []
    for _ in range(EPOCHS):
        total = 0.0
        if restarts:
            counter = 0
        for i in range(0, SAMPLES, BATCH):
            loss = F.mse_loss(model(x[i:i + BATCH]), y[i:i + BATCH])
            loss.backward()
            total += loss.item() * BATCH / SAMPLES
            counter += 1
            if counter % 3 == 0:
                optimizer.step()
                optimizer.zero_grad()
        rows.append([total])
    finish(golden, name, rows, model)


def order(golden):
    for world in (2, 3):
        for rank in range(world):
            sampler = torch.utils.data.distributed.DistributedSampler(range(SAMPLES), world, rank)
            indices = []
            for epoch in (1, 2):
                sampler.set_epoch(epoch)
                indices += list(sampler)
            golden.add("order/%d/%d" % (world, rank), torch.tensor(indices))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
    assert torch.__version__.startswith("1.13"), "the oracle is PyTorch 1.13, not " + torch.__version__
    golden = Golden()
    x, y, z = data(golden)
    objective(golden, x, y, z)
    several(golden, x, y, z)
    accumulate(golden, x, y, "accumulate", False)
    accumulate(golden, x, y, "restart", True)
    order(golden)
    golden.write(os.path.join(folder, "train/objective.lkg"))


if __name__ == "__main__":
    main()
