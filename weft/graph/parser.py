"""Reads the text of graphs (the notation is explained in :mod:`weft.graph.text`)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from weft.expr.nodes import Const, Expr
from weft.expr.nodes import Var as Symbol
from weft.expr.text import ExprParser
from weft.graph.build import constructor
from weft.graph.literals import array_of, made_up
from weft.graph.nodes import (
    NOWHERE,
    Call,
    Constant,
    DataDef,
    Function,
    GlobalVar,
    GraphExpr,
    If,
    Let,
    Loop,
    Match,
    Module,
    Origin,
    Pattern,
    Project,
    Tuple,
    Var,
    apply,
    call,
)
from weft.graph.operator import Attrs, Operator
from weft.graph.relations import argument, check, compatible
from weft.graph.types import DataType, FunctionType, TensorType, TupleType, Type, dim
from weft.ir.text import NAME, NUMBER, SIGIL, STRING, Token, TokenStream, number_parts
from weft.support.dtypes import _SHORT, INDEX, DType
from weft.support.errors import ParseError, TypeRelationError
from weft.support.words import did_you_mean

Table = Mapping[str, np.ndarray[Any, Any]]

KEYWORDS: Final = frozenset(
    {
        "none",
        "true",
        "false",
        "inf",
        "nan",
        "not",
        "and",
        "or",
        "fn",
        "if",
        "else",
        "match",
        "do",
        "let",
        "return",
        "loop",
        "while",
    }
    | {"type", "def", "module", *_SHORT}
)


def parse(
    text: str, operators: Mapping[str, Operator], constants: Table | None = None, *, file: str | None = None
) -> Module:
    """The module that ``text`` describes.

    ``constants`` holds the data of large constants by name, as arrays of their type or as raw bytes (uint8). Without it
    the data are generated from the names, always the same for a name, and a warning says so. Raises ParseError.
    """
    parser = _Parser(TokenStream(text, sigils=True, file=file), operators, constants)
    try:
        return parser.module()
    except RecursionError:
        raise ParseError("blocks are nested too deeply to be read", code="P005") from None


class _Parser:
    def __init__(self, tokens: TokenStream, operators: Mapping[str, Operator], table: Table | None) -> None:
        self.tokens, self.operators, self.table = tokens, operators, table
        self.symbols: dict[str, Symbol] = {}
        self.types: dict[str, DataDef] = {}
        self.known_types: frozenset[str] | None = None
        """Names of all types of the module, wherever they are declared; None until all are known."""
        self.type_params: Sequence[DataType] = ()
        self.globals: dict[str, FunctionType] = {}
        self.constants: dict[tuple[str, TensorType], Constant] = {}
        self.scope: dict[str, GraphExpr] = {}
        self.made_up = 0
        self.exprs = ExprParser(tokens, self.symbols)

    # -- module --------------------------------------------------------------------------------------------------

    def module(self) -> Module:
        tokens = self.tokens
        attrs = Attrs()
        if tokens.accept("module"):
            self._sizes()
            attrs = self._attr_list()
        functions: dict[str, Function] = {}
        self._heads()
        while tokens.peek("type", "def"):
            if tokens.peek("type"):
                self._declaration()
            else:
                name, function = self._definition()
                functions[name] = function
        tokens.finish()
        if self.made_up:
            warnings.warn(f"{self.made_up} constants have no data: made up from their names", stacklevel=3)
        return Module(functions, self.types, attrs)

    def _heads(self) -> None:
        """Look ahead for the types of all functions, so that bodies may call any of them."""
        tokens = self.tokens
        start = tokens.mark()
        while tokens.peek("type", "def"):
            if tokens.peek("type"):
                self._declaration()
                continue
            name, params, _ = self._head()
            tokens.expect("->")
            if name in self.globals:
                tokens.fail(f"the function '{name}' is defined twice")
            self.globals[name] = FunctionType(tuple(p.type for p in params), self._type())
            self._skip_block()
        tokens.reset(start)
        self.known_types = frozenset(self.types)
        self.types.clear()

    def _skip_block(self) -> None:
        self._origin_after_brace()
        depth = 1
        while depth:
            token = self.tokens.take()
            if token.kind == "end":
                self.tokens.fail("the function has no closing brace", token)
            if token.kind == "punctuation":
                depth += (token.text == "{") - (token.text == "}")

    def _origin_after_brace(self) -> Origin:
        self.tokens.expect("{")
        return self._origin()

    def _declaration(self) -> None:
        tokens = self.tokens
        tokens.expect("type")
        name = tokens.name()
        params: list[DataType] = []
        if tokens.accept("<"):
            params = tokens.listed(lambda: DataType(tokens.name()), ">")
        self.type_params = params
        tokens.expect("{")
        parts: list[tuple[str, tuple[Type, ...]]] = []
        while not tokens.accept("}"):
            own = tokens.name()
            tokens.expect("(")
            parts.append((own, tuple(tokens.listed(self._type, ")"))))
            if not tokens.accept(";"):
                tokens.expect("}")
                break
        self.type_params = ()
        self.types[name] = DataDef(name, tuple(params), tuple(parts))

    def _head(self) -> tuple[str, tuple[Var, ...], Attrs]:
        tokens = self.tokens
        tokens.expect("def")
        start = tokens.current
        name = self._sigil("@")[1]
        self._sizes()
        attrs = self._attr_list() if tokens.peek("[") else Attrs()
        params = self._params()
        self._distinct(params, start)
        return name, params, attrs

    def _sizes(self) -> None:
        """``<batch, n>``: symbolic sizes, which mean the same in the whole module."""
        if self.tokens.accept("<"):
            for symbol in self.tokens.listed(self.tokens.name, ">"):
                self.symbols.setdefault(symbol, Symbol(symbol, INDEX))

    def _definition(self) -> tuple[str, Function]:
        self.scope = {}
        name, params, attrs = self._head()
        self.tokens.expect("->")
        result = self._type()
        origin = self._origin_after_brace()
        body = self._block(result)
        return name, Function(params, body, attrs, origin)

    def _params(self) -> tuple[Var, ...]:
        self.tokens.expect("(")
        return tuple(self.tokens.listed(self._param, ")"))

    def _param(self) -> Var:
        return self._binder(self._sigil("%"))

    def _distinct(self, params: Sequence[Var], start: Token) -> None:
        names = [p.name for p in params]
        again = next((n for n in names if names.count(n) > 1), None)
        if again is not None:
            self.tokens.fail(f"two parameters are called '{again}'", start)

    def _binder(self, named: tuple[str, str]) -> Var:
        key, name = named
        self.tokens.expect(":")
        t = self._type()
        made = Var(name, t, self._origin())
        self.scope[key] = made
        return made

    # -- blocks --------------------------------------------------------------------------------------------------

    def _block(self, wanted: Type | None = None) -> GraphExpr:
        """Statements up to the closing brace; the opening one is already consumed. The result must be of the type
        ``wanted``."""
        tokens = self.tokens
        lets: list[tuple[Var, GraphExpr, Origin]] = []
        while not tokens.accept("return"):
            if tokens.accept("let"):
                key, name = self._sigil("%")
                tokens.expect(":")
                t = self._type()
                tokens.expect("=")
                token = tokens.current
                value = self._value()
                self._check(value.type, t, token)
                var = Var(name, t)
                lets.append((var, value, self._origin()))
                self.scope[key] = var
            else:
                self._statement()
        token = tokens.current
        result = self._value(wanted)
        if wanted is not None:
            self._check(result.type, wanted, token)
        tokens.expect("}")
        for var, value, origin in reversed(lets):
            result = Let(var, value, result, origin)
        return result

    def _statement(self) -> None:
        tokens = self.tokens
        start = tokens.current
        key, _ = self._sigil("%")
        declared = self._type() if tokens.accept(":") else None
        tokens.expect("=")
        token = tokens.current
        made = self._value(declared)
        if declared is not None:
            self._check(made.type, declared, token)
        if key in self.scope:
            tokens.fail(f"'{key}' has a meaning already", start)
        self.scope[key] = _with_origin(made, self._origin())

    def _check(self, got: Type, declared: Type, token: Token) -> None:
        if not compatible(got, declared):
            self.tokens.fail(f"this has type {got}, not {declared}", token)

    def _origin(self) -> Origin:
        tokens = self.tokens
        if not (tokens.peek("@") and tokens.ahead().kind == STRING):
            return NOWHERE
        tokens.take()
        names = [tokens.string()]
        while tokens.peek(",") and tokens.ahead().kind == STRING:
            tokens.take()
            names.append(tokens.string())
        return Origin(tuple(names))

    # -- values --------------------------------------------------------------------------------------------------

    def _value(self, declared: Type | None = None) -> GraphExpr:
        token = self.tokens.current
        try:
            made = self._written(declared)
            check(made, self.types)
        except TypeRelationError as error:
            raise error.at(self.tokens.place(token)) from None
        return made

    def _written(self, declared: Type | None) -> GraphExpr:
        tokens = self.tokens
        token = tokens.current
        if token.kind == NAME:
            if tokens.accept("fn"):
                attrs = self._attr_list() if tokens.peek("[") else Attrs()
                params = self._params()
                tokens.expect("{")
                return Function(params, self._block(), attrs)
            if tokens.accept("do"):
                tokens.expect("{")
                return self._block()
            if tokens.accept("if"):
                return self._if(declared)
            if tokens.accept("loop"):
                return self._loop(declared)
            if tokens.accept("match"):
                return self._match(declared)
            if tokens.ahead().text == "(" and token.text not in ("true", "false"):
                return self._operator_call(tokens.take())
        if tokens.accept("("):
            fields = tokens.listed(self._atom, ")")
            return Tuple(tuple(fields))
        return self._after(self._atom(), declared)

    def _after(self, atom: GraphExpr, declared: Type | None) -> GraphExpr:
        """The suffixes of an atom: calls and fields."""
        tokens = self.tokens
        if tokens.accept("("):
            places: list[Token] = []
            made = apply(atom, tokens.listed(lambda: self._argument(places), ")"))
            self._check_arguments(made, places)
            return made if declared is None or not compatible(made.type, declared) else replace(made, type=declared)
        if tokens.accept("["):
            index = tokens.integer()
            tokens.expect("]")
            return Project(atom, index)
        return atom

    def _argument(self, places: list[Token]) -> GraphExpr:
        places.append(self.tokens.current)
        return self._atom()

    def _check_arguments(self, made: Call, places: Sequence[Token]) -> None:
        """Point at the argument that does not fit."""
        assert isinstance(made.target, GraphExpr) and isinstance(made.target.type, FunctionType)
        for i, (a, token) in enumerate(zip(made.args, places, strict=True)):
            try:
                argument(made.target.type, i, a.type)
            except TypeRelationError as error:
                raise error.at(self.tokens.place(token)) from None

    def _operator_call(self, name: Token) -> GraphExpr:
        tokens = self.tokens
        op = self.operators.get(name.text)
        if op is None:
            tokens.fail(f"there is no operator '{name.text}'", name, hint=did_you_mean(name.text, self.operators))
        tokens.expect("(")
        args: list[GraphExpr] = []
        attrs: dict[str, Any] = {}

        def item() -> None:
            if tokens.peek_kind(NAME) and tokens.ahead().text == "=":
                key = tokens.name()
                tokens.take()
                attrs[key] = self._attr()
            else:
                args.append(self._atom())

        tokens.listed(item, ")")
        try:
            return call(op, args, attrs)
        except TypeRelationError as error:
            raise error.at(tokens.place(name)) from None

    def _loop(self, declared: Type | None) -> GraphExpr:
        tokens = self.tokens
        start = tokens.current
        attrs = self._attr_list()
        tokens.expect("(")
        state = tuple(tokens.listed(self._atom, ")"))
        going = self._atom() if tokens.accept("while") else None
        tokens.expect("do")
        body = self._atom()
        trips, index = attrs.get("trips"), attrs.get("index")
        if not isinstance(body, Function) or declared is None or not isinstance(index, Symbol):
            tokens.fail("a loop needs a type, an index and a function", start)
        return Loop(
            state, body, declared, index, None if trips is None else dim(trips), dim(attrs.get("count", 0)), going
        )

    def _if(self, declared: Type | None) -> GraphExpr:
        condition = self._atom()
        self.tokens.expect("{")
        then = self._block()
        self.tokens.expect("else")
        self.tokens.expect("{")
        otherwise = self._block()
        fits = declared is not None and compatible(then.type, declared) and compatible(otherwise.type, declared)
        return If(condition, then, otherwise, declared if fits and declared is not None else then.type)

    def _match(self, declared: Type | None) -> GraphExpr:
        tokens = self.tokens
        value = self._atom()
        tokens.expect("{")
        clauses: list[tuple[Pattern, GraphExpr]] = []
        while not tokens.accept("}"):
            pattern = self._pattern()
            tokens.expect("=>")
            tokens.expect("{")
            clauses.append((pattern, self._block()))
        if not clauses:
            tokens.fail("a match needs a clause")
        first = clauses[0][1].type
        fits = declared is not None and all(compatible(body.type, declared) for _, body in clauses)
        return Match(value, tuple(clauses), declared if fits and declared is not None else first)

    def _pattern(self) -> Pattern:
        tokens = self.tokens
        var: Var | None = None
        if tokens.peek_kind(SIGIL) or tokens.peek("%"):
            var = self._binder(self._sigil("%"))
            if not tokens.accept("="):
                return Pattern(var=var)
        if tokens.accept("_"):
            return Pattern()
        name = tokens.name()
        tokens.expect("(")
        return Pattern(name, tuple(tokens.listed(self._pattern, ")")), var)

    def _atom(self) -> GraphExpr:
        tokens = self.tokens
        token = tokens.current
        if token.text.startswith("@"):
            name = self._sigil("@")[1]
            if name not in self.globals:
                tokens.fail(f"there is no function '{name}'", token, hint=did_you_mean(name, self.globals))
            return GlobalVar(name, self.globals[name])
        if token.text.startswith("%"):
            found = self.scope.get(self._sigil("%")[0])
            if found is None:
                hint = did_you_mean(token.text, [f"%{name}" for name in self.scope])
                tokens.fail(f"there is no value '{token.text}' here", token, hint=hint)
            return found
        if token.kind == NUMBER or token.text in ("-", "true", "false"):
            return self._scalar()
        t = self._type()
        if isinstance(t, TensorType):
            return self._constant(t)
        if isinstance(t, DataType) and tokens.accept("::"):
            name_token = tokens.current
            name = tokens.name()
            if t.name not in self.types:
                tokens.fail(f"there is no type '{t.name}'", token, hint=did_you_mean(t.name, self.types))
            try:
                return constructor(self.types[t.name], name, t.args)
            except TypeRelationError as error:
                raise error.at(tokens.place(name_token)) from None
        tokens.fail("expected a value", token)

    # -- constants -----------------------------------------------------------------------------------------------

    def _scalar(self) -> Constant:
        tokens = self.tokens
        start = tokens.current
        if tokens.peek("true", "false"):
            return Constant(np.array(tokens.take().text == "true"))
        sign = -1 if tokens.accept("-") else 1
        value, suffix = number_parts(tokens.expect_kind(NUMBER).text)
        if suffix is None:
            tokens.fail("a constant needs its dtype, as in 1.0f32", start)
        return Constant(array_of([sign * value], TensorType((), DType(suffix))))

    def _constant(self, t: TensorType) -> Constant:
        tokens = self.tokens
        start = tokens.current
        if t.dtype.kind == "string":
            return self._strings(t, start)
        tokens.expect("(")
        if not t.is_static:
            tokens.fail("a constant must have a known shape", start)
        if tokens.peek_kind(STRING):
            name = tokens.string()
            tokens.expect(")")
            return self._stored(name, t, start)
        values = tokens.listed(self._number, ")")
        if len(values) != math.prod(d for d in t.shape if isinstance(d, int)):
            tokens.fail(f"{t} does not have {len(values)} elements", start)
        return Constant(array_of(values, t))

    def _strings(self, t: TensorType, start: Token) -> Constant:
        self.tokens.expect("[")
        values = self.tokens.listed(self.tokens.string, "]")
        shape = tuple(d for d in t.shape if isinstance(d, int))
        if not t.is_static or len(values) != math.prod(shape):
            self.tokens.fail(f"{t} does not have {len(values)} elements", start)
        made = np.empty(len(values), object)
        made[:] = values
        return Constant(made.reshape(shape))

    def _number(self) -> int | float | bool:
        tokens = self.tokens
        if tokens.peek("true", "false"):
            return tokens.take().text == "true"
        sign = -1 if tokens.accept("-") else 1
        return sign * number_parts(tokens.expect_kind(NUMBER).text)[0]

    def _stored(self, name: str, t: TensorType, token: Token) -> Constant:
        key = (name, t)
        if key not in self.constants:
            shape = tuple(d for d in t.shape if isinstance(d, int))
            if self.table is None:
                data = made_up(name, t)
                self.made_up += 1
            elif name not in self.table:
                self.tokens.fail(f"the table of constants has no '{name}'", token)
            else:
                data = self.table[name]
                if data.dtype == np.uint8 and t.dtype != "uint8":
                    data = data.view(t.dtype.numpy)
                if data.size != math.prod(shape) or data.dtype != t.dtype.numpy:
                    self.tokens.fail(f"'{name}' in the table is not a {t}", token)
                data = data.reshape(shape)
            self.constants[key] = Constant(data, Origin((name,)))
        return self.constants[key]

    # -- types and attributes ------------------------------------------------------------------------------------

    def _type(self) -> Type:
        tokens = self.tokens
        if tokens.accept("("):
            return TupleType(tuple(tokens.listed(self._type, ")")))
        if tokens.accept("fn"):
            tokens.expect("(")
            params = tuple(tokens.listed(self._type, ")"))
            tokens.expect("->")
            return FunctionType(params, self._type())
        token = tokens.current
        name = tokens.name()
        if name in _SHORT:
            tokens.expect("[")
            return TensorType(tuple(dim(e) for e in self.exprs.index_list()), DType(name))
        args = tuple(tokens.listed(self._type, ">")) if tokens.accept("<") else ()
        if tokens.peek("["):
            tokens.fail(f"'{name}' is not a dtype", token, hint=did_you_mean(name, _SHORT, "f32, i64, bool, …"))
        known = self.known_types
        if known is not None and name not in known and all(name != p.name for p in self.type_params):
            tokens.fail(f"there is no type '{name}'", token, hint=did_you_mean(name, known))
        return DataType(name, args)

    def _attr_list(self) -> Attrs:
        self.tokens.expect("[")
        return Attrs(dict(self.tokens.listed(self._named_attr, "]")))

    def _named_attr(self) -> tuple[str, Any]:
        name = self.tokens.name()
        self.tokens.expect("=")
        return name, self._attr()

    def _attr(self) -> Any:
        tokens = self.tokens
        token = tokens.current
        if token.kind == STRING:
            return tokens.string()
        alone = tokens.ahead().text in (",", ")", "]")
        if token.kind == NAME and alone and token.text in KEYWORDS:
            tokens.take()
            words = {"none": None, "true": True, "false": False}
            return words[token.text] if token.text in words else DType(token.text)
        if token.kind == NUMBER and alone:
            return number_parts(tokens.take().text)[0]
        if token.text == "-" and tokens.ahead().kind == NUMBER and tokens.ahead(2).text in (",", ")", "]"):
            return self._number()
        if token.text == "(":
            mark = tokens.mark()
            tokens.take()
            try:
                values = tuple(tokens.listed(self._attr, ")"))
                if tokens.peek(",", ")", "]"):
                    return values
            except ParseError:
                pass  # not a tuple but an expression in parentheses
            tokens.reset(mark)
        made: Expr = self.exprs.parse()
        return made.value if isinstance(made, Const) else made

    def _sigil(self, sigil: str) -> tuple[str, str]:
        """Consume ``%name`` or ``%"any name"``; returns (the text as a key, the name)."""
        tokens = self.tokens
        token = tokens.current
        if token.kind == SIGIL and token.text[0] == sigil:
            tokens.take()
            return token.text, token.text[1:]
        if token.text == sigil and tokens.ahead().kind == STRING:
            tokens.take()
            text = tokens.current.text
            return sigil + text, tokens.string()
        tokens.fail(f"expected a name that begins with '{sigil}', found {token.describe()}")


def _with_origin(made: GraphExpr, origin: Origin) -> GraphExpr:
    """``made``, just built, with its origin."""
    return made if origin is NOWHERE else replace(made, origin=origin)  # type: ignore[type-var]  # dataclass
