"""Times one training step of the models of docs/performance.md in PyTorch, data in memory.

    python3 bench/peer_step.py WORKLOAD [SECONDS] [THREADS] [RANKS]    prints "WORKLOAD microseconds peak-memory-in-MB last-loss"

The counterpart of bench_step.c: same models, same shapes, same optimizers, one thread unless told otherwise. More than one rank
is DistributedDataParallel over Gloo.
"""
import gzip
import os
import resource
import sys
import time

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/oracle"))
from models import cnn3d, convnet  # noqa: E402


def labels(count):
    return torch.arange(count) % 10


def pictures(*shape):
    """The first digits of MNIST where it is there, else random numbers, as bench_step.c."""
    folder = os.path.join(os.environ.get("LOCKSTEP_SHARED", "../shared"), "data/mnist")
    try:
        with gzip.open(os.path.join(folder, "train-images-idx3-ubyte.gz")) as f:
            data = f.read(16 + shape[0] * 784)[16:]
    except OSError:
        return torch.rand(*shape)
    return torch.tensor(list(data), dtype=torch.float32).div_(255).reshape(shape)


class Outputs(nn.LSTM):
    def forward(self, x):
        return super().forward(x)[0]


def workload(name):
    adam = torch.optim.Adam
    if name == "lstm-256":
        return (Outputs(256, 256, 2, batch_first=True), nn.MSELoss(), lambda p: adam(p, lr=1e-3),
                torch.rand(32, 64, 256), torch.rand(32, 64, 256))
    if name == "mnist-linear":
        return (nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), nn.CrossEntropyLoss(),
                lambda p: adam(p, lr=0.02), pictures(32, 1, 28, 28), labels(32))
    if name == "toy-mlp":
        return (nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10)), nn.CrossEntropyLoss(),
                lambda p: torch.optim.SGD(p, lr=1e-3), pictures(128, 784), labels(128))
    if name == "cnn3d-16":
        return (cnn3d(3, 12288), nn.SmoothL1Loss(), lambda p: adam(p, lr=1e-3),
                torch.rand(8, 3, 16, 16, 16), torch.rand(8, 12288))
    if name == "cnn3d-32":
        return (cnn3d(3, 98304), nn.SmoothL1Loss(), lambda p: adam(p, lr=1e-3),
                torch.rand(16, 3, 32, 32, 32), torch.rand(16, 98304))
    if name == "convnet":
        return (convnet(), nn.CrossEntropyLoss(), lambda p: adam(p, lr=1e-3),
                pictures(64, 1, 28, 28), labels(64))
    sys.exit(f"unknown workload {name}")


def measure(rank, name, seconds, threads, ranks):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, criterion, make_optimizer, x, y = workload(name)
    if ranks > 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29519")
        torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = make_optimizer(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def agree(block):
        """How many steps the next block has; 0 ends it. Rank 0 says so."""
        if ranks == 1:
            return block
        said = torch.tensor([block])
        torch.distributed.broadcast(said, 0)
        return int(said)

    for _ in range(3):
        step()
    best, block, end = 1e9, 1, time.perf_counter() + seconds
    while block:
        start = time.perf_counter()
        for _ in range(block):
            loss = step()
        elapsed = time.perf_counter() - start
        best = min(best, elapsed / block)
        block = agree(0 if time.perf_counter() > end else 2 * block if elapsed < 0.02 else block)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if rank == 0:
        print(f"{name} {best * 1e6:.1f} {memory:.1f} {loss.item():.6g}", flush=True)


def main():
    name = sys.argv[1]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    ranks = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    if ranks == 1:
        measure(0, name, seconds, threads, 1)
        return
    import torch.multiprocessing as multiprocessing
    multiprocessing.spawn(measure, (name, seconds, threads, ranks), nprocs=ranks)


if __name__ == "__main__":
    main()
