#!/usr/bin/python3
"""Reads a TensorBoard event file by the format's own rules, without our code: checks each record's two checksums and prints

    version TEXT | scalar STEP TAG VALUE | image STEP TAG HEIGHT WIDTH COLORSPACE PNG_SIGNATURE_OK
"""
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif wire == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            n, at = varint(data, at)
            value, at = data[at:at + n], at + n
        yield key >> 3, value


data, at = open(sys.argv[1], "rb").read(), 0
while at < len(data):
    (length,) = struct.unpack_from("<Q", data, at)
    assert struct.unpack_from("<I", data, at + 8)[0] == masked(data[at:at + 8]), "length"
    body = data[at + 12:at + 12 + length]
    assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(body), "data"
    at += 16 + length
    event = dict(fields(body))
    assert event[1] > 1.6e9
    if 3 in event:
        print("version", event[3].decode())
    for number, value in fields(event.get(5, b"")):
        v = dict(fields(value))
        if 2 in v:
            print("scalar", event[2], v[1].decode(), f"{v[2]:.9g}")
        if 4 in v:
            image = dict(fields(v[4]))
            print("image", event[2], v[1].decode(), image[1], image[2], image[3], image[4][:8] == b"\x89PNG\r\n\x1a\n")
