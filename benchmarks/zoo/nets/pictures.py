"""Pictures to pictures, flow, boxes: super-resolution, segmentation, optical flow, detection, generation."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def conv(inside: int, outside: int, kernel: int = 3, stride: int = 1, groups: int = 1, dilation: int = 1) -> nn.Module:
    """Convolution that keeps the size (over the stride), batch normalization, ReLU."""
    pad = dilation * (kernel - 1) // 2
    return nn.Sequential(
        nn.Conv2d(inside, outside, kernel, stride, pad, dilation, groups, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
    )


class Residual(nn.Module):
    """x + body(x)."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def espcn(scale: int = 3) -> nn.Module:
    """Efficient sub-pixel convolution."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 5, padding=2),
        nn.Tanh(),
        nn.Conv2d(64, 32, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(32, scale * scale, 3, padding=1),
        nn.PixelShuffle(scale),
    )


def edsr(scale: int = 2, width: int = 64, blocks: int = 4) -> nn.Module:
    def block() -> nn.Module:
        return Residual(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))

    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        Residual(*(block() for _ in range(blocks))),
        nn.Conv2d(width, width * scale * scale, 3, padding=1),
        nn.PixelShuffle(scale),
        nn.Conv2d(width, 3, 3, padding=1),
    )


class Attention(nn.Module):
    """Scales channels by what their means say."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(width, width // 8, 1),
            nn.ReLU(),
            nn.Conv2d(width // 8, width, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


def rcan(width: int = 48) -> nn.Module:
    """Residual channel attention; shrinks by PixelUnshuffle first."""

    def block() -> nn.Module:
        return Residual(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), Attention(width)
        )

    return nn.Sequential(
        nn.PixelUnshuffle(2),
        nn.Conv2d(12, width, 3, padding=1),
        *(block() for _ in range(4)),
        nn.Conv2d(width, 48, 3, padding=1),
        nn.PixelShuffle(4),
    )


class Dense(nn.Module):
    """ESRGAN's residual dense block."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(width + i * growth, growth, 3, padding=1) for i in range(4))
        self.last = nn.Conv2d(width + 4 * growth, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.convs:
            features.append(F.leaky_relu(layer(torch.cat(features, 1)), 0.2))
        return x + 0.2 * self.last(torch.cat(features, 1))


class Esrgan(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(Dense(width, 16), Dense(width, 16))
        self.up, self.last = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.first(x))
        for _ in range(2):
            x = F.leaky_relu(self.up(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
        return self.last(x)


def esrgan(width: int = 32) -> nn.Module:
    return Esrgan(width)


class UNet(nn.Module):
    """Encoder and decoder with skips; upwards by transposed convolutions or bilinear resizing."""

    def __init__(self, width: int, transposed: bool, dims: int) -> None:
        super().__init__()
        flat, solid = (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d), (nn.Conv3d, nn.ConvTranspose3d, nn.BatchNorm3d)
        kind, up, norm = flat if dims == 2 else solid

        def pair(a: int, b: int) -> nn.Module:
            return nn.Sequential(
                kind(a, b, 3, padding=1), norm(b), nn.ReLU(), kind(b, b, 3, padding=1), norm(b), nn.ReLU()
            )

        sizes = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(pair(a, b) for a, b in zip([3 if dims == 2 else 1, *sizes], sizes, strict=False))
        self.pool = nn.MaxPool2d(2) if dims == 2 else nn.MaxPool3d(2)
        self.ups = nn.ModuleList(
            up(b, a, 2, 2) if transposed else nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), kind(b, a, 1))
            for a, b in itertools.pairwise(sizes)
        )
        self.merge = nn.ModuleList(pair(2 * a, a) for a in sizes[:-1])
        self.head = kind(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for i, layer in enumerate(self.down):
            x = layer(self.pool(x) if i else x)
            skips.append(x)
        for i in (1, 0):
            x = self.merge[i](torch.cat([skips[i], self.ups[i](x)], 1))
        return self.head(x)


def unet(width: int = 24, transposed: bool = True, dims: int = 2) -> nn.Module:
    return UNet(width, transposed, dims)


class DeepLab(nn.Module):
    """Dilated backbone, atrous pyramid, bilinear resizing to the picture's size."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            conv(3, 32, stride=2), conv(32, 64, stride=2), conv(64, 96, stride=2), conv(96, 96, dilation=2)
        )
        self.pyramid = nn.ModuleList([conv(96, 48, 1), *(conv(96, 48, dilation=d) for d in (3, 6, 9))])
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(96, 48, 1), nn.ReLU())
        self.head = nn.Sequential(conv(5 * 48, 64, 1), nn.Conv2d(64, 21, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.backbone(x)
        pooled = self.pooled(y).expand(-1, -1, y.shape[2], y.shape[3])
        y = self.head(torch.cat([*(p(y) for p in self.pyramid), pooled], 1))
        return F.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)


def deeplab() -> nn.Module:
    return DeepLab()


class PyramidPooling(nn.Module):
    """PSPNet: means of 1, 4, 9 and 36 regions beside the features."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(conv(3, 32, stride=2), conv(32, 64, stride=2), conv(64, 64))
        self.stages = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(s), nn.Conv2d(64, 16, 1), nn.ReLU()) for s in (1, 2, 4, 8)
        )
        self.head = nn.Conv2d(128, 19, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.backbone(x)
        parts = [F.interpolate(s(y), size=y.shape[2:], mode="bilinear", align_corners=True) for s in self.stages]
        return self.head(torch.cat([y, *parts], 1))


def pspnet() -> nn.Module:
    return PyramidPooling()


class Depth(nn.Module):
    """Depth as a bounded disparity at four scales; a U of nearest resizing and reflection padding."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 64, 96)
        self.down = nn.ModuleList(conv(a, b, stride=2) for a, b in itertools.pairwise(widths))
        self.up = nn.ModuleList(
            nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(a + b, b, 3), nn.ELU()) for a, b in ((96, 64), (64, 32))
        )
        self.heads = nn.ModuleList(
            nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(w, 1, 3), nn.Sigmoid()) for w in (64, 32)
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        skips = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
        found = []
        for i in range(2):
            x = self.up[i](torch.cat([F.interpolate(x, scale_factor=2, mode="nearest"), skips[1 - i]], 1))
            found.append(1 / (0.01 + 9.99 * self.heads[i](x)))
        return found


