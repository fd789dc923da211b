"""Graphs, point clouds, time series, recommendations, implicit functions."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def mlp(*sizes: int) -> nn.Sequential:
    """Dense layers with ReLU between them."""
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Gcn(nn.Module):
    """Graph convolutions over edges given as (2, edges): sums of neighbours, scaled by degrees."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(32, width), nn.Linear(width, width), nn.Linear(width, 8)])

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        degree = torch.ones(x.shape[0]).index_add(0, target, torch.ones(source.shape[0]))
        scale = degree.rsqrt()
        for i, layer in enumerate(self.layers):
            y = layer(x)
            sent = y[source] * (scale[source] * scale[target])[:, None]
            x = (y * (scale * scale)[:, None]).index_add(0, target, sent)
            x = F.relu(x) if i < 2 else x
        return x


def gcn(width: int = 64) -> nn.Module:
    return Gcn(width)


class Gat(nn.Module):
    """Graph attention on edges: a softmax over the edges that arrive at a node."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.project = nn.Linear(32, heads * width)
        self.left, self.right = nn.Parameter(torch.randn(heads, width)), nn.Parameter(torch.randn(heads, width))
        self.head = nn.Linear(heads * width, 8)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        y = self.project(x).unflatten(1, (self.heads, self.width))
        scores = F.leaky_relu((y * self.left).sum(-1)[source] + (y * self.right).sum(-1)[target], 0.2)
        index = target[:, None].expand(-1, self.heads)
        largest = torch.full((x.shape[0], self.heads), -1e30).scatter_reduce(0, index, scores, "amax")
        weight = torch.exp(scores - largest[target])
        total = torch.zeros(x.shape[0], self.heads).index_add(0, target, weight)
        weight = weight / (total[target] + 1e-9)
        gathered = torch.zeros(x.shape[0], self.heads, self.width).index_add(0, target, weight[..., None] * y[source])
        return self.head(F.elu(gathered.flatten(1)))


def gat(heads: int = 4, width: int = 16) -> nn.Module:
    return Gat(heads, width)


class DenseGraph(nn.Module):
    """GraphSAGE with a dense adjacency matrix, and the mean of all nodes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = nn.ModuleList([nn.Linear(32, width), nn.Linear(width, width)])
        self.others = nn.ModuleList([nn.Linear(32, width), nn.Linear(width, width)])
        self.head = nn.Linear(width, 8)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        weight = adjacency / adjacency.sum(-1, keepdim=True)
        for own, others in zip(self.own, self.others, strict=True):
            x = F.normalize(F.relu(own(x) + others(weight @ x)), dim=-1)
        return self.head(x.mean(1) * 10)


def graphsage(width: int = 64) -> nn.Module:
    return DenseGraph(width)


