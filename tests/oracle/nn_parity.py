#!/usr/bin/python3
"""Asks PyTorch 1.13 what every layer, loss, optimizer, scheduler and initialiser does, and writes it down.

    nn_parity.py [FOLDER [SHIFT]]      default: tests/golden beside this script; SHIFT gives all cases other seeds

The tests of tests/nn and tests/optim build the same things by the same names and compare. A layer is wrapped in a probe
whose parameter `x` is its input, so that gradients with respect to the input and training of layers without
parameters are covered too. For each layer: the first weights (bit for bit), one forward and backward, 20 steps of
SGD towards a target, and an evaluation.
"""
import os
import sys
import zlib
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import lr_scheduler

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nn_golden import Golden  # noqa: E402
from nn_lamb import CatalystLamb, Lamb  # noqa: E402
from nn_lion import Lion  # noqa: E402

STEPS = 20
torch.set_num_threads(1)


def seed_of(name):
    shift = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    return (zlib.crc32(name.encode()) & 0xFFFF) + shift


class Probe(nn.Module):
    def __init__(self, module, x):
        super().__init__()
        if x.is_floating_point():
            self.x = nn.Parameter(x.clone())
        else:
            self.fixed = x
        self.m = module

    def forward(self):
        return self.m(self.x if hasattr(self, "x") else self.fixed)


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class Function(nn.Module):
    """What test_layers.c calls double_and_shift."""

    def forward(self, x):
        return 2 * x + 1


class CrossAttention(nn.Module):
    """Queries of 5, keys and values of 4 places, with a causal-like mask and ignored keys."""

    def __init__(self, masks, **options):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, **options)
        self.masks = masks

    def forward(self, x):
        query, key, value = x[:5], x[5:9], x[9:13]
        if not self.masks:
            return self.attn(query, key[..., :6], value[..., :4])[0]
        attn_mask = torch.zeros(5, 4, dtype=torch.bool)
        padding = torch.zeros(2, 4, dtype=torch.bool)
        for i in range(5):
            for j in range(4):
                attn_mask[i, j] = j > i
        padding[1, 3] = True
        return self.attn(query, key, value, key_padding_mask=padding, attn_mask=attn_mask)[0]


class MaskedEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        mask = torch.triu(torch.full((4, 4), float("-inf")), diagonal=1)
        return self.encoder(x, mask=mask)


def encoder(count=2, norm=None, **options):
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, **options)
    return nn.TransformerEncoder(layer, count, norm=norm, enable_nested_tensor=False)


I1, I2, I3 = (3, 4, 11), (2, 4, 7, 6), (2, 4, 5, 6, 5)

