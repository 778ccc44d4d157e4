#!/usr/bin/python3
"""As nn_parity.py, for the layers that are compositions of a few ops and for the losses of criterion_more.c.

    nn_more.py [FOLDER [SHIFT]]

Writes nn/more_layers.lkg and nn/more_losses.lkg for tests/nn/test_more_layers.c and test_criterion.c.
"""
import os
import sys

import torch
import torch.nn as nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nn_golden import Golden  # noqa: E402
from nn_parity import I1, I2, I3, WEIGHT3, WEIGHT4, classes, floats, layer, loss  # noqa: E402


def edges(*numbers):
    """Numbers at which slopes change, among others."""
    return torch.tensor([list(numbers), [n + 0.3 for n in numbers], [n - 0.4 for n in numbers]])


def shared(make, *between):
    """One module at two places."""
    module = make()
    return nn.Sequential(module, *between, module)


def tied():
    """Two layers with one weight and two biases."""
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    module[2].weight = module[0].weight
    return module


class Halves(nn.Module):
    """A module of two inputs, which are the first and the second half of the first axis."""

    def __init__(self, make, widths=None):
        super().__init__()
        self.inner = make()
        self.widths = widths

    def forward(self, x):
        n = x.shape[0] // 2
        a, b = x[:n], x[n:]
        if self.widths:
            a, b = a[..., :self.widths[0]], b[..., :self.widths[1]]
        return self.inner(a, b)


class Bag(nn.Module):
    """EmbeddingBag of indices with offsets: rows 0 and 1 of the input, of which the offsets end at the first -1."""

    def __init__(self, bags, **options):
        super().__init__()
        self.inner = nn.EmbeddingBag(7, 3, **options)
        self.bags = bags

    def forward(self, x):
        return self.inner(x[0], x[1, :self.bags])


class WeightedBag(nn.Module):
    """EmbeddingBag whose weights are learned."""

    def __init__(self):
        super().__init__()
        self.inner = nn.EmbeddingBag(7, 3, mode="sum", padding_idx=2)
        self.shares = nn.Parameter(torch.full((3, 4), 0.5))

    def forward(self, x):
        return self.inner(x, per_sample_weights=self.shares)


class Evaluated(nn.Module):
    """RReLU draws for elements above zero, too: only its evaluation can be compared."""

    def __init__(self):
        super().__init__()
        self.inner = nn.RReLU(0.1, 0.5)

    def forward(self, x):
        return self.inner.eval()(x)


class FrequencyBag(nn.EmbeddingBag):
    """EmbeddingBag(scale_grad_by_freq=True), whose gradient in PyTorch 1.13 divides by the counts of other rows: see
    `counts[indices_data[i]]` in EmbeddingBag.cpp, where i counts different rows and not places."""

    def forward(self, x):
        return nn.functional.embedding(x, self.weight, scale_grad_by_freq=True).mean(1)


class ChannelShuffle(nn.Module):
    """nn.ChannelShuffle, which has no gradient in PyTorch 1.13."""

    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x):
        y = x.unflatten(1, (self.groups, -1)).transpose(1, 2).flatten(1, 2)
        assert torch.equal(y, nn.ChannelShuffle(self.groups)(x.detach()))
        return y


