"""The networks of tests/support/models.h and resnet.h in PyTorch, for the oracles and for the peers of the benchmarks."""
from collections import OrderedDict

import torch
from torch import nn


def cnn3d(channels, outputs):
    return nn.Sequential(
        nn.Conv3d(channels, 2 * channels, 2, 2, 1), nn.MaxPool3d(2, padding=1), nn.ReLU(),
        nn.Conv3d(2 * channels, 2 * channels, 2, 2, 1), nn.MaxPool3d(2, padding=1), nn.ReLU(),
        nn.Conv3d(2 * channels, 4 * channels, 2, 2, 1), nn.MaxPool3d(2),
        nn.Flatten(), nn.Linear(4 * channels, 8 * channels), nn.ReLU(), nn.Linear(8 * channels, outputs))


def convnet():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if inputs != outputs or stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


def resnet_8():
    """He's network for pictures of 32 x 32 with one block a stage, PyTorch's first weights."""
    return nn.Sequential(OrderedDict([
        ("conv1", nn.Conv2d(3, 16, 3, 1, 1, bias=False)), ("bn1", nn.BatchNorm2d(16)), ("relu", nn.ReLU()),
        ("layer1", nn.Sequential(BasicBlock(16, 16, 1))), ("layer2", nn.Sequential(BasicBlock(16, 32, 2))),
        ("layer3", nn.Sequential(BasicBlock(32, 64, 2))),
        ("avgpool", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten()), ("fc", nn.Linear(64, 10))]))


def resnet_18(classes):
    """torchvision's ResNet-18: its layers and names, and its way of drawing first weights."""
    stages, inputs = [], 64
    for number, width in enumerate((64, 128, 256, 512), 1):
        stride = 1 if number == 1 else 2
        stages.append(("layer%d" % number, nn.Sequential(BasicBlock(inputs, width, stride), BasicBlock(width, width, 1))))
        inputs = width
    model = nn.Sequential(OrderedDict(
        [("conv1", nn.Conv2d(3, 64, 7, 2, 3, bias=False)), ("bn1", nn.BatchNorm2d(64)), ("relu", nn.ReLU()),
         ("maxpool", nn.MaxPool2d(3, 2, 1))] + stages +
        [("avgpool", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten()), ("fc", nn.Linear(512, classes))]))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model
