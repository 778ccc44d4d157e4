#!/usr/bin/python3
"""npy_check.py write FOLDER   writes arrays of every kind, 0..11 in shape (3, 4), one file each
npy_check.py read FILE      prints dtype, shape and the values"""
import sys

import numpy as np

if sys.argv[1] == "write":
    for kind in "f4 f8 f2 i8 i4 i2 i1 u1 u2 u4 b1".split():
        for order in "<>":
            array = np.arange(12).reshape(3, 4).astype(order + kind)
            np.save(f"{sys.argv[2]}/{'le' if order == '<' else 'be'}-{kind}.npy", array)
            np.save(f"{sys.argv[2]}/{'le' if order == '<' else 'be'}-{kind}-fortran.npy", np.asfortranarray(array))
    np.save(f"{sys.argv[2]}/scalar.npy", np.float32(7))
    np.save(f"{sys.argv[2]}/vector.npy", np.arange(5))
    np.save(f"{sys.argv[2]}/negative.npy", np.array([-1, -2], dtype=np.int8))
    np.save(f"{sys.argv[2]}/complex.npy", np.zeros(2, dtype=complex))
    np.lib.format.write_array(open(f"{sys.argv[2]}/version2.npy", "wb"), np.arange(3.0), version=(2, 0))
else:
    array = np.load(sys.argv[2])
    print(array.dtype, "x".join(map(str, array.shape)), *array.ravel().tolist())
