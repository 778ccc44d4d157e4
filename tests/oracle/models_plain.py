"""GPT-2, BERT and the U-Net as plain PyTorch modules with the published parameter names, and smaller relatives of
torchvision's models. What tests of the models compare with."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Conv1D(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return x @ self.weight + self.bias


def attend(q, k, v, heads, mask):
    def split(x):
        return x.view(*x.shape[:2], heads, -1).transpose(1, 2)
    q, k, v = split(q), split(k), split(v)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    weights = (scores if mask is None else scores + mask).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


class GPT2Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)

    def forward(self, x):
        q, k, v = self.c_attn(x).chunk(3, -1)
        length = x.shape[1]
        mask = torch.full((length, length), -math.inf).triu(1)
        return self.c_proj(attend(q, k, v, self.heads, mask))


class GPT2MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(width, 4 * width), Conv1D(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class GPT2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), GPT2Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), GPT2MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, width=768, layers=12, heads=12, vocab=50257, positions=1024):
        super().__init__()
        self.transformer = nn.Module()
        self.transformer.wte, self.transformer.wpe = nn.Embedding(vocab, width), nn.Embedding(positions, width)
        self.transformer.h = nn.ModuleList(GPT2Block(width, heads) for _ in range(layers))
        self.transformer.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, ids):
        t = self.transformer
        x = t.wte(ids) + t.wpe(torch.arange(ids.shape[1]))
        for block in t.h:
            x = block(x)
        return self.lm_head(t.ln_f(x))


def part(**children):
    module = nn.Module()
    for name, child in children.items():
        setattr(module, name, child)
    return module


class Bert(nn.Module):
    def __init__(self, width=768, layers=12, heads=12, vocab=30522, positions=512, inner=None):
        super().__init__()
        inner = inner or 4 * width
        self.heads = heads
        self.embeddings = part(word_embeddings=nn.Embedding(vocab, width),
                               position_embeddings=nn.Embedding(positions, width),
                               token_type_embeddings=nn.Embedding(2, width), LayerNorm=nn.LayerNorm(width, eps=1e-12))
        self.encoder = part(layer=nn.ModuleList(part(
            attention=part(**{"self": part(query=nn.Linear(width, width), key=nn.Linear(width, width),
                                           value=nn.Linear(width, width)),
                              "output": part(dense=nn.Linear(width, width), LayerNorm=nn.LayerNorm(width, eps=1e-12))}),
            intermediate=part(dense=nn.Linear(width, inner)),
            output=part(dense=nn.Linear(inner, width), LayerNorm=nn.LayerNorm(width, eps=1e-12)))
            for _ in range(layers)))
        self.pooler = part(dense=nn.Linear(width, width))

    def forward(self, ids, mask=None, types=None):
        e = self.embeddings
        x = e.word_embeddings(ids) + e.position_embeddings(torch.arange(ids.shape[1]))
        x = e.LayerNorm(x + e.token_type_embeddings(torch.zeros_like(ids) if types is None else types))
        added = None if mask is None else (1 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for layer in self.encoder.layer:
            own = layer.attention.self
            y = attend(own.query(x), own.key(x), own.value(x), self.heads, added)
            x = layer.attention.output.LayerNorm(layer.attention.output.dense(y) + x)
            y = F.gelu(layer.intermediate.dense(x))
            x = layer.output.LayerNorm(layer.output.dense(y) + x)
        return x, torch.tanh(self.pooler.dense(x[:, 0]))


class DoubleConv(nn.Module):
    def __init__(self, n_in, middle, n_out):
        super().__init__()
        self.double_conv = nn.Sequential(nn.Conv2d(n_in, middle, 3, padding=1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(),
                                         nn.Conv2d(middle, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU())

    def forward(self, x):
        return self.double_conv(x)


class UNet(nn.Module):
    def __init__(self, width=64, n_in=3, classes=2, bilinear=False):
        super().__init__()
        factor = 2 if bilinear else 1
        self.inc = DoubleConv(n_in, width, width)
        for i in range(1, 5):
            out = (width << i) // (factor if i == 4 else 1)
            setattr(self, f"down{i}", part(maxpool_conv=nn.Sequential(nn.MaxPool2d(2), DoubleConv(width << (i - 1), out, out))))
        for i in range(1, 5):
            wide = width << (5 - i)
            out = width if i == 4 else wide // 2 // factor
            up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True) if bilinear else \
                nn.ConvTranspose2d(wide, wide // 2, 2, stride=2)
            setattr(self, f"up{i}", part(up=up, conv=DoubleConv(wide, wide // 2 if bilinear else out, out)))
        self.outc = part(conv=nn.Conv2d(width, classes, 1))

    def forward(self, x):
        sizes = [self.inc(x)]
        for i in range(1, 5):
            sizes.append(getattr(self, f"down{i}").maxpool_conv(sizes[-1]))
        y = sizes[4]
        for i in range(1, 5):
            up, beside = getattr(self, f"up{i}"), sizes[4 - i]
            y = up.up(y)
            high, wide = beside.shape[2] - y.shape[2], beside.shape[3] - y.shape[3]
            y = F.pad(y, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
            y = up.conv(torch.cat([beside, y], 1))
        return self.outc.conv(y)


class CharLSTM(nn.Module):
    def __init__(self, vocab, dim=16, hidden=128, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.lstm = nn.LSTM(dim, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0])


def small_resnet(block, layers, width, classes=10, small_input=False, zero=False):
    """torchvision's ResNet with other numbers of channels."""
    from torchvision.models.resnet import ResNet

    class Small(ResNet):
        def __init__(self):
            nn.Module.__init__(self)
            self._norm_layer, self.inplanes, self.dilation, self.groups, self.base_width = nn.BatchNorm2d, width, 1, 1, 64
            self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False) if small_input else \
                nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
            self.bn1, self.relu = nn.BatchNorm2d(width), nn.ReLU()
            self.maxpool = nn.Identity() if small_input else nn.MaxPool2d(3, 2, 1)
            for i in range(4):
                setattr(self, f"layer{i + 1}", self._make_layer(block, width << i, layers[i], stride=1 if i == 0 else 2))
            self.avgpool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Linear((width << 3) * block.expansion, classes)
            for module in self.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            for module in self.modules() if zero else ():
                if isinstance(module, block):
                    nn.init.constant_((module.bn3 if hasattr(module, "bn3") else module.bn2).weight, 0)
    return Small()
