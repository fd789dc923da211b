"""The metadata of artifacts: any JSON values, but fields that Weft reads have the form in which it writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from weft.runtime.program import ExecutableProgram
from weft.runtime.serialize import size_from_json
from weft.runtime.sizes import symbols_of

Test = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _list_of(test: Test) -> Test:
    return lambda value: isinstance(value, (list, tuple)) and all(map(test, value))


def _is_pair(value: Any) -> bool:
    return _list_of(_is_text)(value) and len(value) == 2


_FORMS: Final[Mapping[str, tuple[Test, str]]] = {
    "weft": (_is_text, "a text"),
    "model": (_is_text, "a text"),
    "precision": (_is_text, "a text"),
    "graphs": (_is_text, "a text"),
    "arena_bytes": (_is_count, "a number of bytes"),
    "largest_live_set": (_is_count, "a number of bytes"),
    "plugins": (_list_of(_is_pair), "a list of names and versions"),
    "in_process": (_list_of(_is_text), "a list of names"),
}
_FUNCTION: Final[Mapping[str, tuple[Test, str]]] = {
    "loops": (_is_text, "a text"),
    "scalars": (_list_of(_is_text), "a list of texts"),
    "notes": (_list_of(_is_text), "a list of texts"),
}


def metadata_of(value: Any, program: ExecutableProgram) -> dict[str, Any]:
    """The metadata ``value`` of an artifact with this program. Raises ValueError for a field of another form."""
    if not isinstance(value, dict):
        raise ValueError(f"the metadata is {_shown(value)}, not an object")
    _check(value, _FORMS)
    if "function" in value:
        _check_function(value["function"], program)
    return value


def _check(value: Mapping[str, Any], forms: Mapping[str, tuple[Test, str]]) -> None:
    for name, (test, what) in forms.items():
        if name in value and not test(value[name]):
            raise ValueError(f"'{name}' of the metadata is {_shown(value[name])}, not {what}")


def _shown(value: Any) -> str:
    return repr(str(value)[:40])


def _check_function(function: Any, program: ExecutableProgram) -> None:
    """A built function: its text, the order of its arguments, and for each size among them its name, its value by the
    sizes of the inputs (or None), and whether it is passed as an input of the program, after all others."""
    if not isinstance(function, dict) or any(name not in function for name in ("loops", "order", "sizes")):
        raise ValueError(f"the function in the metadata is {_shown(function)}")
    _check(function, _FUNCTION)
    order, sizes = function["order"], function["sizes"]
    if not _list_of(lambda e: _is_row(e, _is_text, _is_count))(order):
        raise ValueError(f"the order of arguments is {_shown(order)}")
    known = _list_of(lambda e: _is_row(e, _is_text, lambda v: _is_size(v, program), lambda v: isinstance(v, bool)))
    if not known(sizes):
        raise ValueError(f"the sizes among the arguments are {_shown(sizes)}")
    passed = sum(size[2] for size in sizes)
    counts = {"input": len(program.inputs) - passed, "output": len(program.outputs), "size": len(sizes)}
    if sorted(map(tuple, order)) != sorted((kind, i) for kind, count in counts.items() for i in range(count)):
        raise ValueError("the order of arguments does not fit the program")


def _is_row(value: Any, *tests: Test) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == len(tests)
        and all(test(part) for test, part in zip(tests, value, strict=True))
    )


def _is_size(value: Any, program: ExecutableProgram) -> bool:
    """Whether it is None, or a size over the symbols of the program."""
    if value is None:
        return True
    try:
        size = size_from_json(value)
    except ValueError:
        return False
    return bool(size) and symbols_of(size) <= set(program.symbols)