# name, constructor, shape of the input (or a tensor)
LAYERS = [
    ("linear", lambda: nn.Linear(5, 3), (4, 5)),
    ("linear_no_bias", lambda: nn.Linear(5, 3, bias=False), (2, 3, 5)),
    ("linear_large", lambda: nn.Linear(37, 19), (8, 37)),
    ("conv1d", lambda: nn.Conv1d(4, 6, 3), I1),
    ("conv1d_options", lambda: nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2), I1),
    ("conv1d_same", lambda: nn.Conv1d(4, 2, 4, padding="same"), I1),
    ("conv2d", lambda: nn.Conv2d(4, 6, 3), I2),
    ("conv2d_options", lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2), I2),
    ("conv2d_no_bias", lambda: nn.Conv2d(4, 4, 3, padding=1, bias=False), I2),
    ("conv2d_depthwise", lambda: nn.Conv2d(4, 4, 3, padding=1, groups=4), I2),
    ("conv2d_reflect", lambda: nn.Conv2d(4, 3, 3, padding=2, padding_mode="reflect"), I2),
    ("conv2d_replicate", lambda: nn.Conv2d(4, 3, 3, padding=(1, 2), padding_mode="replicate"), I2),
    ("conv2d_circular", lambda: nn.Conv2d(4, 3, 3, padding=1, padding_mode="circular"), I2),
    ("conv2d_unbatched", lambda: nn.Conv2d(4, 3, 3), I2[1:]),
    ("conv3d", lambda: nn.Conv3d(4, 3, 3), I3),
    ("conv3d_options", lambda: nn.Conv3d(4, 4, 2, stride=(1, 2, 2), padding=1, groups=2), I3),
    ("conv_transpose1d", lambda: nn.ConvTranspose1d(4, 6, 3), I1),
    ("conv_transpose1d_options",
     lambda: nn.ConvTranspose1d(4, 6, 3, stride=3, padding=1, output_padding=2, groups=2, dilation=2), I1),
    ("conv_transpose2d", lambda: nn.ConvTranspose2d(4, 3, 3), (2, 4, 4, 3)),
    ("conv_transpose2d_options",
     lambda: nn.ConvTranspose2d(4, 6, (3, 2), stride=2, padding=1, output_padding=(1, 0), groups=2), (2, 4, 4, 3)),
    ("conv_transpose3d", lambda: nn.ConvTranspose3d(4, 2, 2), (2, 4, 3, 2, 3)),
    ("conv_transpose3d_options",
     lambda: nn.ConvTranspose3d(4, 2, 3, stride=2, padding=1, output_padding=1, bias=False), (2, 4, 2, 2, 3)),
    ("conv_transpose2d_pointwise",
     lambda: nn.ConvTranspose2d(4, 6, 1, dilation=(2, 1), output_padding=(1, 0)), (2, 4, 4, 3)),
    ("max_pool1d", lambda: nn.MaxPool1d(3), I1),
    ("max_pool1d_options", lambda: nn.MaxPool1d(3, stride=2, padding=1, dilation=2, ceil_mode=True), I1),
    ("max_pool2d", lambda: nn.MaxPool2d(2), I2),
    ("max_pool2d_options", lambda: nn.MaxPool2d((3, 2), stride=(1, 2), padding=(1, 0), ceil_mode=True), I2),
    ("max_pool3d", lambda: nn.MaxPool3d(2), I3),
    ("max_pool3d_options", lambda: nn.MaxPool3d(2, padding=1), I3),
    ("avg_pool1d", lambda: nn.AvgPool1d(3), I1),
    ("avg_pool1d_options", lambda: nn.AvgPool1d(3, stride=2, padding=1, count_include_pad=False), I1),
    ("avg_pool2d", lambda: nn.AvgPool2d(2), I2),
    ("avg_pool2d_options", lambda: nn.AvgPool2d((3, 2), stride=2, padding=1, ceil_mode=True), I2),
    ("avg_pool2d_divisor", lambda: nn.AvgPool2d(2, divisor_override=3), I2),
    ("avg_pool3d", lambda: nn.AvgPool3d(2), I3),
    ("avg_pool3d_options", lambda: nn.AvgPool3d(3, stride=2, padding=1, count_include_pad=False), I3),
    ("adaptive_avg_pool1d", lambda: nn.AdaptiveAvgPool1d(4), I1),
    ("adaptive_avg_pool2d", lambda: nn.AdaptiveAvgPool2d((3, None)), I2),
    ("adaptive_avg_pool3d", lambda: nn.AdaptiveAvgPool3d((2, 4, 3)), I3),
    ("upsample_nearest", lambda: nn.Upsample(scale_factor=2), I2),
    ("upsample_nearest_size", lambda: nn.Upsample(size=(9, 11)), I2),
    ("upsample_linear", lambda: nn.Upsample(scale_factor=1.7, mode="linear"), I1),
    ("upsample_bilinear", lambda: nn.Upsample(scale_factor=(2.0, 1.5), mode="bilinear", align_corners=False), I2),
    ("upsample_bilinear_corners", lambda: nn.Upsample(size=(9, 4), mode="bilinear", align_corners=True), I2),
    ("upsample_trilinear", lambda: nn.Upsample(scale_factor=2, mode="trilinear"), (1, 2, 3, 2, 3)),
    ("upsample_same_size", lambda: nn.Upsample(scale_factor=(1.1, 2.0), mode="bilinear"), I2),
    ("batch_norm1d", lambda: nn.BatchNorm1d(4), I1),
    ("batch_norm1d_flat", lambda: nn.BatchNorm1d(5, eps=1e-3, momentum=0.3), (6, 5)),
    ("batch_norm2d", lambda: nn.BatchNorm2d(4), I2),
    ("batch_norm2d_no_affine", lambda: nn.BatchNorm2d(4, affine=False), I2),
    ("batch_norm2d_no_running", lambda: nn.BatchNorm2d(4, track_running_stats=False), I2),
    ("batch_norm3d", lambda: nn.BatchNorm3d(4), I3),
    ("layer_norm", lambda: nn.LayerNorm(7), (3, 5, 7)),
    ("layer_norm_two", lambda: nn.LayerNorm((5, 7), eps=1e-3), (3, 5, 7)),
    ("layer_norm_no_affine", lambda: nn.LayerNorm(7, elementwise_affine=False), (3, 7)),
    ("group_norm", lambda: nn.GroupNorm(2, 4), I2),
    ("group_norm_options", lambda: nn.GroupNorm(4, 4, eps=1e-3, affine=False), I1),
    ("dropout", lambda: nn.Dropout(), (6, 7)),
    ("dropout_p", lambda: nn.Sequential(nn.Linear(7, 9), nn.Dropout(0.2), nn.Linear(9, 3)), (6, 7)),
    ("embedding", lambda: nn.Embedding(7, 5), torch.tensor([[1, 2, 6], [0, 2, 2]])),
    ("embedding_padding", lambda: nn.Embedding(6, 3, padding_idx=0), torch.tensor([0, 2, 5, 0, 1])),
    ("embedding_padding_last", lambda: nn.Embedding(6, 3, padding_idx=-1), torch.tensor([0, 2, 5, 0, 1])),
    ("flatten", lambda: nn.Sequential(nn.Flatten(), nn.Linear(168, 4)), I2),
    ("flatten_options", lambda: nn.Flatten(0, 2), I2),
    ("unflatten", lambda: nn.Unflatten(1, (2, 2)), I2),
    ("unflatten_open", lambda: nn.Unflatten(-1, (2, -1)), I2),
    ("identity", lambda: nn.Identity(), (3, 4)),
    ("relu", lambda: nn.ReLU(), (5, 6)),
    ("leaky_relu", lambda: nn.LeakyReLU(), (5, 6)),
    ("leaky_relu_slope", lambda: nn.LeakyReLU(0.2), (5, 6)),
    ("elu", lambda: nn.ELU(), (5, 6)),
    ("elu_alpha", lambda: nn.ELU(0.5), (5, 6)),
    ("gelu", lambda: nn.GELU(), (5, 6)),
    ("gelu_tanh", lambda: nn.GELU(approximate="tanh"), (5, 6)),
    ("silu", lambda: nn.SiLU(), (5, 6)),
    ("tanh", lambda: nn.Tanh(), (5, 6)),
    ("sigmoid", lambda: nn.Sigmoid(), (5, 6)),
    ("softplus", lambda: nn.Softplus(), (5, 6)),
    ("softplus_options", lambda: nn.Softplus(beta=3, threshold=2), (5, 6)),
    ("softmax", lambda: nn.Softmax(dim=1), (5, 6, 2)),
    ("log_softmax", lambda: nn.LogSoftmax(dim=-1), (5, 6)),
    ("sequential", lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 4), nn.Tanh()),
                                         nn.Linear(4, 2)), (5, 6)),
    ("named_sequential", lambda: nn.Sequential(OrderedDict(
        [("net1", nn.Linear(6, 8)), ("relu", nn.ReLU()), ("net2", nn.Linear(8, 4))])), (5, 6)),
    ("residual", lambda: Residual(nn.Linear(6, 6), nn.ReLU()), (5, 6)),
    ("function", lambda: nn.Sequential(nn.Linear(6, 6), Function()), (5, 6)),
    ("convnet", lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Conv2d(4, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 3)), (4, 1, 8, 8)),
    ("multihead_attention", lambda: SelfAttention(nn.MultiheadAttention(8, 2)), (5, 2, 8)),
    ("multihead_attention_batch_first", lambda: SelfAttention(nn.MultiheadAttention(8, 4, batch_first=True)), (2, 5, 8)),
    ("multihead_attention_options", lambda: SelfAttention(nn.MultiheadAttention(8, 2, bias=False, dropout=0.3)), (5, 2, 8)),
    ("multihead_attention_masks", lambda: CrossAttention(True), (13, 2, 8)),
    ("multihead_attention_kdim", lambda: CrossAttention(False, kdim=6, vdim=4), (13, 2, 8)),
    ("transformer_encoder_layer", lambda: nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, dropout=0.0), (4, 2, 8)),
    ("transformer_encoder_layer_options", lambda: nn.TransformerEncoderLayer(
        8, 4, dim_feedforward=12, activation="gelu", layer_norm_eps=1e-4, batch_first=True, norm_first=True), (2, 4, 8)),
    ("transformer_encoder", lambda: encoder(norm=nn.LayerNorm(8), dropout=0.0), (4, 2, 8)),
    ("transformer_encoder_masked", lambda: MaskedEncoder(), (4, 2, 8)),
]


