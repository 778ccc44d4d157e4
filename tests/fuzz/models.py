"""Draws models: lists of layers as a config names them, each tried in PyTorch to learn the shape that it gives."""
import os
import sys
import warnings

import torch
from torch import nn

import catalogue

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../oracle"))
from nn_transformer import LearnedPositions, RMSNorm, RotaryPositions, SinusoidalPositions, causal  # noqa: E402

WIDTHS = [1, 2, 3, 5, 7, 8, 10, 13, 16, 17, 31, 32, 37, 64, 100]
WIDE = [255, 256, 257, 260, 300, 304, 500, 512, 784, 1000, 1030]
CHANNELS = [1, 2, 3, 4, 5, 8, 16, 17, 32, 33]
# Large jobs: what it takes to enter an engine's fast paths (sparse and thin products, Winograd, wide norms) together.
LARGE_WIDTHS, LARGE_CHANNELS = [32, 33, 48, 64, 100, 128] + WIDE, [8, 16, 17, 32, 33, 64]
MOST_NUMBERS, MOST_PARAMETERS = 30000, 700000

# Modules without required keys that are no function of each number alone.
NO_ACTIVATIONS = {"Sequential", "Residual", "Flatten", "Identity", "Upsample", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d",
                  "AlphaDropout", "FeatureAlphaDropout", "Softmax2d", "UpsamplingNearest2d", "UpsamplingBilinear2d",
                  "RReLU",  # which draws other numbers than PyTorch
                  "Transformer", "CosineSimilarity", "PairwiseDistance"}


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class SelfAttention(nn.MultiheadAttention):
    def __init__(self, *sizes, is_causal=False, **options):
        super().__init__(*sizes, **options)
        self.is_causal = is_causal

    def forward(self, x):
        mask = causal(x.shape[1 if self.batch_first else 0]) if self.is_causal else None
        return super().forward(x, x, x, need_weights=False, attn_mask=mask)[0]


class EncoderLayer(nn.TransformerEncoderLayer):
    def __init__(self, *sizes, is_causal=False, **options):
        super().__init__(*sizes, **options)
        self.is_causal = is_causal

    def forward(self, x, src_mask=None, src_key_padding_mask=None):
        length = x.shape[1 if self.self_attn.batch_first else 0]
        return super().forward(x, causal(length) if self.is_causal else None)


class Encoder(nn.TransformerEncoder):
    def __init__(self, encoder_layer, num_layers, norm=None, is_causal=False):
        super().__init__(encoder_layer, num_layers, norm, enable_nested_tensor=False)
        for layer in self.layers:
            layer.is_causal = layer.is_causal or is_causal


