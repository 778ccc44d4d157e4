#!/usr/bin/python3
"""The losses of the first batch of Catalyst's test runners, as PyTorch computes them from seed 42.

    catalyst_first.py

Prints what tests/cli/test_catalyst.c expects: the data is written down in both, the random numbers are drawn in the order in
which the Python classes of Catalyst's test suite draw them.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

N = 16
X = (torch.arange(N * 784) % 17).float().view(N, 1, 28, 28) / 17
Y = torch.arange(N) % 10


def begin_epoch():
    """What a DataLoader draws when a pass over it begins."""
    torch.empty((), dtype=torch.int64).random_()


def show(name, *values):
    print(name, *(f"{float(v):.9g}" for v in values))


def classifiers():
    torch.manual_seed(42)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    logits = model(X)
    show("custom", F.cross_entropy(logits, Y))
    show("multicriterion", F.cross_entropy(logits, Y) + F.binary_cross_entropy_with_logits(logits, F.one_hot(Y, 10).float()))
    torch.manual_seed(42)
    encoder, head = nn.Sequential(nn.Flatten(), nn.Linear(784, 128)), nn.Linear(128, 10)
    rates = {"multimodel": (0.02, 0.02), "multioptimizer": (0.02, 0.001)}
    for name, (first, second) in rates.items():
        e, h = nn.Sequential(nn.Flatten(), nn.Linear(784, 128)), nn.Linear(128, 10)
        e.load_state_dict(encoder.state_dict()), h.load_state_dict(head.state_dict())
        optimizer = torch.optim.Adam([{"params": e.parameters(), "lr": first}, {"params": h.parameters(), "lr": second}])
        losses = []
        for _ in range(3):
            losses.append(F.cross_entropy(h(e(X)), Y))
            optimizer.zero_grad()
            losses[-1].backward()
            optimizer.step()
        show(name, *losses)


def gan():
    torch.manual_seed(42)
    generator = nn.Sequential(nn.Linear(32, 784), nn.Unflatten(1, (1, 28, 28)), nn.Sigmoid())
    discriminator = nn.Sequential(nn.Flatten(), nn.Linear(784, 1))
    rule = {k: torch.optim.Adam(m.parameters(), lr=0.0003, betas=(0.5, 0.999)) for k, m in
            (("g", generator), ("d", discriminator))}
    bce = nn.BCEWithLogitsLoss()
    losses = []
    for _ in range(3):
        begin_epoch()
        fake = generator(torch.randn(N, 32)).detach()
        labels = torch.cat([torch.ones(N, 1), torch.zeros(N, 1)])
        labels += 0.05 * torch.rand(labels.shape)
        of_discriminator = bce(discriminator(torch.cat([fake, X])), labels)
        of_generator = bce(discriminator(generator(torch.randn(N, 32))), torch.zeros(N, 1))
        of_discriminator.backward()
        of_generator.backward()
        for r in rule.values():
            r.step()
            r.zero_grad()
        losses += [of_discriminator, of_generator]
    show("gan", *losses)


def vae():
    torch.manual_seed(42)
    encoder, decoder = nn.Linear(784, 128), nn.Sequential(nn.Linear(64, 784), nn.Sigmoid())
    pixels = (torch.arange(N * 784) % 256).float().view(N, 784)
    x = (pixels - 0.1307) / 0.3081
    begin_epoch()
    z = encoder(x)
    loc, log_scale = z[:, :64], torch.clamp(z[:, 64:], -10, 2)
    made = decoder(loc + torch.exp(0.5 * log_scale) * torch.randn_like(log_scale))
    error = F.mse_loss(made, x)
    kld = (-0.5 * torch.sum(1 + log_scale - loc ** 2 - log_scale.exp(), 1)).mean()
    show("vae", error, kld, error + kld * 0.01)


def heads():
    torch.manual_seed(42)
    shared, head1, head2 = nn.Linear(784, 128), nn.Linear(128, 4), nn.Linear(128, 10)
    x = X.view(N, 784)
    one, two = F.cross_entropy(head1(shared(x)), Y % 4), F.cross_entropy(head2(shared(x)), Y)
    show("heads", one, two, (one + two) / 2)


classifiers()
gan()
vae()
heads()
