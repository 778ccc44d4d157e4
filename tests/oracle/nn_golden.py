"""The container of golden numbers: a list of named arrays.

    "LKG1"  u32 count  { u16 length, name, u8 dtype, u8 rank, u32 dim..., data }   little-endian

dtype is the library's number for it (lk_dtype): 0 f32, 1 f64, 4 i64, 7 bool.
"""
import os
import struct

import numpy as np

DTYPES = {np.dtype("float32"): 0, np.dtype("float64"): 1, np.dtype("int64"): 4, np.dtype("bool"): 7}


class Golden:
    def __init__(self):
        self.entries = {}

    def add(self, name, value):
        if hasattr(value, "detach"):
            value = value.detach().numpy()
        assert name not in self.entries, name
        self.entries[name] = np.array(value, copy=True, order="C")

    def write(self, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"LKG1" + struct.pack("<I", len(self.entries)))
            for name, array in self.entries.items():
                encoded = name.encode()
                file.write(struct.pack("<H", len(encoded)) + encoded)
                file.write(struct.pack("<BB", DTYPES[array.dtype], array.ndim))
                file.write(struct.pack("<%dI" % array.ndim, *array.shape))
                file.write(array.tobytes())
        print("%s: %d arrays, %d bytes" % (path, len(self.entries), os.path.getsize(path)))
