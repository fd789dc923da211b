"""The architecture, enforced: which package may import which, no import cycles, where names of operators may occur."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import weft

ROOT = Path(weft.__file__).parent

BASE = {"support", "ir"}
FORMS = {"graph", "tensor_expr", "tir"}
COMPILER = {*BASE, *FORMS, "expr", "cost", "ops", "schedule", "lowering", "target", "backends"}
# What a package may import besides itself. `runtime.x` allows one module of a package only.
ALLOWED: dict[str, set[str]] = {
    "support": set(),
    "ir": {"support"},
    "runtime": {"support"},
    "expr": BASE,
    "target": {*BASE, "cost", "runtime.threads"},
    "cost": {"support"},
    "graph": {*BASE, "expr", "cost"},
    "tensor_expr": {*BASE, "expr"},
    "tir": {*BASE, "expr"},
    "ops": {*BASE, "graph", "tensor_expr", "expr", "cost"},
    "schedule": {*BASE, "tir", "expr", "cost", "target"},
    "frontends": {*BASE, "graph", "ops", "expr"},
    "lowering": {
        *BASE,
        *FORMS,
        "cost",
        "ops",
        "schedule",
        "expr",
        "target",
        "runtime.artifact",
        "runtime.program",
    },
    "backends": {*BASE, "tir", "expr", "lowering", "schedule", "target"},
    "view": {*BASE, *FORMS, "expr", "runtime"},
    "kernels": {*COMPILER, "runtime.artifact", "runtime.program"},
    "measure": {*BASE, "cost", "kernels", "target", "tir", "runtime"},
    "plugins": COMPILER,
    "static_cost": {*COMPILER, "kernels"},
    "pipeline": {*COMPILER, "kernels", "plugins", "runtime"},
    "classic": {*COMPILER, "kernels", "runtime", "view"},
    "te": {"classic", "tensor_expr"},
    "tune": {*COMPILER, "api", "kernels", "measure", "pipeline", "plugins", "rpc", "runtime", "static_cost"},
    "rpc": {*BASE, "kernels", "runtime", "target"},
    "bench": {*BASE, "api", "frontends", "measure", "pipeline", "runtime", "target"},
}
COMPILED = {"weft.runtime._native"}  # the extension module
FREE = {"api", "cli", "__init__", "__main__"}
FREE_MODULES = {"weft.frontends.onnx.backend"}  # compiles what its neighbours import


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path, for_types: bool = False) -> set[str]:
    """All weft modules that a file imports anywhere, functions included; those for type checking only if asked."""
    found: set[str] = set()
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not for_types:
            continue
        if isinstance(node, ast.Import):
            found.update(a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in modules() or full in COMPILED else node.module)
        pending.extend(ast.iter_child_nodes(node))
    return {m for m in found if m == "weft" or m.startswith("weft.")}


def test_who_imports_whom() -> None:
    wrong = []
    for name, path in modules().items():
        package = name.split(".")[1] if "." in name else "__init__"
        if package in FREE or name in FREE_MODULES:
            continue
        assert package in ALLOWED, f"the package {package} has no row in the table of layers"
        for target in imports_of(path):
            parts = target.split(".")[1:]
            if not parts:
                wrong.append(f"{name} imports the whole of weft")
            elif parts[0] != package and not {parts[0], ".".join(parts[:2])} & ALLOWED[package]:
                wrong.append(f"{name} imports {target}")
    assert not wrong, "\n".join(sorted(wrong))


# Circles through imports for type checking alone, each with its reason.
TYPE_CIRCLES = {
    frozenset({"weft.expr.nodes", "weft.expr.overloads"}): "operators of expressions make expressions",
}


def circles(graph: dict[str, set[str]]) -> list[frozenset[str]]:
    """The strongly connected components of more than one module (Kosaraju's algorithm)."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(start: str, edges: dict[str, set[str]], found: list[str]) -> None:
        stack = [(start, iter(edges[start]))]
        seen.add(start)
        while stack:
            name, rest = stack[-1]
            following = next((n for n in rest if n not in seen), None)
            if following is None:
                found.append(name)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(edges[following])))

    for name in graph:
        if name not in seen:
            visit(name, graph, order)
    back: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            back[target].add(name)
    seen.clear()
    made = []
    for name in reversed(order):
        if name not in seen:
            component: list[str] = []
            visit(name, back, component)
            made.append(frozenset(component))
    return [c for c in made if len(c) > 1]


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [frozenset("bc")]


@pytest.mark.parametrize("for_types", [False, True])
def test_no_import_cycles(for_types: bool) -> None:
    """Packages count: a module that imports its own package's ``__init__``, which imports it, is a circle."""
    graph = {
        name: {t for t in imports_of(p, for_types) if t in modules() and t != name} for name, p in modules().items()
    }
    allowed = TYPE_CIRCLES.keys() if for_types else set()
    assert set(circles(graph)) == allowed, "import cycles, or reasons for circles that are open"


def test_llvm_is_imported_by_its_back_end_alone() -> None:
    wrong = [
        name
        for name, path in modules().items()
        if re.search(r"^\s*(from|import) llvmlite", path.read_text(), re.M)
        and not name.startswith("weft.backends.llvm")
    ]
    assert not wrong


