#!/usr/bin/python3
"""As nn_parity.py, for transformers, their masks, and positions.

    nn_transformer.py [FOLDER [SHIFT]]

Writes nn/transformer.lkg for tests/nn/test_transformer.c. RMSNorm and the positions are formulas: PyTorch 1.13 has none.
"""
import math
import os
import sys

import torch
import torch.nn as nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nn_golden import Golden  # noqa: E402
from nn_parity import layer  # noqa: E402


def causal(size):
    return torch.triu(torch.full((size, size), float("-inf")), diagonal=1)


def padding(*lengths, of):
    """True after each length."""
    return torch.tensor([[place >= length for place in range(of)] for length in lengths])


class Masked(nn.Module):
    """A module of one sequence, with masks."""

    def __init__(self, module, **masks):
        super().__init__()
        self.part, self.masks = module, masks

    def forward(self, x):
        return self.part(x, **self.masks)


class Attention(Masked):
    def forward(self, x):
        return self.part(x, x, x, need_weights=False, **self.masks)[0]


class Two(Masked):
    """A module of two sequences: the first places of an axis, and the others."""

    def __init__(self, module, first, axis=0, **masks):
        super().__init__(module, **masks)
        self.first, self.axis = first, axis

    def forward(self, x):
        a, b = x.split([self.first, x.shape[self.axis] - self.first], self.axis)
        return self.part(a, b, **self.masks)


class RMSNorm(nn.Module):
    def __init__(self, shape, eps=None, elementwise_affine=True):
        super().__init__()
        self.axes, self.eps = tuple(range(-len(shape), 0)), torch.finfo(torch.float32).eps if eps is None else eps
        if elementwise_affine:
            self.weight = nn.Parameter(torch.ones(shape))

    def forward(self, x):
        y = x * torch.rsqrt(x.pow(2).mean(self.axes, keepdim=True) + self.eps)
        return y * self.weight if hasattr(self, "weight") else y


class LearnedPositions(nn.Module):
    def __init__(self, max_len, features, std=1.0, dim=1):
        super().__init__()
        self.dim, self.weight = dim, nn.Parameter(torch.empty(max_len, features))
        nn.init.normal_(self.weight, 0, std)

    def forward(self, x):
        vectors = self.weight[:x.shape[self.dim]]
        return x + (vectors if self.dim == 1 else vectors[:, None])


class SinusoidalPositions(nn.Module):
    """As in PyTorch's tutorial on transformers."""

    def forward(self, x):
        places, features = x.shape[1], x.shape[2]
        position = torch.arange(places).unsqueeze(1)
        rate = torch.exp(torch.arange(0, features, 2) * (-math.log(10000.0) / features))
        table = torch.zeros(places, features)
        table[:, 0::2] = torch.sin(position * rate)
        table[:, 1::2] = torch.cos(position * rate)
        return x + table


class RotaryPositions(nn.Module):
    def __init__(self, heads=1, features=None, base=10000.0, interleaved=False):
        super().__init__()
        self.heads, self.features, self.base, self.interleaved = heads, features, base, interleaved

    def forward(self, x):
        n, s, _ = x.shape
        parts = x.view(n, s, self.heads, -1)
        features = self.features or parts.shape[-1]
        x, rest = parts[..., :features], parts[..., features:]
        angle = torch.arange(s)[:, None] * self.base ** (-torch.arange(0, features, 2) / features)
        if self.interleaved:
            turned = torch.view_as_complex(x.reshape(n, s, self.heads, -1, 2)) * torch.polar(torch.ones(angle.shape), angle)[:, None]
            x = torch.view_as_real(turned).flatten(3)
        else:
            cos, sin = angle.cos().repeat(1, 2)[:, None], angle.sin().repeat(1, 2)[:, None]
            a, b = x.chunk(2, -1)
            x = x * cos + torch.cat([-b, a], -1) * sin
        return torch.cat([x, rest], -1).flatten(2)


def encoder_layer(**options):
    return nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, **options)


def decoder_layer(**options):
    return nn.TransformerDecoderLayer(8, 2, dim_feedforward=12, **options)


