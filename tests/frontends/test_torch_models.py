"""Whole modules of PyTorch: open sizes, files, what is refused, and compiled code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.cli.main import main
from weft.frontends.common.problems import ModelProblems
from weft.graph import interpret
from weft.support.errors import InputError, ModelError, UserError

torch = pytest.importorskip("torch")
N, F = torch.nn, torch.nn.functional


def close(found: Any, wanted: Any, atol: float = 2e-5) -> None:
    np.testing.assert_allclose(np.asarray(found), wanted.detach().numpy(), rtol=1e-4, atol=atol)


class Block(N.Module):  # type: ignore[misc]  # torch has no types here
    """A residual block with what convolutional nets have."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = N.Conv2d(3, 8, 3, padding=1), N.BatchNorm2d(8)
        self.second = N.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = N.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norm(self.first(x)))
        y = F.silu(self.second(y)) + y
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))


class Decoder(N.Module):  # type: ignore[misc]  # torch has no types here
    """Attention with a causal mask, positions, gated activations and a tied embedding."""

    def __init__(self, width: int = 16, heads: int = 2, words: int = 30) -> None:
        super().__init__()
        self.heads, self.words = heads, N.Embedding(words, width)
        self.norm, self.qkv, self.out = N.RMSNorm(width), N.Linear(width, 3 * width, bias=False), N.Linear(width, width)
        self.gate, self.up, self.down = N.Linear(width, 24), N.Linear(width, 24), N.Linear(24, width)

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens)
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        steps = torch.arange(length)[:, None] * torch.arange(1, width // self.heads + 1)
        q, k = (t * torch.cos(steps * 0.1) for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(y)
        x = x + self.down(F.silu(self.gate(x)) * self.up(x))
        return F.linear(x, self.words.weight)


def test_a_convolutional_net_with_an_open_batch() -> None:
    torch.manual_seed(0)
    module = Block().eval()
    x = torch.randn(2, 3, 9, 11)
    exe = weft.compile(module, example_inputs=(x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for batch in (1, 2, 5):
        x = torch.randn(batch, 3, 9, 11)
        close(exe(x.numpy()), module(x))
        close(exe(x), module(x))  # a tensor of PyTorch is an input, too


def test_a_decoder_with_open_sizes() -> None:
    torch.manual_seed(0)
    module = Decoder().eval()
    tokens = torch.randint(0, 30, (2, 7))
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=64)}
    graph = weft.load(module, example_inputs=(tokens,), dynamic_shapes=(sizes,))
    exe = weft.compile(graph)
    for shape in ((2, 7), (1, 1), (3, 20)):
        tokens = torch.randint(0, 30, shape)
        close(interpret.run(graph, [tokens.numpy()]), module(tokens))
        close(exe(tokens.numpy()), module(tokens))
    with pytest.raises(InputError, match="must be at most 64"):
        exe(np.zeros((1, 65), np.int64))
    weights = {id(c.data) for c in constants(graph) if c.data.shape == (30, 16)}
    assert len(weights) == 1, "the embedding and the last product share their weight"


def constants(graph: Any) -> list[Any]:
    from weft.graph.nodes import Constant
    from weft.graph.visit import post_order

    return [e for e in post_order(graph.main.body) if isinstance(e, Constant)]


def test_files_and_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    module, x = Block().eval(), torch.randn(1, 3, 8, 8)
    program = torch.export.export(module, (x,))
    path = tmp_path / "block.pt2"
    torch.export.save(program, path)
    for model in (path, str(path), program):
        close(weft.compile(model)(x.numpy()), module(x))
    main(["compile", str(path), "-o", str(tmp_path / "block.weft")])
    assert "block.weft" in capsys.readouterr().out
    close(weft.load_executable(tmp_path / "block.weft")(x.numpy()), module(x))


def test_arguments_by_name_and_nested_ones() -> None:
    class Named(N.Module):  # type: ignore[misc]  # torch has no types here
        def forward(self, pair: Any, *, scale: Any) -> Any:
            return {"sum": (pair[0] + pair[1]) * scale["by"], "first": pair[0]}

    pair, by = (torch.randn(2, 3), torch.randn(3)), torch.randn(3)
    program = torch.export.export(Named(), (pair,), {"scale": {"by": by}})
    graph = weft.load(program)
    assert [p.name for p in graph.main.params] == ["pair_0", "pair_1", "scale_by"]
    found = interpret.run(graph, [t.numpy() for t in (*pair, by)])
    close(found[0], (pair[0] + pair[1]) * by)
    close(found[1], pair[0])


def test_sizes_are_fixed_by_name() -> None:
    module, x = Block().eval(), torch.randn(2, 3, 8, 8)
    dynamic = ({0: torch.export.Dim("batch")},)
    graph = weft.load(module, example_inputs=(x,), dynamic_shapes=dynamic, shapes={"x_0": 4})
    assert graph.main.params[0].tensor.shape == (4, 3, 8, 8)
    with pytest.raises(UserError, match="has no open size 'batch'") as error:
        weft.load(module, example_inputs=(x,), dynamic_shapes=dynamic, shapes={"batch": 4})
    assert error.value.code == "T020" and "x_0" in str(error.value)


def test_bfloat16_weights() -> None:
    module, x = N.Linear(8, 4).bfloat16(), torch.randn(3, 8).bfloat16()
    graph = weft.load(module, example_inputs=(x,))
    (found,) = [interpret.run(graph, [x.view(torch.int16).numpy().view("bfloat16")])]
    np.testing.assert_allclose(found.astype(np.float32), module(x).float().detach().numpy(), rtol=2e-2, atol=2e-2)


class Counting(N.Module):  # type: ignore[misc]  # torch has no types here
    """Changes a buffer with every run."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        return x + self.calls


class Unknown(N.Module):  # type: ignore[misc]  # torch has no types here
    """Has operators without a converter."""

    def forward(self, x: Any) -> Any:
        return torch.cummax(x, 0)[0] + torch.special.i0(x)


class Branching(N.Module):  # type: ignore[misc]  # torch has no types here
    """Decides by data."""

    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x


def test_what_is_refused_says_why(tmp_path: Path) -> None:
    x = torch.randn(3, 3)
    with pytest.raises(ModelProblems, match="changes 1 buffer of the module: 'calls'"):
        weft.load(Counting(), example_inputs=(x,))
    with pytest.raises(ModelProblems) as found:
        weft.load(Unknown(), example_inputs=(x,))
    assert set(found.value.unsupported) == {"cummax", "i0"}
    with pytest.raises(ModelError, match="cannot be exported") as error:
        weft.load(Branching(), example_inputs=(x,))
    assert error.value.code == "M005" and error.value.hint
    with pytest.raises(UserError, match="exported with example inputs") as missing:
        weft.compile(Block())
    assert missing.value.code == "I040"
    (tmp_path / "broken.pt2").write_bytes(b"PK\x03\x04 no program")
    with pytest.raises(ModelError, match=r"broken.pt2' cannot be read") as broken:
        weft.load(tmp_path / "broken.pt2")
    assert broken.value.code == "M002"
    with pytest.raises(UserError, match="are for modules"):
        weft.load(torch.export.export(Block().eval(), (torch.randn(1, 3, 8, 8),)), example_inputs=(x,))
    with pytest.raises(ModelProblems, match="training mode"):
        weft.load(N.Sequential(N.Linear(3, 3), N.Dropout()).train(), example_inputs=(x,))


def test_sizes_that_data_decide() -> None:
    class Chosen(N.Module):  # type: ignore[misc]  # torch has no types here
        def forward(self, x: Any, keep: Any) -> Any:
            return (x[keep] * 2).sum(0), x[keep].shape[0] + torch.zeros((), dtype=torch.int64)

    module, x = Chosen(), torch.randn(6, 4)
    keep = torch.tensor([True, False, True, True, False, False])
    graph = weft.load(module, example_inputs=(x, keep))
    exe = weft.compile(graph)
    for chosen in (keep, ~keep, torch.ones(6, dtype=torch.bool)):
        total, count = exe(x.numpy(), chosen.numpy())
        wanted = module(x, chosen)
        close(total, wanted[0])
        assert np.asarray(count) == wanted[1].numpy()


ARCHITECTURES = ["bert", "gpt2", "llama", "t5-encoder", "vit", "mobilenet", "resnet"]


def architecture(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A small model of a kind that people have, with seeded weights, and its inputs."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    tokens = torch.randint(0, 50, (2, 9))
    if name == "bert":
        config = transformers.BertConfig(
            vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48
        )
        return transformers.BertModel(config), (tokens,)
    if name == "gpt2":
        config = transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=2, use_cache=False)
        return transformers.GPT2LMHeadModel(config), (tokens,)
    if name == "llama":
        config = transformers.LlamaConfig(
            vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, use_cache=False,
        )  # fmt: skip
        return transformers.LlamaForCausalLM(config), (tokens,)
    if name == "t5-encoder":
        config = transformers.T5Config(vocab_size=50, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
        return transformers.T5EncoderModel(config), (tokens,)
    pictures = (torch.randn(1, 3, 32, 32),)
    if name == "vit":
        config = transformers.ViTConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=48,
            image_size=32,
            patch_size=8,
        )
        return transformers.ViTModel(config), pictures
    if name == "mobilenet":
        return transformers.MobileNetV2Model(transformers.MobileNetV2Config(depth_multiplier=0.35)), pictures
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    return transformers.ResNetModel(config), pictures


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures(name: str) -> None:
    module, inputs = architecture(name)
    module = module.eval()
    exe = weft.compile(module, example_inputs=inputs)
    found = exe(*(x.numpy() for x in inputs))
    made = module(*inputs)
    close(found[0] if isinstance(found, tuple) else found, made[0], atol=1e-4)