class PointNet(nn.Module):
    """Shared layers over points, a learned rotation, the maximum over all points."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rotate = nn.Sequential(nn.Conv1d(3, 32, 1), nn.ReLU(), nn.Conv1d(32, 64, 1), nn.ReLU())
        self.angles = nn.Linear(64, 9)
        self.points = nn.Sequential(
            nn.Conv1d(3, 64, 1),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Conv1d(64, width, 1),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )
        self.head = nn.Linear(width, 40)

    def forward(self, x: Tensor) -> Tensor:
        turn = self.angles(self.rotate(x).amax(2)).view(-1, 3, 3) + torch.eye(3)
        return self.head(self.points(turn @ x).amax(2))


def pointnet(width: int = 256) -> nn.Module:
    return PointNet(width)


class Neighbours(nn.Module):
    """DGCNN: edge convolutions over the nearest neighbours in feature space."""

    def __init__(self, nearest: int) -> None:
        super().__init__()
        self.nearest = nearest
        self.convs = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2 * a, b, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.2)) for a, b in ((3, 32), (32, 64))
        )
        self.head = nn.Linear(96, 40)

    def forward(self, x: Tensor) -> Tensor:
        levels = []
        for layer in self.convs:
            square = x.square().sum(1)
            distance = square[:, :, None] + square[:, None] - 2 * x.transpose(1, 2) @ x
            near = distance.topk(self.nearest, largest=False)[1]
            batch, channels, points = x.shape
            index = near.reshape(batch, 1, points * self.nearest).expand(-1, channels, -1)
            around = x.gather(2, index).view(batch, channels, points, self.nearest)
            centre = x[..., None].expand_as(around)
            x = layer(torch.cat([around - centre, centre], 1)).amax(-1)
            levels.append(x)
        return self.head(torch.cat(levels, 1).amax(2))


def dgcnn(nearest: int = 8) -> nn.Module:
    return Neighbours(nearest)


class Factor(nn.Module):
    """DLRM: embeddings of categories, products of all pairs, dense layers."""

    def __init__(self, categories: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(categories))
        self.bottom = mlp(13, 128, width)
        self.top = mlp(width + (categories + 1) * categories // 2, 128, 64, 1)
        pairs = torch.triu_indices(categories + 1, categories + 1, 1)
        self.register_buffer("pairs", pairs[0] * (categories + 1) + pairs[1])

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        dense = self.bottom(numbers)
        rows = torch.stack([dense, *(t(categories[:, i]) for i, t in enumerate(self.tables))], 1)
        products = (rows @ rows.transpose(1, 2)).flatten(1)[:, self.pairs]
        return self.top(torch.cat([dense, products], 1))


def dlrm(categories: int = 26, rows: int = 1000, width: int = 32) -> nn.Module:
    return Factor(categories, rows, width)


class DeepFm(nn.Module):
    """Factorization machine and dense layers over one table for all fields; DCN's cross layers beside them."""

    def __init__(self, fields: int, rows: int, width: int) -> None:
        super().__init__()
        self.table, self.bias = nn.Embedding(fields * rows, width), nn.Embedding(fields * rows, 1)
        self.register_buffer("offsets", torch.arange(fields) * rows)
        self.deep = mlp(fields * width, 128, 64, 1)
        self.cross = nn.ModuleList(nn.Linear(fields * width, fields * width) for _ in range(2))
        self.head = nn.Linear(fields * width, 1)

    def forward(self, fields: Tensor) -> Tensor:
        index = fields + self.offsets
        rows = self.table(index)
        pairs = 0.5 * (rows.sum(1).square() - rows.square().sum(1)).sum(1, keepdim=True)
        x = start = rows.flatten(1)
        for layer in self.cross:
            x = start * layer(x) + x
        return torch.sigmoid(0.02 * (self.bias(index).sum(1) + pairs + self.deep(start)) + self.head(x) * 0.05)


def deepfm(fields: int = 20, rows: int = 500, width: int = 16) -> nn.Module:
    return DeepFm(fields, rows, width)


