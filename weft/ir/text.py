"""The text kit: what the printers and parsers of all intermediate representations are made of.

Text of Weft consists of names (``conv.out``), sigil names (``%x``, ``@main``; only where the parser asks for them),
numbers with an optional dtype (``3``, ``1.5``, ``2i32``, ``inf_f16``), strings in JSON notation, punctuation, and
comments from ``#`` to the end of the line. Ends of lines are ignored, unless the parser asks for ``layout``: it then
gets ``newline``, ``indent`` and ``dedent`` tokens as in Python.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple, NoReturn, TypeVar

from weft.support.errors import Location, ParseError

T = TypeVar("T")

NAME: Final = "name"
NUMBER: Final = "number"
STRING: Final = "string"
PUNCTUATION: Final = "punctuation"
SIGIL: Final = "sigil"
NEWLINE: Final = "newline"
INDENT: Final = "indent"
DEDENT: Final = "dedent"
END: Final = "end"

_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*"
_SUFFIX = r"(?:[iu][0-9]+|bf16|f[0-9]+(?:e[0-9]m[0-9][a-z]*)?)"
_DIGITS = r"[0-9]+(?:\.(?!\.)[0-9]*)?(?:[eE][+-]?[0-9]+)?"
_SIGIL = r"(?P<sigil>[%@][A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*)"


def _tokens(extra: str) -> re.Pattern[str]:
    return re.compile(
        rf"""
        [ \t\r]*(?:
          (?P<newline>\n)
        | (?P<number>{_DIGITS}{_SUFFIX}?(?![A-Za-z0-9_])|(?:inf|nan)(?:_{_SUFFIX})?(?![A-Za-z0-9_.(\[]))
        | (?P<name>{_IDENTIFIER})
        | (?P<string>"(?:[^"\\\n]|\\.)*")
        {extra}
        | (?P<punctuation>\.\.\.|\.\.|->|=>|:=|==|!=|<=|>=|//|::|[-+*/%<>=()\[\]{{}},;:.@|&!?^~$'])
        | (?P<nothing>\#[^\n]*|\Z)
        )""",
        re.VERBOSE,
    )


_PLAIN, _WITH_SIGILS = _tokens(""), _tokens(f"| {_SIGIL}")
_BLANKS = re.compile(r"[ \t\r]*")
_NUMBER_PARTS = re.compile(rf"(?P<value>inf|nan|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)_?(?P<suffix>{_SUFFIX})?")
_DEPTH: Final = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


class Token(NamedTuple):
    """A piece of text: ``kind`` is one of the constants above, ``start`` its offset in the source."""

    kind: str
    text: str
    start: int

    def describe(self) -> str:
        return {END: "the end of the text", NEWLINE: "the end of the line", INDENT: "an indented block"}.get(
            self.kind, "the end of the block" if self.kind == DEDENT else f"'{self.text}'"
        )


_token: Final[Callable[[tuple[str | None, str, int]], Token]] = partial(tuple.__new__, Token)


def _bad_character(source: str, position: int, file: str | None) -> NoReturn:
    if source[position] == '"':
        message = "this string has no end"
    elif source[position].isdigit():
        message = "this number is malformed"
    else:
        message = f"unexpected character '{source[position]}'"
    raise ParseError(message, code="P002", place=place_at(source, position, 1, file))


def place_at(source: str, position: int, length: int = 1, file: str | None = None) -> Location:
    """The place of ``source[position : position + length]``."""
    begin = source.rfind("\n", 0, position) + 1
    end = source.find("\n", begin)
    text = source[begin : len(source) if end < 0 else end]
    column = min(position - begin, len(text))
    line = source.count("\n", 0, begin) + 1
    return Location(file=file, line=line, text=text, column=column, length=max(1, min(length, len(text) - column)))


def tokenize(source: str, *, sigils: bool = False, layout: bool = False, file: str | None = None) -> list[Token]:
    """All tokens of ``source``, closed by one of kind ``end``.

    ``sigils``: ``%x`` and ``@x`` are one token (a free-standing ``%`` stays an operator). ``layout``: line ends and
    indentation are tokens, except inside brackets and on empty lines. Raises ParseError.
    """
    out: list[Token] = []
    levels, depth, fresh = [0], 0, True
    position, append = 0, out.append
    for found in (_WITH_SIGILS if sigils else _PLAIN).finditer(source):
        if found.start() != position:
            break
        kind, position = found.lastgroup, found.end()
        if kind == "newline":
            if layout and depth == 0 and not fresh:
                append(Token(NEWLINE, "\n", position - 1))
            fresh = depth == 0
        elif kind != "nothing":
            text = found[kind]  # type: ignore[index]  # one group always matches
            start = position - len(text)
            if layout and fresh:
                _indentation(source, start, levels, out, file)
            fresh = False
            if kind == PUNCTUATION:
                depth += _DEPTH.get(text, 0)
            append(_token((kind, text, start)))
    if (stop := len(source)) != position:
        _bad_character(source, position + len(_BLANKS.match(source, position)[0]), file)  # type: ignore[index]  # matches nothing too
    if layout:
        if not fresh:
            out.append(Token(NEWLINE, "", stop))
        out.extend(Token(DEDENT, "", stop) for _ in levels[1:])
    out.append(Token(END, "", stop))
    return out


def _indentation(source: str, position: int, levels: list[int], out: list[Token], file: str | None) -> None:
    column = position - (source.rfind("\n", 0, position) + 1)
    if column > levels[-1]:
        levels.append(column)
        out.append(Token(INDENT, "", position))
    while column < levels[-1]:
        levels.pop()
        out.append(Token(DEDENT, "", position))
    if column != levels[-1]:
        raise ParseError(
            "the indentation of this line matches no line before it",
            code="P003",
            place=place_at(source, position, 1, file),
        )


class TokenStream:
    """A cursor over the tokens of a text.

    The position is a plain index (``mark`` and ``reset``), so a parser can look ahead as far as it wants.
    """

    __slots__ = ("_at", "_tokens", "file", "source")

    def __init__(self, source: str, *, sigils: bool = False, layout: bool = False, file: str | None = None) -> None:
        self.source, self.file = source, file
        self._tokens = tokenize(source, sigils=sigils, layout=layout, file=file)
        self._at = 0

    @property
    def current(self) -> Token:
        """The next token, not yet taken."""
        return self._tokens[self._at]

    def ahead(self, count: int = 1) -> Token:
        """The token ``count`` places after the current one."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def mark(self) -> int:
        return self._at

    def reset(self, mark: int) -> None:
        self._at = mark

    def take(self) -> Token:
        """The current token; the cursor moves past it (never past the end)."""
        token = self._tokens[self._at]
        if token.kind != END:
            self._at += 1
        return token

    def peek(self, *texts: str) -> bool:
        """Whether the current token is a name, sigil or punctuation with one of these texts."""
        token = self._tokens[self._at]
        return token.text in texts and token.kind in (PUNCTUATION, NAME, SIGIL)

    def peek_kind(self, *kinds: str) -> bool:
        return self._tokens[self._at].kind in kinds

    def accept(self, *texts: str) -> Token | None:
        """The current token if it has one of these texts, taken; else None."""
        return self.take() if self.peek(*texts) else None

    def accept_kind(self, *kinds: str) -> Token | None:
        return self.take() if self._tokens[self._at].kind in kinds else None

    def expect(self, *texts: str) -> Token:
        """Take a token with one of these texts; ParseError if it is another."""
        if self.peek(*texts):
            return self.take()
        wanted = " or ".join(f"'{t}'" for t in texts)
        self.fail(f"expected {wanted}, found {self.current.describe()}")

    def expect_kind(self, *kinds: str) -> Token:
        if self._tokens[self._at].kind in kinds:
            return self.take()
        self.fail(f"expected a {' or a '.join(kinds)}, found {self.current.describe()}")

    def name(self) -> str:
        """Take a name."""
        return self.expect_kind(NAME).text

    def integer(self) -> int:
        """Take an integer with no dtype, possibly negative."""
        sign = -1 if self.accept("-") else 1
        token = self.expect_kind(NUMBER)
        value, dtype = number_parts(token.text)
        if dtype is not None or not isinstance(value, int):
            self.fail("expected a plain integer", token)
        return sign * value

    def string(self) -> str:
        """Take a string, its escapes resolved."""
        token = self.expect_kind(STRING)
        try:
            value = json.loads(token.text)
        except json.JSONDecodeError:
            self.fail("this string has an unknown escape", token)
        return str(value)

    def line(self) -> str:
        """The source from the cursor to the end of the line (or of brackets that are open there), as it stands."""
        start = self.current.start
        while (token := self.take()).kind not in (NEWLINE, END):
            pass
        return self.source[start : token.start]

    def listed(self, item: Callable[[], T], close: str, *, separator: str = ",") -> list[T]:
        """Items separated by commas up to and including ``close``; a trailing comma is allowed."""
        out: list[T] = []
        while not self.accept(close):
            out.append(item())
            if not self.accept(separator):
                self.expect(close)
                break
        return out

    def finish(self) -> None:
        """Raise ParseError unless the whole text is read."""
        while self.accept_kind(NEWLINE):
            pass
        if self.current.kind != END:
            self.fail(f"expected the end of the text, found {self.current.describe()}")

    def place(self, token: Token | None = None) -> Location:
        token = token or self.current
        return place_at(self.source, token.start, len(token.text), self.file)

    def fail(self, message: str, token: Token | None = None, *, hint: str | None = None) -> NoReturn:
        """Raise a ParseError that points at ``token``, or at the current one."""
        raise ParseError(message, place=self.place(token), hint=hint)


def number_parts(text: str) -> tuple[int | float, str | None]:
    """The value of a number token and the short name of its dtype, if it says one."""
    if text.isdigit():  # most numbers of a program
        return int(text), None
    found = _NUMBER_PARTS.fullmatch(text)
    assert found is not None, text
    value = found["value"]
    return (int(value) if value.isdigit() else float(value)), found["suffix"]


def quote(text: str) -> str:
    """``text`` as a string token."""
    return json.dumps(text)


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.]+")
_DOTS = re.compile(r"\.(?=\.|$)|^\.+")
_COUNTER = re.compile(r"_[0-9]+$")


def clean_name(hint: str) -> str:
    """``hint`` turned into a valid name."""
    made = _DOTS.sub("_", _NOT_IN_NAMES.sub("_", hint))
    if not made or not (made[0].isalpha() or made[0] == "_"):
        made = "_" + made
    return made


class Names:
    """Gives every object a unique name in the text: its own name, with a number where another object has it already."""

    __slots__ = ("_given", "_kept", "_next", "_taken")

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = {"inf", "nan", "true", "false", "not", "and", "or", *reserved}
        self._given: dict[int, str] = {}
        self._kept: list[object] = []  # ids stay valid only while the objects live
        self._next: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """A name that no object has yet, similar to ``hint``."""
        name = clean_name(hint)
        if name in self._taken or name.startswith(("inf_", "nan_")):
            base = _COUNTER.sub("", name)
            count = self._next.get(base, 0) + 1
            while (name := f"{base}_{count}") in self._taken:
                count += 1
            self._next[base] = count
        self._taken.add(name)
        return name

    def of(self, thing: object, hint: str | None = None) -> str:
        """The name of ``thing``. The first call makes it from ``hint``, or from ``thing.name``."""
        name = self._given.get(id(thing))
        if name is None:
            name = self.fresh(hint if hint is not None else str(getattr(thing, "name", "")))
            self._given[id(thing)] = name
            self._kept.append(thing)
        return name

    def set(self, thing: object, name: str) -> None:
        """Fix the name of ``thing`` (which must be free)."""
        self._taken.add(name)
        self._given[id(thing)] = name
        self._kept.append(thing)

    def __call__(self, thing: object) -> str:
        return self.of(thing)


class Printer:
    """Lines of text with indentation."""

    __slots__ = ("_indent", "_lines", "step")

    def __init__(self, step: str = "  ") -> None:
        self._lines: list[str] = []
        self._indent = 0
        self.step = step

    def line(self, text: str = "") -> None:
        self._lines.append(self.step * self._indent + text if text else "")

    def indent(self) -> None:
        self._indent += 1

    def dedent(self) -> None:
        self._indent -= 1

    @contextmanager
    def block(self, opening: str | None = None, closing: str | None = None) -> Iterator[None]:
        """Indent what is printed inside, between the lines ``opening`` and ``closing``."""
        if opening is not None:
            self.line(opening)
        self._indent += 1
        yield
        self._indent -= 1
        if closing is not None:
            self.line(closing)

    def text(self) -> str:
        """All lines, each with its line end."""
        return "".join(line + "\n" for line in self._lines)
