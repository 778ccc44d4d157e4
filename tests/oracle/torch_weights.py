"""Writes tests/golden/checkpoint/weights/: small files of weights as torch.save writes them, and files that mean harm.

Run with PyTorch 1.13: /usr/bin/python3 tests/oracle/torch_weights.py
"""
import collections
import io
import os
import pathlib
import pickle
import zipfile

import torch

folder = pathlib.Path(__file__).parent.parent / "golden" / "checkpoint" / "weights"
folder.mkdir(parents=True, exist_ok=True)
tied = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
state = collections.OrderedDict([
    ("0.weight", torch.tensor([[0.5, -1.0, 2.0], [3.0, 4.0, -5.5]])), ("0.bias", torch.tensor([0.25, -0.75])),
    ("1.num_batches_tracked", torch.tensor(7)), ("tied", tied), ("tied_too", tied), ("turned", tied.t())])
old = {"_use_new_zipfile_serialization": False}
wrapped = {"epoch": 3, "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}},
           "state_dict": collections.OrderedDict(("module._orig_mod." + key, value) for key, value in state.items())}
torch.save(state, folder / "plain.pth")
torch.save(state, folder / "old.pth", **old)
torch.save(wrapped, folder / "wrapped.pth")
torch.save(wrapped, folder / "wrapped_old.pth", **old)
torch.save(state, folder / "protocol4.pth", pickle_protocol=4)


def rewritten(name, change, compression=zipfile.ZIP_STORED):
    """plain.pth with other entries: change(name, bytes) gives the new (name, bytes)."""
    with zipfile.ZipFile(folder / "plain.pth") as source, zipfile.ZipFile(folder / name, "w", compression) as target:
        for entry in source.namelist():
            new, data = change(entry, source.read(entry))
            target.writestr(zipfile.ZipInfo(new), data, compression)


class Evil:
    def __reduce__(self):
        return os.system, ("echo harm",)


torch.save({"0.weight": torch.ones(1), "x": Evil()}, folder / "evil.pth")
torch.save({"0.weight": torch.ones(1), "x": Evil()}, folder / "evil_old.pth", **old)
torch.save({"0.weight": torch.ones(1), "x": Evil()}, folder / "evil4.pth", pickle_protocol=4)
torch.save(torch.nn.Linear(1, 1), folder / "module.pth")
torch.save({"x": torch.ones(1).expand(1 << 40)}, folder / "expanded.pth")
laugh = torch.ones(1)
for _ in range(28):
    laugh = [laugh, laugh]
torch.save({"x": laugh}, folder / "laughs.pth")
deep = torch.ones(1)
for _ in range(60):
    deep = {"d": deep}
torch.save(deep, folder / "deep.pth")
torch.save({"a\nb": torch.ones(1)}, folder / "two_lines.pth")
torch.save({"module.a": torch.ones(1), "module": {"a": torch.ones(1)}}, folder / "same_names.pth")
torch.save([1, 2], folder / "list.pth")
torch.jit.script(torch.nn.Linear(1, 1)).save(folder / "script.pth")
rewritten("parent.pth", lambda name, data: (name.replace("plain/data/0", "plain/../../data/0"), data))
rewritten("absolute.pth", lambda name, data: (name.replace("plain/data/0", "/plain/data/0"), data))
rewritten("packed.pth", lambda name, data: (name, data), zipfile.ZIP_DEFLATED)
rewritten("twice.pth", lambda name, data: (name.replace("plain/version", "plain/data.pkl"), data))
rewritten("big_endian.pth", lambda name, data: (name.replace("version", "byteorder"), b"big" if "version" in name else data))
whole = (folder / "old.pth").read_bytes()
little = b"little_endianq\x02\x88"
assert whole.count(little) == 1
(folder / "big_endian_old.pth").write_bytes(whole.replace(little, little[:-1] + b"\x89"))
(folder / "cut.pth").write_bytes((folder / "plain.pth").read_bytes()[:900])
(folder / "cut_old.pth").write_bytes(whole[:-9])
