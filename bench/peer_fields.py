#!/usr/bin/python3
"""What bench_fields does, with h5py and NumPy: python3 peer_fields.py [plain|packed] FOLDER [ROUNDS]"""
import sys
import time

import h5py
import numpy as np

KIND = sys.argv.pop(1) if sys.argv[1] in ("plain", "packed") else None
FOLDER = sys.argv[1]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
STEPS = (40, 60, 80, 100, 120, 140, 160, 180, 200, 220, 233, 313, 393)


def read(feature, step):
    with h5py.File("%s/%s_dim17_s9_it%.0f_float32.h5" % (FOLDER, feature, step), "r") as file:
        return file[list(file.keys())[-1]][()]


def load(features):
    return np.array([np.vstack([read(f, s) for f in features])[:, ::2, ::2, ::2] for s in STEPS])


def load_kind(count):
    x = np.empty((count, 1, 128, 128, 128), np.float32)
    for i in range(count):
        with h5py.File("%s/%s_%d.h5" % (FOLDER, KIND, i), "r") as file:
            file["field"].read_direct(x[i, 0])
    assert np.isfinite(x).all()
    return x


best = 1e9
for _ in range(ROUNDS):
    start = time.perf_counter()
    if KIND:
        load_kind(64 if KIND == "plain" else 8)
    else:
        load(("vel", "Bvec", "dvel", "dBvec")), load(("tnvel",))
    best = min(best, time.perf_counter() - start)
if KIND:
    print("fields: %d %s files of 8 MB loaded in %.0f ms" % (64 if KIND == "plain" else 8, KIND, best * 1e3))
else:
    print("fields: 65 files loaded and sampled in %.2f ms" % (best * 1e3))