BAGS = torch.tensor([[1, 2, 6, 1], [0, 2, 2, 3], [2, 2, 2, 2]])
OFFSETS = torch.tensor([[1, 2, 6, 1, 0, 2, 2, 3], [0, 3, 3, 8, -1, -1, -1, -1]])
V = (4, 6)
LAYERS = [
    ("unfold", lambda: nn.Unfold(3), I2),
    ("unfold_options", lambda: nn.Unfold((3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1)), I2),
    ("unfold_single", lambda: nn.Unfold(2, padding=1), (3, 5, 4)),
    ("fold", lambda: nn.Fold((4, 5), 2), (2, 12, 12)),
    ("fold_options", lambda: nn.Fold((5, 6), (3, 2), dilation=(1, 2), padding=(1, 1), stride=(2, 1)), (2, 12, 18)),
    ("fold_single", lambda: nn.Fold(4, 2, stride=2), (8, 4)),
    ("channel_shuffle", lambda: ChannelShuffle(3), (2, 6, 2, 3)),
    ("softmax2d", lambda: nn.Softmax2d(), I2),
    ("local_response_norm", lambda: nn.LocalResponseNorm(3), I2),
    ("local_response_norm_options", lambda: nn.LocalResponseNorm(2, alpha=0.5, beta=0.6, k=2.0), (3, 5, 7)),
    ("lp_pool1d", lambda: nn.LPPool1d(2, 3), I1),
    ("lp_pool2d", lambda: nn.LPPool2d(2, 2), I2),
    ("lp_pool2d_options", lambda: nn.LPPool2d(4, (3, 2), stride=(2, 1), ceil_mode=True), I2),
    ("upsampling_nearest2d", lambda: nn.UpsamplingNearest2d(scale_factor=2), I2),
    ("upsampling_bilinear2d", lambda: nn.UpsamplingBilinear2d(size=(9, 11)), I2),
    ("upsample_bicubic", lambda: nn.Upsample(scale_factor=(1.7, 2.0), mode="bicubic"), I2),
    ("upsample_bicubic_size", lambda: nn.Upsample(size=(3, 11), mode="bicubic", align_corners=True), I2),
    ("upsample_bicubic_smaller", lambda: nn.Upsample(size=(3, 4), mode="bicubic"), I2),
    ("upsample_nearest_exact", lambda: nn.Upsample(scale_factor=1.7, mode="nearest-exact"), I2),
    ("upsample_nearest_exact_size", lambda: nn.Upsample(size=(3, 4, 9), mode="nearest-exact"), I3),
    ("alpha_dropout", lambda: nn.AlphaDropout(), (6, 7)),
    ("alpha_dropout_p", lambda: nn.AlphaDropout(0.2), I2),
    ("feature_alpha_dropout", lambda: nn.FeatureAlphaDropout(0.3), I2),
    ("rrelu", Evaluated, V),
    ("cosine_similarity", lambda: Halves(nn.CosineSimilarity), (6, 5)),
    ("cosine_similarity_dim", lambda: Halves(lambda: nn.CosineSimilarity(dim=-2, eps=1e-3)), (4, 5, 3)),
    ("pairwise_distance", lambda: Halves(nn.PairwiseDistance), (6, 5)),
    ("pairwise_distance_options", lambda: Halves(lambda: nn.PairwiseDistance(p=1, eps=1e-2, keepdim=True)), (6, 5)),
    ("bilinear", lambda: Halves(lambda: nn.Bilinear(5, 3, 4), (5, 3)), (6, 5)),
    ("bilinear_no_bias", lambda: Halves(lambda: nn.Bilinear(4, 5, 2, bias=False), (4, 5)), (4, 3, 5)),
    ("embedding_bag", lambda: nn.EmbeddingBag(7, 3), BAGS),
    ("embedding_bag_sum", lambda: nn.EmbeddingBag(7, 3, mode="sum"), BAGS),
    ("embedding_bag_max", lambda: nn.EmbeddingBag(7, 3, mode="max", padding_idx=2), BAGS),
    ("embedding_bag_padding", lambda: nn.EmbeddingBag(7, 3, padding_idx=2), BAGS),
    ("embedding_bag_frequency", lambda: FrequencyBag(7, 3), BAGS),
    ("embedding_bag_offsets", lambda: Bag(4), OFFSETS),
    ("embedding_bag_offsets_sum", lambda: Bag(3, mode="sum", padding_idx=2), OFFSETS),
    ("embedding_bag_offsets_max", lambda: Bag(4, mode="max"), OFFSETS),
    ("embedding_bag_last_offset", lambda: Bag(4, mode="mean", include_last_offset=True), OFFSETS),
    ("embedding_bag_weights", WeightedBag, BAGS),
    ("embedding_frequency", lambda: nn.Embedding(7, 5, scale_grad_by_freq=True), BAGS),
    ("embedding_frequency_padding", lambda: nn.Embedding(7, 5, padding_idx=2, scale_grad_by_freq=True), BAGS),
    ("relu6", lambda: nn.ReLU6(), edges(-1, 0, 3, 6, 7, 0.5)),
    ("hardsigmoid", lambda: nn.Hardsigmoid(), edges(-4, -2, 0, 2, 4, 1)),
    ("hardswish", lambda: nn.Hardswish(), edges(-4, -2, 0, 2, 4, 1)),
    ("mish", lambda: nn.Mish(), V),
    ("selu", lambda: nn.SELU(), V),
    ("log_sigmoid", lambda: nn.LogSigmoid(), V),
    ("softsign", lambda: nn.Softsign(), V),
    ("tanhshrink", lambda: nn.Tanhshrink(), V),
    ("softmin", lambda: nn.Softmin(1), V),
    ("threshold", lambda: nn.Threshold(0.1, -2.0), V),
    ("glu", lambda: nn.GLU(), V),
    ("glu_dim", lambda: nn.GLU(0), V),
    ("hardtanh", lambda: nn.Hardtanh(), edges(-1, 0, 1, 2, -2, 0.5)),
    ("hardtanh_options", lambda: nn.Hardtanh(-0.5, 0.25), V),
    ("celu", lambda: nn.CELU(), V),
    ("celu_options", lambda: nn.CELU(0.7), V),
    ("hardshrink", lambda: nn.Hardshrink(), V),
    ("hardshrink_options", lambda: nn.Hardshrink(0.2), edges(-0.2, 0, 0.2, 1, -1, 0.5)),
    ("softshrink", lambda: nn.Softshrink(), V),
    ("softshrink_options", lambda: nn.Softshrink(0.2), V),
    ("prelu", lambda: nn.PReLU(), edges(-1, 0, 1, 2, -2, 0.5)),
    ("prelu_channels", lambda: nn.PReLU(4, 0.1), I2),
    ("instance_norm1d", lambda: nn.InstanceNorm1d(4), I1),
    ("instance_norm2d", lambda: nn.InstanceNorm2d(4, affine=True), I2),
    ("instance_norm3d", lambda: nn.InstanceNorm3d(4, eps=1e-3), I3),
    ("instance_norm1d_running", lambda: nn.InstanceNorm1d(4, track_running_stats=True), I1),
    ("instance_norm2d_running", lambda: nn.InstanceNorm2d(4, momentum=0.3, affine=True, track_running_stats=True), I2),
    ("batch_norm2d_cumulative", lambda: nn.BatchNorm2d(4, momentum=None), I2),
    ("batch_norm1d_cumulative", lambda: nn.BatchNorm1d(6, momentum=None, affine=False), V),
    ("instance_norm1d_unbatched", lambda: nn.InstanceNorm1d(4), (4, 7)),
    ("dropout1d", lambda: nn.Dropout1d(), I1),
    ("dropout1d_unbatched", lambda: nn.Dropout1d(), (4, 7)),
    ("dropout2d", lambda: nn.Dropout2d(0.3), I2),
    ("dropout3d", lambda: nn.Dropout3d(0.3), I3),
    ("adaptive_max_pool1d", lambda: nn.AdaptiveMaxPool1d(4), I1),
    ("adaptive_max_pool2d", lambda: nn.AdaptiveMaxPool2d((3, 4)), I2),
    ("adaptive_max_pool2d_whole", lambda: nn.AdaptiveMaxPool2d((7, 2)), I2),
    ("adaptive_max_pool2d_none", lambda: nn.AdaptiveMaxPool2d((None, 4)), I2),
    ("adaptive_max_pool2d_ties", lambda: nn.AdaptiveMaxPool2d(2), torch.zeros(1, 2, 5, 5)),
    ("adaptive_max_pool3d", lambda: nn.AdaptiveMaxPool3d((2, 3, 4)), I3),
    ("zero_pad2d", lambda: nn.ZeroPad2d((1, 2, 0, 3)), I2),
    ("constant_pad1d", lambda: nn.ConstantPad1d(2, 0.5), I1),
    ("constant_pad2d", lambda: nn.ConstantPad2d((1, 0, 2, 1), -1.5), I2),
    ("constant_pad2d_negative", lambda: nn.ConstantPad2d((-1, 2, 0, -2), 0.5), I2),
    ("constant_pad3d", lambda: nn.ConstantPad3d(1, 0.5), I3),
    ("reflection_pad1d", lambda: nn.ReflectionPad1d((3, 1)), I1),
    ("reflection_pad2d", lambda: nn.ReflectionPad2d(2), I2),
    ("reflection_pad3d", lambda: nn.ReflectionPad3d((1, 2, 2, 1, 0, 1)), I3),
    ("replication_pad1d", lambda: nn.ReplicationPad1d(3), I1),
    ("replication_pad2d", lambda: nn.ReplicationPad2d((1, 2, 3, 0)), I2),
    ("replication_pad3d", lambda: nn.ReplicationPad3d(1), I3),
    ("pixel_shuffle", lambda: nn.PixelShuffle(2), (2, 8, 3, 5)),
    ("pixel_unshuffle", lambda: nn.PixelUnshuffle(3), (2, 2, 6, 9)),
    ("shared_linear", lambda: shared(lambda: nn.Linear(6, 6), nn.Tanh()), V),
    ("shared_norm", lambda: shared(lambda: nn.BatchNorm1d(6), nn.Tanh()), V),
    ("shared_nested", lambda: shared(lambda: shared(lambda: nn.Linear(6, 6), nn.Tanh()), nn.Sigmoid()), V),
    ("tied_weight", tied, V),
]

