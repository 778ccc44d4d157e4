"""Writes tests/parsers/corpus and tests/parsers/labels.h5: small inputs for the fuzz targets, made by the programs whose formats they are.
parsers_corpus.py (from the repository's root; needs NumPy, PyTorch, h5py)."""
import gzip
import io
import json
import os
import pathlib
import shutil
import struct
import tarfile
import zlib

import h5py
import numpy
import torch

CORPUS = 'tests/parsers/corpus'


def put(parser, name, data):
    os.makedirs(f'{CORPUS}/{parser}', exist_ok=True)
    with open(f'{CORPUS}/{parser}/{name}', 'wb') as file:
        file.write(data.encode() if isinstance(data, str) else bytes(data))


def written(write, *arguments, **options):
    buffer = io.BytesIO()
    write(buffer, *arguments, **options)
    return buffer.getvalue()


def safetensors(header, data=b''):
    text = header if isinstance(header, str) else json.dumps(header)
    return struct.pack('<Q', len(text)) + text.encode() + data


def png(width, height, kind, rows, more=b''):
    def chunk(name, data):
        return struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, kind, 0, 0, 0)) + more +
            chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return struct.pack('<I', ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff)


def record(event):
    length = struct.pack('<Q', len(event))
    return length + masked(length) + event + masked(event)


def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


def scalar_event(step, tag, value):
    summary = field(1, field(1, tag.encode()) + bytes([2 << 3 | 5]) + struct.pack('<f', value))
    return bytes([1 << 3 | 1]) + struct.pack('<d', 1.5) + bytes([2 << 3, step]) + field(5, summary)


def histogram_event(step):
    doubles = b''.join(bytes([n << 3 | 1]) + struct.pack('<d', v) for n, v in ((1, -1), (2, 2), (3, 3), (4, 1), (5, 5)))
    packed = field(6, struct.pack('<2d', 0, 2)) + field(7, struct.pack('<2d', 1, 2))
    return bytes([2 << 3, step]) + field(5, field(1, field(1, b'weights/0') + field(5, doubles + packed)))


