#!/usr/bin/python3
"""Writes tests/golden/engine/ref.txt: calls of ops with operands and the results that PyTorch gives, for test_ref.c.

Run it with Debian's python3 (package python3-torch). Inputs are multiples of 1/16, so they are the same in every dtype;
results are computed in f64 unless a case says otherwise.

    case OP LABEL
    attr KEY NUMBER...           what the attributes of the op's family, their window or hyper hold
    in DTYPE DIMS : NUMBER...    an operand, in order; "in -" where it is absent; f64/16: the numbers are sixteenths
    out DTYPE DIMS : NUMBER...   a result; "out -" where it is not compared
    after K DTYPE DIMS : ...     what operand K holds after the call
    end
"""
import math
import os
import re
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nn_lion import Lion  # noqa: E402

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "engine", "ref.txt")
NAMES = {torch.float64: "f64", torch.float32: "f32", torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8", torch.bool: "bool"}
lines = ["# Written by tests/oracle/engine_ref.py with PyTorch %s." % torch.__version__.split("+")[0]]


def number(value, digits=7):
    if isinstance(value, (bool, int)):
        return str(int(value))
    if math.isnan(value) or math.isinf(value):
        return str(value)
    return "%.*g" % (digits, value)


def tensor_text(t, digits=7):
    if t is None:
        return "-"
    dims = ",".join(str(d) for d in t.shape) or "."
    values = t.detach().reshape(-1).tolist()
    sixteenths = t.dtype == torch.float64 and all(math.isfinite(v) and v * 16 == int(v * 16) for v in values)
    unit = "/16" if sixteenths and any(v != int(v) for v in values) else ""
    return "%s%s %s : %s" % (NAMES[t.dtype], unit, dims, " ".join(number(v * 16 if unit else v, digits) for v in values))


def flat(value):
    if isinstance(value, (list, tuple)):
        return " ".join(number(v) for v in value)
    return number(value)


def case(op, label, ins, outs=(), after=(), **attrs):
    """attrs: fields of the op's attributes; window_kernel stands for window.kernel, hyper_lr for hyper.lr, pad_after for after."""
    lines.append("case %s %s" % (op, label))
    for key, value in attrs.items():
        key = re.sub("^pad_", "", re.sub("^(window|hyper|softplus|clamp)_", r"\1.", key))
        lines.append("attr %s %s" % (key, flat(value)))
    lines.extend("in " + tensor_text(t, 11) for t in ins)
    lines.extend("out " + tensor_text(t) for t in outs)
    lines.extend("after %d %s" % (k, tensor_text(t)) for k, t in after)
    lines.append("end")


def rand(*shape, low=-2.0, high=2.0, grad=False):
    t = torch.round((torch.rand(shape) * (high - low) + low) * 16) / 16
    return t.requires_grad_(grad)


def grad_of(y, inputs, dy=None):
    dy = rand(*y.shape) if dy is None else dy
    inputs = [t for t in inputs if t is not None]
    return dy, torch.autograd.grad(y, inputs, dy, allow_unused=True)


# --- elementwise -----------------------------------------------------------------------------------------------------
def elementwise():
    a, b = rand(3, 4), rand(4, low=0.25)
    for name, f in [("add", torch.add), ("sub", torch.sub), ("mul", torch.mul), ("div", torch.div), ("maximum", torch.maximum),
                    ("minimum", torch.minimum), ("greater", torch.gt), ("greater_equal", torch.ge), ("equal", torch.eq)]:
        case(name, "broadcast", [a, b], [f(a, b)])
        x, c = rand(2, 1, 3), rand(4, 1)
        case(name, "both sides", [x, c], [f(x, c)])
    nan, inf = float("nan"), float("inf")
    odd = torch.tensor([nan, 1.0, nan, inf, -inf, -0.0, 0.0])
    other = torch.tensor([1.0, nan, nan, 1.0, 1.0, 0.0, 0.0])
    for name, f in [("maximum", torch.maximum), ("minimum", torch.minimum), ("equal", torch.eq), ("greater", torch.gt)]:
        case(name, "odd numbers", [odd, other], [f(odd, other)])
    base, exponent = rand(3, 4, low=0.25), rand(3, 1)
    case("pow", "broadcast", [base, exponent], [torch.pow(base, exponent)])
    base, exponent = torch.tensor([-2.0, -2.0, 0.0, 0.0, -1.5]), torch.tensor([2.0, 3.0, 0.0, 2.0, 0.5])
    case("pow", "odd bases", [base, exponent], [torch.pow(base, exponent)])
    cond = torch.tensor([[True, False, True]])
    case("where", "broadcast", [cond, x := rand(2, 3), y := rand(2, 1)], [torch.where(cond, x, y)])
    x = torch.cat([rand(11, low=-3, high=3), torch.tensor([0.0, nan, 25.0, -25.0])])
    p = rand(7, low=0.0625, high=3)
    for name, f in [("neg", torch.neg), ("abs", torch.abs), ("sign", torch.sign), ("exp", torch.exp), ("sin", torch.sin),
                    ("cos", torch.cos), ("erf", torch.erf), ("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("relu", torch.relu),
                    ("silu", F.silu)]:
        case(name, "plain", [x], [f(x)])
    case("log", "plain", [p], [torch.log(p)])
    case("sqrt", "plain", [p], [torch.sqrt(p)])
    params = [("leaky_relu", lambda t: F.leaky_relu(t, 0.125), dict(slope=0.125)), ("elu", lambda t: F.elu(t, 1.5), dict(alpha=1.5)),
              ("gelu", lambda t: F.gelu(t), dict(by_tanh=0)), ("gelu", lambda t: F.gelu(t, approximate="tanh"), dict(by_tanh=1)),
              ("softplus", lambda t: F.softplus(t, 1.0, 20.0), dict(softplus_beta=1, softplus_threshold=20)),
              ("softplus", lambda t: F.softplus(t, 2.0, 1.5), dict(softplus_beta=2, softplus_threshold=1.5)),
              ("clamp", lambda t: torch.clamp(t, -0.5, 1.25), dict(clamp_min=-0.5, clamp_max=1.25)), ("silu", F.silu, {})]
    for name, f, attrs in params:
        case(name, "plain", [x], [f(x)], **attrs)
        leaf = torch.cat([rand(9, low=-3, high=3), torch.tensor([-0.5, 1.25, 25.0, -25.0])]).requires_grad_()
        dy, (dx,) = grad_of(f(leaf), [leaf])
        case(name + "_grad", "plain", [dy, leaf], [dx], **attrs)
    for name, f in [("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("relu", torch.relu)]:
        leaf = torch.cat([rand(9), torch.tensor([0.0])]).requires_grad_()
        y = f(leaf)
        dy, (dx,) = grad_of(y, [leaf])
        case(name + "_grad", "plain", [dy, y], [dx])
    case("add_scalar", "plain", [x], [x + 0.75], number=0.75)
    case("mul_scalar", "plain", [x], [x * -0.75], number=-0.75)
    for e in (2.0, 3.0, 0.5, -1.0):
        case("pow_scalar", "to %g" % e, [p], [p ** e], number=e)
    case("copy", "plain", [x], [x])
    case("cast", "f64 to i64", [t := torch.tensor([1.75, -1.75, 0.0, 3e9])], [t.long()], dtype=4)
    case("cast", "f64 to bool", [t := torch.tensor([0.5, 0.0, -1.0])], [t.bool()], dtype=7)
    case("cast", "bool to f64", [t := torch.tensor([True, False])], [t.double()], dtype=1)
    case("cast", "i64 to f64", [t := torch.tensor([7, -3])], [t.double()], dtype=1)
    case("full", "plain", [], [torch.full((2, 3), 1.5)], value=1.5, dtype=1)


# --- reductions, softmax ---------------------------------------------------------------------------------------------
def reductions():
    x = rand(2, 3, 2, 2)
    for axes in ([0], [1], [3], [1, 2], [0, 2, 3], [0, 1, 2, 3]):
        mask = sum(1 << a for a in axes)
        for keep in (len(axes) & 1,):
            attrs = dict(axes=mask, keep_dims=keep)
            case("sum", str(axes), [x], [x.sum(axes, keepdim=bool(keep))], **attrs)
            case("mean", str(axes), [x], [x.mean(axes, keepdim=bool(keep))], **attrs)
            case("max", str(axes), [x], [torch.amax(x, axes, keepdim=bool(keep))], **attrs)
        for correction in (0, 1):
            case("var", str(axes), [x], [torch.var(x, axes, correction=correction)], axes=mask, keep_dims=0, correction=correction)
        leaf = (torch.round(x)).requires_grad_()
        y = torch.amax(leaf, axes, keepdim=True)
        dy, (dx,) = grad_of(y, [leaf])
        case("max_grad", str(axes), [dy, leaf, y], [dx])
    case("var", "of one", [t := rand(3, 1)], [torch.var(t, [1], correction=1)], axes=2, correction=1)
    t = torch.tensor([[1.0, float("nan"), 3.0], [2.0, 1.0, 0.0]])
    case("max", "nan", [t], [torch.amax(t, [1])], axes=2)
    for axis in range(4):
        for keep in (axis & 1,):
            case("argmax", "axis %d" % axis, [x], [torch.argmax(x, axis, keepdim=bool(keep))], axis=axis, keep_dims=keep)
    t = torch.tensor([[1.0, 3.0, 3.0], [float("nan"), 5.0, float("nan")]])
    case("argmax", "ties and nan", [t], [torch.argmax(t, 1)], axis=1)
    for axis in range(3):
        leaf = rand(2, 3, 4, grad=True)
        for name, f in (("softmax", F.softmax), ("log_softmax", F.log_softmax)):
            y = f(leaf, axis)
            dy, (dx,) = grad_of(y, [leaf])
            case(name, "axis %d" % axis, [leaf], [y], axis=axis)
            case(name + "_grad", "axis %d" % axis, [dy, y], [dx], axis=axis)
    t = torch.tensor([[1000.0, 1001.0, -1000.0], [float("-inf"), 0.0, 1.0]])
    case("softmax", "large", [t], [F.softmax(t, 1)], axis=1)
    case("log_softmax", "large", [t], [F.log_softmax(t, 1)], axis=1)


# --- movement --------------------------------------------------------------------------------------------------------
def movement():
    x = rand(2, 3, 4)
    case("expand", "plain", [t := rand(3, 1)], [t.expand(2, 3, 4)])
    for order in ([0, 2, 1], [2, 0, 1], [2, 1, 0]):
        case("permute", str(order), [x], [x.permute(*order)], order=order)
    leaf = rand(5, 7, grad=True)
    y = leaf[1:5:2, 0:6:3]
    dy, (dx,) = grad_of(y, [leaf])
    slice_attrs = dict(begin=[1, 0], end=[5, 6], step=[2, 3])
    case("slice", "steps", [leaf], [y], **slice_attrs)
    case("slice_grad", "steps", [dy], [dx], **slice_attrs)
    for axis in range(3):
        shapes = [[2, 3, 4] for _ in range(3)]
        for k in range(3):
            shapes[k][axis] = k + 1
        parts = [rand(*s) for s in shapes]
        case("concat", "axis %d" % axis, parts, [torch.cat(parts, axis)], axis=axis)
    for mode, name in enumerate(("constant", "reflect", "circular", "replicate")):
        for rank, shape, pads in ((1, (2, 2, 5), [2, 1]), (2, (1, 1, 4, 4), [1, 2, 3, 0]), (3, (1, 1, 3, 4, 3), [1, 2, 0, 1, 2, 1])):
            leaf = rand(*shape, grad=True)
            y = F.pad(leaf, pads, mode=name, **({"value": 0.5} if mode == 0 else {}))
            dy, (dx,) = grad_of(y, [leaf])
            begin, end = [0] * len(shape), [0] * len(shape)
            for i in range(rank):
                begin[-1 - i], end[-1 - i] = pads[2 * i], pads[2 * i + 1]
            attrs = dict(mode=mode, value=0.5, pad_before=begin, pad_after=end)
            case("pad", "%s %dd" % (name, rank), [leaf], [y], **attrs)
            case("pad_grad", "%s %dd" % (name, rank), [dy], [dx], **attrs)
    leaf = rand(2, 5, grad=True)
    y = F.pad(leaf, [-1, 2])
    dy, (dx,) = grad_of(y, [leaf])
    case("pad", "negative", [leaf], [y], mode=0, pad_before=[0, -1], pad_after=[0, 2])
    case("pad_grad", "negative", [dy], [dx], mode=0, pad_before=[0, -1], pad_after=[0, 2])
    for axis, size in ((0, (3, 2, 4)), (1, (2, 5, 3)), (2, (1, 3, 6))):
        leaf = rand(2, 3, 4, grad=True)
        index = torch.randint(0, leaf.shape[axis], size)
        y = torch.gather(leaf, axis, index)
        dy, (dx,) = grad_of(y, [leaf])
        case("gather", "axis %d" % axis, [leaf, index], [y], axis=axis)
        case("gather_grad", "axis %d" % axis, [dy, index], [dx], axis=axis)
    for padding in (-1, 2):
        weight = rand(6, 3, grad=True)
        index = torch.randint(0, 6, (2, 5))
        y = F.embedding(index, weight, padding_idx=padding if padding >= 0 else None)
        dy, (dw,) = grad_of(y, [weight])
        case("embedding", "padding %d" % padding, [weight, index], [y], padding_index=padding)
        case("embedding_grad", "padding %d" % padding, [dy, index], [dw], padding_index=padding)


# --- products --------------------------------------------------------------------------------------------------------
def products():
    for sa, sb in (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2))):
        for ta in (0, 1):
            for tb in (0, 1):
                a, b = rand(*sa), rand(*sb)
                y = a @ b
                a = a.transpose(-1, -2).contiguous() if ta else a
                b = b.transpose(-1, -2).contiguous() if tb else b
                case("matmul", "%s %s" % (sa, sb), [a, b], [y], transpose_a=ta, transpose_b=tb)
    for lead in ((3,), (2, 3)):
        for bias in (True, False):
            x, w, b = rand(*lead, 4, grad=True), rand(5, 4, grad=True), rand(5, grad=True) if bias else None
            y = F.linear(x, w, b)
            dy, grads = grad_of(y, [x, w, b])
            case("linear", "plain", [x, w, b], [y])
            case("linear", "relu", [x, w, b], [torch.relu(y)], activation=1)
            case("linear_grad", "plain", [dy, x], [grads[1], grads[2] if bias else None], wants_bias=int(bias))


# --- convolutions ----------------------------------------------------------------------------------------------------
CONV = [None, F.conv1d, F.conv2d, F.conv3d]
CONV_T = [None, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d]


def window(rank, kernel, stride, padding, dilation, groups=1):
    return dict(window_rank=rank, window_kernel=kernel, window_stride=stride, window_padding=padding, window_dilation=dilation,
                window_groups=groups)


def convolutions():
    for rank, size, kernel, stride, padding, dilation, groups, channels in (
            (1, [9], [3], [1], [1], [1], 1, (2, 3)), (1, [8], [3], [2], [2], [2], 2, (4, 2)),
            (2, [5, 6], [3, 2], [1, 1], [1, 0], [1, 1], 1, (2, 3)), (2, [6, 5], [2, 3], [2, 3], [1, 2], [2, 1], 2, (4, 2)),
            (2, [4, 3], [3, 3], [1, 1], [1, 1], [1, 1], 2, (2, 2)), (2, [6, 6], [1, 1], [2, 2], [0, 0], [1, 1], 1, (3, 2)),
            (3, [3, 4, 2], [2, 3, 2], [1, 1, 1], [0, 1, 1], [1, 1, 1], 1, (2, 1)),
            (3, [5, 4, 5], [3, 2, 2], [2, 1, 2], [1, 1, 0], [1, 2, 2], 2, (2, 2))):
        label = "%dd groups %d" % (rank, groups)
        attrs = window(rank, kernel, stride, padding, dilation, groups)
        c, o = channels
        n = 2 if rank == 1 else 1
        x, w, b = rand(n, c, *size, grad=True), rand(o, c // groups, *kernel, grad=True), rand(o, grad=True)
        y = CONV[rank](x, w, b, stride, padding, dilation, groups)
        dy, (dx, dw, db) = grad_of(y, [x, w, b])
        case("conv", label, [x, w, b], [y], **attrs)
        if groups == 1:
            y = torch.relu(CONV[rank](x, w, None, stride, padding, dilation, groups))
            case("conv", label + " no bias, relu", [x, w, None], [y], activation=1, **attrs)
        case("conv_grad_input", label, [dy, w], [dx], **attrs)
        case("conv_grad_weight", label, [dy, x], [dw, db], wants_bias=1, **attrs)
        extra = [1 if s > 1 else 0 for s in stride]
        xt, wt, bt = rand(n, c, *[s // 2 + 1 for s in size], grad=True), rand(c, o // groups, *kernel, grad=True), rand(o)
        yt = CONV_T[rank](xt, wt, bt, stride, padding, extra, groups, dilation)
        case("conv_transpose", label, [xt, wt, bt], [yt], window_output_padding=extra, **attrs)
        dy, (dx, dw) = grad_of(yt, [xt, wt])
        case("conv", "as the gradient of a transposed one, " + label, [dy, wt], [dx], **attrs)
        case("conv_grad_weight", "of a transposed one, " + label, [xt, dy], [dw, None], wants_bias=0, **attrs)


# --- pooling, upsampling ---------------------------------------------------------------------------------------------
MAX_POOL = [None, F.max_pool1d, F.max_pool2d, F.max_pool3d]
AVG_POOL = [None, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d]
ADAPTIVE = [None, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d]


def pooling():
    shapes = ((1, [9], [3], [2], [1], [1]), (1, [10], [4], [3], [2], [2]), (2, [5, 7], [2, 3], [2, 2], [1, 1], [1, 1]),
              (2, [6, 7], [3, 2], [1, 3], [0, 1], [2, 1]), (3, [3, 5, 3], [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1]),
              (3, [5, 4, 2], [3, 2, 2], [2, 2, 1], [1, 1, 1], [1, 2, 1]))
    for rank, size, kernel, stride, padding, dilation in shapes:
        for ceil in (False, True):
            label = "%dd ceil %d" % (rank, ceil)
            attrs = dict(window(rank, kernel, stride, padding, dilation), window_ceil_mode=int(ceil))
            x = torch.round(rand(1, 2, *size)).requires_grad_()
            y, index = MAX_POOL[rank](x, kernel, stride, padding, dilation, ceil, return_indices=True)
            dy, (dx,) = grad_of(y, [x])
            case("max_pool", label, [x], [y, index.int()], **attrs)
            case("max_pool_grad", label, [dy, index.int()], [dx], **attrs)
            attrs["window_dilation"] = [1] * rank
            for exclude in (False, True) if any(padding) else (False,):
                x = rand(1, 1, *size, grad=True)
                y = AVG_POOL[rank](x, kernel, stride, padding, ceil, not exclude)
                dy, (dx,) = grad_of(y, [x])
                case("avg_pool", label + " exclude %d" % exclude, [x], [y], window_exclude_pad=int(exclude), **attrs)
                case("avg_pool_grad", label + " exclude %d" % exclude, [dy], [dx], window_exclude_pad=int(exclude), **attrs)
            if rank > 1 and not ceil:
                y = AVG_POOL[rank](x, kernel, stride, padding, ceil, True, 5)
                dy, (dx,) = grad_of(y, [x])
                case("avg_pool", label + " divisor 5", [x], [y], window_divisor=5, **attrs)
                case("avg_pool_grad", label + " divisor 5", [dy], [dx], window_divisor=5, **attrs)
    t = torch.tensor([[[1.0, float("nan"), 2.0, float("-inf"), float("-inf"), 3.0, 3.0, 1.0]]])
    y, index = F.max_pool1d(t, 2, 2, return_indices=True)
    case("max_pool", "nan, -inf and ties", [t], [y, index.int()], **window(1, [2], [2], [0], [1]))
    for rank, size, target in ((1, [7], [3]), (1, [3], [5]), (2, [5, 8], [3, 3]), (2, [4, 6], [1, 1]), (2, [4, 6], [2, 3]),
                               (3, [3, 4, 5], [2, 3, 3])):
        x = rand(1, 2, *size, grad=True)
        y = ADAPTIVE[rank](x, target)
        dy, (dx,) = grad_of(y, [x])
        case("adaptive_avg_pool", "%s to %s" % (size, target), [x], [y], window_rank=rank)
        case("adaptive_avg_pool_grad", "%s to %s" % (size, target), [dy], [dx], window_rank=rank)


def upsampling():
    linear = [None, "linear", "bilinear", "trilinear"]
    for rank, size, target, factors in (
            (1, [5], [8], None), (1, [7], None, [1.7]), (2, [2, 3], [4, 6], None), (2, [4, 3], [5, 7], None),
            (2, [3, 5], None, [2.0, 2.0]), (2, [4, 3], None, [1.5, 2.5]), (2, [6, 5], [3, 4], None), (3, [2, 3, 2], [3, 5, 3], None),
            (3, [2, 2, 2], None, [2.0, 1.5, 1.5])):
        # Nearest places are those of f32 tensors: in f64 PyTorch can fall on the other side of a whole number.
        for mode, align in (("nearest", None), (linear[rank], False), (linear[rank], True)):
            x = rand(1, 2 if rank == 1 else 1, *size)
            x = (x.float() if mode == "nearest" else x).requires_grad_()
            y = F.interpolate(x, size=target, scale_factor=factors, mode=mode, align_corners=align)
            dy = rand(*y.shape).to(x.dtype)
            (dx,) = torch.autograd.grad(y, x, dy)
            attrs = dict(rank=rank, mode=int(mode != "nearest"), align_corners=int(bool(align)))
            if factors:
                attrs["scale"] = factors
            label = "%s align %s" % (mode, align)
            case("upsample", label, [x.double()], [y.double()], **attrs)
            case("upsample_grad", label, [dy.double()], [dx.double()], **attrs)


# --- normalisation, dropout ------------------------------------------------------------------------------------------
def normalisation():
    for shape in ((4, 3), (3, 2, 4), (2, 2, 1, 3), (1, 2, 2, 2, 2)):
        c = shape[1]
        for training in (True, False):
            for affine in (True, False):
                for tracked in ((True, False) if training else (True,)):
                    x = rand(*shape, grad=True)
                    w, b = (rand(c, grad=True), rand(c, grad=True)) if affine else (None, None)
                    mean, var = (rand(c), rand(c, low=0.25)) if tracked else (None, None)
                    after = [m.clone() if tracked else None for m in (mean, var)]
                    y = F.batch_norm(x, after[0], after[1], w, b, training, 0.3, 1e-5)
                    axes = [0] + list(range(2, len(shape)))
                    m = x.mean(axes) if training else mean
                    istd = 1 / torch.sqrt((torch.var(x, axes, correction=0) if training else var) + 1e-5)
                    dy, grads = grad_of(y, [x, w, b])
                    label = "training %d affine %d" % (training, affine)
                    attrs = dict(eps=1e-5, momentum=0.3, training=int(training))
                    case("batch_norm", label, [x, w, b, mean, var], [y, m, istd],
                         [(3, after[0]), (4, after[1])] if tracked else [], **attrs)
                    case("batch_norm_grad", label, [dy, x, w, m, istd], list(grads) if affine else [grads[0], None, None], **attrs)
    for shape, axes in (((4, 5), 1), ((2, 3, 4), 2), ((2, 3, 4), 1)):
        for affine in (True, False):
            x = rand(*shape, grad=True)
            w, b = (rand(*shape[-axes:], grad=True), rand(*shape[-axes:], grad=True)) if affine else (None, None)
            y = F.layer_norm(x, shape[-axes:], w, b, 1e-5)
            over = list(range(len(shape) - axes, len(shape)))
            m, istd = x.mean(over), 1 / torch.sqrt(torch.var(x, over, correction=0) + 1e-5)
            dy, grads = grad_of(y, [x, w, b])
            attrs = dict(eps=1e-5, axis_count=axes)
            label = "%s last %d affine %d" % (shape, axes, affine)
            case("layer_norm", label, [x, w, b], [y, m, istd], **attrs)
            case("layer_norm_grad", label, [dy, x, w, m, istd], list(grads) if affine else [grads[0], None, None], **attrs)
    for shape, groups in (((2, 4), 2), ((2, 6, 3), 3), ((2, 4, 2, 3), 1), ((1, 4, 2, 2, 2), 4)):
        for affine in (True, False):
            x = rand(*shape, grad=True)
            w, b = (rand(shape[1], grad=True), rand(shape[1], grad=True)) if affine else (None, None)
            y = F.group_norm(x, groups, w, b, 1e-5)
            grouped = x.reshape(shape[0], groups, -1)
            m, istd = grouped.mean(2), 1 / torch.sqrt(torch.var(grouped, 2, correction=0) + 1e-5)
            dy, grads = grad_of(y, [x, w, b])
            attrs = dict(eps=1e-5, group_count=groups)
            label = "%s groups %d affine %d" % (shape, groups, affine)
            case("group_norm", label, [x, w, b], [y, m, istd], **attrs)
            case("group_norm_grad", label, [dy, x, w, m, istd], list(grads) if affine else [grads[0], None, None], **attrs)
    for p in (0.0, 0.25, 0.5, 1.0):  # the test seeds its generator with 42
        x = rand(4, 5, low=0.5, grad=True)
        state = torch.get_rng_state()
        torch.manual_seed(42)
        y = F.dropout(x, p, True)
        torch.set_rng_state(state)
        dy, (dx,) = grad_of(y, [x])
        mask = (y != 0).to(torch.uint8)
        case("dropout", "p %g" % p, [x], [y, mask], p=p)
        case("dropout_grad", "p %g" % p, [dy, mask], [dx], p=p)


# --- losses ----------------------------------------------------------------------------------------------------------
REDUCTIONS = ("mean", "sum", "none")


def losses():
    for shape in ((4, 3), (2, 3, 1, 2)):
        n, c, rest = shape[0], shape[1], shape[2:]
        for weighted in (False, True) if len(shape) == 2 else (True,):
            for smoothing in (0.0, 0.25):
                for number_, reduction in enumerate(REDUCTIONS):
                    weight = rand(c, low=0.25) if weighted else None
                    index = torch.randint(0, c, (n, *rest))
                    index.view(-1)[1] = -100
                    logits = rand(*shape, grad=True)
                    soft = torch.round(torch.softmax(rand(*shape), 1) * 16) / 16
                    for label, target in (("classes", index), ("probabilities", soft)):
                        loss = F.cross_entropy(logits, target, weight, reduction=reduction, label_smoothing=smoothing)
                        logp = F.log_softmax(logits, 1)
                        dy, (dx,) = grad_of(loss, [logits])
                        attrs = dict(label_smoothing=smoothing, ignore_index=-100, reduction=number_)
                        text = "%s %s" % (label, reduction)
                        case("cross_entropy", text, [logits, target, weight], [loss, logp], **attrs)
                        case("cross_entropy_grad", text, [dy, logp, target, weight], [dx], **attrs)
                    if smoothing == 0:
                        leaf = rand(*shape, grad=True)
                        loss = F.nll_loss(leaf, index, weight, reduction=reduction)
                        dy, (dx,) = grad_of(loss, [leaf])
                        case("nll", text, [leaf, index, weight], [loss], ignore_index=-100, reduction=number_)
                        case("nll_grad", text, [dy, leaf, index, weight], [dx], ignore_index=-100, reduction=number_)
    index = torch.tensor([2, 0, 2])
    logits = rand(3, 4, grad=True)
    loss = F.cross_entropy(logits, index, ignore_index=2)
    dy, (dx,) = grad_of(loss, [logits])
    logp = F.log_softmax(logits, 1)
    case("cross_entropy", "ignore_index 2", [logits, index, None], [loss, logp], ignore_index=2)
    case("cross_entropy_grad", "ignore_index 2", [dy, logp, index, None], [dx], ignore_index=2)
    index = torch.full((3,), -100)
    case("cross_entropy", "all ignored", [logits, index, None], [F.cross_entropy(logits, index), logp], ignore_index=-100)
    pointwise_losses()


def pointwise_losses():
    kinds = [
        ("mse", 0, 0, lambda x, t, w, p, r: F.mse_loss(x, t, reduction=r)),
        ("l1", 1, 0, lambda x, t, w, p, r: F.l1_loss(x, t, reduction=r)),
        ("smooth_l1 beta 1", 2, 1, lambda x, t, w, p, r: F.smooth_l1_loss(x, t, reduction=r)),
        ("smooth_l1 beta 0.5", 2, 0.5, lambda x, t, w, p, r: F.smooth_l1_loss(x, t, reduction=r, beta=0.5)),
        ("smooth_l1 beta 0", 2, 0, lambda x, t, w, p, r: F.smooth_l1_loss(x, t, reduction=r, beta=0.0)),
        ("huber delta 0.75", 3, 0.75, lambda x, t, w, p, r: F.huber_loss(x, t, reduction=r, delta=0.75)),
        ("bce", 4, 0, lambda x, t, w, p, r: F.binary_cross_entropy(x, t, w, reduction=r)),
        ("bce_with_logits", 5, 0, lambda x, t, w, p, r: F.binary_cross_entropy_with_logits(x, t, w, reduction=r, pos_weight=p)),
        ("kl_div", 6, 0, lambda x, t, w, p, r: F.kl_div(x, t, reduction=r)),
        ("kl_div log", 6, 1, lambda x, t, w, p, r: F.kl_div(x, t, reduction=r, log_target=True)),
    ]
    for name, mode, alpha, f in kinds:
        for weights in range(3):
            if weights and "bce" not in name or weights == 2 and name == "bce":
                continue
            for number_, reduction in enumerate(REDUCTIONS + (("batchmean",) if mode == 6 else ())):
                x = rand(3, 4)
                t = rand(3, 4)
                x.view(-1)[:2] = t.view(-1)[:2]  # where |x - t| has no slope
                if mode == 4:
                    x = torch.cat([torch.tensor([[0.0, 1.0, 0.0, 1.0]]), rand(3, 4, low=0.0625, high=0.9375)])
                    t = torch.cat([torch.tensor([[0.0, 1.0, 1.0, 0.0]]), rand(3, 4, low=0, high=1)])
                if mode == 5:
                    x = torch.cat([rand(3, 4), torch.tensor([[80.0, -80.0, 500.0, -500.0]])])
                    t = rand(4, 4, low=0, high=1)
                if mode == 6 and not alpha:
                    t = rand(3, 4, low=0, high=1)
                    t[0, 0] = 0
                w = rand(*x.shape, low=0.25) if weights else None
                p = rand(*x.shape, low=0.25) if weights == 2 else None
                x.requires_grad_()
                loss = f(x, t, w, p, reduction)
                dy, (dx,) = grad_of(loss, [x])
                label = "%s %s" % (name, reduction)
                attrs = dict(kind=mode, parameter=alpha, reduction=number_)
                case("pointwise_loss", label, [x, t, w, p], [loss], **attrs)
                case("pointwise_loss_grad", label, [dy, x, t, w, p], [dx], **attrs)


# --- updates ---------------------------------------------------------------------------------------------------------
def update_case(label, mode, optimizer_of, states, **hyper):
    """Three steps, one case each: operands before, operands after. states: optimizer state keys for state0..2."""
    p = rand(4).requires_grad_()
    optimizer = optimizer_of([p])
    for step in (1, 2, 3):
        g = rand(4)
        p.grad = g.clone()
        before = p.detach().clone()
        old = [optimizer.state[p][k].clone() if k and torch.is_tensor(optimizer.state[p].get(k)) else torch.zeros(4) if k else None
               for k in states]
        optimizer.step()
        new = [optimizer.state[p][k].clone() if k else None for k in states]
        old, new = ([s if s is None else s.expand(4).clone() for s in states_] for states_ in (old, new))
        case("update", "%s step %d" % (label, step), [before, g] + old, [],
             [(0, p)] + [(2 + i, s) for i, s in enumerate(new) if s is not None], rule=mode, hyper_step=step,
             **{"hyper_" + k: v for k, v in hyper.items()})


class Lamb(torch.optim.Optimizer):
    """The paper's algorithm 2, written from its formulas."""

    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                s["t"] += 1
                b1, b2 = group["betas"]
                s["m"] = b1 * s["m"] + (1 - b1) * p.grad
                s["v"] = b2 * s["v"] + (1 - b2) * p.grad ** 2
                r = (s["m"] / (1 - b1 ** s["t"])) / ((s["v"] / (1 - b2 ** s["t"])).sqrt() + group["eps"])
                u = r + group["weight_decay"] * p
                wn, un = p.norm(), u.norm()
                p -= group["lr"] * (wn / un if wn > 0 and un > 0 else 1.0) * u


def updates():
    O = torch.optim
    momentum = ["momentum_buffer"]
    update_case("sgd", 0, lambda p: O.SGD(p, 0.1), [], lr=0.1)
    update_case("sgd decay", 0, lambda p: O.SGD(p, 0.1, weight_decay=0.2), [], lr=0.1, weight_decay=0.2)
    update_case("sgd momentum dampening decay", 0, lambda p: O.SGD(p, 0.1, momentum=0.9, dampening=0.3, weight_decay=0.2), momentum,
                lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.2)
    update_case("sgd nesterov maximize", 0, lambda p: O.SGD(p, 0.1, momentum=0.9, nesterov=True, maximize=True), momentum, lr=0.1,
                momentum=0.9, nesterov=1, maximize=1)
    for mode, name, cls in ((1, "adam", O.Adam), (2, "adamw", O.AdamW)):
        base = dict(lr=0.05, beta1=0.8, beta2=0.95, eps=1e-8)
        make = lambda p, **k: cls(p, 0.05, (0.8, 0.95), foreach=False, **k)
        keys = ["exp_avg", "exp_avg_sq"]
        update_case(name, mode, lambda p: make(p, weight_decay=0), keys, **base)
        update_case(name + " decay", mode, lambda p: make(p, weight_decay=0.1), keys, weight_decay=0.1, **base)
        update_case(name + " amsgrad maximize", mode, lambda p: make(p, weight_decay=0.1, amsgrad=True, maximize=True),
                    keys + ["max_exp_avg_sq"], weight_decay=0.1, amsgrad=1, maximize=1, **base)
    base = dict(lr=0.02, alpha=0.9, eps=1e-8)
    rms = lambda p, **k: O.RMSprop(p, 0.02, 0.9, 1e-8, foreach=False, **k)
    update_case("rmsprop", 3, rms, ["square_avg"], **base)
    update_case("rmsprop momentum decay", 3, lambda p: rms(p, momentum=0.8, weight_decay=0.1), ["square_avg", "momentum_buffer"],
                momentum=0.8, weight_decay=0.1, **base)
    update_case("rmsprop centered", 3, lambda p: rms(p, centered=True), ["square_avg", None, "grad_avg"], centered=1, **base)
    update_case("rmsprop centered momentum", 3, lambda p: rms(p, centered=True, momentum=0.8),
                ["square_avg", "momentum_buffer", "grad_avg"], centered=1, momentum=0.8, **base)
    update_case("adagrad", 4, lambda p: O.Adagrad(p, 0.1, 0.05, 0.1), ["sum"], lr=0.1, lr_decay=0.05, weight_decay=0.1, eps=1e-10)
    update_case("lamb", 5, lambda p: Lamb(p, 0.1, (0.9, 0.999), 1e-6, 0.01), ["m", "v"], lr=0.1, beta1=0.9, beta2=0.999, eps=1e-6,
                weight_decay=0.01)
    zero, g = torch.zeros(4), rand(4)
    u = g.sign() * g.abs() / (g.abs() + 1e-6)  # at the first step m^ = g and v^ = g^2
    case("update", "lamb of a zero parameter", [zero, g, zero, zero], [], [(0, -0.1 * u)], rule=5, hyper_step=1, hyper_lr=0.1,
         hyper_beta1=0.9, hyper_beta2=0.999, hyper_eps=1e-6)
    p, g = rand(5), rand(5)
    case("update", "gradient scale", [p, g], [], [(0, p - 0.1 * 0.25 * g)], rule=0, hyper_step=1, hyper_lr=0.1, hyper_grad_scale=0.25)
    for clip in (0.5, 100.0):
        g = torch.nn.Parameter(torch.zeros(9))
        g.grad = rand(9)
        before = g.grad.clone()
        norm = torch.nn.utils.clip_grad_norm_([g], clip)
        case("clip_norm", "to %g" % clip, [before], [], [(0, g.grad)], hyper_clip=clip, hyper_grad_norm=float(norm))
    g = rand(9)
    case("clip_value", "plain", [g], [], [(0, g.clamp(-0.75, 0.75))], hyper_clip=0.75)
    a, b = rand(6), rand(6)
    case("accumulate", "adds", [a, b], [], [(0, a + b)], hyper_first=0)
    case("accumulate", "first", [a, b], [], [(0, b)], hyper_first=1)


# --- whole lines -----------------------------------------------------------------------------------------------------
def lines_of_axes():
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([-2.5, -1.5, -0.5, -0.25, 0.0, 0.25, 0.5, 1.5, 2.5, 3.75, nan, inf, -inf])
    for name, f in (("floor", torch.floor), ("ceil", torch.ceil), ("round", torch.round)):
        case(name, "plain", [x], [f(x)])
    for axis in range(3):
        leaf = rand(2, 3, 4, grad=True)
        case("cumsum", "axis %d" % axis, [leaf], [leaf.cumsum(axis)], axis=axis)
        case("cumsum", "reverse axis %d" % axis, [leaf], [leaf.flip(axis).cumsum(axis).flip(axis)], axis=axis, reverse=1)
        with_zero = leaf.detach().clone()
        with_zero[0, 1, 2] = with_zero[1, 0, 0] = with_zero[1, 2, 0] = 0
        for label, leaf in (("plain", leaf), ("zeros", with_zero.requires_grad_())):
            y = leaf.cumprod(axis)
            dy, (dx,) = grad_of(y, [leaf])
            case("cumprod", "%s axis %d" % (label, axis), [leaf], [y], axis=axis)
            case("cumprod_grad", "%s axis %d" % (label, axis), [dy, leaf], [dx], axis=axis)
        for descending in (0, 1):
            t = torch.round(rand(3, 4, 5) * 2) / 2
            t[0, 0, 0] = t[1, 2, 3] = nan
            y, index = torch.sort(t, dim=axis, descending=bool(descending), stable=True)
            case("sort", "axis %d" % axis, [t], [y, index], axis=axis, descending=descending)
            t = torch.randperm(60).reshape(3, 4, 5) / 4
            y, index = torch.topk(t, 2, dim=axis, largest=bool(descending))
            case("sort", "topk axis %d" % axis, [t], [y, index], axis=axis, descending=descending, count=2)
    for axis, size in ((0, (3, 2, 4)), (1, (2, 5, 3)), (2, (1, 3, 6))):
        x, source = rand(2, 3, 4), rand(*size)
        index = torch.randint(0, x.shape[axis], size)
        case("scatter_add", "axis %d" % axis, [x, index, source], [x.scatter_add(axis, index, source)], axis=axis)
        size = tuple(min(a, b) for a, b in zip(size, x.shape))
        index = torch.rand(x.shape).argsort(axis)[tuple(slice(0, n) for n in size)]
        source = rand(*size)
        case("scatter", "axis %d" % axis, [x, index, source], [x.scatter(axis, index, source)], axis=axis)


def more_updates():
    O = torch.optim
    moments = ["exp_avg", "exp_avg_sq"]
    betas = dict(beta1=0.8, beta2=0.75, eps=1e-8)
    update_case("nadam", 6, lambda p: O.NAdam(p, 0.05, (0.8, 0.75), 1e-8, 0.1, 0.02), moments + ["mu_product"], lr=0.05,
                weight_decay=0.1, lr_decay=0.02, **betas)
    update_case("radam", 7, lambda p: O.RAdam(p, 0.05, (0.8, 0.75), 1e-8, 0.1), moments, lr=0.05, weight_decay=0.1, **betas)
    update_case("adadelta", 8, lambda p: O.Adadelta(p, 0.5, 0.8, 1e-4, 0.1, maximize=True), ["square_avg", "acc_delta"], lr=0.5,
                alpha=0.8, eps=1e-4, weight_decay=0.1, maximize=1)
    update_case("adamax", 9, lambda p: O.Adamax(p, 0.05, (0.8, 0.75), 1e-8, 0.1), ["exp_avg", "exp_inf"], lr=0.05, weight_decay=0.1,
                **betas)
    update_case("rprop", 10, lambda p: O.Rprop(p, 0.05, (0.5, 1.3), (1e-3, 0.06)), ["prev", "step_size"], lr=0.05, alpha=0.5,
                lr_decay=1.3, eps=1e-3, clip=0.06)
    update_case("asgd", 11, lambda p: O.ASGD(p, 0.1, 0.05, 0.5, 1, 0.1), ["ax", "eta"], lr=0.1, lr_decay=0.05, alpha=0.5, dampening=1,
                weight_decay=0.1)
    update_case("lion", 12, lambda p: Lion(p, 0.05, (0.8, 0.75), 0.1), ["exp_avg"], lr=0.05, beta1=0.8, beta2=0.75, weight_decay=0.1)


# --- attention -------------------------------------------------------------------------------------------------------
def attention_case(label, q, k, v, mask=None, key_mask=None, is_causal=False, forbids=False, scale=None, packed=False):
    """q (B, H, L, D), k and v (B, G, S, D or E); packed: the op gets (B, L, H + 2 G, D)."""
    heads, kv_heads = q.shape[1], k.shape[1]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v = (t.requires_grad_() for t in (q, k, v))
    scores = q @ k.repeat_interleave(heads // kv_heads, 1).transpose(2, 3) * scale

    def added(m):
        if m is None or m.dtype != torch.bool:
            return 0 if m is None else m
        return torch.zeros(m.shape).masked_fill(m if forbids else ~m, -math.inf)

    scores = scores + added(mask) + (0 if key_mask is None else added(key_mask)[:, None, None])
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 0, -math.inf)
    y = scores.softmax(-1) @ v.repeat_interleave(heads // kv_heads, 1)
    sums = scores.logsumexp(-1).where((scores > -math.inf).any(-1), torch.tensor(math.nan))
    dy, (dq, dk, dv) = grad_of(y, [q, k, v])
    attrs = dict(layout=1 if packed else 0, heads=heads, kv_heads=kv_heads, scale=scale, is_causal=int(is_causal), mask_forbids=int(forbids))
    ins, outs, turn = [q, k, v], [dq, dk, dv], (lambda t: t)
    if packed:
        turn = lambda t: t.transpose(1, 2)  # noqa: E731
        ins, outs = ([torch.cat([turn(t) for t in ts], 2), None, None] for ts in (ins, outs))
    none = torch.zeros(0, dtype=torch.uint8)
    case("attention", label, ins + [mask, key_mask], [turn(y), sums, none], **attrs)
    case("attention_grad", label, [turn(dy), turn(y)] + ins + [mask, key_mask, sums, none],
         [outs[0]] + [torch.zeros(0) if t is None else t for t in outs[1:]], **attrs)


def attentions():
    attention_case("plain", rand(2, 2, 3, 4), rand(2, 2, 5, 4), rand(2, 2, 5, 4))
    attention_case("causal, width of v, scale", rand(1, 2, 4, 3), rand(1, 2, 3, 3), rand(1, 2, 3, 2), is_causal=True, scale=0.75)
    attention_case("groups, packed", rand(2, 4, 3, 2), rand(2, 2, 3, 2), rand(2, 2, 3, 2), is_causal=True, packed=True)
    seen = torch.tensor([[True, False, True], [False, True, True]])
    attention_case("bool masks", rand(2, 1, 2, 2), rand(2, 1, 3, 2), rand(2, 1, 3, 2), mask=seen[None, None], key_mask=~seen | True)
    attention_case("forbidding masks", rand(2, 1, 2, 2), rand(2, 1, 3, 2), rand(2, 1, 3, 2), key_mask=seen, forbids=True)
    attention_case("added masks", rand(2, 2, 2, 2), rand(2, 2, 3, 2), rand(2, 2, 3, 2), mask=rand(1, 2, 2, 3), key_mask=rand(2, 3))
    nothing = torch.tensor([[True, True, True], [False, False, False]])
    attention_case("a query without keys", rand(1, 1, 2, 2), rand(1, 1, 3, 2), rand(1, 1, 3, 2), mask=nothing[None, None])


for family in (elementwise, reductions, movement, products, convolutions, pooling, upsampling, normalisation, losses, updates,
               lines_of_axes, more_updates, attentions):
    family()
with open(OUT, "w") as f:
    f.write("\n".join(lines) + "\n")
print("%s: %d cases, %d bytes" % (os.path.normpath(OUT), sum(l.startswith("case ") for l in lines), os.path.getsize(OUT)),
      file=sys.stderr)
