"""The identity of a plugin: what decides the code of the kernels that are made with it.

It covers the values of its rules, intrinsics and back ends (numbers that a function closes over, arguments of a
``partial``, fields of objects, defaults, constants that functions read from their modules), the source of the packages
that define them, and the state of the files of the packages that these import.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from importlib.util import find_spec
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from weft.ir.structural import structural_hash
from weft.plugins.plugin import Plugin
from weft.tir.nodes import Program

_SHIPPED: Final = frozenset(("weft", "numpy", *sys.stdlib_module_names))
_REPRESENTATIONS: Final = ("weft.expr", "weft.tir", "weft.tensor_expr", "weft.graph")
"""Packages whose objects the source of a plugin makes: they count by their type."""
_PLAIN: Final = (str, bytes, int, float, complex, type(None), Enum, PurePath, np.generic, np.dtype, slice)
_IMPORT: Final = re.compile(r"^[ \t]*(?:from[ \t]+(\w+)|import[ \t]+([^\n#;]+))", re.MULTILINE)
MAX_FOLLOWED_BYTES: Final = 4 << 20
"""A package with more source is not searched for what it imports, as such packages are released as a whole."""


def identity(plugin: Plugin) -> str | None:
    """A hash of name, version, values and source, part of the key of kernels made with the plugin. None if a change
    could not be detected: the source of some of its code is not in a file (a notebook, ``exec``), or one of its values
    has parts that Python does not show."""
    walk = _Walk()
    walk.say(plugin.name, plugin.version)
    try:
        walk.value((plugin.schedule_rules, plugin.intrinsics, plugin.backends))
    except RecursionError:
        return None
    own = walk.own - _SHIPPED
    named = own | (walk.helpers - _SHIPPED)
    if not walk.is_complete or "__main__" in named or not all(map(_files, named)):
        return None
    helpers = set(walk.helpers)
    for top in sorted(own):
        for path in _files(top):
            content = path.read_bytes()
            walk.say(path.name, content)
            if path.suffix == ".py":
                helpers |= _imported(content)
    for top, helper_files in sorted(_helpers(helpers - own).items()):
        for path in helper_files:
            state = path.stat()
            walk.say(top, path.name, state.st_size, state.st_mtime_ns)
    return walk.digest.hexdigest()


# ---- values ----------------------------------------------------------------------------------------------------------


class _Walk:
    """Looks at all that a value consists of. ``own`` are the packages that define its parts, ``helpers`` those that its
    functions name."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        self.own: set[str] = set()
        self.helpers: set[str] = set()
        self.is_complete = True
        self._found = self.own
        self._seen: dict[int, tuple[int, object]] = {}
        """By the address of an object: its number, and the object, which so stays where it is."""

    def say(self, *words: object) -> None:
        for word in words:
            text = word if isinstance(word, bytes) else str(word).encode(errors="surrogatepass")
            self.digest.update(len(text).to_bytes(8, "little") + text)

    def value(self, one: Any) -> None:
        if isinstance(one, _PLAIN):
            self.say(type(one).__name__, one if isinstance(one, bytes) else repr(one))
            return
        if id(one) in self._seen:
            self.say("again", self._seen[id(one)][0])
            return
        self._seen[id(one)] = len(self._seen), one
        if isinstance(one, FunctionType):
            self._function(one)
        elif isinstance(one, MethodType):
            self._parts("method", (one.__func__, one.__self__))
        elif isinstance(one, partial):
            self._parts("partial", (one.func, one.args, one.keywords))
        elif isinstance(one, (tuple, list)):
            self._parts(type(one).__name__, one)
        elif isinstance(one, (set, frozenset)):
            self._parts(type(one).__name__, sorted(one, key=repr))
        elif isinstance(one, Mapping):
            self._parts(type(one).__name__, (part for item in one.items() for part in item))
        elif isinstance(one, re.Pattern):
            self._parts("pattern", (one.pattern, one.flags))
        elif isinstance(one, np.ndarray):
            self._parts("array", (one.dtype, one.shape, one.tolist() if one.dtype.hasobject else one.tobytes()))
        elif isinstance(one, (type, BuiltinFunctionType, np.ufunc)):
            self._named(one)
        elif isinstance(one, ModuleType):
            self._package(one.__name__)
            self.say("module", one.__name__)
        elif hasattr(one, "__wrapped__"):  # functools.lru_cache and the like
            self._parts("wrapped", (one.__wrapped__,))
        elif isinstance(one, Program):
            self.say("program", structural_hash(one))
        else:
            self._object(one)

    def _parts(self, kind: str, parts: Iterable[Any]) -> None:
        self.say(kind)
        for part in parts:
            self.value(part)
        self.say("end")

    def _named(self, one: Any) -> None:
        self._package(getattr(one, "__module__", None))
        self.say("named", getattr(one, "__module__", ""), getattr(one, "__qualname__", repr(one)))

    def _object(self, one: Any) -> None:
        kind = type(one)
        self._package(kind.__module__)
        self.say("object", kind.__module__, kind.__qualname__)
        if kind.__module__.startswith(_REPRESENTATIONS) or kind is object:
            return
        found = dict(_fields(one))
        if not found and not is_dataclass(one) and not hasattr(one, "__dict__"):
            self.is_complete = False
        self._parts("fields", (part for name in sorted(found) for part in (name, found[name])))

    def _function(self, one: FunctionType) -> None:
        self._package(one.__module__)
        self.say("function", one.__module__, one.__qualname__)
        self._parts("defaults", (one.__defaults__, one.__kwdefaults__))
        self._parts("closure", (_content(cell) for cell in one.__closure__ or ()))
        if _top(one.__module__) in _SHIPPED:
            return
        names = self._code(one.__code__)
        for name in sorted(names & one.__globals__.keys()):
            self.say("global", name)
            self._global(one.__globals__[name])

    def _code(self, code: CodeType) -> set[str]:
        """The text of compiled code, without its place; the names that it uses."""
        self.say("code", code.co_code, code.co_names)
        names = set(code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                names |= self._code(constant)
            else:
                self.say(sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant))
        return names

    def _global(self, one: Any) -> None:
        """What a function reads from its module: functions, and constants whose value the source may not show."""
        before, self._found = self._found, self.helpers
        if (isinstance(one, FunctionType) and _top(one.__module__) not in _SHIPPED) or _is_constant(one):
            self.value(one)
        elif isinstance(one, ModuleType):
            self._package(one.__name__)
        else:
            kind = one if isinstance(one, (type, FunctionType)) else type(one)
            self._package(kind.__module__)
        self._found = before

    def _package(self, module: str | None) -> None:
        self._found.add(_top(module))