def data_files():
    array = numpy.arange(6, dtype='<f4').reshape(2, 3)
    for name, value in {'f32': array, 'fortran': numpy.asfortranarray(array), 'i8': numpy.arange(3, dtype='i1'),
                        'big': array.astype('>f8'), 'u64': numpy.array([1, 2], 'u8'), 'scalar': numpy.float32(1),
                        'empty': numpy.zeros((0, 3), 'f4'), 'bool': numpy.array([True])}.items():
        put('npy', name, written(numpy.save, value))
    put('npy', 'huge_shape', b"\x93NUMPY\x01\x00v\x00" + (b"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9223372036854775807, 42), }".ljust(117) + b'\n'))
    put('npz', 'two', written(numpy.savez, a=array, b=numpy.arange(2)))
    put('npz', 'packed', written(numpy.savez_compressed, a=array))
    images = struct.pack('>4B3I', 0, 0, 8, 3, 2, 2, 2) + bytes(range(8))
    put('idx', 'images', b'\x03' + images)
    put('idx', 'packed', b'\x03' + gzip.compress(images, mtime=0))
    put('idx', 'no_picture', b'\x03' + struct.pack('>4B3I', 0, 0, 8, 3, 0, (1 << 32) - 1, (1 << 32) - 1))
    put('idx', 'labels', b'\x01' + struct.pack('>4BI', 0, 0, 8, 1, 3) + b'abc')
    for options, text in ((0, 'a,b,y\n1,2,3\n4,5,6\n'), (1, '1,2,3\n4,5,6'), (2, 'a,y\n1,cat\n2,"d ""o"" g"\n'), (4, 'a;b;y\r\n1;2;3\r\n'),
                          (8 + 16, 'y,b,a\n1,-2e3,nan\n'), (2 + 32, 'x,y\n1,one\n2,two\n'), (0, '\n \n"a" ,b\n1,2\n\n3,4')):
        put('csv', f'{options}-{len(text)}', bytes([options]) + text.encode())
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode='w', format=tarfile.USTAR_FORMAT) as tar:
        for name in ('in/a', 'in/deep/b', 'c'):
            entry = tarfile.TarInfo(name)
            entry.size = 5
            tar.addfile(entry, io.BytesIO(b'12345'))
    put('collection', 'tar', b'\1' + archive.getvalue()[:5120])
    put('collection', 'ratings', b'\2' + b'1\t2\t5\t874965758\r\n\n3\t1\t2\t876893171')
    golden = pathlib.Path(__file__).parent.parent / 'golden' / 'data'
    for name in ('cifar100', 'cifar10_names'):
        put('collection', name, b'\0' + (golden / (name + '.pickle')).read_bytes())
    put('picture', 'rgb', b'\0' + png(2, 2, 2, b'\0abcdef\0ghijkl'))
    put('picture', 'grey', b'\1' + png(2, 2, 0, b'\0ab\1cd'))
    put('picture', 'alpha', b'\2' + png(1, 2, 6, b'\0abcd\2efgh'))
    put('picture', 'palette', b'\0' + png(2, 1, 3, b'\0\0\1', struct.pack('>I', 6) + b'PLTEabcdef' + struct.pack('>I', zlib.crc32(b'PLTEabcdef'))))
    put('picture', 'large', b'\0' + png(60000, 60000, 2, b'\0abc'))
    jpeg = bytes.fromhex(
        'ffd8ffe000104a46494600010100000100010000ffdb004300' + '01' * 64 + 'ffc0000b080001000101011100ffc40014' + '0001' + '00' * 14 + '00' * 2 +
        'ffc4001410010000000000000000000000000000' + '0000' + 'ffda0008010100003f0037ffd9')
    put('picture', 'jpeg', b'\0' + jpeg)
    put('picture', 'large-arithmetic', b'\0' + jpeg.replace(bytes.fromhex('ffc0000b0800010001'), bytes.fromhex('ffc9000b08ea60ea60')))
    put('picture', 'large-jpeg', b'\0' + jpeg.replace(bytes.fromhex('0800010001'), bytes.fromhex('08ea60ea60')))
    for name, label in {'top': 'x', 'deep': 'group/y', 'slashes': '/group//y', 'none': 'z', 'attribute': 'group', 'dots': './x', 'empty': ''}.items():
        put('hdf5-label', name, label)
    with h5py.File('tests/parsers/labels.h5', 'w') as file:
        file.create_dataset('x', data=array, track_times=False)
        file.create_group('group').create_dataset('y', data=numpy.arange(3), track_times=False)
        file['link'] = h5py.SoftLink('/link')  # that leads to itself


