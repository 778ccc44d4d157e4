#!/usr/bin/python3
"""Writes tests/golden/nn/char_lstm.txt: the first 20 losses of examples/11_char_lstm.c, trained by PyTorch 1.13."""
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TEXT = ("this is the house that jack built. "
        "this is the malt that lay in the house that jack built. "
        "this is the rat that ate the malt that lay in the house that jack built. "
        "this is the cat that killed the rat that ate the malt "
        "that lay in the house that jack built. ")
ALPHABET = "abcdefghijklmnopqrstuvwxyz. "
WINDOW, BATCH = 32, 8


def letters(first):
    return torch.tensor([[ALPHABET.index(TEXT[(first + b * 23 + t) % len(TEXT)]) for t in range(WINDOW)] for b in range(BATCH)])


def main():
    torch.set_num_threads(1)
    torch.manual_seed(42)
    embedding, lstm, head = nn.Embedding(28, 16), nn.LSTM(16, 64, num_layers=2, batch_first=True), nn.Linear(64, 28)
    params = [*embedding.parameters(), *lstm.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(params, lr=0.01)
    lines = []
    for i in range(20):
        optimizer.zero_grad()
        logits = head(lstm(embedding(letters(17 * i)))[0])
        loss = F.cross_entropy(logits.transpose(1, 2), letters(17 * i + 1))
        loss.backward()
        nn.utils.clip_grad_norm_(params, 5)
        optimizer.step()
        lines.append("%.7f\n" % loss.item())
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "../golden/nn/char_lstm.txt"), "w") as file:
        file.writelines(lines)


if __name__ == "__main__":
    main()
