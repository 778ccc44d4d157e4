"""The models that the peers of the benchmarks share; the same as those of bench_step.c and bench_gpu.c."""
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
