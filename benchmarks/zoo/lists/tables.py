"""Graphs, point clouds, time series, recommendations, implicit functions, older nets for text."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.entry import Entry, Input, ids


def _net(name: str, family: str, source: str, *inputs: Input, sample: bool = False, **config: Any) -> Entry:
    return Entry(name, family, "nets", f"tables:{source}", inputs, config, sample)


def _series(name: str, source: str, *inputs: Input, **config: Any) -> Entry:
    return Entry(name, "time-series", "transformers", source, inputs, config)


_NODES = Input("x", (200, 32))
_EDGES = Input("edges", (2, 1000), "ids", 200)
_PAST = Input("past_values", (1, 64, 4))

TABLES = (
    _net("gcn", "graphs", "gcn", _NODES, _EDGES, sample=True),
    _net("gcn-open", "graphs", "gcn", Input("x", (200, 32), open={0: "nodes"}),
         Input("edges", (2, 1000), "ids", 200, {1: "edges"})),
    _net("gat", "graphs", "gat", _NODES, _EDGES),
    _net("graphsage", "graphs", "graphsage", Input("x", (4, 64, 32)), Input("adjacency", (4, 64, 64), "unit")),
    _net("pointnet", "point-clouds", "pointnet", Input("x", (1, 3, 512))),
    _net("dgcnn", "point-clouds", "dgcnn", Input("x", (1, 3, 256))),
    _net("dlrm", "recommenders", "dlrm", Input("numbers", (32, 13)), Input("categories", (32, 26), "ids", 1000)),
    _net("deepfm", "recommenders", "deepfm", Input("fields", (64, 20), "ids", 500)),
    _net("deepfm-open", "recommenders", "deepfm", Input("fields", (64, 20), "ids", 500, {0: "batch"})),
    _net("sasrec", "recommenders", "sasrec", ids(50, 20000, "bought")),
    _net("nbeats", "time-series", "nbeats", Input("x", (8, 96))),
    _net("dlinear", "time-series", "dlinear", Input("x", (8, 7, 96))),
    _net("deepar", "time-series", "deepar", Input("x", (4, 48)), Input("series", (4,), "ids", 100)),
    _net("itransformer", "time-series", "itransformer", Input("x", (2, 96, 21))),
    _net("convlstm", "time-series", "convlstm", Input("frames", (1, 5, 1, 48, 48))),
    _net("nerf", "implicit", "nerf", Input("points", (64, 32, 3))),
    _net("seq2seq", "recurrent", "seq2seq", ids(20, 500, "text"), ids(6, 500, "written")),
    _net("lstm-words", "recurrent", "lstm_words", ids(32, 10000, "text"), sample=True),
    _net("textcnn", "recurrent", "textcnn", ids(60, 2000, "text")),
    _net("autoencoder", "anomalies", "autoencoder", Input("x", (1, 640))),
    _series("patchtst", "PatchTSTForPrediction", _PAST, num_input_channels=4, context_length=64, patch_length=8,
            patch_stride=8, d_model=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=128, prediction_length=16),
    _series("patchtsmixer", "PatchTSMixerForPrediction", _PAST, num_input_channels=4, context_length=64, patch_length=8,
            patch_stride=8, d_model=64, num_layers=2, prediction_length=16),
    _series("decision-transformer", "GPT2Model", ids(30, 100), vocab_size=100, n_embd=128, n_layer=2, n_head=4,
            use_cache=False),
)  # fmt: skip
