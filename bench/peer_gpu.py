"""Times one training step in PyTorch on a GPU, data on the GPU: eager, as a CUDA graph, and compiled.

    python3 bench/peer_gpu.py WORKLOAD [SECONDS] [MODES]    prints "WORKLOAD mode=microseconds ... best=microseconds"

The counterpart of bench_gpu.c: same models, shapes and optimizers. MODES is a list out of eager,graph,compile,reduce; the
environment's PRECISION=bf16 runs under autocast, tf32 lets products and convolutions be in TF32; both with channels-last memory.
PyTorch is as fast as we can make it: optimizers of one kernel, cuDNN's engines chosen by trial.
"""
import os
import signal
import sys
import time

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/oracle"))
from models import cnn3d, convnet  # noqa: E402

device = "cuda"
precision = os.environ.get("PRECISION", "fp32")
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
torch.backends.cudnn.benchmark = True


def workload(name):
    classes = lambda n: torch.arange(n, device=device) % 10
    rand = lambda *shape: torch.rand(*shape, device=device)
    adam = lambda lr: lambda p: torch.optim.Adam(p, lr=lr, fused=True, capturable=True)
    if name == "mnist-linear":
        return (nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), nn.CrossEntropyLoss(),
                adam(0.02), rand(32, 1, 28, 28), classes(32))
    if name == "toy-mlp":
        return (nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10)), nn.CrossEntropyLoss(),
                lambda p: torch.optim.SGD(p, lr=1e-3, fused=True), rand(128, 784), classes(128))
    if name == "cnn3d-16":
        return (cnn3d(3, 12288), nn.SmoothL1Loss(), adam(1e-3), rand(8, 3, 16, 16, 16), rand(8, 12288))
    if name == "cnn3d-32":
        return (cnn3d(3, 98304), nn.SmoothL1Loss(), adam(1e-3),
                rand(64, 3, 32, 32, 32), rand(64, 98304))
    if name == "convnet":
        return (convnet(), nn.CrossEntropyLoss(), adam(1e-3), rand(64, 1, 28, 28), classes(64))
    if name == "resnet-50":
        import torchvision
        return (torchvision.models.resnet50(), nn.CrossEntropyLoss(),
                lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, fused=True), rand(128, 3, 224, 224), classes(128))
    sys.exit(f"unknown workload {name}")


def build(name):
    torch.manual_seed(0)
    model, criterion, make_optimizer, x, y = workload(name)
    model = model.to(device)
    if precision != "fp32" and x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return model, criterion, make_optimizer(model.parameters()), x, y


def make_step(name, compiled=None):
    model, criterion, optimizer, x, y = build(name)

    def loss_of(a, b):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
            return criterion(model(a), b)

    forward = torch.compile(loss_of, mode=compiled) if compiled else loss_of

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def make_graph(name):
    step = make_step(name)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def best_us(step, seconds):
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    best, block, end = 1e9, 1, time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        for _ in range(block):
            step()
        torch.cuda.synchronize()
        elapsed = time.perf_counter() - start
        best = min(best, elapsed / block)
        if elapsed < 0.05:
            block *= 2
        if time.perf_counter() > end:
            return best * 1e6


def main():
    name = sys.argv[1]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    modes = (sys.argv[3] if len(sys.argv) > 3 else "eager,graph,compile,reduce").split(",")
    makers = {"eager": lambda: make_step(name), "graph": lambda: make_graph(name),
              "compile": lambda: make_step(name, "default"), "reduce": lambda: make_step(name, "reduce-overhead")}
    times = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a limit: what was measured until then is shown
    for mode in modes:
        try:
            times[mode] = best_us(makers[mode](), seconds)
        except KeyboardInterrupt:
            break
        except Exception as error:  # a mode that this model or machine cannot do
            print(f"{name}: {mode}: {str(error).splitlines()[0]}", file=sys.stderr)
    best = min(times.values(), default=float("nan"))
    print(name, *(f"{mode}={us:.1f}" for mode, us in times.items()), f"best={best:.1f}", flush=True)
    os._exit(0)  # compilers that still run are left behind


main()
