"""Small mistakes planted in source files, one at a time: what ``tests/mutate.py`` lets the tests look for.

A mutant is one file with one stretch of text replaced. Python is changed by its syntax tree, C by its tokens. Messages,
annotations, assertions and docstrings stay as they are: no result depends on them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import unified_diff
from hashlib import blake2b

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.Pow: ast.Mult,
}  # fmt: skip
Function = tuple[str, str, int]
"""Path of the file, qualified name and first line (that of the first decorator) of a function."""
_OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """``new`` in place of the characters from ``begin`` to ``end`` of the file ``path`` (relative to the repository).
    ``number`` tells apart equal changes of equal lines."""

    path: str
    source: str
    begin: int
    end: int
    new: str
    kind: str
    number: int = 0

    @property
    def text(self) -> str:
        return self.source[: self.begin] + self.new + self.source[self.end :]

    @property
    def line(self) -> int:
        """The number of the first changed line."""
        return self.source.count("\n", 0, self.begin) + 1

    @property
    def function(self) -> Function | None:
        """The function or method in whose body the mutant lies; None if there is none, or the file is in C."""
        if not self.path.endswith(".py"):
            return None
        at = len(self.source[: self.begin].encode())
        starts = _line_starts(self.source.encode())
        scope: list[ast.stmt] = list(ast.parse(self.source).body)
        names: list[str] = []
        while True:
            around = [
                n for n in scope
                if isinstance(n, (ast.FunctionDef, ast.ClassDef))
                and starts[n.body[0].lineno - 1] + n.body[0].col_offset <= at < starts[n.end_lineno or 0]
            ]  # fmt: skip
            if not around:
                return None
            (node,) = around
            names.append(node.name)
            if isinstance(node, ast.FunctionDef):
                first = min(n.lineno for n in (node, *node.decorator_list))
                return self.path, ".".join(names), first
            scope = node.body

    @property
    def change(self) -> tuple[str, str]:
        """The changed lines before and after, without their indentation."""
        first = self.source.rfind("\n", 0, self.begin) + 1
        last = self.source.find("\n", self.end)
        last = len(self.source) if last < 0 else last
        before, after = (
            self.source[first:last],
            self.source[first : self.begin] + self.new + self.source[self.end : last],
        )
        return " ".join(before.split()), " ".join(after.split())

    @property
    def key(self) -> str:
        """Stays the same while the changed lines do."""
        parts = (self.path, *self.change, str(self.number))
        return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()

    @property
    def of(self) -> str:
        """Stays the same while the file does."""
        return blake2b(self.source.encode(), digest_size=8).hexdigest()

    def diff(self) -> str:
        lines = unified_diff(self.source.splitlines(), self.text.splitlines(), self.path, self.path, "", "", 1, "")
        return "\n".join(lines)


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All mutants of a file, in the order of its text; those that only repeat another are left out."""
    found = _of_python(path, source) if path.endswith(".py") else _of_c(path, source)
    seen: set[str] = set()
    counts: dict[tuple[str, str], int] = {}
    kept = []
    for mutant in sorted(found, key=lambda m: (m.begin, m.end, m.new)):
        if mutant.text in seen or mutant.text == source:
            continue
        seen.add(mutant.text)
        number = counts.get(mutant.change, 0)
        counts[mutant.change] = number + 1
        kept.append(replace(mutant, number=number))
    return kept


# Python


def _line_starts(data: bytes) -> list[int]:
    """Where each line begins, and the end."""
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _of_python(path: str, source: str) -> Iterator[Mutant]:
    data = source.encode()
    starts = _line_starts(data)

    def at(line: int, column: int) -> int:
        return len(data[: starts[line - 1] + column].decode())  # columns count bytes

    for node, new, kind in _changes(ast.parse(source)):
        text = new if isinstance(new, str) else ast.unparse(ast.fix_missing_locations(new))
        if isinstance(new, ast.expr) and not isinstance(new, (ast.Name, ast.Constant)):
            text = f"({text})"
        begin, end = at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)
        yield Mutant(path, source, begin, end, text, kind)


_Node = ast.expr | ast.stmt
_Change = tuple[_Node, ast.expr | str, str]


