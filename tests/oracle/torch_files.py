"""Writes tests/golden/checkpoint/*.pt: small files of torch.save with every kind of tensor that is read.

Run with PyTorch 1.13: /usr/bin/python3 tests/oracle/torch_files.py
"""
import collections
import pathlib

import torch

folder = pathlib.Path(__file__).parent.parent / "golden" / "checkpoint"
folder.mkdir(parents=True, exist_ok=True)
torch.save(torch.arange(6.0).reshape(2, 3) / 2, folder / "tensor.pt")
whole = torch.arange(24).reshape(2, 3, 4)
torch.save(
    {
        "model": torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1)).state_dict(),
        "epoch": 3,
        "lr": 0.1,
        "name": "run",
        "list": [torch.tensor(7), torch.ones(2, dtype=torch.float64) / 3],
        "half": torch.tensor([1.5, -2.0], dtype=torch.float16),
        "bfloat": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "bool": torch.tensor([True, False, True]),
        "byte": torch.tensor([1, 255], dtype=torch.uint8),
        "int": torch.tensor([-5], dtype=torch.int32),
        "permuted": whole.permute(2, 0, 1),
        "part": whole[1, 1:, ::2],
        "empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(torch.tensor([4.0])),
    },
    folder / "nested.pt",
)
torch.save({"epoch": 3}, folder / "no_tensor.pt")
torch.save(torch.tensor([1], dtype=torch.int8), folder / "int8.pt")

torch.save(  # beside the tensors what people keep with them
    {
        "recent": collections.deque([0.5, torch.tensor([1.0, 2.0])], maxlen=3),
        "one": collections.deque([torch.tensor(3)]),
        "big": 2**70,
        "negative": -(2**64),
        "huge": 2**4000,
        2**65: torch.tensor([7.0]),
        "seen": {1, 2},
        "counts": collections.Counter("aab"),
        "last": torch.tensor([4.0]),
    },
    folder / "other_values.pt",
)
