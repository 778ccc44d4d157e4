#!/usr/bin/python3
"""What bench_fields does, with h5py and NumPy: python3 peer_fields.py FOLDER [ROUNDS]"""
import sys
import time

import h5py
import numpy as np

FOLDER = sys.argv[1]
STEPS = (40, 60, 80, 100, 120, 140, 160, 180, 200, 220, 233, 313, 393)


def read(feature, step):
    with h5py.File("%s/%s_dim17_s9_it%.0f_float32.h5" % (FOLDER, feature, step), "r") as file:
        return file[list(file.keys())[-1]][()]


def load(features):
    return np.array([np.vstack([read(f, s) for f in features])[:, ::2, ::2, ::2] for s in STEPS])


best = 1e9
for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 5):
    start = time.perf_counter()
    x, y = load(("vel", "Bvec", "dvel", "dBvec")), load(("tnvel",))
    best = min(best, time.perf_counter() - start)
print("fields: 65 files loaded and sampled in %.2f ms" % (best * 1e3))