def _changes(tree: ast.AST, returns: ast.expr | None = None) -> Iterator[_Change]:
    """Nodes with what stands in their place. ``returns`` is the annotation of the function around them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)) or _only_checks(node):
            continue
        if isinstance(node, ast.FunctionDef):
            for inner in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
                yield from _of_node(inner, None)
            body = ast.Module(node.body, [])
            yield from _changes(body, node.returns)
        elif isinstance(node, ast.Raise):
            yield node, "pass", "statement dropped"
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                yield from _of_node(node.value, returns)
                yield from _changes(node.value, returns)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        else:
            yield from _of_node(node, returns)
            yield from _changes(node, returns)


_ONLY_CHECKS = {
    "strict": "of zip: fails where lengths differ",
    "frozen": "of dataclass: fails where a field is set or, without it, where a value is hashed",
    "slots": "of dataclass: takes less memory",
    "maxsize": "of lru_cache: forgets later",
}
"""Keyword arguments that never make another result, with the reason."""


def _only_checks(node: ast.AST) -> bool:
    """Whether the node is an argument of _ONLY_CHECKS; the ``strict=False`` of a ``zip`` is not, it hides a mistake."""
    if not isinstance(node, ast.keyword) or node.arg not in _ONLY_CHECKS or not isinstance(node.value, ast.Constant):
        return False
    return node.arg != "strict" or node.value.value is True


def _of_node(node: ast.AST, returns: ast.expr | None) -> Iterator[_Change]:
    if isinstance(node, ast.expr):
        for new, kind in _of_expression(node):
            yield node, new, kind
    elif isinstance(node, ast.stmt):
        for text, kind in _of_statement(node, returns):
            yield node, text, kind
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield node.test, _not(node.test), "condition negated"
    if isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield test, _not(test), "condition negated"


def _of_expression(node: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            ops = [*node.ops[:i], _COMPARED[type(op)](), *node.ops[i + 1 :]]
            yield ast.Compare(node.left, ops, node.comparators), "comparison"
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        if not (isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)):
            yield ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right), "operator"
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values), "and, or"
        for i in range(len(node.values)):
            rest = node.values[:i] + node.values[i + 1 :]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest), "part of a condition dropped"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        yield node.operand, "sign or not dropped"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OPPOSITE:
        yield ast.Call(ast.Name(_OPPOSITE[node.func.id]), node.args, node.keywords), "function"
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value), "constant"
        elif isinstance(node.value, int):
            for value in (node.value + 1, node.value - 1):
                yield ast.Constant(value), "constant"


def _of_statement(node: ast.stmt, returns: ast.expr | None) -> Iterator[tuple[str, str]]:
    if isinstance(node, (ast.Expr, ast.AugAssign, ast.Continue, ast.Break)):
        yield "pass", "statement dropped"
    if isinstance(node, ast.If) and not node.orelse and len(node.body) == 1:
        yield "pass", "statement dropped"
    if isinstance(node, ast.Return) and node.value is not None:
        for text in _other_results(node.value, returns):
            yield f"return {text}", "result"


def _other_results(value: ast.expr, returns: ast.expr | None) -> tuple[str, ...]:
    if isinstance(value, ast.Constant):
        return ()  # changed as a constant
    name = ast.unparse(returns) if returns is not None else ""
    if name == "bool":
        return ("True", "False")
    return ("0",) if name in ("int", "float") else ("None",)


def _not(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)


# C

_C_TOKEN = re.compile(r"<=|>=|==|!=|&&|\|\||<<|>>|->|\+\+|--|[-+*/%&|]=|[<>+\-]|\b\d+\b|\breturn\b[^;]*;|\bif \(")
_C_SWAPPED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+",
    "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+=", "++": "--",
}  # fmt: skip
_ALLOCATES = re.compile(r"(?:[mcMC]alloc\([^;]* \+ |[cC]alloc\()$")  # more memory than is needed changes nothing
_C_ZEROS = ("", "0", "false", "NULL", "WEFT_OK", "RELOCATED")
_C_CALL = re.compile(r"^[ ]+\w[\w>.-]*\([^;{}]*\);[ ]*$", re.MULTILINE)
_C_IGNORED = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'|^#(?:\\\n|[^\n])*', re.S | re.M)


def _of_c(path: str, source: str) -> Iterator[Mutant]:
    """By tokens: types and declarations outside of functions are left alone."""
    masked = _C_IGNORED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), source)
    for begin, end in _function_bodies(masked):
        for token in _C_TOKEN.finditer(masked, begin, end):
            for new, kind in _c_changes(masked, token):
                yield Mutant(path, source, *token.span(), new, kind)
        for call in _C_CALL.finditer(masked, begin, end):
            if not call[0].lstrip().startswith("return"):
                yield Mutant(path, source, *call.span(), "    ;", "statement dropped")


def _function_bodies(masked: str) -> Iterator[tuple[int, int]]:
    """From each brace at the end of a line without indentation to the one that begins a line."""
    for opening in re.finditer(r"^\w[^;={}]*\)\s*\{$", masked, re.M):
        closing = masked.find("\n}", opening.end())
        if closing > 0:
            yield opening.end(), closing


def _c_changes(masked: str, token: re.Match[str]) -> Iterator[tuple[str, str]]:
    text = token[0]
    if text in _C_SWAPPED:
        if not (text in "+-" and masked[: token.start()].rstrip()[-1] in "(,="):  # a sign
            yield _C_SWAPPED[text], "comparison" if text in ("<", "<=", ">", ">=", "==", "!=") else "operator"
    elif text.isdigit():
        if not _ALLOCATES.search(masked, masked.rfind("\n", 0, token.start()), token.start()):
            yield str(int(text) + 1), "constant"
        if int(text):
            yield str(int(text) - 1), "constant"
    elif text == "if (":
        yield "if (!", "condition negated"  # of the first operand
    elif text.startswith("return") and text[len("return") : -1].strip() not in _C_ZEROS:
        yield "return 0;", "result"
