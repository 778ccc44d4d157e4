#!/usr/bin/python3
"""Writes tests/golden/nets/*.txt: the losses of examples/12_wgan_gp.c and of the programs after it in their first 20
batches, trained by PyTorch 1.13 from the same seed, on the same data and with the same random numbers; and the losses of
rank 0 where two ranks share these batches and average their gradients.

    tests/oracle/nets.py [NAME]"""
import math
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

import char_lstm

STEPS = 20
ranks = 1


def batches(count, *tensors):
    """For each step the batches of all ranks; samples go to the ranks in turn."""
    torch.empty((), dtype=torch.int64).random_()  # a DataLoader draws the seed of its workers
    shares = [zip(*(tensor[rank::ranks].split(count) for tensor in tensors)) for rank in range(ranks)]
    return zip(*shares)


def update(optimizer, function, batch_of_rank, clipped=()):
    """Averages the gradients of the ranks, which draw the same numbers, and returns the loss of rank 0."""
    optimizer.zero_grad()
    state, losses = torch.get_rng_state(), []
    for batch in batch_of_rank:
        torch.set_rng_state(state)
        loss = function(*batch)
        (loss / ranks).backward()
        losses.append(loss.item())
    if clipped:
        nn.utils.clip_grad_norm_(clipped, 1)
    optimizer.step()
    return losses[0]


def wgan_gp():
    generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    critic = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    forger = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.9))
    judge = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))
    points = torch.tensor([[math.cos(2.4 * i), math.sin(2.4 * i)] for i in range(64 * STEPS)])

    def judge_loss(real):
        fake = generator(torch.randn(64, 8)).detach()
        between = (real + torch.rand(64, 1) * (fake - real)).requires_grad_()
        slope, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = 0.1 * ((slope.norm(2, dim=1) - 1) ** 2).mean()
        return critic(fake).mean() - critic(real).mean() + penalty

    def forger_loss(real):
        return -critic(generator(torch.randn(64, 8))).mean()

    for step, batch in enumerate(batches(64, points), 1):
        yield update(judge, judge_loss, batch)
        if step % 5 == 0:
            yield update(forger, forger_loss, batch)


def simsiam():
    def samples(count):
        centers, noise = torch.randn(4, 16), torch.randn(count, 16)
        return noise * 0.5 + centers.repeat(count // 4, 1)

    data, _ = samples(32 * STEPS), samples(64)
    encoder = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16), nn.BatchNorm1d(16))
    predictor = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 16))
    params = [*encoder.parameters(), *predictor.parameters()]
    optimizer = torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-4)

    def loss(x):
        a = encoder(x + torch.zeros(32, 16).normal_(0, 0.5))
        b = encoder(x + torch.zeros(32, 16).normal_(0, 0.5))
        from_a = -F.cosine_similarity(predictor(a), b.detach()).mean()
        from_b = -F.cosine_similarity(predictor(b), a.detach()).mean()
        return (from_a + from_b) / 2

    for batch in batches(32, data):
        yield update(optimizer, loss, batch)


