#!/usr/bin/python3
"""Reads a TensorBoard event file by the format's own rules, without our code: checks each record's two checksums and prints

    version TEXT | scalar STEP TAG VALUE | image STEP TAG HEIGHT WIDTH COLORSPACE PNG_SIGNATURE_OK
    histogram STEP TAG MIN MAX COUNT LIMITS COUNTS | hparams TAG NAME=VALUE... | ended STATUS | node NAME OP INPUTS SHAPE DTYPE
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


def doubles(data):
    return struct.unpack(f"<{len(data) // 8}d", data)


def all_of(data, number):
    return [value for n, value in fields(data) if n == number]


# google.protobuf.Value
def setting(data):
    (number, value), = fields(data)
    return {2: lambda: f"{value:g}", 3: lambda: repr(value.decode()), 4: lambda: str(bool(value))}[number]()


# Summary.Value.metadata of the plug-in "hparams", with the tensor that TensorBoard wants beside it.
def print_hparams(tag, v):
    plugin = dict(fields(dict(fields(v[9]))[1]))
    assert plugin[1] == b"hparams" and v[8] == bytes([8, 1, 18, 2, 18, 0]), plugin
    (number, info), = fields(plugin[2])
    if number == 3:
        entries = [dict(fields(entry)) for entry in all_of(info, 1)]
        assert all_of(info, 5)[0] > 1.6e9
        print("hparams", tag, *sorted(f"{entry[1].decode()}={setting(entry[2])}" for entry in entries))
    if number == 4:
        assert dict(fields(info))[2] > 1.6e9
        print("ended", dict(fields(info))[1])


def print_node(node):
    attrs = {entry[1].decode(): dict(fields(entry[2])) for entry in (dict(fields(one)) for one in all_of(node, 5))}
    shape, = all_of(attrs["_output_shapes"][1], 7)
    dims = [dict(fields(dim)).get(1, 0) for dim in all_of(shape, 2)]
    one = dict(fields(node))
    print("node", one[1].decode(), one[2].decode(), ",".join(name.decode() for name in all_of(node, 3)) or "-", dims, attrs["dtype"][6])


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
        assert number == 1
        if 5 in v:
            h = dict(fields(v[5]))
            print("histogram", event[2], v[1].decode(), f"{h[1]:g} {h[2]:g} {h[3]:g} {h[4]:g} {h[5]:g}", *doubles(h[6]), "|", *doubles(h[7]))
        if 9 in v:
            print_hparams(v[1].decode(), v)
        if 2 in v:
            print("scalar", event[2], v[1].decode(), f"{v[2]:.9g}")
        if 4 in v:
            image = dict(fields(v[4]))
            print("image", event[2], v[1].decode(), image[1], image[2], image[3], image[4][:8] == b"\x89PNG\r\n\x1a\n")
    if 4 in event:
        for node in all_of(event[4], 1):
            print_node(node)
        assert dict(fields(all_of(event[4], 4)[0]))[1] > 0
