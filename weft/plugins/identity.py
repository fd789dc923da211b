"""The identity of a plugin: its name, its version and the source of its code."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from weft.plugins.plugin import Plugin

_SHIPPED = ("weft", "numpy", *sys.stdlib_module_names)


def identity(plugin: Plugin) -> str | None:
    """A hash of name, version and source, part of the key of kernels made with the plugin. None if the source of some
    of its code is not in a file (a notebook, ``exec``): then a change could not be detected."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{plugin.name}\0{plugin.version}\0".encode())
    for module in sorted(set(_modules(plugin))):
        top = module.partition(".")[0]
        if top in _SHIPPED:
            continue
        files = _files(top)
        if not files or module == "__main__":
            return None
        for path in files:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _files(top: str) -> list[Path]:
    """All sources of a package: a function that a rule calls may be defined in any of them."""
    loaded = sys.modules.get(top)
    places = [Path(p) for p in getattr(loaded, "__path__", ())]
    if places:
        return sorted(f for place in places for f in place.rglob("*.py"))
    file = getattr(loaded, "__file__", None)
    return [Path(file)] if file is not None and Path(file).is_file() else []


def _modules(value: Any) -> Iterator[str]:
    """The names of the modules in which the functions and classes of a plugin's values are defined."""
    pending, seen = [value], set()
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, MethodType):
            pending += [one.__func__, one.__self__]
        elif isinstance(one, FunctionType):
            yield one.__module__
            pending += [c.cell_contents for c in one.__closure__ or () if _is_filled(c)]
        elif isinstance(one, (tuple, list, set, frozenset)):
            pending.extend(one)
        elif isinstance(one, dict):
            pending.extend(one.values())
        elif not isinstance(one, (str, bytes, int, float, type(None), type)):
            yield type(one).__module__
            pending += _parts(one)


def _is_filled(cell: Any) -> bool:
    try:
        return bool(cell.cell_contents is not None)
    except ValueError:  # a function that calls itself, not yet defined
        return False


def _parts(one: Any) -> list[Any]:
    if is_dataclass(one):
        return [getattr(one, f.name) for f in fields(one)]
    if hasattr(one, "func") and hasattr(one, "args"):  # functools.partial
        return [one.func, one.args, one.keywords]
    return list(vars(one).values()) if hasattr(one, "__dict__") else []
