"""An epoch of examples/mnist.yml in PyTorch on a GPU: training, validation, and the metrics that Lockstep reports for it.

    python3 bench/peer_gpu_epoch.py DATA WORKERS [EPOCHS]    prints milliseconds

DATA holds MNIST's IDX files, gzipped. WORKERS are the DataLoader's, with pinned memory; 0: the process loads by itself. Steps
are eager, Adam is fused, and metrics are computed on the GPU when a loader has ended. The best of EPOCHS after one that does
not count.
"""
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mnist

BATCH, CLASSES = 32, 10
device = "cuda"


def areas(scores, positive):
    """Under the ROC curve of each column; ties are not looked for."""
    order = scores.argsort(0)
    ranks = torch.arange(1, len(scores) + 1, device=device, dtype=torch.float64)[:, None]
    hits = positive.gather(0, order).double()
    count = hits.sum(0)
    return ((ranks * hits).sum(0) - count * (count + 1) / 2) / (count * (len(scores) - count))


def report(scores, truth, losses):
    best = scores.topk(5).indices.eq(truth[:, None])
    values = [best[:, :k].any(1).float().mean() for k in (1, 3, 5)]
    confusion = torch.bincount(truth * CLASSES + scores.argmax(1), minlength=CLASSES * CLASSES).view(CLASSES, CLASSES)
    hits, support = confusion.diag().double(), confusion.sum(1)
    precision, recall = hits / confusion.sum(0).clamp(min=1), hits / support.clamp(min=1)
    f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-12)
    positive = nn.functional.one_hot(truth, CLASSES)
    per_class = areas(scores, positive)
    values += [m for v in (precision, recall, f1, per_class) for m in (v.mean(), (v * support).sum() / support.sum())]
    values += [areas(scores.reshape(-1, 1), positive.reshape(-1, 1))[0], losses.mean()]
    return torch.stack([v.double() for v in values]).tolist()


def make_model():
    torch.manual_seed(42)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, CLASSES)).to(device)
    return model, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=0.02, fused=True)


def make_epoch(parts, workers):
    model, criterion, optimizer = make_model()
    loaders = [DataLoader(TensorDataset(x, y), BATCH, shuffle=i == 0, num_workers=workers, pin_memory=True,
                          persistent_workers=workers > 0) for i, (x, y) in enumerate(parts)]

    def epoch():
        for trains, loader in zip((True, False), loaders):
            scores, truth, losses = [], [], []
            with torch.set_grad_enabled(trains):
                for x, y in loader:
                    x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
                    output = model(x)
                    loss = criterion(output, y)
                    if trains:
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                    scores.append(output.detach())
                    truth.append(y)
                    losses.append(loss.detach())
            values = report(torch.cat(scores), torch.cat(truth), torch.stack(losses))
        return values

    return epoch


def best_ms(epoch, count):
    epoch()
    best = 1e9
    for _ in range(count):
        torch.cuda.synchronize()
        start = time.perf_counter()
        values = epoch()
        best = min(best, time.perf_counter() - start)
    if not 0.88 < values[0] < 0.95:
        sys.exit(f"accuracy {values[0]:.4f}: it did not learn")
    return best * 1e3


def main():
    folder, workers, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 3
    read = lambda kind: (torch.tensor(array) for array in mnist.read(folder, kind))
    parts = [(images.float()[:, None] / 255, labels) for images, labels in (read("train"), read("t10k"))]
    print(f"{best_ms(make_epoch(parts, workers), count):.1f}")


if __name__ == "__main__":
    main()