def monodepth() -> nn.Module:
    return Depth()


class Flow(nn.Module):
    """RAFT in small: correlation of all pairs, look-ups around the current flow, a convolutional GRU."""

    def __init__(self, rounds: int, radius: int) -> None:
        super().__init__()
        self.rounds, self.radius = rounds, radius
        self.features = nn.Sequential(
            conv(3, 32, 7, 2), conv(32, 64, stride=2), conv(64, 64, stride=2), nn.Conv2d(64, 64, 1)
        )
        looked = (2 * radius + 1) ** 2
        self.motion = nn.Conv2d(looked + 2, 62, 3, padding=1)
        self.gates = nn.Conv2d(64 + 64 + 64, 128, 3, padding=1)
        self.new = nn.Conv2d(64 + 64 + 64, 64, 3, padding=1)
        self.head = nn.Conv2d(64, 2, 3, padding=1)

    def look_up(self, pairs: Tensor, coordinates: Tensor) -> Tensor:
        batch, _, height, width = coordinates.shape
        steps = torch.arange(-self.radius, self.radius + 1, dtype=torch.float32)
        around = torch.stack(torch.meshgrid(steps, steps, indexing="ij"), -1)
        centre = coordinates.permute(0, 2, 3, 1).reshape(batch * height * width, 1, 1, 2)
        places = centre + around
        size = torch.tensor([width - 1, height - 1], dtype=torch.float32)
        found = F.grid_sample(pairs, 2 * places / size - 1, align_corners=True)
        return found.view(batch, height, width, -1).permute(0, 3, 1, 2)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        a, b = self.features(first), self.features(second)
        batch, channels, height, width = a.shape
        pairs = torch.einsum("bcp,bcq->bpq", a.flatten(2), b.flatten(2)) / channels**0.5
        pairs = pairs.reshape(batch * height * width, 1, height, width)
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        start = torch.stack([columns, rows]).float()[None]
        flow, state = torch.zeros_like(start).expand(batch, -1, -1, -1), torch.tanh(a)
        for _ in range(self.rounds):
            motion = torch.cat([F.relu(self.motion(torch.cat([self.look_up(pairs, start + flow), flow], 1))), flow], 1)
            joined = torch.cat([state, motion, F.relu(a)], 1)
            update, reset = torch.sigmoid(self.gates(joined)).chunk(2, 1)
            fresh = torch.tanh(self.new(torch.cat([reset * state, motion, F.relu(a)], 1)))
            state = (1 - update) * state + update * fresh
            flow = flow + self.head(state)
        return F.interpolate(8 * flow, scale_factor=8, mode="bilinear", align_corners=True)


def raft(rounds: int = 3, radius: int = 2) -> nn.Module:
    return Flow(rounds, radius)