def weights():
    torch.manual_seed(0)
    state = {'module.a': torch.zeros(2), 'module.b': torch.ones(1, 2, dtype=torch.int64)}
    put('weights', 'zip', written(lambda f: torch.save(state, f)))
    put('weights', 'old', written(lambda f: torch.save({'state_dict': state, 'epoch': 3}, f, _use_new_zipfile_serialization=False)))
    put('weights', 'safetensors', safetensors({'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}}, b'12345678'))
    import pickle
    for name, value in {'plain': {'a': [1, 2.5, 'x', None, True, (1,), 1 << 70]}, 'shared': [[0]] * 2}.items():
        for protocol in (0, 2, 4):
            put('pickle', f'{name}-{protocol}', pickle.dumps(value, protocol))
    put('pickle', 'state', torch_pickle(state))
    put('safetensors', 'one', safetensors({'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}}, b'12345678'))
    put('safetensors', 'metadata', safetensors({'__metadata__': {'string:x': 'y', 'crc32c:a': '00000000'},
                                                'a': {'dtype': 'I64', 'shape': [], 'data_offsets': [0, 8]}}, b'12345678'))
    put('safetensors', 'empty', safetensors({}))
    put('safetensors', 'huge_shape', safetensors({'a': {'dtype': 'F32', 'shape': [0, 9223372036854775807, 42], 'data_offsets': [0, 0]}}))
    put('safetensors', 'holes', safetensors({'b': {'dtype': 'U8', 'shape': [1], 'data_offsets': [3, 4]}, 'a': {'dtype': 'BF16', 'shape': [1], 'data_offsets': [0, 2]}}, b'1234'))


def torch_pickle(state):
    import zipfile
    archive = zipfile.ZipFile(io.BytesIO(written(lambda f: torch.save(state, f))))
    return archive.read(next(name for name in archive.namelist() if name.endswith('data.pkl')))


def texts():
    for name, text in {'plain': 'runner: {_target_: SupervisedRunner, model: {_var_: m, _target_: Linear, args: [1, 2]}}\nrun:\n- {_call_: train, lr: 1e-3}\n',
                       'anchors': 'a: &x {k: 1, l: [&y 2, *y]}\nb: {<<: *x, k: 3}\nc: *x\nd: {<<: [*x, {m: n}]}\n',
                       'blocks': 'a: |\n  one\n  two\nb: >-\n  three\n  four\n? c\n: "d\\n\\u00e9"\n',
                       'json': '{"a": [1, true, null, "x"], "b": {"c": -1.5e3}}', 'laughs': 'a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n',
                       'self': 'a: &a [*a]\n', 'comment': '# x\n--- \na: ~ # y\n...\n'}.items():
        put('config', name, text)
    put('override', 'some', 'run/0/optimizer/lr=1e-3:float\nrunner/model/args/1/in_features=5\na/b=[1, {c: d}]\nnum_epochs=7\nshared/base/betas/0=0.5')
    put('override', 'types', 'a=1:int\nb=x:str\nc=[1]:list\nd={a: 1}:dict\ne=y:bool\nf=1:float\nrun/9=1\n=2')
    for name, text in {'rack': 'rack[1-2]n[3-4],login', 'zeros': 'n[001-003,007]', 'tasks': '2(x3),1', 'huge': 'n[1-99999]', 'open': 'n[1-', 'order': 'n[3-1]'}.items():
        put('hosts', name, text)
    for name, text in {'feature': '{feature}/t{checkpoint:02.0f}.h5', 'percent': '%s{checkpoint:g}', 'wide': '{checkpoint:999.999f}', 'braces': '{{{feature:s}}}{checkpoint:d}'}.items():
        put('path', name, b'\5' + text.encode())
    storage = {'logdir': 'logs', 'topk': 2, 'loader_key': 'valid', 'metric_key': 'loss', 'minimize': True,
               'storage': [{'logpath': 'logs/checkpoints/model.0001.safetensors', 'metric': 0.5}, {'logpath': 'x', 'metric': None}]}
    put('storage', 'two', json.dumps(storage))
    put('storage', 'bare', '{}')
    put('storage', 'deep', '[' * 60 + ']' * 60)


def logs():
    events = record(bytes([3 << 3 | 2, 13]) + b'brain.Event:2') + record(scalar_event(1, 'loss/epoch', 0.5)) + record(histogram_event(1)) + record(scalar_event(3, 'loss/batch', 0.25))
    for parser, before in (('events', b''), ('log-events', b'\x80')):
        put(parser, 'four', before + events)
        put(parser, 'cut', before + events[:-7])
        put(parser, 'damaged', before + events[:60] + b'x' + events[61:])
    for parser, before in (('table', b'\2'), ('log-csv', b'\x80')):
        put(parser, 'two', before + b'step,loss,time\n1,0.5,1.0\n2,0.25,2.0\n3,nan,3.0\n')
        put(parser, 'cut', before + b'step,loss\n1,0.5\n2,0.')
        put(parser, 'empty', before)
    put('log-jsonl', 'two', b'\x80{"epoch": 1, "loader": "train", "loss": 0.5}\n{"scope": "epoch", "step": 2, "metrics": {"train": {"loss": 0.25}}}\nnot json\n')
    put('page', 'curves', b'\4/ api/runs?since=0 api/curves?run=0&x=step&smooth=0.5&buckets=10 api/log?run=0\nstep,loss\n1,0.5\n2,0.25\n')
    put('page', 'config', b'\0api/config?run=0 api/files?run=0 api/model?run=0\nrun:\n- {_call_: train, lr: 1e-3}\n')
    put('page', 'settings', b'\1api/runs index.html ../etc/passwd\n{"lr": 0.5, "deep": {"a": [1, "x"]}}')
    put('page', 'storage', b'\5api/runs api/picture?run=0&path=../x.png api/confusion?run=0&path=confusion.csv\n' + json.dumps({'metric_key': 'loss', 'minimize': True}).encode())
    put('page', 'confusion', b'\7api/confusion?run=0&path=confusion.csv api/histograms?run=0\n,a,b\na,1,2\nb,3,4\n')
    put('page', 'lock', b'\10api/runs\n1234 host 1.5\n')


def messages():
    def bodies(*pairs):
        return b''.join(bytes([kind, len(body) - 1]) + body for kind, body in pairs)

    def fields(verb, *values):
        return bytes([verb]) + b''.join(bytes([len(v)]) + v if v is not None else b'\xff' for v in values)
    number = struct.pack('<q', 5)
    put('member', 'requests', b'\1\1\1' + bodies((1, fields(1, b'key', b'value')), (1, fields(2, b'key')), (1, fields(3, b'other', number)), (1, fields(7))))
    put('member', 'sums', b'\2\1\0' + bodies((1, fields(4, b'n', number)), (1, fields(4, b'n', number)), (1, fields(5, b'n', b'10', b'11')), (1, fields(5, b'm', None, b'x')), (3, b'x')))
    put('member', 'join', b'\1\1\1' + bodies((1, fields(6, number)), (0, b'\2\3\0\0\0key')))
    put('member', 'raw', b'\1\1\1' + bodies((2, struct.pack('<I', 5) + b'\2hello' + b'x' * 32)))
    put('member', 'stranger', b'\0\0\1' + bodies((1, fields(2, b'key'))))
    put('body', 'set', b'\1\3\0\0\0key\5\0\0\0value')
    put('body', 'absent', b'\5\3\0\0\0key\xff\xff\xff\xff\0\0\0\0')
    hello = struct.pack('<IIiiI', 0x54534b4c, 3, 1, 4, 1) + bytes(32)
    put('stranger', 'hello', hello + bytes(32))
    put('stranger', 'old', struct.pack('<IIiiI', 0x54534b4c, 2, 1, 4, 1) + bytes(32))
    put('stranger', 'http', b'GET / HTTP/1.1\r\nHost: x\r\n\r\n')
    put('answer', 'store', struct.pack('<III', 0x54534b4c, 3, 0) + bytes(64))
    put('answer', 'other', struct.pack('<II', 0x54534b4c, 9))
    put('answer', 'http', b'HTTP/1.1 400 Bad Request\r\n\r\n')
    put('reply', 'four', b'\5\0value' + b'\1\0' + b'6' + b'\1\0' + b'1' + b'\3\0end')
    put('reply', 'silent', b'\0\5\0\0\0')
    put('reply', 'zero', b'\3\5\0ab' + b'\3\x80abc')
    put('reply', 'failed', b'\4\7lost' + b'\0\xf0x' + b'\xff\0\xff\xff\xff\x7f')


def main():
    shutil.rmtree(CORPUS, ignore_errors=True)
    data_files()
    weights()
    texts()
    logs()
    messages()


main()
