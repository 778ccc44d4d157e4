#!/usr/bin/python3
"""Reads a safetensors file by the format's own rules, without our code, and writes one.

    safetensors_check.py read FILE          prints "NAME DTYPE SHAPE SUM" per tensor, after checking the layout
    safetensors_check.py write FILE         writes a file with one tensor of each dtype, oddly aligned
"""
import json
import struct
import sys

import numpy as np

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?", "BF16": "<u2"}


def values_of(dtype, raw):
    values = np.frombuffer(raw, DTYPES[dtype])
    if dtype == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32).astype(float)
    return values.astype(float)


def read(path):
    data = open(path, "rb").read()
    (n,) = struct.unpack("<Q", data[:8])
    assert n % 8 == 0 and n <= 100_000_000 and data[8:9] == b"{"
    header = json.loads(data[8:8 + n])
    metadata = header.pop("__metadata__")
    assert all(isinstance(v, str) for v in metadata.values())
    buffer, at = data[8 + n:], 0
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = t["data_offsets"]
        assert begin == at, (name, begin, at)
        at = end
        assert end - begin == int(np.prod(t["shape"], dtype=int)) * np.dtype(DTYPES[t["dtype"]]).itemsize
        assert begin % np.dtype(DTYPES[t["dtype"]]).itemsize == 0
    assert at == len(buffer)
    for name, t in header.items():
        begin, end = t["data_offsets"]
        print(name, t["dtype"], "x".join(map(str, t["shape"])) or "-", repr(values_of(t["dtype"], buffer[begin:end]).sum()))


def write(path):
    header, buffer = {"__metadata__": {"author": "nobody"}}, b""
    for i, (name, dtype) in enumerate([("u8", "U8"), ("f32", "F32"), ("f64", "F64"), ("f16", "F16"), ("bf16", "BF16"),
                                       ("i64", "I64"), ("i32", "I32"), ("bool", "BOOL")]):
        values = np.arange(3) + i
        if dtype == "BF16":
            raw = (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
        else:
            raw = values.astype(DTYPES[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": [3, 1], "data_offsets": [len(buffer), len(buffer) + len(raw)]}
        buffer += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + buffer)


{"read": read, "write": write}[sys.argv[1]](sys.argv[2])