def test_the_package_only_exports() -> None:
    """``weft/__init__.py`` has no class and nothing that runs when it is imported but the tables of its exports."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.If, ast.Expr)
    assert all(isinstance(s, allowed) for s in tree.body)
    functions = {s.name for s in tree.body if isinstance(s, ast.FunctionDef)}
    assert functions == {"__getattr__", "__dir__"}


def test_no_star_imports() -> None:
    starred = [n for n, p in modules().items() if re.search(r"^from .* import \*", p.read_text(), re.M)]
    assert not starred


# Words that name a neural operator. Passes and schedules speak of traits and loop shapes instead.
OPERATOR_WORDS = re.compile(
    r"\b(conv[123]?d?|relu6?|gelu|softmax|sigmoid_op|matmul|batch_?norm|layer_?norm|dropout|max_?pool|avg_?pool|"
    r"lstm|gru|embedding|attention)\b",
    re.I,
)
SPEAKS_OF_OPERATORS = {"ops", "frontends"}


def code_names(path: Path) -> set[str]:
    """Identifiers and short string literals of a module; prose in docstrings and comments may name anything."""
    tree = ast.parse(path.read_text())
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= {node.value} if id(node) not in docs and " " not in node.value else set()
    return names


def test_operators_are_named_only_in_their_rooms() -> None:
    wrong = []
    for name, path in modules().items():
        package = name.split(".")[1] if "." in name else "__init__"
        if package in SPEAKS_OF_OPERATORS:
            continue
        words = sorted(code_names(path))
        wrong += [f"{name}: {word}" for word in words if OPERATOR_WORDS.search(word.replace("_", " "))]
    assert not wrong, "\n".join(wrong)


# Names that several public classes share, each with its reason.
SHARED_NAMES = {
    "Call": "the same construct in expressions and in graphs",
    "If": "the same construct in graphs and in loops",
    "Let": "the same construct in graphs and in loops",
    "Var": "the same construct in expressions and in graphs",
    "Allocate": "the same construct in loops and in the executor's programs",
    "Tensor": "what users call both: te.Tensor is symbolic, weft.Tensor holds data",
}


def test_one_word_one_thing() -> None:
    """No two public classes share a name, but for those with a reason; docs/design.md has the glossary."""
    homes: dict[str, list[str]] = {}
    for name, path in modules().items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    assert shared.keys() <= SHARED_NAMES.keys(), {n: p for n, p in shared.items() if n not in SHARED_NAMES}
    assert SHARED_NAMES.keys() <= shared.keys(), "reasons for names that are not shared any more"


# Names that do not say what a number limits, or in which unit.
VAGUE_NAME = re.compile(
    r"_?(BIG|CHEAP|DEAR|ENOUGH|FAR|FEW(EST)?|HUGE|KEPT|LARGE(ST)?|LEAST|LITTLE|LONG(EST)?|MANY|MOST|MUCH|NEAR|SHORT(EST)?|"
    r"SMALL(EST)?|TINY|WIDE|WORTH)"
)


def test_numbers_are_named_after_what_they_limit() -> None:
    """A constant is called ``MAX_UNROLLED_STEPS``, not ``MANY``."""
    wrong = []
    for name, path in modules().items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, (ast.Constant, ast.BinOp)):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and VAGUE_NAME.fullmatch(target.id):
                    wrong.append(f"{name}: {target.id}")
    assert not wrong, "\n".join(wrong)


def test_every_module_imports_and_exports_what_it_says() -> None:
    for info in pkgutil.walk_packages(weft.__path__, "weft."):
        if info.name.endswith(".__main__"):
            continue
        module = importlib.import_module(info.name)
        for public in getattr(module, "__all__", ()):
            assert hasattr(module, public), f"{info.name} lists '{public}' in __all__ but does not define it"


def test_importing_weft_is_light() -> None:
    """Heavy or optional packages are imported where they are used, never with weft itself."""
    heavy = ["llvmlite", "onnx", "onnxruntime", "torch", "rich", "click", "scipy"]
    code = f"import sys, weft; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


@pytest.mark.parametrize("extra", ["WEFT_DUMP", "WEFT_CACHE_DIR"])
def test_settings_are_read_in_one_place(extra: str) -> None:
    readers = [n for n, p in modules().items() if re.search(rf"environ.*{extra}|getenv.*{extra}", p.read_text())]
    assert set(readers) <= {"weft.support.settings"}


SUPPRESSIONS = re.compile(r"#\s*(type: ignore|noqa|pragma)|except( (Base)?Exception\b.*)?:")
REASONED = re.compile(
    r"(# type: ignore\[[\w, -]+\]  # |# noqa: [A-Z0-9]+  ?[(#] ?|except (Base)?Exception( as \w+)?:  # )\w"
)


def test_what_suppresses_errors_says_why() -> None:
    """Each ``type: ignore``, ``noqa`` and broad ``except`` names what it suppresses, and gives its reason behind it."""
    wrong = []
    for name, path in modules().items():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if SUPPRESSIONS.search(line) and not REASONED.search(line):
                wrong.append(f"{name}:{number}: {line.strip()}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "fine"),
    [
        ("x = y  # type: ignore[arg-type]", False),
        ("x = y  # type: ignore", False),
        ("x = y  # type: ignore[arg-type]  # constant", True),
        ("def f(x=T()):  # noqa: B008", False),
        ("def f(x=T()):  # noqa: B008 (immutable)", True),
        ("    except Exception:", False),
        ("    except:", False),
        ("    except Exception as why:  # engines of others raise what they like", True),
        ("    except ValueError:", True),
    ],
)
def test_reasons_are_recognized(line: str, fine: bool) -> None:
    assert bool(SUPPRESSIONS.search(line) and not REASONED.search(line)) is not fine


def test_modules_stay_small() -> None:
    long = {n: len(p.read_text().splitlines()) for n, p in modules().items() if len(p.read_text().splitlines()) > 620}
    assert not long, f"split these where there are two reasons to change: {long}"


def test_files_of_tests_have_names_of_their_own() -> None:
    """The runner imports a test file by its name alone: of two with one name, it collects the first only."""
    times = Counter(path.name for path in (ROOT.parent / "tests").rglob("test_*.py"))
    assert not [name for name, count in times.items() if count > 1]