signs = floats(5, 3, f=lambda t: t.sign())
zero_one = floats(5, 3, f=lambda t: (t > 0).float())
counts = floats(5, 3, f=lambda t: (3 * t.abs()).floor())
LOSSES = [
    ("soft_margin", nn.Identity, lambda: nn.SoftMarginLoss(), (5, 3), signs),
    ("soft_margin_none", nn.Identity, lambda: nn.SoftMarginLoss(reduction="none"), (5, 3), signs),
    ("hinge_embedding", nn.Identity, lambda: nn.HingeEmbeddingLoss(), (5, 3), signs),
    ("hinge_embedding_margin", nn.Identity, lambda: nn.HingeEmbeddingLoss(0.3, reduction="sum"), (5, 3), signs),
    ("poisson_nll", nn.Identity, lambda: nn.PoissonNLLLoss(), (5, 3), counts),
    ("poisson_nll_full", nn.Identity, lambda: nn.PoissonNLLLoss(full=True, reduction="sum"), (5, 3), counts),
    ("poisson_nll_rate", nn.Sigmoid, lambda: nn.PoissonNLLLoss(log_input=False, eps=1e-3), (5, 3), counts),
    ("multi_label_soft_margin", nn.Identity, lambda: nn.MultiLabelSoftMarginLoss(), (5, 3), zero_one),
    ("multi_label_soft_margin_weight", nn.Identity,
     lambda: nn.MultiLabelSoftMarginLoss(weight=WEIGHT3, reduction="none"), (5, 3), zero_one),
    ("multi_margin", nn.Identity, lambda: nn.MultiMarginLoss(), (6, 4), classes(6)),
    ("multi_margin_options", nn.Identity, lambda: nn.MultiMarginLoss(2, 0.7, WEIGHT4), (6, 4), classes(6)),
    ("multi_margin_none", nn.Identity, lambda: nn.MultiMarginLoss(margin=0.0, reduction="none"), (6, 4), classes(6)),
]