class Shaped(RMSNorm):
    def __init__(self, normalized_shape, **options):
        super().__init__((normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape, **options)


class Rotary(RotaryPositions):
    def __init__(self, num_heads=1, features=None, **options):
        super().__init__(num_heads, features, **options)


def recurrent(base):
    """The layer as a module with one result: all outputs, or the last states of the top layer."""

    class Layer(base):
        def __init__(self, *sizes, returns="all", **options):
            super().__init__(*sizes, **options)
            self.returns = returns

        def forward(self, x):
            y, state = super().forward(x)
            h = state[0] if isinstance(state, tuple) else state
            return torch.cat(list(h[-(2 if self.bidirectional else 1):]), dim=-1) if self.returns == "last" else y

    return Layer


class LSTMCell(nn.LSTMCell):
    def forward(self, x):
        return super().forward(x)[0]


OWN = {"Residual": Residual, "MultiheadAttention": SelfAttention, "LSTMCell": LSTMCell, "TransformerEncoderLayer": EncoderLayer,
       "TransformerEncoder": Encoder, "RMSNorm": Shaped, "LearnedPositions": LearnedPositions,
       "SinusoidalPositions": SinusoidalPositions, "RotaryPositions": Rotary,
       **{base.__name__: recurrent(base) for base in (nn.LSTM, nn.GRU, nn.RNN)}}


def build(spec):
    """PyTorch's module for a spec. Parameters are drawn in the order of the spec."""
    if isinstance(spec, str):
        spec = {"_target_": spec}
    keys = {k: v for k, v in spec.items() if k not in ("_target_", "_var_", "args")}
    for key in ("encoder_layer", "norm"):
        if key in keys:
            keys[key] = build(keys[key])
    name = spec["_target_"]
    made = OWN.get(name) or getattr(nn, name)
    return made(*[build(part) for part in spec.get("args", [])], **keys)


def parameter_count(module):
    return sum(p.numel() for p in module.parameters())


def forward_shape(specs, shape, whole):
    """The shape that the layers make of samples of this one, or None if PyTorch refuses or they are too large."""
    x = torch.zeros((2,) + tuple(shape), dtype=torch.int64 if whole else torch.float32)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = nn.Sequential(*[build(spec) for spec in specs])
            if parameter_count(module) > MOST_PARAMETERS:
                return None
            y = module(x)
    except (RuntimeError, ValueError, IndexError, AssertionError, TypeError):
        return None
    if y.shape[0] != 2 or y.numel() == 0 or y.numel() > 2 * MOST_NUMBERS:
        return None
    return tuple(y.shape[1:])


def divisors(n, most=8):
    return [d for d in range(1, min(n, most) + 1) if n % d == 0]


class Drawer:
    """Draws one model. `rng` is Python's Random: the same seed gives the same model."""

    def __init__(self, rng, kinds, large=False):
        self.rng, self.modules, self.large = rng, kinds["module"], large

    def options(self, name, skip=(), chance=0.3):
        return catalogue.options(self.rng, self.modules[name], skip, chance)

    def width(self, large=0.12):
        return self.rng.choice(LARGE_WIDTHS if self.large else WIDE if self.rng.random() < large else WIDTHS)

    def maybe(self, spec, key, values, chance=0.5):
        if key in self.modules[spec["_target_"]].keys and self.rng.random() < chance:
            spec[key] = self.rng.choice(values)

    def sizes(self, values, dims):
        """One number for all axes, or one for each."""
        if self.rng.random() < 0.6:
            return self.rng.choice(values)
        return [self.rng.choice(values) for _ in range(dims)]

    # One layer of each family for activations of this shape (without the batch).

    def activation(self, shape):
        names = [name for name, module in self.modules.items()
                 if name not in NO_ACTIVATIONS and hasattr(nn, name)
                 and not any(key.required and key.name != "dim" for key in module.keys.values())]
        name = self.rng.choice(names)
        return {"_target_": name, **self.options(name)}

    def dropout(self, shape):
        if self.rng.random() < 0.1:
            return {"_target_": "Identity"}
        name = "Dropout%dd" % (len(shape) - 1) if len(shape) > 1 and self.rng.random() < 0.3 else "Dropout"
        if self.rng.random() < 0.15:
            name = self.rng.choice(["AlphaDropout", "FeatureAlphaDropout"])
        return {"_target_": name, **self.options(name, chance=0.8)}

    def linear(self, shape):
        spec = {"_target_": "Linear", "in_features": shape[-1], "out_features": self.width(0.1)}
        return {**spec, **self.options("Linear", spec)}

    def batch_norm(self, shape):
        name = "BatchNorm%dd" % max(1, len(shape) - 1)
        spec = {"_target_": name, "num_features": shape[0], **self.options(name, ["num_features"])}
        self.maybe(spec, "momentum", [None], 0.1)
        return spec

    def layer_norm(self, shape):
        axes = self.rng.randint(1, len(shape))
        last = list(shape[-axes:])
        spec = {"_target_": "LayerNorm", "normalized_shape": last[0] if len(last) == 1 else last}
        return {**spec, **self.options("LayerNorm", spec)}

    def group_norm(self, shape):
        spec = {"_target_": "GroupNorm", "num_groups": self.rng.choice(divisors(shape[0], 64)), "num_channels": shape[0]}
        return {**spec, **self.options("GroupNorm", spec)}

    def instance_norm(self, shape):
        name = "InstanceNorm%dd" % (len(shape) - 1)
        spec = {"_target_": name, "num_features": shape[0]}
        self.maybe(spec, "affine", [True])
        self.maybe(spec, "eps", [1e-3], 0.3)
        self.maybe(spec, "track_running_stats", [True], 0.4)
        if "track_running_stats" in spec:
            self.maybe(spec, "momentum", [0.3, 1.0])
        return spec

    def response(self, shape):
        """Layers that look at neighbours in some way."""
        dims = len(shape) - 1
        name = self.rng.choice(["LocalResponseNorm"] + (["LPPool%dd" % dims] if dims < 3 else []) +
                               (["Unfold", "Fold", "Softmax2d", "UpsamplingNearest2d", "UpsamplingBilinear2d"] if dims == 2 else []))
        spec = {"_target_": name}
        if name == "LocalResponseNorm":
            spec["size"] = self.rng.choice([1, 2, 3, 5])
            self.maybe(spec, "alpha", [0.1, 0.5])
            self.maybe(spec, "beta", [0.5, 1.0])
            self.maybe(spec, "k", [2.0])
        elif name.startswith("LPPool"):
            spec.update({"norm_type": self.rng.choice([2, 4]), "kernel_size": self.sizes([1, 2, 3], dims)})
            self.maybe(spec, "stride", [self.sizes([1, 2], dims)])
            self.maybe(spec, "ceil_mode", [True, False], 0.3)
        elif name.startswith("Upsampling"):
            key = self.rng.choice(["size", "scale_factor"])
            spec[key] = self.sizes([1, 3, 7] if key == "size" else [2.0, 3.0], dims)
        elif name in ("Unfold", "Fold"):
            spec["kernel_size"] = self.sizes([1, 2, 3], dims)
            self.maybe(spec, "stride", [self.sizes([1, 2], dims)])
            self.maybe(spec, "padding", [self.sizes([0, 1], dims)])
            self.maybe(spec, "dilation", [self.sizes([1, 2], dims)], 0.3)
            if name == "Fold":
                patches = {**spec, "_target_": "Unfold"}
                spec["output_size"] = list(shape[1:])
                return {"_target_": "Sequential", "args": [patches, spec]}
        return spec

    def padding(self, shape):
        dims, kind = len(shape) - 1, self.rng.choice(["Constant", "Reflection", "Replication", "Zero"])
        if kind == "Zero" and dims != 2:
            kind = "Constant"
        spec = {"_target_": "%sPad%dd" % (kind, dims), "padding": self.sizes([0, 1, 2], 2 * dims)}
        if kind == "Constant":
            spec["value"] = self.rng.choice([0.0, -0.5, 1.5])
        return spec

    def convolution(self, shape):
        dims, transposed = len(shape) - 1, self.rng.random() < 0.25
        name = "Conv%s%dd" % ("Transpose" if transposed else "", dims)
        groups = self.rng.choice(divisors(shape[0])) if self.rng.random() < 0.35 else 1
        out = self.rng.choice([1, 1, 2, 3]) * groups if groups > 1 else self.rng.choice(LARGE_CHANNELS if self.large else CHANNELS)
        spec = {"_target_": name, "in_channels": shape[0], "out_channels": out,
                "kernel_size": self.sizes([1, 2, 3, 3, 3, 4, 5], dims)}
        if groups > 1:
            spec["groups"] = groups
        self.maybe(spec, "stride", [self.sizes([1, 2, 3], dims)])
        self.maybe(spec, "padding", [self.sizes([0, 1, 2], dims)], 0.6)
        self.maybe(spec, "dilation", [self.sizes([1, 2], dims)], 0.25)
        self.maybe(spec, "bias", [True, False], 0.3)
        if transposed:
            self.maybe(spec, "output_padding", [self.sizes([0, 1], dims)], 0.3)
        elif "stride" not in spec and self.rng.random() < 0.2:
            spec["padding"] = self.rng.choice(["same", "valid"])
        if not transposed:
            self.maybe(spec, "padding_mode", ["zeros", "reflect", "circular", "replicate"], 0.2)
        return spec

    def plain_convolution(self, shape):
        """The most common one, which engines have kernels of their own for."""
        return {"_target_": "Conv%dd" % (len(shape) - 1), "in_channels": shape[0], "out_channels": self.rng.choice(LARGE_CHANNELS),
                "kernel_size": 3, "padding": self.rng.choice([0, 1])}

    def pool(self, shape):
        dims, name = len(shape) - 1, self.rng.choice(["MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool"])
        name = "%s%dd" % (name, dims)
        if name.startswith("Adaptive"):
            if dims > 1 and self.rng.random() < 0.15:
                return {"_target_": name, "output_size": [None] + [self.rng.choice([1, 2, 3]) for _ in range(dims - 1)]}
            return {"_target_": name, "output_size": self.sizes([1, 1, 2, 3, 5], dims)}
        spec = {"_target_": name, "kernel_size": self.sizes([1, 2, 2, 3], dims)}
        self.maybe(spec, "stride", [self.sizes([1, 2, 3], dims)])
        self.maybe(spec, "padding", [self.sizes([0, 1], dims)], 0.4)
        self.maybe(spec, "dilation", [self.sizes([1, 2], dims)], 0.2)
        self.maybe(spec, "ceil_mode", [True, False], 0.3)
        self.maybe(spec, "count_include_pad", [True, False], 0.3)
        self.maybe(spec, "divisor_override", [1, 3, 7], 0.2)
        return spec

    def upsample(self, shape):
        dims = len(shape) - 1
        spec = {"_target_": "Upsample"}
        spec["mode"] = self.rng.choice(["nearest", "nearest-exact",
                                        ["linear", "bilinear", "trilinear"][dims - 1]] + (["bicubic"] if dims == 2 else []))
        if self.rng.random() < 0.5:
            spec["size"] = self.sizes([1, 3, 4, 7, 10], dims)
        else:
            spec["scale_factor"] = self.rng.choice([2, 3, 1.5, 0.5, 2.0])
        if not spec["mode"].startswith("nearest"):
            self.maybe(spec, "align_corners", [True, False])
        return spec

    def attention(self, shape):
        heads = self.rng.choice(divisors(shape[-1]))
        kind = self.rng.choice(["MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder"])
        batch_first = {"batch_first": True} if self.rng.random() < 0.8 else {}
        if kind == "MultiheadAttention":
            spec = {"_target_": kind, "embed_dim": shape[-1], "num_heads": heads, **batch_first}
            self.maybe(spec, "kdim", [shape[-1]], 0.1)
            self.maybe(spec, "vdim", [shape[-1]], 0.1)
            return {**spec, **self.options(kind, list(spec) + ["batch_first", "kdim", "vdim"])}
        layer = {"_target_": "TransformerEncoderLayer", "d_model": shape[-1], "nhead": heads,
                 "dim_feedforward": self.width(0.05), **batch_first}
        layer.update(self.options("TransformerEncoderLayer", list(layer) + ["batch_first"]))
        if kind != "TransformerEncoder":
            return layer
        spec = {"_target_": kind, "encoder_layer": layer, "num_layers": self.rng.choice([1, 2])}
        self.maybe(spec, "is_causal", [True, False], 0.3)
        if self.rng.random() < 0.4:
            spec["norm"] = {"_target_": "LayerNorm", "normalized_shape": shape[-1]}
        return spec

    def positions(self, shape):
        kind = self.rng.choice(["LearnedPositions", "SinusoidalPositions", "RotaryPositions"])
        if kind == "LearnedPositions":
            spec = {"_target_": kind, "max_len": shape[0] + self.rng.choice([0, 3]), "features": shape[1]}
            self.maybe(spec, "std", [0.02, 0.5])
            return spec
        if kind == "SinusoidalPositions":
            return {"_target_": kind}
        heads = self.rng.choice(divisors(shape[-1]))
        spec = {"_target_": kind, "num_heads": heads}
        self.maybe(spec, "base", [100.0, 10000.0])
        self.maybe(spec, "interleaved", [True, False])
        self.maybe(spec, "features", [2 * (shape[-1] // heads // 4)] if shape[-1] // heads >= 4 else [2], 0.3)
        return spec

    def rms_norm(self, shape):
        spec = {"_target_": "RMSNorm", "normalized_shape": shape[-1]}
        self.maybe(spec, "eps", [1e-5, 1e-2])
        self.maybe(spec, "elementwise_affine", [True, False])
        return spec

    def recurrent(self, shape):
        hidden = self.width(0.05)
        if len(shape) == 1:
            spec = {"_target_": self.rng.choice(["LSTMCell", "GRUCell", "RNNCell"])}
        else:
            spec = {"_target_": self.rng.choice(["LSTM", "GRU", "RNN"])}
        spec.update({"input_size": shape[-1], "hidden_size": hidden})
        self.maybe(spec, "nonlinearity", ["tanh", "relu"])
        self.maybe(spec, "bias", [True, False], 0.3)
        if len(shape) == 1:
            return spec
        self.maybe(spec, "batch_first", [True], 0.8)
        if "batch_first" in spec:
            self.maybe(spec, "returns", ["all", "last"], 0.4)
        self.maybe(spec, "bidirectional", [True, False], 0.5)
        self.maybe(spec, "num_layers", [1, 2, 3], 0.5)
        if spec.get("num_layers", 1) > 1:
            self.maybe(spec, "dropout", [0.0, 0.2, 0.5], 0.4)
        if hidden > 1:
            self.maybe(spec, "proj_size", [0, 1, hidden // 2, hidden - 1], 0.4)
        return spec

    def residual(self, shape):
        inner = [self.shape_keeping(shape) for _ in range(self.rng.randint(1, 3))]
        return {"_target_": self.rng.choice(["Residual", "Residual", "Sequential"]), "args": inner}

    def shape_keeping(self, shape):
        if len(shape) > 1 and self.rng.random() < 0.4:
            return {"_target_": "Conv%dd" % (len(shape) - 1), "in_channels": shape[0], "out_channels": shape[0],
                    "kernel_size": 3, "padding": 1}
        if self.rng.random() < 0.4:
            return {"_target_": "Linear", "in_features": shape[-1], "out_features": shape[-1]}
        return self.rng.choice([self.activation, self.batch_norm, self.layer_norm, self.dropout])(shape)

    def reshape(self, shape):
        if len(shape) > 1:
            spec = {"_target_": "Flatten"}
            if len(shape) > 2 and self.rng.random() < 0.5:
                spec.update(self.rng.choice([{"start_dim": 2}, {"end_dim": 2}, {"start_dim": 2, "end_dim": 3}]))
            return spec
        parts = [d for d in range(1, shape[0] + 1) if shape[0] % d == 0]
        first = self.rng.choice(parts)
        return {"_target_": "Unflatten", "dim": 1,
                "unflattened_size": [first, self.rng.choice([-1, shape[0] // first])]}

    def layer(self, shape):
        families = [self.activation] * 4 + [self.linear] * (4 if len(shape) == 1 else 1)
        families += [self.dropout, self.batch_norm, self.layer_norm, self.group_norm, self.residual, self.reshape]
        if len(shape) > 1:
            families += [self.convolution] * 6 + [self.pool] * 3 + [self.upsample, self.instance_norm, self.padding]
            families += [self.response]
            families += [self.plain_convolution] * (4 if self.large else 0)
        if len(shape) == 1 and self.large:
            families += [self.linear] * 6
        if len(shape) <= 2:
            families += [self.recurrent] * (3 if len(shape) == 2 else 1)
        families += [self.rms_norm]
        if len(shape) == 2:
            families += [self.attention] * 2 + [self.positions]
        return self.rng.choice(families)(shape)

    def layers(self, shape, count, whole, first=()):
        """Up to `count` layers after `first`, and the shape after them. Layers that PyTorch refuses are drawn anew."""
        if self.large and len(shape) == 1 and not first and self.rng.random() < 0.7:
            first = [self.linear(shape)]
            if forward_shape(first, shape, False) is None:
                first = []
        specs = list(first)
        if first:
            shape = forward_shape(first, shape, whole)
        for _ in range(count):
            for _ in range(8):
                spec = self.layer(shape)
                found = forward_shape([spec], shape, False)
                if found is not None:
                    specs.append(spec)
                    shape = found
                    break
        return specs, shape
