"""Names and paths in the pages exist: modules and attributes of Weft, files of the repository, headings in links."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "weft"
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")),
]
FOLDERS = (ROOT, PACKAGE)
"""Paths in pages are relative to the repository or to the package."""
SUFFIXES = "py|md|c|h|toml|txt|sh|yml"
"""Names with these endings are files, not dotted names."""
TOP = frozenset(p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()) - {
    "__init__",
    "target",
}
"""First names of modules; in pages ``target.…`` is an attribute of a target value, not of the package."""

_FENCE = re.compile(r"^(```|~~~).*?^\1$", re.M | re.S)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_DOTTED = re.compile(r"(?:[A-Za-z_]\w*)(?:\.[A-Za-z_]\w*)+")
_PATH = re.compile(r"[\w{},*-]+/[\w{},*./-]*")


def without_fences(text: str) -> str:
    """The text with blocks of code blanked; lines keep their numbers."""
    return _FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)


@cache
def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or a member of one: an attribute, a field of a class, a member of these."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return has_members(found, parts[end:])
    return False


def has_members(owner: object, names: list[str]) -> bool:
    for i, name in enumerate(names):
        if not hasattr(owner, name):  # fields without defaults are annotations only
            return i == len(names) - 1 and name in getattr(owner, "__annotations__", {})
        owner = getattr(owner, name)
    return True


def is_weft_name(text: str) -> str | None:
    """The full name, if the text is a dotted name of the package: ``weft.…``, or ``package.…`` for a module in it."""
    name = text.partition("(")[0].strip()
    if not _DOTTED.fullmatch(name) or re.search(rf"\.(?:{SUFFIXES})$", name):
        return None
    first = name.split(".")[0]
    return name if first == "weft" else f"weft.{name}" if first in TOP else None


def path_exists(text: str) -> bool:
    """Whether a path, in which ``*`` and ``{a,b}`` stand for several, names files of the repository."""
    choice = re.search(r"\{([^{}]*)\}", text)
    if choice:
        return all(path_exists(text[: choice.start()] + one + text[choice.end() :]) for one in choice[1].split(","))
    return any(next(folder.glob(text.rstrip("/")), None) is not None for folder in FOLDERS)


def is_repository_path(text: str) -> bool:
    """Whether the text is a path with a folder that the repository or the package has."""
    return bool(_PATH.fullmatch(text)) and any((folder / text.split("/")[0]).is_dir() for folder in FOLDERS)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    titles = re.findall(r"^#+ +(.+)$", without_fences(page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", t.lower()).strip().replace(" ", "-") for t in titles}


def problems(page: Path, text: str) -> list[str]:
    """What the text names that does not exist, with its line."""
    found = []
    for number, line in enumerate(without_fences(text).split("\n"), 1):
        for code in _CODE.findall(line):
            name = is_weft_name(code)
            if name is not None and not resolves(name):
                found.append(f"line {number}: there is no {name}")
            elif name is None and is_repository_path(code) and not path_exists(code):
                found.append(f"line {number}: there is no file {code}")
        for link in _LINK.findall(line):
            path, _, anchor = link.partition("#")
            if "://" in path:
                continue
            target = (page.parent / path).resolve() if path else page
            if not target.exists():
                found.append(f"line {number}: the link {link} leads nowhere")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                found.append(f"line {number}: {target.name} has no heading #{anchor}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names_and_paths_exist(page: Path) -> None:
    assert problems(page, page.read_text(encoding="utf-8")) == []


def test_wrong_names_are_found(tmp_path: Path) -> None:
    text = (
        "`graph.passes.chain`, `weft.Options(jobs=2)`, `te.scan`, `weft/tir/{text,nodes}.py`\n"
        "`graph.passes.no_such`\n```\n`weft.nothing`\n```\n`weft.tir.nodes.No` and `tests/none`, `weft/tir/no.py`\n"
        "[page](nowhere.md) [heading](#none)\n# Some heading\n[heading](#some-heading) [web](https://example.org/x.md)\n"
    )
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    found = [p.split(":")[0] for p in problems(page, text)]
    assert found == ["line 2", *["line 6"] * 3, *["line 7"] * 2]
