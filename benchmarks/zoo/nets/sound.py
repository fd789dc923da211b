"""Sound: vocoders, separation, recognition, keyword spotting."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class HiFi(nn.Module):
    """HiFi-GAN's generator: transposed convolutions, each followed by residual stacks of several dilations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, width, 7, padding=3)
        self.ups, self.stacks = nn.ModuleList(), nn.ModuleList()
        for i, (kernel, stride) in enumerate(((16, 8), (16, 8), (4, 2))):
            a, b = width >> i, width >> (i + 1)
            self.ups.append(nn.ConvTranspose1d(a, b, kernel, stride, (kernel - stride) // 2))
            self.stacks.append(
                nn.ModuleList(
                    nn.ModuleList(nn.Conv1d(b, b, k, padding=d * (k - 1) // 2, dilation=d) for d in (1, 3, 5))
                    for k in (3, 7)
                )
            )
        self.last = nn.Conv1d(width >> 3, 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for up, stack in zip(self.ups, self.stacks, strict=True):
            x, total = up(F.leaky_relu(x, 0.1)), torch.zeros(1)
            for convs in stack:
                y = x
                for layer in convs:
                    y = y + layer(F.leaky_relu(y, 0.1))
                total = total + y
            x = total / len(stack)
        return torch.tanh(self.last(F.leaky_relu(x)))


def hifigan(width: int = 128) -> nn.Module:
    return HiFi(width)


def melgan(width: int = 128) -> nn.Module:
    """Reflection padding, transposed convolutions, dilated residuals."""

    class Block(nn.Module):
        def __init__(self, width: int, dilation: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.LeakyReLU(0.2),
                nn.ReflectionPad1d(dilation),
                nn.Conv1d(width, width, 3, dilation=dilation),
                nn.LeakyReLU(0.2),
                nn.Conv1d(width, width, 1),
            )
            self.side = nn.Conv1d(width, width, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.side(x) + self.body(x)

    layers: list[nn.Module] = [nn.ReflectionPad1d(3), nn.Conv1d(80, width, 7)]
    for i, r in enumerate((8, 8, 2)):
        a, b = width >> i, width >> (i + 1)
        layers += [nn.LeakyReLU(0.2), nn.ConvTranspose1d(a, b, 2 * r, r, r // 2 + r % 2), Block(b, 1), Block(b, 3)]
    return nn.Sequential(*layers, nn.LeakyReLU(0.2), nn.ReflectionPad1d(3), nn.Conv1d(width >> 3, 1, 7), nn.Tanh())


class Wave(nn.Module):
    """WaveNet: causal dilated convolutions with gates, sums of skips."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.convs = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=1 << i) for i in range(layers))
        self.outs = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(layers))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, 256, 1))

    def forward(self, x: Tensor) -> Tensor:
        x, skips = self.first(x), torch.zeros(1)
        for i, (layer, out) in enumerate(zip(self.convs, self.outs, strict=True)):
            a, b = layer(F.pad(x, (1 << i, 0))).chunk(2, 1)
            more, skip = out(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, skips = x + more, skips + skip
        return self.head(skips)


def wavenet(width: int = 48, layers: int = 8) -> nn.Module:
    return Wave(width, layers)


class Separate(nn.Module):
    """Conv-TasNet: learned filter bank, depthwise dilated blocks, masks, transposed filter bank."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Conv1d(1, 128, 16, 8, bias=False)
        self.bottleneck = nn.Sequential(nn.GroupNorm(1, 128), nn.Conv1d(128, 64, 1))
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(64, 128, 1),
                nn.PReLU(),
                nn.GroupNorm(1, 128),
                nn.Conv1d(128, 128, 3, padding=1 << i, dilation=1 << i, groups=128),
                nn.PReLU(),
                nn.GroupNorm(1, 128),
                nn.Conv1d(128, 64, 1),
            )
            for i in range(5)
        )
        self.masks = nn.Sequential(nn.PReLU(), nn.Conv1d(64, 2 * 128, 1), nn.Sigmoid())
        self.decode = nn.ConvTranspose1d(128, 1, 16, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        mixed = F.relu(self.encode(x))
        y = self.bottleneck(mixed)
        for block in self.blocks:
            y = y + block(y)
        masked = mixed[:, None] * self.masks(y).unflatten(1, (2, 128))
        return self.decode(masked.flatten(0, 1)).unflatten(0, (-1, 2)).squeeze(2)


def conv_tasnet() -> nn.Module:
    return Separate()


class Demucs(nn.Module):
    """Strided convolutions with gated linear units, an LSTM in the middle, transposed convolutions with skips."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [2, width, 2 * width, 4 * width]
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv1d(a, b, 8, 4, 2), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(1))
            for a, b in itertools.pairwise(sizes)
        )
        self.lstm = nn.LSTM(4 * width, 4 * width, batch_first=True)
        self.up = nn.ModuleList(
            nn.Sequential(nn.Conv1d(b, 2 * b, 3, padding=1), nn.GLU(1), nn.ConvTranspose1d(b, a, 8, 4, 2))
            for a, b in reversed(list(itertools.pairwise(sizes)))
        )

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
        x = self.lstm(x.transpose(1, 2))[0].transpose(1, 2)
        for layer, skip in zip(self.up, reversed(skips), strict=True):
            x = layer(x + skip)
        return x


def demucs(width: int = 32) -> nn.Module:
    return Demucs(width)


class Listen(nn.Module):
    """Deep Speech 2: convolutions over a spectrogram, bidirectional GRUs."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(1, 16, (11, 41), (2, 2), (5, 20)),
            nn.BatchNorm2d(16),
            nn.Hardtanh(0, 20),
            nn.Conv2d(16, 16, (11, 21), (1, 2), (5, 10)),
            nn.BatchNorm2d(16),
            nn.Hardtanh(0, 20),
        )
        self.gru = nn.GRU(16 * 20, 128, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(256, 29)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(self.convs(x).transpose(1, 2).flatten(2))[0])


def deepspeech() -> nn.Module:
    return Listen()


def quartznet(width: int = 128) -> nn.Module:
    """1-D separable convolutions with wide kernels."""
    layers: list[nn.Module] = [nn.Conv1d(64, width, 33, 2, 16), nn.BatchNorm1d(width), nn.ReLU()]
    for kernel in (33, 39, 51, 63):
        layers += [
            nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width, bias=False),
            nn.Conv1d(width, width, 1, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.Conv1d(width, 29, 1), nn.LogSoftmax(1))


def keywords(width: int = 64) -> nn.Module:
    """DS-CNN: a keyword in a second of sound."""
    layers: list[nn.Module] = [nn.Conv2d(1, width, (10, 4), 2, (5, 1)), nn.BatchNorm2d(width), nn.ReLU()]
    for _ in range(4):
        layers += [
            nn.Conv2d(width, width, 3, padding=1, groups=width),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 12))


def temporal(width: int = 64, layers: int = 5) -> nn.Module:
    """TCN: causal dilated residual blocks."""

    class Causal(nn.Module):
        def __init__(self, dilation: int) -> None:
            super().__init__()
            self.pad = 2 * dilation
            self.a = nn.Conv1d(width, width, 3, dilation=dilation)
            self.b = nn.Conv1d(width, width, 3, dilation=dilation)

        def forward(self, x: Tensor) -> Tensor:
            y = F.relu(self.a(F.pad(x, (self.pad, 0))))
            return F.relu(x + F.relu(self.b(F.pad(y, (self.pad, 0)))))

    return nn.Sequential(nn.Conv1d(8, width, 1), *(Causal(1 << i) for i in range(layers)), nn.Conv1d(width, 8, 1))


class Speak(nn.Module):
    """Tacotron's encoder and post-net: embedding, convolutions, bidirectional LSTM, convolutions over frames."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 128)
        self.convs = nn.Sequential(
            *(layer for _ in range(3) for layer in (nn.Conv1d(128, 128, 5, padding=2), nn.BatchNorm1d(128), nn.ReLU()))
        )
        self.lstm = nn.LSTM(128, 64, bidirectional=True, batch_first=True)
        self.frames = nn.Linear(128, 80)
        self.post = nn.Sequential(
            nn.Conv1d(80, 128, 5, padding=2), nn.BatchNorm1d(128), nn.Tanh(), nn.Conv1d(128, 80, 5, padding=2)
        )

    def forward(self, text: Tensor) -> Tensor:
        x = self.lstm(self.convs(self.embed(text).transpose(1, 2)).transpose(1, 2))[0]
        frames = self.frames(x).transpose(1, 2)
        return frames + self.post(frames)


def tacotron() -> nn.Module:
    return Speak()


class Crn(nn.Module):
    """Speech enhancement: convolutions over frequency, a GRU over time, transposed convolutions with skips."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(a, b, (1, 3), (1, 2)) for a, b in ((1, 16), (16, 32), (32, 64)))
        self.gru = nn.GRU(64 * 19, 128, batch_first=True)
        self.back = nn.Linear(128, 64 * 19)
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(2 * a, b, (1, 3), (1, 2), output_padding=(0, o))
            for a, b, o in ((64, 32, 0), (32, 16, 1), (16, 1, 0))
        )

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for layer in self.down:
            x = F.elu(layer(x))
            skips.append(x)
        y = self.back(self.gru(x.transpose(1, 2).flatten(2))[0]).unflatten(2, (64, 19)).transpose(1, 2)
        for i, layer in enumerate(self.up):
            y = layer(torch.cat([y, skips[2 - i]], 1))
            y = F.elu(y) if i < 2 else y
        return y


def crn() -> nn.Module:
    return Crn()
