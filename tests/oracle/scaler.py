"""What PyTorch's GradScaler does with a small network in fp16, step by step.

    /usr/bin/python3 tests/oracle/scaler.py > tests/golden/train/scaler.txt

GradScaler 1.13 needs a GPU, so its rules are written out here (torch/cuda/amp/grad_scaler.py and the kernels
amp_non_finite_check_and_unscale and amp_update_scale): the loss is multiplied with the scale, a step whose gradients are not
all finite is skipped and the scale backs off, and after growth_interval good steps it grows. Products round their operands to
f16 and add up in f32, as an engine with f32 activations does; Adam is PyTorch's own.

A row a step: loss, scale and growth tracker after it, steps skipped so far, then the sum and the sum of squares of all weights.
"""
import torch
from torch import nn

BATCH, INPUTS, HIDDEN, CLASSES, STEPS = 12, 20, 16, 5, 24
INIT_SCALE, GROWTH, BACKOFF, INTERVAL = 2.0 ** 24, 2.0, 0.5, 2


def low(x):
    return x.half().float()


class Product(torch.autograd.Function):
    """x w^T + b of f16 operands, in both directions."""

    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return low(x) @ low(w).t() + b

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return low(dy) @ low(w), low(dy).t() @ low(x), low(dy).sum(0)


def main():
    torch.manual_seed(3)
    first, second = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)
    params = [*first.parameters(), *second.parameters()]
    x = torch.randn(BATCH, INPUTS)
    y = torch.arange(BATCH) % CLASSES
    optimizer = torch.optim.Adam(params, lr=0.01)
    scale, tracker, skipped = INIT_SCALE, 0, 0
    for _ in range(STEPS):
        optimizer.zero_grad()
        hidden = torch.relu(Product.apply(x, first.weight, first.bias))
        loss = nn.functional.cross_entropy(Product.apply(hidden, second.weight, second.bias), y)
        (loss * scale).backward()
        found = not all(torch.isfinite(p.grad).all() for p in params)
        for p in params:
            p.grad *= 1 / scale
        if found:
            scale, tracker, skipped = scale * BACKOFF, 0, skipped + 1
        else:
            optimizer.step()
            tracker += 1
            if tracker == INTERVAL:
                scale, tracker = scale * GROWTH, 0
        flat = torch.cat([p.detach().double().flatten() for p in params])
        print(f"{loss.item():.9g} {scale:.0f} {tracker} {skipped} {flat.sum().item():.9g} {(flat * flat).sum().item():.9g}")


main()
