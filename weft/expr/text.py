"""Text of expressions.

    A[i, j + 1] * 0.5 + f32(k)        loads, literals, conversions
    select(i < n, x, 0.0)             also min, max, truncdiv, truncmod and all intrinsics as calls
    exp:f64(x)                        a call whose dtype is not what the table says, or of a plugin's intrinsic
    2i32, 1.5f16, inf_f16, true       literals; plain integers are INDEX, plain decimals float32
    ramp(i, 1, 8), broadcast(x, 8), shuffle(a, b, [0, 9]), A[ramp(0, 1, 8); mask]
    let(t0 = x * x, t1 = t0 + 1.0, t1 * t0)    shared parts, if writing them out would be long

A literal with no dtype next to an expression of another dtype takes that dtype. Precedence and associativity are
Python's, except that all comparisons associate to the left and ``==`` binds less than ``<``.
Parsing returns exactly the expression that was printed: nothing is folded.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from weft.expr.added import added, find
from weft.expr.intrinsic_table import INTRINSICS
from weft.expr.nodes import (
    BINARY,
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Shuffle,
    Source,
)
from weft.expr.printing import NOT_PRECEDENCE
from weft.expr.printing import ExprPrinter as ExprPrinter
from weft.expr.printing import literal as literal
from weft.expr.printing import to_text as to_text
from weft.ir.text import NAME, NUMBER, PUNCTUATION, Token, TokenStream, number_parts
from weft.support.dtypes import BOOL, FLOAT32, INDEX, DType
from weft.support.errors import UserError
from weft.support.words import did_you_mean

_CALLED: Final = {name for name, op in BINARY.items() if op.precedence == 0}
_INFIX: Final = {op.symbol: op for op in BINARY.values() if op.precedence > 0}

_CONTINUES_EXPRESSION: Final = frozenset({*_INFIX, "(", "["})
"""Tokens that may follow the first token of a longer expression."""

Scope = Mapping[str, Any]
"""Maps names to expressions and sources."""


@dataclass(slots=True)
class _Frame:
    """An open bracket: the parts collected inside it and what to build when it closes."""

    close: str
    finish: Callable[[list[Expr]], Expr] | None
    token: Token
    items: list[Expr] = field(default_factory=list)
    operands: list[Expr] = field(default_factory=list)
    operators: list[tuple[str, float, Token]] = field(default_factory=list)
    masked: bool = False


class ExprParser:
    """Parses expressions from a token stream; parsers of other packages use it for the expressions inside their text.

    ``scope`` resolves names. ``forms`` are calls with their own syntax: each gets this parser with
    the cursor after the opening bracket and must consume the closing one.
    """

    def __init__(
        self, tokens: TokenStream, scope: Scope, forms: Mapping[str, Callable[[ExprParser], Expr]] | None = None
    ) -> None:
        self.tokens, self.scope, self.forms = tokens, scope, forms or {}

    def parse(self) -> Expr:
        """The longest expression at the cursor. Nesting may be of any depth."""
        tokens = self.tokens
        alone = self._single()
        if alone is not None:
            return alone
        frames = [_Frame("", None, tokens.current)]
        while True:
            while not self._operand(frames):
                pass
            while True:
                frame = frames[-1]
                if self._operator(frame):
                    break
                value = self._reduce(frame, 0)
                if frame.finish is None and not frame.close:
                    return value
                frame.items.append(value)
                if tokens.accept(",") and not tokens.peek(frame.close):
                    break
                if frame.close == "]" and not frame.masked and tokens.accept(";"):
                    frame.masked = True
                    break
                self._close(frames)

    def _single(self) -> Expr | None:
        """Consume the expression at the cursor if it is one token, as most sizes and indices are."""
        token = self.tokens.current
        if self.tokens.ahead().text in _CONTINUES_EXPRESSION:
            return None
        if token.kind == NUMBER:
            return self._number(self.tokens.take())
        found = self.scope.get(token.text) if token.kind == NAME else None
        if isinstance(found, Expr):
            self.tokens.take()
            return found
        return None

    def index_list(self) -> list[Expr]:
        """Expressions up to and including a closing square bracket; the opening one is already consumed."""
        return self.tokens.listed(self.parse, "]")

    # Operands

    def _operand(self, frames: list[_Frame]) -> bool:
        """Consume one operand; False if only a prefix or an opening bracket was consumed."""
        tokens = self.tokens
        token = tokens.take()
        if token.kind == NUMBER:
            frames[-1].operands.append(self._number(token))
            return True
        if token.kind == NAME:
            return self._named(token, frames)
        if token.kind == PUNCTUATION:
            if token.text == "(":
                frames.append(_Frame(")", None, token))
                return False
            if token.text == "-":
                if tokens.peek_kind(NUMBER):
                    number = self._number(tokens.take())
                    frames[-1].operands.append(Const(-number.value, number.dtype))
                    return True
                frames[-1].operators.append(("neg", 7, token))
                return False
        tokens.fail(f"expected an expression, found {token.describe()}", token)

    def _named(self, token: Token, frames: list[_Frame]) -> bool:
        tokens, name = self.tokens, token.text
        frame = frames[-1]
        if name == "not":
            frame.operators.append(("not", NOT_PRECEDENCE, token))
            return False
        if name in ("true", "false"):
            frame.operands.append(Const(name == "true", BOOL))
            return True
        found = self.scope.get(name)
        if tokens.peek("["):
            if not isinstance(found, Source):
                sources = [key for key, value in self.scope.items() if isinstance(value, Source)]
                hint = did_you_mean(name, sources)
                tokens.fail(f"'{name}' is not a tensor or buffer here", token, hint=hint)
            bracket = tokens.take()
            return self._open(frames, _Frame("]", None, bracket), lambda f: self._load(found, f, token))
        if tokens.peek("(") or (found is None and tokens.peek(":") and tokens.ahead(2).text == "("):
            return self._called(token, frames)
        if found is None:
            tokens.fail(f"unknown name '{name}'", token, hint=did_you_mean(name, self.scope))
        if not isinstance(found, Expr):
            tokens.fail(f"'{name}' needs indices in square brackets", token)
        frame.operands.append(found)
        return True

    def _open(self, frames: list[_Frame], frame: _Frame, build: Callable[[_Frame], Expr]) -> bool:
        """Start a bracket with arguments; done at once if it is empty."""
        if self.tokens.accept(frame.close):
            frames[-1].operands.append(build(frame))
            return True
        frame.finish = lambda items: build(frame)
        frames.append(frame)
        return False

    def _called(self, token: Token, frames: list[_Frame]) -> bool:
        tokens, name = self.tokens, token.text
        dtype = None
        if tokens.accept(":"):
            dtype = self._dtype(tokens.take())
        bracket = tokens.expect("(")
        special = self.forms.get(name)
        if special is not None:
            frames[-1].operands.append(special(self))
            return True
        if name == "let":
            frames[-1].operands.append(self._let())
            return True
        if name in _TRAILING:
            frames[-1].operands.append(self._vector_form(name, token))
            return True
        return self._open(frames, _Frame(")", None, bracket), lambda f: self._call(name, dtype, f, token))

    def _let(self) -> Expr:
        tokens, outer = self.tokens, self.scope
        inner: dict[str, Expr] = {}
        self.scope = ChainMap(inner, outer)  # type: ignore[arg-type]  # ChainMap
        try:
            while tokens.peek_kind(NAME) and tokens.ahead().text == "=":
                name = tokens.name()
                tokens.expect("=")
                inner[name] = self.parse()
                tokens.expect(",")
            body = self.parse()
            tokens.expect(")")
            return body
        finally:
            self.scope = outer

    def _vector_form(self, name: str, token: Token) -> Expr:
        tokens = self.tokens
        parts: list[Expr] = []
        picks: list[int] = []
        while True:
            if tokens.accept("["):
                picks = tokens.listed(tokens.integer, "]")
            elif len(parts) == _TRAILING[name]:
                picks = [tokens.integer()]
            else:
                parts.append(self.parse())
            if not tokens.accept(","):
                break
        tokens.expect(")")
        if name == "ramp" and len(parts) == 2 and len(picks) == 1:
            return Ramp(parts[0], self._adopt(parts[1], parts[0], token), picks[0])
        if name == "broadcast" and len(parts) == 1 and len(picks) == 1:
            return Broadcast(parts[0], picks[0])
        if name == "shuffle" and parts:
            return Shuffle(tuple(parts), tuple(picks))
        tokens.fail(f"malformed {name}", token)

    def _dtype(self, token: Token) -> DType:
        try:
            return DType(token.text)
        except UserError as error:
            self.tokens.fail(f"unknown dtype '{token.text}'", token, hint=error.hint)

    def _number(self, token: Token) -> Const:
        if token.text.isdigit():
            return _whole(token.text)
        value, suffix = number_parts(token.text)
        if suffix is not None:
            return Const(value, self._dtype(token._replace(text=suffix)))
        return Const(value, INDEX if isinstance(value, int) else FLOAT32)

    # Operators

    def _operator(self, frame: _Frame) -> bool:
        """Consume an infix operator if there is one."""
        token = self.tokens.current
        op = _INFIX.get(token.text) if token.kind in (PUNCTUATION, NAME) else None
        if op is None:
            return False
        self.tokens.take()
        value = self._reduce(frame, op.precedence)
        frame.operands.append(value)
        frame.operators.append((op.name, op.precedence, token))
        return True

    def _reduce(self, frame: _Frame, level: float) -> Expr:
        """Apply the pending operators that bind at least as tightly as ``level``."""
        operands, operators = frame.operands, frame.operators
        right = operands.pop()
        while operators and operators[-1][1] >= level:
            name, _, token = operators.pop()
            if name == "neg":
                right = Binary("sub", Const(-0.0 if right.dtype.is_float else 0, right.dtype), right)
            elif name == "not":
                right = Not(right)
            else:
                right = self._binary(name, operands.pop(), right, token)
        return right

    def _binary(self, name: str, a: Expr, b: Expr, token: Token) -> Expr:
        a, b = self._agree(a, b, token)
        if a.lanes != b.lanes:
            self.tokens.fail(f"a side has {a.lanes} lanes, the other {b.lanes}", token, hint="use broadcast")
        return Binary(name, a, b)

    def _agree(self, a: Expr, b: Expr, token: Token) -> tuple[Expr, Expr]:
        if a.dtype == b.dtype:
            return a, b
        if isinstance(a, Const) and a.dtype in (INDEX, FLOAT32):
            return self._adopt(a, b, token), b
        return a, self._adopt(b, a, token)

    def _adopt(self, value: Expr, partner: Expr, token: Token) -> Expr:
        """A plain literal with the dtype of its partner."""
        to = partner.dtype
        if value.dtype == to:
            return value
        if isinstance(value, Const) and (value.dtype == INDEX or (value.dtype == FLOAT32 and to.is_float)):
            return Const(value.value, to)
        self.tokens.fail(f"the sides have dtypes {value.dtype} and {to}", token, hint=f"convert with {to.short}(…)")

    # Closing brackets

    def _close(self, frames: list[_Frame]) -> None:
        frame = frames.pop()
        self.tokens.expect(frame.close)
        if frame.finish is None:
            if len(frame.items) != 1:
                self.tokens.fail("expected one expression in the brackets", frame.token)
            frames[-1].operands.append(frame.items[0])
        else:
            frames[-1].operands.append(frame.finish(frame.items))

    def _load(self, source: Source, frame: _Frame, token: Token) -> Expr:
        mask = frame.items.pop() if frame.masked else None
        if len(frame.items) != len(source.shape):
            self.tokens.fail(f"'{token.text}' has {len(source.shape)} dimensions, not {len(frame.items)}", token)
        return Load(source, tuple(frame.items), mask)

    def _call(self, name: str, dtype: DType | None, frame: _Frame, token: Token) -> Expr:
        args = frame.items
        if name == "select" and len(args) == 3:
            return Select(args[0], *self._agree(args[1], args[2], token))
        if name in _CALLED and len(args) == 2:
            return self._binary(name, args[0], args[1], token)
        row = find(name)
        if row is not None and row.arity == len(args):
            made = dtype or (row.result([a.dtype for a in args]) if row.result is not None and args else None)
            if made is None:
                self.tokens.fail(f"the call must say its dtype, as in {name}:f32(…)", token)
            return Call(name, tuple(args), made)
        if row is None and dtype is not None:  # of a plugin that is not used here
            return Call(name, tuple(args), dtype)
        known = row is not None or name == "select" or name in _CALLED
        if not known and len(args) == 1:
            with suppress(UserError):
                return Cast(args[0], DType(name))
        if known:
            self.tokens.fail(f"'{name}' does not take {len(args)} arguments", token)
        functions = ("select", *_CALLED, *INTRINSICS, *added())
        self.tokens.fail(f"unknown function '{name}'", token, hint=did_you_mean(name, functions))


@lru_cache(maxsize=512)
def _whole(digits: str) -> Const:
    """A plain integer; programs repeat few of them often."""
    return Const(int(digits), INDEX)


_TRAILING: Final = {"ramp": 2, "broadcast": 1, "shuffle": 1 << 30}
"""Vector forms: how many expressions come before the integers."""


def parse(text: str, scope: Scope) -> Expr:
    """The expression that ``text`` describes, with names resolved by ``scope``. Raises ParseError."""
    tokens = TokenStream(text)
    made = ExprParser(tokens, scope).parse()
    tokens.finish()
    return made
