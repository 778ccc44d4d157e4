#!/usr/bin/python3
"""Small .npy files and values of PyTorch's interpolation for the tests: writes tests/golden/data/*.npy and resize.txt.

Run: /usr/bin/python3 tests/oracle/data_files.py
"""
import pathlib

import numpy as np
import torch

folder = pathlib.Path(__file__).parent.parent / "golden" / "data"
x = np.arange(24, dtype=np.float32).reshape(4, 2, 3) / 7
np.save(folder / "x.npy", x)
np.save(folder / "y.npy", np.array([3, 1, 4, 1], dtype=np.int64))
np.save(folder / "bytes.npy", np.arange(8, dtype=np.uint8).reshape(4, 2))
np.save(folder / "scalar.npy", np.float64(2.5))

# A 5x4 picture of bytes (7 i^2 mod 256) resized to 3x6, and another turned by a matrix of grid_sample.
image = torch.tensor([(7 * i * i) % 256 for i in range(20)], dtype=torch.float64).reshape(1, 1, 5, 4) / 255
small = torch.nn.functional.interpolate(image, (3, 6), mode="bilinear", align_corners=False)
theta = torch.tensor([[[0.8, -0.4, 0.1], [0.3, 0.9, -0.2]]], dtype=torch.float64)
grid = torch.nn.functional.affine_grid(theta, (1, 1, 5, 4), align_corners=False)
turned = torch.nn.functional.grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
lines = [" ".join(f"{v:.9g}" for v in t.flatten().tolist()) for t in (small, turned)]
(folder / "resize.txt").write_text("\n".join(lines) + "\n")
