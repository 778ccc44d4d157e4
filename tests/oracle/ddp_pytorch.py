"""Trains with two PyTorch ranks over Gloo what tests/train/test_slow_ddp_live.c trains with two ranks of the library.

    /usr/bin/python3 ddp_pytorch.py OUT

OUT/ddp_losses.npy (ranks, steps) and OUT/ddp_order.npy (ranks, epochs * samples of a rank).
"""
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

RANKS, EPOCHS, BATCH, SAMPLES = 2, 3, 8, 203


def train(rank, out, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    torch.set_num_threads(1)
    torch.manual_seed(5)
    x, y = torch.rand(SAMPLES, 12), torch.rand(SAMPLES, 1)
    data = TensorDataset(x, y, torch.arange(SAMPLES))
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 1))
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    losses, order = [], []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch + 1)  # as Catalyst's runner does
        for features, targets, index in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(features), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            order.extend(index.tolist())
    gathered = [None] * RANKS
    dist.all_gather_object(gathered, (losses, order))
    if rank == 0:
        np.save(os.path.join(out, "ddp_losses.npy"), np.array([g[0] for g in gathered], np.float64))
        np.save(os.path.join(out, "ddp_order.npy"), np.array([g[1] for g in gathered], np.int64))


if __name__ == "__main__":
    multiprocessing.spawn(train, (sys.argv[1], 20000 + os.getpid() % 12000), nprocs=RANKS)