def vq_vae():
    encoder = nn.Sequential(nn.Conv1d(1, 16, 4, stride=2, padding=1), nn.ReLU(), nn.Conv1d(16, 4, 4, stride=2, padding=1))
    codebook = nn.Embedding(16, 4)
    decoder = nn.Sequential(nn.ConvTranspose1d(4, 16, 4, stride=2, padding=1), nn.ReLU(),
                            nn.ConvTranspose1d(16, 1, 4, stride=2, padding=1))
    params = [*encoder.parameters(), *codebook.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(params, lr=3e-3)
    data = torch.tensor([[[math.sin(6.2831853 * (k / 32) * (1 + i % 2) + 2.4 * i) for k in range(32)]]
                         for i in range(32 * STEPS)])

    def loss(x):
        places = encoder(x).transpose(1, 2)
        z = places.reshape(-1, 4)
        index = torch.cdist(z.detach(), codebook.weight.detach()).argmin(1)
        word = codebook(index)
        through = z + (word - z).detach()
        wave = decoder(through.reshape(places.shape).transpose(1, 2))
        return F.mse_loss(wave, x) + F.mse_loss(word, z.detach()) + 0.25 * F.mse_loss(z, word.detach())

    for batch in batches(32, data):
        yield update(optimizer, loss, batch)


def maml():
    count = 8 * STEPS
    heights, phases = torch.rand(count).double(), torch.rand(count).double()
    data = [torch.rand(count, 10, 1) for _ in range(4)]
    for i in 0, 2:
        x = 10 * data[i].double() - 5
        data[i] = x.float()
        data[i + 1] = ((0.5 + 2 * heights)[:, None, None] * torch.sin(x + 3.14159265 * phases[:, None, None])).float()
    net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    weights = list(net.parameters())
    optimizer = torch.optim.Adam(weights, lr=3e-3)

    def error(w, x, y):
        hidden = torch.tanh(F.linear(torch.tanh(F.linear(x, w[0], w[1])), w[2], w[3]))
        return F.mse_loss(F.linear(hidden, w[4], w[5]), y)

    def loss(*fields):
        total = 0
        for support_x, support_y, query_x, query_y in zip(*fields):
            grads = torch.autograd.grad(error(weights, support_x, support_y), weights, create_graph=True)
            total = total + error([w - 0.05 * grad for w, grad in zip(weights, grads)], query_x, query_y)
        return total / 8

    for batch in batches(8, *data):
        yield update(optimizer, loss, batch)


def burgers():
    t, x, first_x, edge_t = (torch.rand(64 * STEPS, 1) for _ in range(4))
    x, first_x = 2 * x - 1, 2 * first_x - 1
    net = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(),
                        nn.Linear(20, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)

    def u_at(t, x):
        return net(torch.cat([t, x], 1))

    def loss(t, x, first_x, edge_t):
        t, x = t.clone().requires_grad_(), x.clone().requires_grad_()
        u = u_at(t, x)
        u_t, u_x = torch.autograd.grad(u.sum(), (t, x), create_graph=True)
        u_xx, = torch.autograd.grad(u_x.sum(), x, create_graph=True)
        residual = u_t + u * u_x - 0.01 / math.pi * u_xx
        start = u_at(torch.zeros_like(first_x), first_x) + torch.sin(math.pi * first_x)
        left, right = u_at(edge_t, -torch.ones_like(edge_t)), u_at(edge_t, torch.ones_like(edge_t))
        return sum((part ** 2).mean() for part in (residual, start, left, right))

    for batch in batches(64, t, x, first_x, edge_t):
        yield update(optimizer, loss, batch)


def seq2seq():
    rows = torch.tensor([[int(torch.randint(10, ())) for _ in range(8)] for _ in range(32 * STEPS)])
    targets = rows.flip(1)
    embedding, reader, writer = nn.Embedding(11, 16), nn.GRU(16, 48, batch_first=True), nn.GRU(16, 48, batch_first=True)
    head = nn.Linear(96, 10)
    params = [param for part in (embedding, reader, writer, head) for param in part.parameters()]
    optimizer = torch.optim.Adam(params, lr=5e-3)

    def loss(source, target):
        written = torch.cat([torch.full((len(target), 1), 10), target[:, :-1]], 1)
        read, state = reader(embedding(source))
        wrote, _ = writer(embedding(written), state)
        weights = torch.softmax(wrote @ read.transpose(1, 2) / math.sqrt(48), 2)
        logits = head(torch.cat([wrote, weights @ read], 2))
        return F.cross_entropy(logits.transpose(1, 2), target)

    for batch in batches(32, rows, targets):
        yield update(optimizer, loss, batch, params)


def gpt():
    alphabet, length = "abcdefghijklmnopqrstuvwxyz. ", 32
    numbers = torch.tensor([alphabet.index(letter) for letter in char_lstm.TEXT])
    letters, places = nn.Embedding(28, 48), nn.Embedding(length, 48)
    layer = nn.TransformerEncoderLayer(48, 4, 192, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    blocks, head = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(48)), nn.Linear(48, 28)
    params = [param for part in (letters, places, blocks, head) for param in part.parameters()]
    optimizer = torch.optim.AdamW(params, lr=3e-3)
    starts = torch.arange(8 * STEPS)[:, None] * 23 + torch.arange(length)
    later = torch.triu(torch.ones(length, length), 1).bool()

    def loss(place):
        x = letters(numbers[place % len(numbers)]) + places(torch.arange(length))
        logits = head(blocks(x, mask=later))
        target = numbers[(place + 1) % len(numbers)]
        return F.cross_entropy(logits.transpose(1, 2), target)

    for batch in batches(8, starts):
        yield update(optimizer, loss, batch, params)


NETS = {"12_wgan_gp": wgan_gp, "13_simsiam": simsiam, "14_vq_vae": vq_vae, "15_maml": maml, "16_burgers": burgers,
        "17_seq2seq": seq2seq, "18_gpt": gpt}


def main():
    global ranks
    torch.set_num_threads(1)
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/nets")
    os.makedirs(folder, exist_ok=True)
    for name in sys.argv[1:] or NETS:
        with open(os.path.join(folder, name + ".txt"), "w") as file:
            for ranks in 1, 2:
                torch.manual_seed(42)
                file.writelines("%d %.9g\n" % (ranks, loss) for loss in NETS[name]())


if __name__ == "__main__":
    main()
