"""The codes of errors and what each says, read from the compiler's source."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

CODE = re.compile(r"[A-Z]\d{3}")
_SHOWN_BY_HAND = re.compile(r"error\[([A-Z]\d{3})\] ([^\"{]*)")
_SHOWN = 2
"""The page shows at most this many messages for a code."""


_PASS_ON = ("existing_file",)
"""Functions that take a code and raise the error themselves."""


@cache
def codes(source: Path) -> dict[str, list[str]]:
    """Each code that stands in ``source`` (a folder) with the messages that stand beside it, ``…`` for what varies."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                found.setdefault(node.value, [])
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update({code: [text or "…"] for code, text in _SHOWN_BY_HAND.findall(node.value)})
            for code, message in _pairs(node):
                if message not in found[code]:
                    found[code].append(message)
    return dict(sorted(found.items()))


def table(source: Path) -> str:
    """A table of Markdown."""
    rows = [f"| {code} | {' · '.join(m[:_SHOWN]) or '…'} |" for code, m in codes(source).items()]
    return "\n".join(["| code | says, for example |", "|---|---|", *rows]) + "\n"


def _pairs(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Codes and messages that stand in one call, or in a class with a code of its own."""
    if isinstance(node, ast.ClassDef):
        for line in node.body:
            if isinstance(line, ast.Assign) and _is(line.targets[0], "default_code") and _code(line.value):
                about = (ast.get_docstring(node) or "").partition("\n\n")[0]
                yield str(_code(line.value)), " ".join(about.split()).rstrip(".")
    if not isinstance(node, ast.Call) or (isinstance(node.func, ast.Name) and node.func.id in _PASS_ON):
        return
    operands = [*node.args, *(k.value for k in node.keywords if k.arg == "code")]
    code = next(filter(None, map(_code, operands)), None)
    message = next(filter(None, (_words(a) for a in node.args if not _code(a))), None)
    if code and message:
        yield code, message


def _is(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name


def _code(node: ast.expr) -> str | None:
    plain = isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value)
    return plain.string if plain else None


def _words(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    elif isinstance(node, ast.JoinedStr):
        text = "".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values)
    elif isinstance(node, ast.IfExp):
        return _words(node.body) or _words(node.orelse)
    elif isinstance(node, ast.BinOp):
        return " ".join(filter(None, (_words(node.left), _words(node.right)))) or None
    else:
        return None
    return re.sub(r"…+", "…", text.replace("|", "\\|").replace("\n", " ").replace("``", "`")) if " " in text else None
