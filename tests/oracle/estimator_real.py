#!/usr/bin/python3
"""What NumPy and SciPy say of every real field of a folder.

    /usr/bin/python3 estimator_real.py FOLDER --golden    prints tests/golden/estimator/real_fields.txt
    /usr/bin/python3 estimator_real.py FOLDER OUT         writes OUT/NUMBER_{ks,edges,density,energy}.npy, file by file

FOLDER holds HDF5 files; of each the last array is taken, (channels, size...). The numbers are: the KS statistic of the first
two channels, the density of all values in 100 bins, and the power spectrum. Exits with 77 where a library is missing.
"""
import glob
import os
import sys

try:
    import h5py
    import numpy as np
    from scipy import stats
except ImportError as error:
    print(error)
    sys.exit(77)


def spectrum(field):
    size = field.shape[1:]
    power = sum(np.abs(np.fft.fftn(c) / c.size) ** 2 for c in field)
    waves = np.meshgrid(*[np.fft.fftfreq(n, 1 / n) for n in size], indexing="ij")
    shell = np.floor(np.sqrt(sum(k**2 for k in waves)) + 0.5).astype(int)
    return np.array([0.5 * power[shell == k].sum() for k in range(1, min(size) // 2 + 1)])


def measure(path):
    with h5py.File(path, "r") as file:
        field = file[list(file)[-1]][...].astype(np.float64)
    density, edges = np.histogram(field.ravel(), bins=100, density=True)
    ks = stats.ks_2samp(field[0].ravel(), field[1].ravel(), method="asymp").statistic
    return {"ks": [ks], "edges": edges, "density": density, "energy": spectrum(field)}


folder = sys.argv[1]
paths = sorted(glob.glob(folder + "/*/*.h5") + glob.glob(folder + "/*/*/*.h5"))
if sys.argv[2] == "--golden":
    print("# Made by tests/oracle/estimator_real.py: file, dims, KS statistic, first and last edge, middle densities, energies")
for number, path in enumerate(paths):
    values = measure(path)
    if sys.argv[2] != "--golden":
        for name, value in values.items():
            np.save("%s/%d_%s.npy" % (sys.argv[2], number, name), np.asarray(value, dtype=np.float64))
        continue
    with h5py.File(path, "r") as file:
        dims = file[list(file)[-1]].ndim - 1
    e, d = values["energy"], values["density"]
    numbers = [values["ks"][0], values["edges"][0], values["edges"][-1], d[49], d[50], e[0], e[1], e[-1]]
    print(os.path.relpath(path, folder), dims, " ".join("%.17g" % x for x in numbers))