def of_parts(count, make, variance=None):
    """A loss of several values, of what the prediction holds along its first axis; test_criterion.c has the same."""
    def loss_of(x, target):
        parts = list(x.unbind(0))
        criterion = make()
        if count == 3:
            return criterion(*parts)
        if variance:
            return criterion(parts[0], target, variance(parts[1]))
        return criterion(*parts, target)
    return lambda: loss_of


def ctc(**options):
    """The last two columns of the target are the lengths."""
    def loss_of(x, target):
        labels = target[..., :-2]
        lengths, counts = target[..., -2], target[..., -1]
        if options.get("flat"):
            labels = torch.cat([row[:n] for row, n in zip(labels, counts)])
        return nn.CTCLoss(**{k: v for k, v in options.items() if k != "flat"})(x, labels, lengths, counts)
    return lambda: loss_of


def rows(*numbers):
    return lambda _: torch.tensor(numbers)


pair_signs = floats(6, f=lambda t: t.sign())
nothing = floats(1)
paths = rows([1, 2, 2, 7, 3], [3, 1, 4, 5, 3], [2, 2, 2, 6, 2], [1, 1, 1, 7, 0])  # 3 labels, input length, target length
log_softmax = lambda: nn.LogSoftmax(2)  # noqa: E731
SEVERAL = [
    ("triplet", nn.Identity, of_parts(3, lambda: nn.TripletMarginLoss()), (3, 6, 5), nothing),
    ("triplet_options", nn.Identity,
     of_parts(3, lambda: nn.TripletMarginLoss(margin=0.4, p=1, eps=1e-3, swap=True, reduction="sum")), (3, 6, 5), nothing),
    ("triplet_single", nn.Identity, of_parts(3, lambda: nn.TripletMarginLoss(margin=3, p=3, reduction="none")), (3, 5), nothing),
    ("cosine_embedding", nn.Identity, of_parts(2, lambda: nn.CosineEmbeddingLoss()), (2, 6, 5), pair_signs),
    ("cosine_embedding_options", nn.Identity,
     of_parts(2, lambda: nn.CosineEmbeddingLoss(margin=-0.3, reduction="sum")), (2, 6, 5), pair_signs),
    ("margin_ranking", nn.Identity, of_parts(2, lambda: nn.MarginRankingLoss()), (2, 6), pair_signs),
    ("margin_ranking_options", nn.Identity,
     of_parts(2, lambda: nn.MarginRankingLoss(margin=0.5, reduction="none")), (2, 6), pair_signs),
    ("gaussian_nll", nn.Identity, of_parts(2, lambda: nn.GaussianNLLLoss(), torch.exp), (2, 6, 3), floats(6, 3)),
    ("gaussian_nll_options", nn.Identity,
     of_parts(2, lambda: nn.GaussianNLLLoss(full=True, eps=0.5, reduction="sum"), lambda t: t.exp().mean(1)), (2, 6, 3),
     floats(6, 3)),
    ("gaussian_nll_column", nn.Identity,
     of_parts(2, lambda: nn.GaussianNLLLoss(reduction="none"), lambda t: t.exp().mean(1, keepdim=True)), (2, 6, 3), floats(6, 3)),
    ("multi_label_margin", nn.Identity, lambda: nn.MultiLabelMarginLoss(), (3, 4), rows([3, 0, -1, 1], [2, 1, 0, -1], [-1, 2, 2, 2])),
    ("multi_label_margin_none", nn.Identity, lambda: nn.MultiLabelMarginLoss(reduction="none"), (2, 4), rows([3, 0, -1, 1], [2, 1, 0, 3])),
    ("multi_label_margin_single", nn.Identity, lambda: nn.MultiLabelMarginLoss(reduction="sum"), (4,), rows(2, 1, -1, 0)),
    ("ctc", log_softmax, ctc(), (7, 4, 5), paths),
    ("ctc_sum", log_softmax, ctc(reduction="sum"), (7, 4, 5), paths),
    ("ctc_none", log_softmax, ctc(reduction="none", blank=4), (7, 2, 5), rows([1, 2, 2, 7, 3], [3, 1, 0, 6, 2])),
    ("ctc_flat", log_softmax, ctc(flat=True), (7, 4, 5), paths),
    ("ctc_too_long", log_softmax, ctc(zero_infinity=True), (4, 2, 5), rows([1, 2, 2, 3, 3], [3, 1, 4, 4, 2])),
    ("ctc_raw", nn.Identity, ctc(reduction="sum"), (7, 4, 5), paths),
    ("ctc_single", lambda: nn.LogSoftmax(1), ctc(), (7, 5), rows(1, 2, 2, 7, 3)),
]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
    assert torch.__version__.startswith("1.13"), "the oracle is PyTorch 1.13, not " + torch.__version__
    golden = Golden()
    for case in LAYERS:
        layer(golden, *case)
    golden.write(os.path.join(folder, "nn/more_layers.lkg"))
    golden = Golden()
    for case in LOSSES + SEVERAL:
        loss(golden, *case)
    golden.write(os.path.join(folder, "nn/more_losses.lkg"))


if __name__ == "__main__":
    main()