class SelfAttention(nn.Module):
    """Parameters keep the names of the attention itself."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def inner(module):
    """The module whose names the test compares."""
    return module.attention if isinstance(module, SelfAttention) else module


def train(golden, name, probe, loss_of):
    optimizer = torch.optim.SGD(probe.parameters(), lr=0.05, momentum=0.9)
    losses = []
    torch.manual_seed(seed_of(name) + 2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(probe())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    golden.add(name + "/losses", torch.tensor(losses))
    if hasattr(probe, "x"):
        golden.add(name + "/final/x", probe.x)
    for path, value in inner(probe.m).state_dict().items():
        golden.add(name + "/final/m." + path, value)


def write_gradients(golden, name, probe):
    if hasattr(probe, "x"):
        golden.add(name + "/grad/x", probe.x.grad)
    for path, param in inner(probe.m).named_parameters():
        golden.add(name + "/grad/m." + path, param.grad)


def layer(golden, name, make, x):
    seed = seed_of(name)
    numbers = torch.Generator().manual_seed(seed + 1000)
    if not torch.is_tensor(x):
        x = torch.randn(x, generator=numbers)
    torch.manual_seed(seed)
    module = make()
    golden.add(name + "/seed", torch.tensor(seed))
    golden.add(name + "/input", x)
    for path, value in inner(module).state_dict().items():
        golden.add(name + "/init/m." + path, value)
    probe = Probe(module, x)
    probe.train()
    torch.manual_seed(seed + 1)
    y = probe()
    cotangent = torch.randn(y.shape, generator=numbers)
    (y * cotangent).sum().backward()
    golden.add(name + "/y", y)
    golden.add(name + "/cotangent", cotangent)
    write_gradients(golden, name, probe)
    target = torch.randn(y.shape, generator=numbers)
    golden.add(name + "/target", target)
    train(golden, name, probe, lambda y: F.mse_loss(y, target))
    probe.eval()
    with torch.no_grad():
        golden.add(name + "/y_eval", probe())


def classes(*shape, high=4):
    def make(numbers):
        return torch.randint(0, high, shape, generator=numbers)
    return make


def floats(*shape, f=lambda t: t):
    def make(numbers):
        return f(torch.randn(shape, generator=numbers))
    return make


def ignoring(make, value):
    def ignore(numbers):
        target = make(numbers)
        target.view(-1)[1] = value
        return target
    return ignore


WEIGHT4 = torch.tensor([0.5, 1.0, 2.0, 0.25])
WEIGHT3 = torch.tensor([0.5, 2.0, 1.5])
Q = (6, 4)
probabilities = floats(*Q, f=lambda t: t.softmax(1))
zero_one = floats(5, 3, f=lambda t: (t > 0).float())

# name, what stands before the loss, the loss, shape of the prediction, target
LOSSES = [
    ("cross_entropy", nn.Identity, lambda: nn.CrossEntropyLoss(), Q, classes(6)),
    ("cross_entropy_weight", nn.Identity, lambda: nn.CrossEntropyLoss(weight=WEIGHT4), Q, classes(6)),
    ("cross_entropy_smooth", nn.Identity, lambda: nn.CrossEntropyLoss(label_smoothing=0.1), Q, classes(6)),
    ("cross_entropy_all", nn.Identity,
     lambda: nn.CrossEntropyLoss(weight=WEIGHT4, label_smoothing=0.2, ignore_index=1), Q, ignoring(classes(6), 1)),
    ("cross_entropy_ignore", nn.Identity, lambda: nn.CrossEntropyLoss(), Q, ignoring(classes(6), -100)),
    ("cross_entropy_ignore_zero", nn.Identity, lambda: nn.CrossEntropyLoss(ignore_index=0), Q, ignoring(classes(6), 0)),
    ("cross_entropy_sum", nn.Identity, lambda: nn.CrossEntropyLoss(reduction="sum"), Q, classes(6)),
    ("cross_entropy_none", nn.Identity, lambda: nn.CrossEntropyLoss(reduction="none"), Q, classes(6)),
    ("cross_entropy_images", nn.Identity, lambda: nn.CrossEntropyLoss(weight=WEIGHT4), (2, 4, 3, 2), classes(2, 3, 2)),
    ("cross_entropy_probabilities", nn.Identity, lambda: nn.CrossEntropyLoss(label_smoothing=0.1), Q, probabilities),
    ("nll", lambda: nn.LogSoftmax(1), lambda: nn.NLLLoss(), Q, classes(6)),
    ("nll_weight", lambda: nn.LogSoftmax(1), lambda: nn.NLLLoss(weight=WEIGHT4, ignore_index=2), Q,
     ignoring(classes(6), 2)),
    ("nll_sum", lambda: nn.LogSoftmax(1), lambda: nn.NLLLoss(reduction="sum"), (2, 4, 3), classes(2, 3)),
    ("bce", nn.Sigmoid, lambda: nn.BCELoss(), (5, 3), zero_one),
    ("bce_weight", nn.Sigmoid, lambda: nn.BCELoss(weight=WEIGHT3, reduction="sum"), (5, 3), zero_one),
    ("bce_with_logits", nn.Identity, lambda: nn.BCEWithLogitsLoss(), (5, 3), zero_one),
    ("bce_with_logits_weights", nn.Identity,
     lambda: nn.BCEWithLogitsLoss(weight=WEIGHT3, pos_weight=torch.tensor([3.0, 1.0, 0.5])), (5, 3), zero_one),
    ("bce_with_logits_none", nn.Identity, lambda: nn.BCEWithLogitsLoss(reduction="none"), (5, 3), zero_one),
    ("mse", nn.Identity, lambda: nn.MSELoss(), (5, 3), floats(5, 3)),
    ("mse_sum", nn.Identity, lambda: nn.MSELoss(reduction="sum"), (5, 3), floats(5, 3)),
    ("mse_none", nn.Identity, lambda: nn.MSELoss(reduction="none"), (5, 3), floats(5, 3)),
    ("l1", nn.Identity, lambda: nn.L1Loss(), (5, 3), floats(5, 3)),
    ("smooth_l1", nn.Identity, lambda: nn.SmoothL1Loss(), (5, 3), floats(5, 3)),
    ("smooth_l1_beta", nn.Identity, lambda: nn.SmoothL1Loss(beta=0.5), (5, 3), floats(5, 3)),
    ("smooth_l1_zero", nn.Identity, lambda: nn.SmoothL1Loss(beta=0.0), (5, 3), floats(5, 3)),
    ("huber", nn.Identity, lambda: nn.HuberLoss(), (5, 3), floats(5, 3)),
    ("huber_delta", nn.Identity, lambda: nn.HuberLoss(delta=0.3, reduction="sum"), (5, 3), floats(5, 3)),
    ("kl_div", lambda: nn.LogSoftmax(1), lambda: nn.KLDivLoss(), Q, probabilities),
    ("kl_div_batchmean", lambda: nn.LogSoftmax(1), lambda: nn.KLDivLoss(reduction="batchmean"), Q, probabilities),
    ("kl_div_log", lambda: nn.LogSoftmax(1), lambda: nn.KLDivLoss(reduction="batchmean", log_target=True), Q,
     floats(*Q, f=lambda t: t.log_softmax(1))),
    ("custom", nn.Identity, lambda: (lambda y, t: ((y - t) ** 4).mean()), (5, 3), floats(5, 3)),
]


def loss(golden, name, before, make, shape, target_of):
    seed = seed_of(name)
    numbers = torch.Generator().manual_seed(seed + 1000)
    x = torch.randn(shape, generator=numbers)
    target = target_of(numbers)
    criterion = make()
    golden.add(name + "/seed", torch.tensor(seed))
    golden.add(name + "/input", x)
    golden.add(name + "/target", target)
    probe = Probe(before(), x)
    value = criterion(probe(), target)
    golden.add(name + "/y", value)
    value.sum().backward()
    write_gradients(golden, name, probe)
    train(golden, name, probe, lambda y: criterion(y, target).sum())


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


optim = torch.optim
OPTIMIZERS = [
    ("sgd", lambda p: optim.SGD(p, lr=0.1)),
    ("sgd_momentum", lambda p: optim.SGD(p, lr=0.1, momentum=0.9)),
    ("sgd_dampening", lambda p: optim.SGD(p, lr=0.1, momentum=0.8, dampening=0.3, weight_decay=0.01)),
    ("sgd_nesterov", lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
    ("sgd_maximize", lambda p: optim.SGD(p, lr=0.001, maximize=True)),
    ("adam", lambda p: optim.Adam(p)),
    ("adam_options", lambda p: optim.Adam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ("adam_amsgrad", lambda p: optim.Adam(p, lr=0.02, amsgrad=True)),
    ("adam_maximize", lambda p: optim.Adam(p, lr=0.002, maximize=True)),
    ("adamw", lambda p: optim.AdamW(p)),
    ("adamw_options", lambda p: optim.AdamW(p, lr=0.02, weight_decay=0.2, amsgrad=True)),
    ("rmsprop", lambda p: optim.RMSprop(p)),
    ("rmsprop_options", lambda p: optim.RMSprop(p, lr=0.005, alpha=0.9, weight_decay=0.01, momentum=0.5, centered=True)),
    ("rmsprop_centered", lambda p: optim.RMSprop(p, lr=0.005, centered=True)),
    ("rmsprop_momentum", lambda p: optim.RMSprop(p, lr=0.005, momentum=0.9)),
    ("adagrad", lambda p: optim.Adagrad(p)),
    ("adagrad_options",
     lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.05, weight_decay=0.01, initial_accumulator_value=0.2)),
    ("lamb", lambda p: Lamb(p)),
    ("lamb_options", lambda p: Lamb(p, lr=0.02, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1)),
    ("catalyst_lamb", lambda p: CatalystLamb(p)),
    ("catalyst_lamb_options",
     lambda p: CatalystLamb(p, lr=0.02, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1)),
    ("catalyst_lamb_large", lambda p: CatalystLamb(p, lr=0.02, eps=1e-2, weight_decay=0.1)),
    ("catalyst_lamb_adam", lambda p: CatalystLamb(p, lr=0.02, weight_decay=0.1, adam=True)),
    ("nadam", lambda p: optim.NAdam(p)),
    ("nadam_options", lambda p: optim.NAdam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.05, momentum_decay=0.05)),
    ("radam", lambda p: optim.RAdam(p)),
    ("radam_options", lambda p: optim.RAdam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ("adamax", lambda p: optim.Adamax(p)),
    ("adamax_options", lambda p: optim.Adamax(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ("adamax_maximize", lambda p: optim.Adamax(p, maximize=True)),
    ("adadelta", lambda p: optim.Adadelta(p)),
    ("adadelta_options", lambda p: optim.Adadelta(p, lr=0.5, rho=0.8, eps=1e-4, weight_decay=0.1)),
    ("adadelta_maximize", lambda p: optim.Adadelta(p, maximize=True)),
    ("rprop", lambda p: optim.Rprop(p)),
    ("rprop_options", lambda p: optim.Rprop(p, lr=0.02, etas=(0.3, 1.4), step_sizes=(1e-3, 0.05))),
    ("rprop_maximize", lambda p: optim.Rprop(p, lr=1e-3, maximize=True)),
    ("asgd", lambda p: optim.ASGD(p, lr=0.1)),
    ("asgd_options", lambda p: optim.ASGD(p, lr=0.2, lambd=0.05, alpha=0.5, t0=4, weight_decay=0.1)),
    ("asgd_maximize", lambda p: optim.ASGD(p, maximize=True)),
    ("lion", lambda p: Lion(p, lr=1e-3)),
    ("lion_options", lambda p: Lion(p, lr=0.01, betas=(0.8, 0.95), weight_decay=0.1)),
]


def descend(golden, name, make, model=None, scheduler=None, accumulate=1, clip=None, prefix=""):
    seed = seed_of(name)
    numbers = torch.Generator().manual_seed(seed + 1000)
    x = torch.randn((12, 6), generator=numbers)
    target = torch.randn((12, 3), generator=numbers)
    torch.manual_seed(seed)
    model = mlp()
    if name.endswith("_large"):  # norms beyond Catalyst's bound of 10
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(12)
    optimizer = make(model)
    schedule = scheduler(optimizer) if scheduler else None
    losses, norms = [], []
    for i in range(STEPS):
        rows = slice(None) if accumulate == 1 else slice(4 * (i % 3), 4 * (i % 3) + 4)
        value = F.mse_loss(model(x[rows]), target[rows])
        value.backward()  # gradients of several batches are summed, as Catalyst's OptimizerCallback leaves them
        losses.append(value.item())
        if clip:
            norms.append(clip(model.parameters()))  # after every backward, as Catalyst's BackwardCallback
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
        if schedule:
            schedule.step()
    golden.add(name + "/seed", torch.tensor(seed))
    golden.add(name + "/input", x)
    golden.add(name + "/target", target)
    golden.add(name + "/losses", torch.tensor(losses))
    if norms and norms[0] is not None:
        golden.add(name + "/norms", torch.stack(norms))
    for path, value in model.state_dict().items():
        golden.add(name + "/final/" + path, value)


def optimizers(golden):
    for name, make in OPTIMIZERS:
        descend(golden, name, lambda model, make=make: make(model.parameters()))
    whole = lambda model: optim.SGD(model.parameters(), lr=0.2, momentum=0.9)  # noqa: E731
    descend(golden, "groups", lambda model: optim.AdamW([
        {"params": model[0].parameters(), "lr": 0.05, "weight_decay": 0.3},
        {"params": model[2].parameters()}], lr=0.01))
    descend(golden, "clip_norm", whole, clip=lambda p: nn.utils.clip_grad_norm_(p, 0.3))
    descend(golden, "clip_value", whole, clip=lambda p: nn.utils.clip_grad_value_(p, 0.05))
    descend(golden, "accumulate", whole, accumulate=3)
    descend(golden, "accumulate_norm", whole, accumulate=3, clip=lambda p: nn.utils.clip_grad_norm_(p, 0.3))
    descend(golden, "accumulate_value", whole, accumulate=3, clip=lambda p: nn.utils.clip_grad_value_(p, 0.05))
    descend(golden, "one_cycle", whole, scheduler=lambda o: lr_scheduler.OneCycleLR(o, 0.3, total_steps=20))
    descend(golden, "one_cycle_adam", lambda model: optim.Adam(model.parameters()),
            scheduler=lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=20))
    descend(golden, "cosine", lambda model: optim.Adam(model.parameters(), lr=0.05),
            scheduler=lambda o: lr_scheduler.CosineAnnealingLR(o, 10))
    descend(golden, "nadam_clip_norm", lambda model: optim.NAdam(model.parameters(), lr=0.02),
            clip=lambda p: nn.utils.clip_grad_norm_(p, 0.3))
    descend(golden, "asgd_cosine", lambda model: optim.ASGD(model.parameters(), lr=0.1),
            scheduler=lambda o: lr_scheduler.CosineAnnealingLR(o, 10))
    descend(golden, "radam_one_cycle", lambda model: optim.RAdam(model.parameters()),
            scheduler=lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=20))
    descend(golden, "nadam_one_cycle", lambda model: optim.NAdam(model.parameters()),
            scheduler=lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=20))
    descend(golden, "accumulate_adamax", lambda model: optim.Adamax(model.parameters(), lr=0.02), accumulate=3)
    descend(golden, "rprop_groups", lambda model: optim.Rprop([
        {"params": model[0].parameters(), "lr": 0.05}, {"params": model[2].parameters()}]))


def sequential(optimizer):
    return lr_scheduler.SequentialLR(optimizer, [
        lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=3), lr_scheduler.ExponentialLR(optimizer, 0.9),
        lr_scheduler.StepLR(optimizer, 4)], milestones=[5, 20])


def warmup(optimizer):
    return lr_scheduler.SequentialLR(optimizer, [
        lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=8),
        lr_scheduler.CosineAnnealingLR(optimizer, 20)], milestones=[8])


def sequential_cyclic(optimizer):
    return lr_scheduler.SequentialLR(optimizer, [
        lr_scheduler.ExponentialLR(optimizer, 0.9),
        lr_scheduler.CyclicLR(optimizer, 0.02, 0.2, step_size_up=4, max_momentum=0.95)], milestones=[10])


def sequential_cycles(optimizer):
    return lr_scheduler.SequentialLR(optimizer, [
        lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=50),
        lr_scheduler.CyclicLR(optimizer, 0.02, 0.3, step_size_up=4, base_momentum=0.7), lr_scheduler.StepLR(optimizer, 4)],
        milestones=[7, 30])


def sequential_one_cycle(optimizer):
    return lr_scheduler.SequentialLR(optimizer, [
        lr_scheduler.ExponentialLR(optimizer, 0.9), lr_scheduler.LinearLR(optimizer, start_factor=0.5),
        lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=50)], milestones=[5, 12])


def warmup_cyclic(optimizer):
    return lr_scheduler.SequentialLR(optimizer, [
        lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=8),
        lr_scheduler.CyclicLR(optimizer, 0.02, 0.2, step_size_up=5, max_momentum=0.8, base_momentum=0.6)], milestones=[8])


def chained(optimizer):
    return lr_scheduler.ChainedScheduler([
        lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=4), lr_scheduler.ExponentialLR(optimizer, 0.95),
        lr_scheduler.MultiStepLR(optimizer, [10, 30], gamma=0.5)])


S = lr_scheduler
SCHEDULERS = [
    ("step_lr", lambda o: S.StepLR(o, 7)),
    ("step_lr_gamma", lambda o: S.StepLR(o, 3, gamma=0.7)),
    ("multi_step_lr", lambda o: S.MultiStepLR(o, [4, 9, 9, 30], gamma=0.5)),
    ("exponential_lr", lambda o: S.ExponentialLR(o, 0.93)),
    ("constant_lr", lambda o: S.ConstantLR(o)),
    ("constant_lr_options", lambda o: S.ConstantLR(o, factor=0.25, total_iters=11)),
    ("linear_lr", lambda o: S.LinearLR(o)),
    ("linear_lr_options", lambda o: S.LinearLR(o, start_factor=0.9, end_factor=0.1, total_iters=20)),
    ("polynomial_lr", lambda o: S.PolynomialLR(o, total_iters=15, power=2.0)),
    ("cosine_annealing_lr", lambda o: S.CosineAnnealingLR(o, 12)),
    ("cosine_annealing_lr_options", lambda o: S.CosineAnnealingLR(o, 9, eta_min=0.004)),
    ("cosine_annealing_warm_restarts", lambda o: S.CosineAnnealingWarmRestarts(o, 7)),
    ("cosine_annealing_warm_restarts_options",
     lambda o: S.CosineAnnealingWarmRestarts(o, 4, T_mult=2, eta_min=0.001)),
    ("lambda_lr", lambda o: S.LambdaLR(o, lambda epoch: 0.95 ** epoch)),
    ("multiplicative_lr", lambda o: S.MultiplicativeLR(o, lambda epoch: 0.95 + 0.001 * epoch)),
    ("chained_scheduler", chained),
    ("one_cycle_lr", lambda o: S.OneCycleLR(o, 0.5, total_steps=60)),
    ("one_cycle_lr_options", lambda o: S.OneCycleLR(
        o, 0.5, epochs=6, steps_per_epoch=10, pct_start=0.25, anneal_strategy="linear", base_momentum=0.7,
        max_momentum=0.99, div_factor=10, final_div_factor=100, three_phase=True)),
    ("one_cycle_lr_groups", lambda o: S.OneCycleLR(o, [0.5, 0.2], total_steps=60)),
    ("cyclic_lr_groups", lambda o: S.CyclicLR(o, [0.01, 0.02], [0.2, 0.1], step_size_up=8)),
    ("cyclic_lr_high_groups", lambda o: S.CyclicLR(o, 0.01, [0.2, 0.1], step_size_up=8)),
    ("cyclic_lr", lambda o: S.CyclicLR(o, 0.01, 0.2, step_size_up=8)),
    ("cyclic_lr_triangular2",
     lambda o: S.CyclicLR(o, 0.01, 0.2, step_size_up=5, step_size_down=9, mode="triangular2", cycle_momentum=False)),
    ("cyclic_lr_exp_range", lambda o: S.CyclicLR(
        o, 0.01, 0.2, step_size_up=5, mode="exp_range", gamma=0.98, base_momentum=0.5, max_momentum=0.95)),
    ("reduce_lr_on_plateau", lambda o: S.ReduceLROnPlateau(o, patience=3)),
    ("reduce_lr_on_plateau_options", lambda o: S.ReduceLROnPlateau(
        o, mode="max", factor=0.5, patience=0, threshold=0.05, threshold_mode="abs", cooldown=2, min_lr=0.003)),
    ("reduce_lr_on_plateau_max", lambda o: S.ReduceLROnPlateau(o, mode="max", factor=0.3, patience=2)),
    ("sequential_lr", sequential),
    ("warmup_lr", warmup),
    ("sequential_cyclic", sequential_cyclic),
    ("sequential_cycles", sequential_cycles),
    ("sequential_one_cycle", sequential_one_cycle),
    ("warmup_cyclic", warmup_cyclic),
]


def schedulers(golden):
    for name, make in SCHEDULERS:
        weights = [nn.Parameter(torch.zeros(1)) for _ in range(2)]
        optimizer = optim.SGD([{"params": weights[:1], "lr": 0.01}, {"params": weights[1:]}], lr=0.1, momentum=0.9)
        numbers = torch.Generator().manual_seed(seed_of(name))
        metrics = (torch.randn(60, generator=numbers, dtype=torch.float64) * 0.1 +
                   torch.linspace(2, 1, 60, dtype=torch.float64)) if "plateau" in name else None
        schedule = make(optimizer)
        rates, momenta = [], []
        for i in range(60):
            rates.append([group["lr"] for group in optimizer.param_groups])
            momenta.append([group["momentum"] for group in optimizer.param_groups])
            optimizer.step()
            schedule.step(*([metrics[i].item()] if metrics is not None else []))
        golden.add(name + "/lr", torch.tensor(rates, dtype=torch.float64))
        golden.add(name + "/momentum", torch.tensor(momenta, dtype=torch.float64))
        if metrics is not None:
            golden.add(name + "/metrics", metrics)


def initialisers(golden):
    draw = {
        "uniform": lambda t: nn.init.uniform_(t, -0.3, 0.7),
        "normal": lambda t: nn.init.normal_(t, 0.1, 0.02),
        "trunc_normal": lambda t: nn.init.trunc_normal_(t, 0.1, 0.5, -0.6, 0.9),
        "constant": lambda t: nn.init.constant_(t, 0.3),
        "xavier_uniform": lambda t: nn.init.xavier_uniform_(t, 1.5),
        "xavier_normal": lambda t: nn.init.xavier_normal_(t, 0.7),
        "kaiming_uniform": lambda t: nn.init.kaiming_uniform_(t),
        "kaiming_uniform_options": lambda t: nn.init.kaiming_uniform_(t, a=0.2, mode="fan_out"),
        "kaiming_normal": lambda t: nn.init.kaiming_normal_(t, nonlinearity="relu"),
        "kaiming_normal_options": lambda t: nn.init.kaiming_normal_(t, mode="fan_out", nonlinearity="tanh"),
        "orthogonal": lambda t: nn.init.orthogonal_(t, 1.3),
    }
    for kind, fill in draw.items():
        for shape in ((5, 7), (3, 2, 3, 3), (9, 4), (2, 3)):
            name = "%s_%s" % (kind, "x".join(map(str, shape)))
            torch.manual_seed(seed_of(name))
            golden.add(name + "/seed", torch.tensor(seed_of(name)))
            golden.add(name + "/value", fill(torch.empty(shape)))
    # Plain draws: a long one by a sample of its bits, and what is left in the generator afterwards.
    for count in (1, 7, 15, 16, 17, 31, 33, 100, 1000003):
        torch.manual_seed(count)
        values = torch.empty(count).normal_(0.2, 1.7)
        golden.add("randn_%d/sample" % count, values if count < 1000 else values[:: 9973].contiguous())
        golden.add("randn_%d/next" % count, torch.rand(3))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
    assert torch.__version__.startswith("1.13"), "the oracle is PyTorch 1.13, not " + torch.__version__
    golden = Golden()
    for case in LAYERS:
        layer(golden, *case)
    golden.write(os.path.join(folder, "nn/layers.lkg"))
    golden = Golden()
    for case in LOSSES:
        loss(golden, *case)
    golden.write(os.path.join(folder, "nn/losses.lkg"))
    golden = Golden()
    initialisers(golden)
    golden.write(os.path.join(folder, "nn/init.lkg"))
    golden = Golden()
    optimizers(golden)
    golden.write(os.path.join(folder, "optim/optimizers.lkg"))
    golden = Golden()
    schedulers(golden)
    golden.write(os.path.join(folder, "optim/schedulers.lkg"))


if __name__ == "__main__":
    main()
