"""Modules of PyTorch: Weft beside Inductor (with freezing) and eager PyTorch, latency and cold compilation.

    python -m benchmarks.torch_suite                                   # seven architectures, batch 1, two threads
    python -m benchmarks.torch_suite --models bert,resnet --batch 8 --json FILE

The architectures are those of ``transformers`` with random weights. All engines run in turns in this process, with a
pause in which the threads of the one before fall asleep; both compilers begin with empty caches. Run nothing else on
the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch._inductor.config
import transformers

import weft
from benchmarks.report import Table, tables_to_json

TURNS: Final = 15
RUNS: Final = 3
"""Of one engine in a turn."""
REST_SECONDS: Final = 0.05
COLUMNS: Final = (
    *("module", "weft ms", "inductor ms", "eager ms", "weft / inductor"),
    *("weft compiles s", "inductor compiles s", "ratio", "error"),
)
_LLAMA: Final = {
    "vocab_size": 4000, "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "use_cache": False,
}  # fmt: skip
_VIT: Final = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "intermediate_size": 1536}
MODULES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "bert": ("BertModel", {"num_hidden_layers": 4}),
    "gpt2": ("GPT2LMHeadModel", {"n_layer": 4, "use_cache": False}),
    "llama": ("LlamaForCausalLM", _LLAMA),
    "vit": ("ViTModel", _VIT),
    "resnet": ("ResNetModel", {}),
    "mobilenet": ("MobileNetV2Model", {}),
    "convnext": ("ConvNextModel", {}),
}
"""The class of ``transformers``, and what differs from its default configuration."""
OF_WORDS: Final = ("bert", "gpt2", "llama")


def made(name: str, batch: int) -> tuple[Any, tuple[Any, ...]]:
    """A module in inference mode with seeded weights, and its inputs."""
    torch.manual_seed(0)
    source, config = MODULES[name]
    kind = getattr(transformers, source)
    inputs = torch.randint(0, 1000, (batch, 128)) if name in OF_WORDS else torch.randn(batch, 3, 224, 224)
    return kind(kind.config_class(**config)).eval(), (inputs,)


def took(function: Callable[[], Any]) -> float:
    """The seconds of one call."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def row(name: str, batch: int, threads: int) -> tuple[Any, ...]:
    """One module."""
    module, inputs = made(name, batch)
    ours: list[Any] = []
    compiling = took(lambda: ours.append(weft.compile(module, example_inputs=inputs, threads=threads)))
    theirs = torch.compile(module)
    inductor = took(lambda: theirs(*inputs))
    engines = (lambda: ours[0](*inputs), lambda: theirs(*inputs), lambda: module(*inputs))
    times: list[list[float]] = [[], [], []]
    for turn in range(TURNS + 1):
        for engine, found in zip(engines, times, strict=True):
            time.sleep(REST_SECONDS)
            engine()
            seconds = statistics.median(took(engine) for _ in range(RUNS))
            if turn:
                found.append(seconds)
    found, wanted = ours[0](*inputs), module(*inputs)[0]
    first = torch.from_dlpack(found[0] if isinstance(found, tuple) else found)
    error = float((first - wanted).abs().max() / wanted.abs().max())
    medians = [1e3 * statistics.median(t) for t in times]
    numbers = *medians, medians[0] / medians[1], compiling, inductor, compiling / inductor
    print(name, *(f"{n:.3g}" for n in numbers), f"{error:.1e}", file=sys.stderr, flush=True)
    return name, *numbers, f"{error:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODULES), help="comma-separated")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, default=None, help="write the table as a record")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch._inductor.config.freezing = True
    warnings.simplefilter("ignore")  # what PyTorch says of its own parts
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "WEFT_CACHE_DIR": f"{folder}/weft"}
        rows = [row(name, given.batch, given.threads) for name in given.models.split(",")]
    speed, compiling = (statistics.geometric_mean([r[i] for r in rows]) for i in (4, 7))
    note = f"Geometric means: latency {speed:.3f}, compilation {compiling:.3f}. {given.threads} threads."
    table = Table(f"Modules of PyTorch, batch {given.batch}", COLUMNS, tuple(rows), note)
    print(table.plain())
    if given.json:
        given.json.write_text(tables_to_json([table]))


if __name__ == "__main__":
    main()
