"""What benchmarks give PyTorch's engines is traced as a whole, and the better setting of an engine counts."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import models_zoo as zoo
import pytest

from weft.bench import engines

torch: Any = pytest.importorskip("torch")
pytest.importorskip("transformers")


OFTEN = ("bert", "gpt2-decode", "lstm")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in OFTEN else pytest.mark.slow) for n in zoo.TRANSFORMERS]
)
def test_modules_have_no_graph_breaks(name: str) -> None:
    module, inputs, _, outputs = zoo._plain(name, "tiny")
    settings: Any = import_module("torch._dynamo.config")
    with torch.no_grad(), settings.patch(allow_rnn=True):  # as the engine of torch.compile sets it
        wanted = module(*inputs.values())
        found = torch.compile(module, backend="eager", fullgraph=True)(*inputs.values())
    torch._dynamo.reset()
    assert type(wanted) is type(found) is tuple and len(wanted) == len(found) == len(outputs)
    for a, b in zip(wanted, found, strict=True):
        torch.testing.assert_close(a, b)


def test_both_modes_of_inductor_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    def compiled(module: Any, mode: str, **_: Any) -> Any:
        tried.append(mode)
        return lambda x: time.sleep(0.02 if mode == "default" else 0.001) or mode

    monkeypatch.setattr(torch, "compile", compiled)
    run = engines._inductor(torch, torch.nn.Linear(2, 2), (torch.zeros(1, 2),))
    assert tried == ["default", "max-autotune"] and run() == "max-autotune"


def test_a_setting_that_does_not_run_leaves_the_other() -> None:
    def fails() -> Any:
        raise RuntimeError("no")

    def runs() -> Any:
        return [1]

    assert engines._fastest([fails, runs]) is runs
    with pytest.raises(RuntimeError, match="no"):
        engines._fastest([fails, fails])