def transformer(**options):
    return nn.Transformer(8, 2, num_encoder_layers=2, num_decoder_layers=2, dim_feedforward=12, **options)


def encoder(**options):
    return nn.TransformerEncoder(encoder_layer(**options), 2, enable_nested_tensor=False)


LAYERS = [
    ("attention_causal", lambda: Attention(nn.MultiheadAttention(8, 2), attn_mask=causal(5)), (5, 2, 8)),
    ("attention_padding",
     lambda: Attention(nn.MultiheadAttention(8, 2, batch_first=True), key_padding_mask=padding(3, 5, of=5)), (2, 5, 8)),
    ("encoder_layer_causal", lambda: Masked(encoder_layer(dropout=0.0), src_mask=causal(5)), (5, 2, 8)),
    ("encoder_causal", lambda: Masked(encoder(dropout=0.0), mask=causal(5)), (5, 2, 8)),
    ("encoder_masks", lambda: Masked(encoder(dropout=0.0), mask=causal(5), src_key_padding_mask=padding(3, 5, of=5)), (5, 2, 8)),
    ("decoder_layer", lambda: Two(decoder_layer(dropout=0.0), 3), (7, 2, 8)),
    ("decoder_layer_dropout", lambda: Two(decoder_layer(dropout=0.2), 3), (7, 2, 8)),
    ("decoder_layer_options", lambda: Two(decoder_layer(
        dropout=0.0, norm_first=True, batch_first=True, activation="gelu", layer_norm_eps=1e-3), 3, 1, tgt_mask=causal(3),
        memory_mask=torch.arange(12.0).view(3, 4) / 10, tgt_key_padding_mask=padding(3, 2, of=3),
        memory_key_padding_mask=padding(2, 4, of=4)), (2, 7, 8)),
    ("decoder", lambda: Two(nn.TransformerDecoder(decoder_layer(dropout=0.0), 2, nn.LayerNorm(8)), 3), (7, 2, 8)),
    ("decoder_causal", lambda: Two(nn.TransformerDecoder(decoder_layer(dropout=0.0), 2), 3, tgt_mask=causal(3)), (7, 2, 8)),
    ("transformer", lambda: Two(transformer(dropout=0.0), 4), (7, 2, 8)),
    ("transformer_causal", lambda: Two(transformer(dropout=0.0, batch_first=True, norm_first=True), 4, 1, tgt_mask=causal(3)),
     (2, 7, 8)),
    ("transformer_masks", lambda: Two(
        transformer(dropout=0.0), 4, src_mask=causal(4), tgt_mask=causal(3), memory_mask=torch.arange(12.0).view(3, 4) / 10,
        src_key_padding_mask=padding(3, 4, of=4), tgt_key_padding_mask=padding(3, 2, of=3),
        memory_key_padding_mask=padding(2, 4, of=4)), (7, 2, 8)),
    ("transformer_custom", lambda: Two(transformer(dropout=0.0, custom_encoder=encoder(dropout=0.0)), 4), (7, 2, 8)),
    ("rms_norm", lambda: RMSNorm((6,)), (3, 4, 6)),
    ("rms_norm_options", lambda: RMSNorm((4, 6), 1e-2, False), (3, 4, 6)),
    ("learned_positions", lambda: LearnedPositions(7, 6), (2, 5, 6)),
    ("learned_positions_options", lambda: LearnedPositions(5, 6, 0.02, 0), (5, 2, 6)),
    ("sinusoidal_positions", lambda: SinusoidalPositions(), (2, 5, 6)),
    ("rotary_positions", lambda: RotaryPositions(), (2, 5, 6)),
    ("rotary_positions_heads", lambda: RotaryPositions(2, 4, 100.0), (2, 5, 12)),
    ("rotary_positions_interleaved", lambda: RotaryPositions(3, interleaved=True), (2, 5, 12)),
]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
    assert torch.__version__.startswith("1.13"), "the oracle is PyTorch 1.13, not " + torch.__version__
    golden = Golden()
    for case in LAYERS:
        layer(golden, *case)
    golden.write(os.path.join(folder, "nn/transformer.lkg"))


if __name__ == "__main__":
    main()
