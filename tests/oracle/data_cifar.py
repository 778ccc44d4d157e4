#!/usr/bin/python3
"""Small files in the form of CIFAR's Python version, for tests/data/test_collections.c: writes tests/golden/data/cifar*.pickle.

The published files were pickled by Python 2, whose strings have instructions that Python 3 writes no more. They are written here
one by one, and read back as torchvision reads them.

Run: /usr/bin/python3 tests/oracle/data_cifar.py
"""
import pathlib
import pickle
import struct

import numpy as np

folder = pathlib.Path(__file__).parent.parent / "golden" / "data"


def text(value):
    return b"U" + bytes([len(value)]) + value.encode()


def ints(values):
    return b"](" + b"".join(b"K" + bytes([v]) for v in values) + b"e"


def texts(values):
    return b"](" + b"".join(text(v) for v in values) + b"e"


def array(pixels):
    count, width = pixels.shape
    dtype = b"cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    raw = pixels.tobytes()
    return (b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b") + b"\x87R(K\x01M" + struct.pack("<H", count)
            + b"M" + struct.pack("<H", width) + b"\x86" + dtype + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb")


def write(name, items):
    data = b"\x80\x02}q\x01(" + b"".join(text(key) + value for key, value in items) + b"u."
    (folder / name).write_bytes(data)
    return pickle.loads(data, encoding="latin1")


# Picture i has pixel k = (3 k + 50 i + k / 1024) mod 256.
k = np.arange(3072)
pixels = np.stack([(3 * k + 50 * i + k // 1024) % 256 for i in range(2)]).astype(np.uint8)
ten = write("cifar10.pickle", [("batch_label", text("training batch 1 of 5")), ("labels", ints([6, 9])), ("data", array(pixels)),
                               ("filenames", texts(["a.png", "b.png"]))])
assert (ten["data"] == pixels).all() and ten["labels"] == [6, 9]
hundred = write("cifar100.pickle", [("filenames", texts(["a.png", "b.png"])), ("fine_labels", ints([19, 99])),
                                    ("coarse_labels", ints([11, 3])), ("data", array(pixels))])
assert (hundred["data"] == pixels).all() and hundred["coarse_labels"] == [11, 3]
names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
assert write("cifar10_names.pickle", [("num_cases_per_batch", b"M\x10'"), ("label_names", texts(names))])["label_names"] == names
