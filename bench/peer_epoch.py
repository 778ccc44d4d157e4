"""Times a step of the MNIST-linear job in PyTorch with its DataLoader, one process or several over Gloo.

    python3 bench/peer_epoch.py DATA [RANKS [SECONDS]]        prints "microseconds-a-step"

The counterpart of bench_epoch.c: the best of blocks of 100 batches of 32 samples. Each rank has one thread.
"""
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from peer_job import Mnist

BLOCK = 100


def run(rank, folder, ranks, seconds):
    torch.set_num_threads(1)
    torch.manual_seed(42)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    if ranks > 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29523")
        torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    criterion = nn.CrossEntropyLoss()
    data = Mnist(folder, "train")
    loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data, ranks, rank) if ranks > 1 else None)
    best, steps, begin = 1e9, 0, time.perf_counter()
    start, going = begin, True
    while going:
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            steps += 1
            if steps % BLOCK:
                continue
            now = time.perf_counter()
            best = min(best, (now - start) / BLOCK)
            end = torch.tensor([int(now - begin > seconds)])
            if ranks > 1:
                torch.distributed.broadcast(end, 0)
            going = not bool(end)
            if not going:
                break
            start = time.perf_counter()
    if rank == 0:
        print(f"{best * 1e6:.1f}", flush=True)


def main():
    folder, ranks = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 4.0
    if ranks == 1:
        run(0, folder, 1, seconds)
        return
    import torch.multiprocessing as multiprocessing
    multiprocessing.spawn(run, (folder, ranks, seconds), nprocs=ranks)


if __name__ == "__main__":
    main()