class Sequential(nn.Module):
    """SASRec: causal self-attention over the items bought, scores of all items."""

    def __init__(self, items: int, width: int) -> None:
        super().__init__()
        self.items, self.places = nn.Embedding(items, width), nn.Embedding(50, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True, norm_first=True) for _ in range(2)
        )

    def forward(self, bought: Tensor) -> Tensor:
        x = self.items(bought) + self.places(torch.arange(bought.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(bought.shape[1])
        for layer in self.layers:
            x = layer(x, src_mask=mask)
        return x[:, -1] @ self.items.weight.T / 8


def sasrec(items: int = 20000, width: int = 64) -> nn.Module:
    return Sequential(items, width)


class Basis(nn.Module):
    """N-BEATS: stacks of dense blocks that explain what is left of the past and add to the forecast."""

    def __init__(self, past: int, future: int, width: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(mlp(past, width, width, width) for _ in range(blocks))
        self.back = nn.ModuleList(nn.Linear(width, past) for _ in range(blocks))
        self.ahead = nn.ModuleList(nn.Linear(width, future) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(1)
        for block, back, ahead in zip(self.blocks, self.back, self.ahead, strict=True):
            h = F.relu(block(x))
            x, total = x - back(h), total + ahead(h)
        return total


def nbeats(past: int = 96, future: int = 24, width: int = 128, blocks: int = 4) -> nn.Module:
    return Basis(past, future, width, blocks)


class Decompose(nn.Module):
    """DLinear: a moving average and what is left of it, each with a layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.trend, self.season = nn.Linear(96, 48), nn.Linear(96, 48)

    def forward(self, x: Tensor) -> Tensor:
        padded = torch.cat([x[..., :1].expand(-1, -1, 12), x, x[..., -1:].expand(-1, -1, 12)], -1)
        trend = F.avg_pool1d(padded, 25, 1)
        return self.trend(trend) + self.season(x - trend)


def dlinear() -> nn.Module:
    return Decompose()


class Recurrent(nn.Module):
    """DeepAR: embedding of the series beside its values, an LSTM, the parameters of a distribution."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.lstm = nn.LSTM(17, 96, 2, batch_first=True)
        self.mean, self.scale = nn.Linear(96, 1), nn.Linear(96, 1)

    def forward(self, x: Tensor, series: Tensor) -> tuple[Tensor, Tensor]:
        beside = self.embed(series)[:, None].expand(-1, x.shape[1], -1)
        h = self.lstm(torch.cat([x[..., None], beside], -1))[0]
        return self.mean(h), F.softplus(self.scale(h))


def deepar() -> nn.Module:
    return Recurrent()


class Inverted(nn.Module):
    """iTransformer: each series is a token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(96, 128), nn.Linear(128, 24)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(128, 4, 256, 0.0, F.gelu, batch_first=True) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        scale = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        y = self.embed(((x - mean) / scale).transpose(1, 2))
        for layer in self.layers:
            y = layer(y)
        return self.head(y).transpose(1, 2) * scale + mean


def itransformer() -> nn.Module:
    return Inverted()


class Radiance(nn.Module):
    """NeRF: sines of positions, dense layers with a skip, colour and density summed along rays."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = mlp(63, width, width, width), mlp(width + 63, width, width)
        self.density, self.colour = nn.Linear(width, 1), mlp(width, width // 2, 3)

    def forward(self, points: Tensor) -> Tensor:
        turned = points[..., None] * (2.0 ** torch.arange(10))
        encoded = torch.cat([points, torch.sin(turned).flatten(-2), torch.cos(turned).flatten(-2)], -1)
        h = F.relu(self.first(encoded))
        h = F.relu(self.second(torch.cat([h, encoded], -1)))
        opaque = 1 - torch.exp(-F.softplus(self.density(h)) * 0.1)
        clear = torch.log(1 - opaque + 1e-6)
        through = torch.exp(torch.cumsum(clear, 1) - clear)
        return (opaque * through * torch.sigmoid(self.colour(h))).sum(1)


def nerf(width: int = 128) -> nn.Module:
    return Radiance(width)


class Translate(nn.Module):
    """Seq2seq of 2015: bidirectional GRU, a decoder step by step with additive attention."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.source, self.target = nn.Embedding(500, width), nn.Embedding(500, width)
        self.encoder = nn.GRU(width, width, bidirectional=True, batch_first=True)
        self.keys, self.query, self.score = nn.Linear(2 * width, width), nn.Linear(width, width), nn.Linear(width, 1)
        self.cell, self.head = nn.GRUCell(3 * width, width), nn.Linear(width, 500)

    def forward(self, text: Tensor, written: Tensor) -> Tensor:
        states, last = self.encoder(self.source(text))
        h, keys, found = last[0], self.keys(states), []
        for i in range(self.steps):
            weight = self.score(torch.tanh(keys + self.query(h)[:, None])).softmax(1)
            h = self.cell(torch.cat([self.target(written[:, i]), (weight * states).sum(1)], 1), h)
            found.append(self.head(h))
        return torch.stack(found, 1)


def seq2seq(width: int = 96, steps: int = 6) -> nn.Module:
    return Translate(width, steps)


class Words(nn.Module):
    """A recurrent language model: embedding, LSTM, scores of all words."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True)

    def forward(self, text: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(text))[0])


def lstm_words(words: int = 10000, width: int = 128) -> nn.Module:
    return Words(words, width)


class Kernels(nn.Module):
    """TextCNN: convolutions of several widths over words, maxima over the text."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(2000, 64)
        self.convs = nn.ModuleList(nn.Conv1d(64, 48, k) for k in (2, 3, 4, 5))
        self.head = nn.Linear(4 * 48, 10)

    def forward(self, text: Tensor) -> Tensor:
        x = self.embed(text).transpose(1, 2)
        return self.head(torch.cat([F.relu(c(x)).amax(2) for c in self.convs], 1))


def textcnn() -> nn.Module:
    return Kernels()


class Cells(nn.Module):
    """ConvLSTM over frames, for rain in the next hour."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.width, self.steps = width, steps
        self.gates = nn.Conv2d(1 + width, 4 * width, 3, padding=1)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, frames: Tensor) -> Tensor:
        h = c = torch.zeros(frames.shape[0], self.width, *frames.shape[3:])
        for t in range(self.steps):
            i, f, o, g = self.gates(torch.cat([frames[:, t], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


def convlstm(width: int = 24, steps: int = 5) -> nn.Module:
    return Cells(width, steps)


def autoencoder(width: int = 256) -> nn.Module:
    """Anomaly detection: dense layers to eight numbers and back."""
    return nn.Sequential(
        *(
            m
            for a, b in ((640, width), (width, 64), (64, 8), (8, 64), (64, width))
            for m in (nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU())
        ),
        nn.Linear(width, 640),
    )