class CostVolume(nn.Module):
    """PWC-Net's step: correlation with 81 shifts, warping by the flow so far."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(conv(3, 16, stride=2), conv(16, 32, stride=2))
        self.estimate = nn.Sequential(conv(81, 64), conv(64, 32), nn.Conv2d(32, 2, 3, padding=1))
        self.refine = nn.Sequential(conv(81 + 2, 64, dilation=2), nn.Conv2d(64, 2, 3, padding=1))

    def costs(self, a: Tensor, b: Tensor) -> Tensor:
        height, width = a.shape[2:]
        padded = F.pad(b, (4, 4, 4, 4))
        shifts = [(a * padded[:, :, y : y + height, x : x + width]).mean(1) for y in range(9) for x in range(9)]
        return F.leaky_relu(torch.stack(shifts, 1), 0.1)

    def warp(self, x: Tensor, flow: Tensor) -> Tensor:
        height, width = x.shape[2:]
        rows, columns = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
        grid = torch.stack([columns, rows], -1)[None] + flow.permute(0, 2, 3, 1) / 16
        return F.grid_sample(x, grid, align_corners=True)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        a, b = self.features(first), self.features(second)
        flow = self.estimate(self.costs(a, b))
        return flow + self.refine(torch.cat([self.costs(a, self.warp(b, flow)), flow], 1))


def pwc() -> nn.Module:
    return CostVolume()


class OneStage(nn.Module):
    """YOLO in small: cross-stage blocks, spatial pyramid, features joined upwards, boxes decoded at three scales."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(self.unit(3, width, 2), self.unit(width, 2 * width, 2))
        self.stages = nn.ModuleList(
            [self.unit(2 * width, 4 * width, 2), self.unit(4 * width, 8 * width, 2), self.unit(8 * width, 8 * width, 2)]
        )
        self.after = nn.ModuleList(
            [self.unit(4 * width, 4 * width), self.unit(8 * width, 8 * width), self.unit(8 * width * 4, 8 * width)]
        )
        self.join = nn.ModuleList([self.unit(12 * width, 4 * width), self.unit(16 * width, 8 * width)])
        self.heads = nn.ModuleList(nn.Conv2d(w * width, 4 * 16 + 20, 1) for w in (4, 8, 8))

    @staticmethod
    def unit(inside: int, outside: int, stride: int = 1) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.SiLU())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x, levels = self.stem(x), []
        for i, stage in enumerate(self.stages):
            x = stage(x)
            if i == 2:
                pooled = [x]
                for _ in range(3):
                    pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
                x = torch.cat(pooled, 1)
            x = self.after[i](x)
            levels.append(x)
        for i in (1, 0):
            levels[i] = self.join[i](torch.cat([F.interpolate(levels[i + 1], scale_factor=2.0), levels[i]], 1))
        boxes, scores = [], []
        for level, (y, head) in enumerate(zip(levels, self.heads, strict=True)):
            found = head(y).flatten(2)
            sides = found[:, :64].unflatten(1, (4, 16)).softmax(2)
            sides = (sides * torch.arange(16.0).view(1, 1, 16, 1)).sum(2)
            rows, columns = torch.meshgrid(torch.arange(y.shape[2]), torch.arange(y.shape[3]), indexing="ij")
            centre = torch.stack([columns.flatten(), rows.flatten()]).float() + 0.5
            boxes.append(torch.cat([centre - sides[:, :2], centre + sides[:, 2:]], 1) * 2.0 ** (level + 3))
            scores.append(found[:, 64:].sigmoid())
        return torch.cat(boxes, 2), torch.cat(scores, 2)


def yolo(width: int = 16) -> nn.Module:
    return OneStage(width)


class Ssd(nn.Module):
    """Single-shot detector over depthwise separable convolutions."""

    def __init__(self) -> None:
        super().__init__()

        def separable(a: int, b: int, stride: int) -> nn.Module:
            return nn.Sequential(conv(a, a, 3, stride, a), conv(a, b, 1))

        self.body = nn.Sequential(conv(3, 16, stride=2), separable(16, 32, 2), separable(32, 64, 2))
        self.further = nn.ModuleList([separable(64, 128, 2), separable(128, 128, 2)])
        self.boxes = nn.ModuleList(nn.Conv2d(w, 6 * 4, 3, padding=1) for w in (64, 128, 128))
        self.scores = nn.ModuleList(nn.Conv2d(w, 6 * 21, 3, padding=1) for w in (64, 128, 128))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        levels = [self.body(x)]
        for layer in self.further:
            levels.append(layer(levels[-1]))
        boxes = [
            h(y).permute(0, 2, 3, 1).flatten(1).unflatten(1, (-1, 4)) for h, y in zip(self.boxes, levels, strict=True)
        ]
        scores = [
            h(y).permute(0, 2, 3, 1).flatten(1).unflatten(1, (-1, 21)) for h, y in zip(self.scores, levels, strict=True)
        ]
        return torch.cat(boxes, 1), torch.cat(scores, 1).softmax(-1)


