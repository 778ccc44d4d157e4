#!/usr/bin/python3
"""What torchvision's transforms make of pictures, for tests/data/test_pictures.c: writes tests/golden/data/pictures.txt.

torchvision itself is not needed: sizes come from torch.nn.functional, colours from torchvision's formulas in NumPy, with Python's
colorsys for hues. A line is a name and the numbers of the result. Also the parts of torch.utils.data.random_split.

Run: /usr/bin/python3 tests/oracle/data_pictures.py
"""
import colorsys
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

lines = []


def put(name, values):
    lines.append(name + " " + " ".join(f"{v:.9g}" for v in np.asarray(values, dtype=np.float64).flatten()))


def picture(channels, height, width):
    """The picture of the test: (7 i^2 + 3 i) mod 256, as bytes divided by 255."""
    i = np.arange(channels * height * width, dtype=np.int64)
    return torch.tensor((7 * i * i + 3 * i) % 256 / 255.0, dtype=torch.float64).reshape(1, channels, height, width)


def resize(x, size, mode, antialias):
    if mode == "nearest":
        return F.interpolate(x.float(), size, mode="nearest").double()
    return F.interpolate(x, size, mode=mode, align_corners=False, antialias=antialias)


x = picture(3, 11, 8)
for mode in ("nearest", "bilinear", "bicubic"):
    for antialias in (False, True):
        for size in ((5, 3), (20, 17), (4, 30), (11, 8)):
            if mode != "nearest" or not antialias:
                put(f"resize_{mode}_{int(antialias)}_{size[0]}x{size[1]}", resize(x, size, mode, antialias))
# One number: the shorter edge; max_size bounds the longer one.
put("resize_edge_5", resize(x, (int(5 * 11 / 8), 5), "bilinear", True))
put("resize_edge_5_max_6", resize(x, (6, int(6 * 5 / int(5 * 11 / 8))), "bilinear", True))


