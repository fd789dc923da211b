"""Every Python snippet of the documentation runs, in order, and prints what the page says it prints.

The ```python fences of one page share a namespace. A ```text fence right after one holds what it prints; ``…`` in it
stands for anything, a line of its own for any number of lines; indentation is not compared. A fence marked
```python no-run is not run.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from sample_models import images, random_input

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_PYTHON = {
    "cli.md": "commands, which test_command_page runs",
    "design.md": "the plan of the code",
    "operators.md": "generated, and compared with what is generated",
    "primitives.md": "generated, and compared with what is generated",
    "remote.md": "sessions with another machine, which tests/rpc holds",
    "rpc-protocol.md": "bytes, which tests/rpc holds",
    "semantics.md": "tables of differences, held by tests/conformance/test_disputed.py",
}
NEEDS = {"pytorch.md": "torch"}
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
_FENCE = re.compile(r"^```(\S*)([^\n]*)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Snippet:
    line: int
    code: str
    prints: str | None


def snippets(text: str) -> list[Snippet]:
    found: list[Snippet] = []
    fences = list(_FENCE.finditer(text))
    for fence, following in zip(fences, [*fences[1:], None], strict=False):
        if fence[1] != "python" or "no-run" in fence[2]:
            continue
        prints = None
        if following is not None and following[1] == "text" and not text[fence.end() : following.start()].strip():
            prints = following[3]
        found.append(Snippet(text[: fence.start()].count("\n") + 2, fence[3], prints))
    return found


def matches(wanted: str, got: str) -> bool:
    pattern = ""
    for line in _lines(wanted):
        if line == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*?".join(re.escape(part) for part in line.split("…")) + "\n"
    return re.fullmatch(pattern, "".join(line + "\n" for line in _lines(got))) is not None


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip("\n").split("\n")]


@pytest.mark.parametrize("page", [p for p in PAGES if p.exists()], ids=lambda p: p.name)
def test_snippets(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    parts = snippets(page.read_text())
    assert bool(parts) == (page.name not in WITHOUT_PYTHON), "list pages that show no Python, and only these"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    images(tmp_path / "model.onnx", batch="batch")  # pages may speak of a "model.onnx" and of its input "x"
    names: dict[str, object] = {"__name__": f"docs_{page.stem}", "x": random_input((1, 3, 16, 16))}
    for part in parts:
        out = io.StringIO()
        code = compile("\n" * (part.line - 1) + part.code, str(page), "exec", dont_inherit=True)
        with redirect_stdout(out):
            exec(code, names)
        if part.prints is not None:
            assert matches(part.prints, out.getvalue()), f"{page.name}:{part.line} prints\n{out.getvalue()}"


def test_expectations_can_fail() -> None:
    assert matches("a … c\n…\nend", "a b c\nx\ny\nend\n") and matches("one", "  one  \n") and matches("…\nend", "end\n")
    assert not matches("one", "two\n") and not matches("one", "one\ntwo\n") and not matches("a…b", "a\nb\n")
