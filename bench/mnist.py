"""MNIST's files, for the peers in PyTorch."""
import gzip
import os

import numpy as np


def read(folder, kind):
    """The pictures (n, 28, 28) as bytes and the classes as int64; kind is "train" or "t10k"."""
    with gzip.open(os.path.join(folder, f"{kind}-images-idx3-ubyte.gz")) as f:
        images = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(os.path.join(folder, f"{kind}-labels-idx1-ubyte.gz")) as f:
        return images, np.frombuffer(f.read(), np.uint8, offset=8).astype(np.int64)