def ssd() -> nn.Module:
    return Ssd()


class Hourglass(nn.Module):
    """Heat maps of key points and their soft maxima."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = conv(3, width, 7, 2)
        self.down = nn.ModuleList(conv(width, width) for _ in range(3))
        self.side = nn.ModuleList(conv(width, width) for _ in range(3))
        self.head = nn.Conv2d(width, 17, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x, sides = self.stem(x), []
        for down, side in zip(self.down, self.side, strict=True):
            sides.append(side(x))
            x = down(F.max_pool2d(x, 2))
        for side in reversed(sides):
            x = F.interpolate(x, scale_factor=2.0) + side
        maps = self.head(x)
        weight = maps.flatten(2).softmax(-1).unflatten(2, maps.shape[2:])
        rows = (weight.sum(3) * torch.arange(float(maps.shape[2]))).sum(2)
        columns = (weight.sum(2) * torch.arange(float(maps.shape[3]))).sum(2)
        return maps, torch.stack([columns, rows], -1)


def hourglass(width: int = 48) -> nn.Module:
    return Hourglass(width)


def dcgan(width: int = 32) -> nn.Module:
    """Generator: a vector to a picture of 64×64 by transposed convolutions."""
    layers: list[nn.Module] = [nn.Unflatten(1, (100, 1, 1)), nn.ConvTranspose2d(100, 8 * width, 4, 1, 0, bias=False)]
    for factor in (8, 4, 2):
        layers += [
            nn.BatchNorm2d(factor * width),
            nn.ReLU(),
            nn.ConvTranspose2d(factor * width, factor * width // 2, 4, 2, 1, bias=False),
        ]
    return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())


class Modulated(nn.Module):
    """StyleGAN2's block: weights scaled by a style, demodulated, then the picture blurred and doubled."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.style = nn.Linear(64, inside)
        self.weight = nn.Parameter(torch.randn(outside, inside, 3, 3) / (3 * inside**0.5))

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        weight = self.weight[None] * (1 + self.style(style))[:, None, :, None, None]
        weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        y = F.conv2d(x, weight.flatten(0, 1), padding=1)
        y = F.leaky_relu(F.interpolate(y, scale_factor=2, mode="bilinear"), 0.2)
        return F.avg_pool2d(y, 3, 1, 1)


class Style(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mapping = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.LeakyReLU(0.2))))
        self.start = nn.Parameter(torch.randn(1, 64, 8, 8))
        self.blocks = nn.ModuleList([Modulated(64, 64), Modulated(64, 48), Modulated(48, 32)])
        self.last = nn.Conv2d(32, 3, 1)

    def forward(self, z: Tensor) -> Tensor:
        style, x = self.mapping(z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-8)), self.start
        for block in self.blocks:
            x = block(x, style)
        return self.last(x)


def stylegan() -> nn.Module:
    return Style()


class Video(nn.Module):
    """R(2+1)D: convolutions over space, then over time."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 64, 96)
        self.layers = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv3d(a, b, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False),
                    nn.BatchNorm3d(b),
                    nn.ReLU(),
                    nn.Conv3d(b, b, (3, 1, 1), (2, 1, 1), (1, 0, 0), bias=False),
                    nn.BatchNorm3d(b),
                    nn.ReLU(),
                )
                for a, b in itertools.pairwise(widths)
            )
        )
        self.head = nn.Linear(96, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean((2, 3, 4)))


def r2plus1d() -> nn.Module:
    return Video()


def c3d(width: int = 24) -> nn.Module:
    """Convolutions of 3×3×3 and pooling over space and time."""
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(((3, width), (width, 2 * width), (2 * width, 4 * width))):
        layers += [nn.Conv3d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool3d((1, 2, 2) if i == 0 else 2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4 * width, 100))


class Reader(nn.Module):
    """CRNN: columns of a line of text through convolutions, then a bidirectional LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(1, 32),
            nn.MaxPool2d(2),
            conv(32, 64),
            nn.MaxPool2d(2),
            conv(64, 128),
            nn.MaxPool2d((2, 1)),
            conv(128, 128),
            nn.MaxPool2d((4, 1)),
        )
        self.lstm = nn.LSTM(128, 96, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(192, 37)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.body(x).squeeze(2).transpose(1, 2))[0]).log_softmax(-1)


def crnn() -> nn.Module:
    return Reader()
