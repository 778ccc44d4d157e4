"""The whole MNIST-linear job in PyTorch: 8 epochs, DataLoader, and the metrics that Lockstep reports for it.

    python3 bench/peer_job.py DATA [RANKS]        prints "seconds peak-memory-in-MB last-valid-accuracy"

DATA holds MNIST's IDX files, gzipped. Metrics are accumulated as tensors and computed once a loader ends, with scikit-learn
for the area under the curve: the cheapest way to the same numbers that is still PyTorch.
"""
import os
import resource
import sys
import time

START = time.perf_counter()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

import mnist  # noqa: E402

EPOCHS, BATCH, CLASSES = 8, 32, 10


class Mnist(Dataset):
    def __init__(self, folder, kind):
        self.images, self.labels = mnist.read(folder, kind)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return torch.from_numpy(self.images[index].copy()).float().div_(255).unsqueeze(0), int(self.labels[index])


def report(logits, targets, losses):
    scores, truth = torch.cat(logits), torch.cat(targets)
    best = scores.topk(5).indices.eq(truth[:, None])
    values = {f"accuracy{k:02d}": best[:, :k].any(1).float().mean().item() for k in (1, 3, 5)}
    predicted = scores.argmax(1).numpy()
    for average in ("micro", "macro", "weighted"):
        values[f"f1/_{average}"] = precision_recall_fscore_support(
            truth.numpy(), predicted, average=average, zero_division=0)[:3]
    one_hot = nn.functional.one_hot(truth, CLASSES).numpy()
    for average in ("micro", "macro", "weighted"):
        values[f"auc/_{average}"] = roc_auc_score(one_hot, scores.numpy(), average=average)
    values["loss"] = float(np.mean(losses))
    return values


def run(rank, ranks, folder):
    torch.set_num_threads(1)
    torch.manual_seed(42)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, CLASSES))
    if ranks > 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29517")
        torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    criterion = nn.CrossEntropyLoss()
    loaders = {}
    for name, kind in (("train", "train"), ("valid", "t10k")):
        data = Mnist(folder, kind)
        sampler = torch.utils.data.distributed.DistributedSampler(data, ranks, rank) if ranks > 1 else None
        loaders[name] = DataLoader(data, batch_size=BATCH, sampler=sampler)
    for epoch in range(EPOCHS):
        for name, loader in loaders.items():
            if ranks > 1:
                loader.sampler.set_epoch(epoch)
            logits, targets, losses = [], [], []
            model.train(name == "train")
            with torch.set_grad_enabled(name == "train"):
                for x, y in loader:
                    output = model(x)
                    loss = criterion(output, y)
                    if name == "train":
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                    logits.append(output.detach())
                    targets.append(y)
                    losses.append(loss.item())
            values = report(logits, targets, losses)
    return values


def main():
    folder, ranks = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    if ranks == 1:
        values = run(0, 1, folder)
        print(f"{time.perf_counter() - START:.2f} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} "
              f"{values['accuracy01']:.4f}")
        return
    import torch.multiprocessing as multiprocessing
    multiprocessing.spawn(run, (ranks, folder), nprocs=ranks)
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{time.perf_counter() - START:.2f} {own + ranks * children:.0f} nan")


if __name__ == "__main__":
    main()