def center_crop(x, height, width):
    h, w = x.shape[-2:]
    if width > w or height > h:
        left, top = max(0, (width - w) // 2), max(0, (height - h) // 2)
        right, bottom = max(0, (width - w + 1) // 2), max(0, (height - h + 1) // 2)
        x = F.pad(x, (left, right, top, bottom))
        h, w = x.shape[-2:]
    top, left = int(round((h - height) / 2.0)), int(round((w - width) / 2.0))
    return x[..., top:top + height, left:left + width]


for size in ((4, 4), (5, 5), (6, 3), (12, 5), (14, 13), (3, 11)):
    put(f"center_{size[0]}x{size[1]}", center_crop(x, *size))

for mode, numpy_mode in (("constant", "constant"), ("edge", "edge"), ("reflect", "reflect"), ("symmetric", "symmetric")):
    widths = ((0, 0), (0, 0), (2, 1), (4, 3))
    more = {"constant_values": 0.5} if mode == "constant" else {}
    put(f"pad_{mode}", np.pad(x.numpy(), widths, mode=numpy_mode, **more))

# ---- Colours ----
p = x.numpy()[0]
grey = 0.2989 * p[0] + 0.587 * p[1] + 0.114 * p[2]
put("grey", grey)
put("grey_3", np.stack([grey] * 3))


def blend(a, b, f):
    return np.clip(f * a + (1 - f) * b, 0, 1)


put("brightness_1.7", blend(p, 0, 1.7))
put("contrast_0.3", blend(p, grey.mean(), 0.3))
put("contrast_2", blend(p, grey.mean(), 2))
put("saturation_0.4", blend(p, grey, 0.4))
put("saturation_1.8", blend(p, grey, 1.8))


def turn(p, by):
    out = np.empty_like(p)
    for y in range(p.shape[1]):
        for k in range(p.shape[2]):
            h, s, v = colorsys.rgb_to_hsv(*p[:, y, k])
            out[:, y, k] = colorsys.hsv_to_rgb((h + by) % 1.0, s, v)
    return out


put("hue_0.25", turn(p, 0.25))
put("hue_-0.4", turn(p, -0.4))
put("invert", 1 - p)
put("solarize_0.5", np.where(p >= 0.5, 1 - p, p))
put("posterize_3", (np.rint(p * 255).astype(np.int64) & 0b11100000) / 255.0)
low, high = p.min(axis=(1, 2), keepdims=True), p.max(axis=(1, 2), keepdims=True)
put("autocontrast", (p - low) / (high - low))




def sharpen(p, factor):
    kernel = torch.ones(3, 1, 3, 3, dtype=torch.float64)
    kernel[:, :, 1, 1] = 5
    smooth = p.copy()
    smooth[:, 1:-1, 1:-1] = F.conv2d(torch.tensor(p)[None], kernel / 13, groups=3)[0].numpy()
    return blend(p, smooth, factor)


put("sharpness_0", sharpen(p, 0))
put("sharpness_1.6", sharpen(p, 1.6))


def equalize(image):
    """torchvision's, for one channel of bytes."""
    counts = torch.bincount(image.flatten().long(), minlength=256)
    present = counts[counts != 0]
    step = torch.div(present[:-1].sum(), 255, rounding_mode="floor")
    if step == 0:
        return image
    levels = torch.div(torch.cumsum(counts, 0) + torch.div(step, 2, rounding_mode="floor"), step, rounding_mode="floor")
    return F.pad(levels, [1, 0])[:-1].clamp(0, 255)[image.long()]


# Large enough that there are more pixels than levels; few levels, so that it matters.
large = torch.from_numpy(np.rint(np.kron(p, np.ones((1, 3, 3))) * 15).astype(np.int64) * 17 // 2)
put("equalize", torch.stack([equalize(channel) for channel in large]) / 255.0)
put("equalize_small", p)

# ---- Places ----
def rotate(x, angle, mode, center=None):
    """torchvision's rotate for tensors: the inverse of a turn by -angle, in affine_grid's units."""
    h, w = x.shape[-2:]
    cx, cy = (0.0, 0.0) if center is None else (center[0] - w * 0.5, center[1] - h * 0.5)
    a = np.deg2rad(-angle)
    m = [[np.cos(a), np.sin(a), 0.0], [-np.sin(a), np.cos(a), 0.0]]
    m[0][2] = m[0][0] * -cx + m[0][1] * -cy + cx
    m[1][2] = m[1][0] * -cx + m[1][1] * -cy + cy
    theta = torch.tensor([[[m[0][0], m[0][1] * h / w, m[0][2] * 2 / w], [m[1][0] * w / h, m[1][1], m[1][2] * 2 / h]]])
    grid = F.affine_grid(theta, x.shape, align_corners=False)
    return F.grid_sample(x, grid, mode=mode, padding_mode="zeros", align_corners=False)


put("rotate_30_nearest", rotate(x, 30, "nearest"))
put("rotate_-75_bilinear", rotate(x, -75, "bilinear"))
put("rotate_40_bilinear_center", rotate(x, 40, "bilinear", (2.0, 9.0)))


def blur(x, height, width, sigma):
    def kernel(n):
        k = np.exp(-0.5 * (np.linspace(-(n - 1) * 0.5, (n - 1) * 0.5, n) / sigma) ** 2)
        return torch.tensor(k / k.sum())
    k = torch.outer(kernel(height), kernel(width)).expand(3, 1, height, width)
    x = F.pad(x, [width // 2, width // 2, height // 2, height // 2], mode="reflect")
    return F.conv2d(x, k, groups=3)


put("blur_5x3_1.3", blur(x, 5, 3, 1.3))

# ---- random_split ----
for name, lengths in (("fractions", [0.62, 0.2, 0.18]), ("lengths", [4, 0, 13])):
    parts = torch.utils.data.random_split(range(17), lengths, generator=torch.Generator().manual_seed(42))
    put(f"split_{name}", [v for part in parts for v in [len(part), *part.indices]])

folder = pathlib.Path(__file__).parent.parent / "golden" / "data"
(folder / "pictures.txt").write_text("\n".join(lines) + "\n")
