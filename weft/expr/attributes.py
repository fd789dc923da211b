"""Text of attribute values: none, true, false, numbers, strings, dtypes, lists, maps and expressions in parentheses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft.expr.nodes import Expr
from weft.ir.frozen import FrozenMap
from weft.ir.text import NUMBER, STRING, TokenStream, number_parts, quote
from weft.support.dtypes import DType
from weft.support.errors import InternalError, UserError


def value_text(value: Any, expr_text: Callable[[Expr], str]) -> str:
    """The text of an attribute's value. Raises InternalError for types that have none."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, DType):
        return value.short
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Expr):
        return f"({expr_text(value)})"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(value_text(v, expr_text) for v in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quote_key(k)} = {value_text(v, expr_text)}" for k, v in sorted(value.items())) + "}"
    raise InternalError(f"an attribute of type {type(value).__name__} cannot be printed")


def quote_key(key: str) -> str:
    """A key as a name, or as a string if it is not a valid name."""
    return key if key.isascii() and key.isidentifier() and not key.startswith(("inf", "nan")) else quote(key)


def parse_value(tokens: TokenStream, parse_expr: Callable[[], Expr]) -> Any:
    """The attribute value at the cursor; lists become tuples and maps FrozenMaps."""
    if tokens.peek_kind(STRING):
        return tokens.string()
    if tokens.accept("["):
        return tuple(tokens.listed(lambda: parse_value(tokens, parse_expr), "]"))
    if tokens.accept("{"):
        return parse_map(tokens, parse_expr)
    if tokens.accept("("):
        made = parse_expr()
        tokens.expect(")")
        return made
    negative = tokens.accept("-") is not None
    if tokens.peek_kind(NUMBER):
        token = tokens.take()
        number, dtype = number_parts(token.text)
        if dtype is not None:
            tokens.fail("expected a plain number", token, hint="write typed literals in parentheses")
        return -number if negative else number
    for word, meaning in (("none", None), ("true", True), ("false", False)):
        if tokens.accept(word):
            return meaning
    return parse_dtype(tokens)


def parse_map(tokens: TokenStream, parse_expr: Callable[[], Expr]) -> FrozenMap:
    """Entries up to and including the closing brace; the opening one is already consumed."""

    def entry() -> tuple[str, Any]:
        key = tokens.string() if tokens.peek_kind(STRING) else tokens.name()
        tokens.expect("=")
        return key, parse_value(tokens, parse_expr)

    return FrozenMap(dict(tokens.listed(entry, "}")))


def parse_dtype(tokens: TokenStream) -> DType:
    """The dtype at the cursor."""
    token = tokens.current
    name = tokens.name()
    try:
        return DType(name)
    except UserError as error:
        tokens.fail(f"unknown dtype '{name}'", token, hint=error.hint)
