#!/usr/bin/python3
"""The orders of samples that PyTorch's samplers and DataLoader give: writes tests/golden/data/order.txt.

Each line is a case and its indices, two passes one after the other, then "|" and the next torch.rand(1) of the default
generator, which shows what the passes drew from it. Run: /usr/bin/python3 tests/oracle/data_order.py
"""
import pathlib

import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler


class Numbers(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return index


def passes(loader, count=2):
    order = []
    for _ in range(count):
        for batch in loader:
            order += batch.tolist()
    return order


lines = []


def case(name, make, seed=7):
    torch.manual_seed(seed)
    order = passes(make())
    lines.append(f"{name} {' '.join(map(str, order))} | {torch.rand(1).item():.9g}")


for workers in (0, 2):
    case(f"shuffle-workers{workers}", lambda: DataLoader(Numbers(103), 8, shuffle=True, num_workers=workers))
    case(f"plain-workers{workers}", lambda: DataLoader(Numbers(13), 4, num_workers=workers))
case("drop-last", lambda: DataLoader(Numbers(103), 8, shuffle=True, drop_last=True))
case("generator", lambda: DataLoader(Numbers(50), 8, shuffle=True, generator=torch.Generator().manual_seed(5)))
case("random-replacement", lambda: DataLoader(Numbers(50), 8, sampler=RandomSampler(Numbers(50), True, 70)))
case("random-num-samples", lambda: DataLoader(Numbers(10), 8, sampler=RandomSampler(Numbers(10), num_samples=23)))
case("subset", lambda: DataLoader(Numbers(50), 8, sampler=SubsetRandomSampler(range(3, 50, 4))))
weights = [((i * 37) % 11) / 3 for i in range(40)]
case("weighted", lambda: DataLoader(Numbers(40), 8, sampler=WeightedRandomSampler(weights, 60)))
case("weighted-once", lambda: DataLoader(Numbers(40), 8, sampler=WeightedRandomSampler(weights, 20, replacement=False)))
case("weighted-single", lambda: DataLoader(Numbers(40), 8, sampler=WeightedRandomSampler(weights, 1)))

for length, world in ((10, 3), (103, 4), (2, 5)):
    for rank in range(world):
        for drop in (False, True):
            order = []
            sampler = DistributedSampler(Numbers(length), world, rank, drop_last=drop)
            for epoch in (0, 1):
                sampler.set_epoch(epoch)
                order += list(sampler)
            lines.append(f"distributed-{length}-{world}-{rank}-{int(drop)} {' '.join(map(str, order))} | 0")

torch.manual_seed(1)
order = []
for epoch in range(3):
    order += list(torch.randperm(60000)[:5].tolist())
lines.append(f"large-randperm {' '.join(map(str, order))} | {torch.rand(1).item():.9g}")

path = pathlib.Path(__file__).parent.parent / "golden" / "data" / "order.txt"
path.write_text("\n".join(lines) + "\n")
