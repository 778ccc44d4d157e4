#!/usr/bin/python3
"""Asks PyTorch 1.13 what LSTM, GRU, RNN and their cells do, and writes it down for tests/nn/test_recurrent.c.

    nn_recurrent.py [FOLDER [SHIFT]]      as nn_parity.py, whose comparisons these are
"""
import os
import sys

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import nn_parity  # noqa: E402
from nn_golden import Golden  # noqa: E402


class Recurrent(nn.Module):
    """A layer that gives one tensor: all outputs, or the last states of the top layer. Names stay the layer's own."""

    def __init__(self, layer, last=False):
        super().__init__()
        self.attention = layer  # what nn_parity.inner looks for
        self.last = last

    def forward(self, x):
        result = self.attention(x)
        if not isinstance(result, tuple):
            return result  # a cell with one state
        y, state = result
        if not torch.is_tensor(y) or isinstance(self.attention, nn.LSTMCell):
            return y
        if not self.last:
            return y
        h = state[0] if isinstance(state, tuple) else state
        directions = 2 if self.attention.bidirectional else 1
        return torch.cat(list(h[-directions:]), dim=-1)


nn_parity.SelfAttention = (nn_parity.SelfAttention, Recurrent)
LENGTHS = [3, 5, 1, 4]


class States(nn.Module):
    """First states from the input's last rows, lengths if asked, and everything that comes out, flattened into one."""

    def __init__(self, layer, lengths=False):
        super().__init__()
        self.layer = layer
        self.lengths = lengths

    def forward(self, x):
        layer = self.layer
        count = layer.num_layers * (2 if layer.bidirectional else 1)
        width = getattr(layer, "proj_size", 0) or layer.hidden_size
        h = x[5:5 + count, :, :width]
        state = (h.contiguous(), x[5:5 + count, :, 1:1 + layer.hidden_size].contiguous()) if isinstance(layer, nn.LSTM) else h.contiguous()
        x = x[:5]
        if self.lengths:
            x = pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
        y, state = layer(x, state)
        if self.lengths:
            y = pad_packed_sequence(y, total_length=5)[0]
        parts = [y, *state] if isinstance(state, tuple) else [y, state]
        return torch.cat([p.reshape(-1) for p in parts])


class CellStates(nn.Module):
    """Two steps of a cell, the second from the states of the first."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state = self.cell(x[0], None)
        state = self.cell(x[1], state)
        return torch.cat([s.reshape(-1) for s in state]) if isinstance(state, tuple) else state.reshape(-1)


X = (5, 3, 7)
STATES = (9, 4, 7)
CASES = []
for name, kind, options in [("lstm", nn.LSTM, {}), ("gru", nn.GRU, {}), ("rnn", nn.RNN, {}),
                            ("rnn_relu", nn.RNN, {"nonlinearity": "relu"}),
                            ("lstm_proj", nn.LSTM, {"proj_size": 3})]:
    CASES += [
        (name, lambda k=kind, o=options: Recurrent(k(7, 6, **o)), X),
        (name + "_deep", lambda k=kind, o=options: Recurrent(k(7, 6, num_layers=2, bidirectional=True, batch_first=True, **o)), (3, 5, 7)),
        (name + "_last", lambda k=kind, o=options: Recurrent(k(7, 6, num_layers=2, bidirectional=True, bias=False, **o), last=True), X),
        (name + "_dropout", lambda k=kind, o=options: Recurrent(k(7, 6, num_layers=3, dropout=0.3, batch_first=True, **o)), (3, 5, 7)),
        (name + "_states", lambda k=kind, o=options: States(k(7, 6, num_layers=2, **o)), STATES),
        (name + "_lengths", lambda k=kind, o=options: States(k(7, 6, num_layers=2, bidirectional=True, **o), lengths=True), STATES),
    ]
CASES += [
    ("lstm_unbatched", lambda: Recurrent(nn.LSTM(7, 6)), (5, 7)),
    ("gru_unbatched_last", lambda: Recurrent(nn.GRU(7, 6, bidirectional=True), last=True), (5, 7)),
    ("lstm_wide", lambda: Recurrent(nn.LSTM(9, 33)), (3, 17, 9)),
    ("gru_wide", lambda: Recurrent(nn.GRU(9, 33, bidirectional=True)), (3, 17, 9)),
    ("rnn_one_step", lambda: Recurrent(nn.RNN(7, 6)), (1, 3, 7)),
    ("lstm_cell", lambda: Recurrent(nn.LSTMCell(7, 6)), (4, 7)),
    ("gru_cell", lambda: Recurrent(nn.GRUCell(7, 6)), (4, 7)),
    ("rnn_cell", lambda: Recurrent(nn.RNNCell(7, 6, bias=False, nonlinearity="relu")), (4, 7)),
    ("gru_cell_unbatched", lambda: Recurrent(nn.GRUCell(7, 6)), (7,)),
    ("lstm_cell_states", lambda: CellStates(nn.LSTMCell(7, 6)), (2, 4, 7)),
    ("gru_cell_states", lambda: CellStates(nn.GRUCell(7, 6)), (2, 4, 7)),
    ("rnn_cell_states", lambda: CellStates(nn.RNNCell(7, 6)), (2, 4, 7)),
]


def main():
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
    golden = Golden()
    for name, make, x in CASES:
        nn_parity.layer(golden, name, make, x)
    golden.write(os.path.join(sys.argv[1] if len(sys.argv) > 1 else default, "nn", "recurrent.lkg"))


if __name__ == "__main__":
    main()