def _is_constant(one: Any, depth: int = 4) -> bool:
    if isinstance(one, (tuple, list, set, frozenset)):
        return depth > 0 and all(_is_constant(part, depth - 1) for part in one)
    if isinstance(one, dict):
        return depth > 0 and all(_is_constant(part, depth - 1) for item in one.items() for part in item)
    return isinstance(one, _PLAIN) or (isinstance(one, np.ndarray) and not one.dtype.hasobject)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a function that calls itself, not yet defined
        return None


def _fields(one: Any) -> Iterator[tuple[str, Any]]:
    """The state of an object by name, without caches: fields that do not count in comparisons."""
    if is_dataclass(one):
        yield from ((f.name, getattr(one, f.name)) for f in fields(one) if f.compare and hasattr(one, f.name))
        return
    yield from getattr(one, "__dict__", {}).items()
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__weakref__", "__dict__") and hasattr(one, name):
                yield name, getattr(one, name)


# ---- files -----------------------------------------------------------------------------------------------------------


def _top(module: str | None) -> str:
    return (module or "builtins").partition(".")[0]


def _files(top: str) -> list[Path]:
    """All sources of a package: a function that a rule calls may be defined in any of them."""
    loaded = sys.modules.get(top)
    places = [Path(p) for p in getattr(loaded, "__path__", ())]
    file = getattr(loaded, "__file__", None)
    if loaded is None:  # a function imports it when it is called
        try:
            spec = find_spec(top)
        except (ImportError, ValueError, AttributeError):
            spec = None
        if spec is not None:
            places, file = [Path(p) for p in spec.submodule_search_locations or ()], spec.origin
    if places:
        return sorted(f for place in places for f in place.rglob("*") if f.suffix in (".py", ".so", ".pyd"))
    return [Path(file)] if file is not None and Path(file).is_file() else []


def _helpers(tops: Iterable[str]) -> dict[str, list[Path]]:
    """The files of these packages and of what they import, without those that Weft needs anyway."""
    found: dict[str, list[Path]] = {}
    pending = set(tops)
    while pending:
        top = pending.pop()
        if top in found or top in _SHIPPED:
            continue
        found[top] = _files(top)
        if sum(f.stat().st_size for f in found[top]) <= MAX_FOLLOWED_BYTES:
            for path in found[top]:
                if path.suffix == ".py":
                    pending |= _imported(path.read_bytes())
    return found


def _imported(source: bytes) -> set[str]:
    """The packages that a source may import, anywhere in it."""
    found = set()
    for single, several in _IMPORT.findall(source.decode(errors="replace")):
        found |= {single} if single else {_top(part.split()[0]) for part in several.split(",") if part.split()}
    return {name for name in found if name.isidentifier()}
