"""Text of graphs: printing, exact parsing, errors that point at the place. Verification and binding of sizes."""

import contextlib
import warnings

import ml_dtypes  # noqa: F401  (bfloat16 and others for NumPy)
import numpy as np
import pytest
from seeds import seeds
from test_graph_basics import F, list_module
from test_graph_fuse import kind_of
from toy_operators import BY_NAME, add, exp, fill, halves, matmul, neg, relu, reshape

from weft.graph import build, interpret
from weft.graph.nodes import (
    Call,
    Constant,
    Function,
    If,
    Let,
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
from weft.graph.operator import Attrs
from weft.graph.passes.fuse import Fuse
from weft.graph.passes.infer import BindSizes
from weft.graph.text import dump, load, parse, to_text
from weft.graph.types import DataType, TensorType
from weft.graph.verify import verify
from weft.graph.visit import post_order
from weft.ir.structural import structural_equal, structural_hash
from weft.support.dtypes import FLOAT32
from weft.support.errors import InternalError, ParseError, UserError, WeftError


def round_trip(module):
    verify(module)
    table = {}
    text = to_text(module, table)
    back = parse(text, BY_NAME, table)
    verify(back)
    assert to_text(back) == text
    assert structural_equal(back, module)
    assert structural_hash(back) == structural_hash(module)
    return text


def everything() -> Module:
    """A module with one of each."""
    n = build.size("n")
    x = build.var("x", (n, 3))
    odd = Var("a name/with:signs", TensorType((), build.constant(True).tensor.dtype), Origin(("in",)))
    w = build.constant(np.arange(36, dtype=np.float32).reshape(3, 12) / 7, origin=Origin(("w.weight",)))
    m = call(matmul, [x, w], origin=Origin(("MatMul_0", "Add_1")))
    flat = call(reshape, [m], {"shape": (n * 4, 3)})
    v, y, p = Var("v", flat.type), Var("x", flat.type), build.var("p", (2,))
    shared = call(neg, [flat])
    inner = Function((y,), call(add, [call(exp, [y]), build.constant(0.1)]), Attrs(primitive=True))
    loop = Let(v, apply(inner, [shared]), If(odd, call(add, [v, shared]), v, flat.type))
    closure = Function((p,), call(add, [p, build.constant([np.inf, -1e-5])]))
    small = build.constant(np.array([1, 2, 250], np.uint8))
    h = call(halves, [loop], origin=Origin(("Split",)))
    body = Tuple((Project(h, 1), small, Tuple((call(fill, [], {"value": -0.5, "shape": (n + 1,)}),)), closure))
    return Module(
        {"main": Function((x, odd), body), **list_module().functions}, list_module().types, Attrs(names=("a",))
    )


def test_everything_prints_and_reads_back(golden):
    golden("everything.txt", round_trip(everything()))


def test_fused_graphs_read_back(golden):
    x, w = build.var("x", (4, 5)), build.var("w", (5, 6))
    m = call(matmul, [x, w], origin=Origin(("MatMul",)))
    f = build.function([x, w], call(relu, [call(add, [m, build.constant(1.0)])], origin=Origin(("Relu",))))
    golden("fused.txt", round_trip(Fuse(kind_of).run(Module.of(f))))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "float8_e4m3fn", "int8", "uint64", "bool", "int4"])
def test_constants_of_all_dtypes_are_exact(dtype):
    values = np.array([0.1, 1, 0, 3]) if dtype != "uint64" else np.array([2**64 - 1, 1, 0, 3], np.uint64)
    small = build.constant(values.astype(dtype), dtype)
    big = build.constant(np.tile(small.data, 10), dtype)
    scalar = build.constant(small.data[0], dtype)
    module = Module.of(build.function([], Tuple((small, big, scalar))))
    round_trip(module)


def test_dump_and_load_restore_the_data(tmp_path):
    module = everything()
    dump(module, tmp_path / "0-main.txt")
    assert structural_equal(load(tmp_path / "0-main.txt", BY_NAME), module)
    (tmp_path / "0-main.npz").unlink()
    with pytest.warns(UserWarning, match="made up"):
        first = load(tmp_path / "0-main.txt", BY_NAME)
    with pytest.warns(UserWarning):
        assert structural_equal(first, load(tmp_path / "0-main.txt", BY_NAME))


def test_five_thousand_lets_and_calls():
    x = build.var("x", (2, 3))
    e, bindings, last = x, [], x
    for i in range(5000):
        e = call(relu, [e])
        v = Var(f"v{i}", F)
        bindings.append((v, call(neg, [last])))
        last = v
    module = Module.of(build.function([x], build.let(bindings, call(add, [last, e]))))
    round_trip(module)
    data = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(interpret.run(module, [data]), 2 * data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @main(%x: f32[2]) -> f32[2] { return %y }", "there is no value"),
        ("def @main(%x: f32[2]) -> f32[3] { return %x }", "not f32"),
        ("def @main(%x: f32[2]) -> f32[2] { %0 = nope(%x) return %0 }", "no operator"),
        ("def @main(%x: f32[2]) -> f32[2] { %0 = relu(%x, axis=1) return %0 }", "no attribute"),
        ("def @main(%x: f32[2]) -> f32[2] { %0: f32[3] = relu(%x) return %0 }", "not f32"),
        ("def @main(%x: f32[2]) -> f32[2] { %0 = matmul(%x, %x) return %0 }", "multiply"),
        ("def @main(%x: f32[2]) -> f32[2] { %0 = relu(%x) %0 = relu(%x) return %0 }", "already"),
        ("def @main(%x: f32[m]) -> f32[2] { return %x }", "unknown name"),
        ("def @main(%x: f32[2]) -> f32[2] { return %x", "no closing"),
        ("def @main(%x: f32[2]) -> f32[2] { return f32[2](1, 2, 3) }", "elements"),
        ("def @main(%x: f32[2]) -> f32[2] { return @other }", "no function"),
        ("def @main(%x: f32[2]) -> f32[2] { return T::Leaf }", "no type"),
        ("type T { Leaf() } def @main(%x: f32[2]) -> f32[2] { return T::Twig }", "no constructor"),
        ("def", "expected"),
        ("def @main() -> u8[] { return 300u8 }", "not a value"),
        ("def @main() -> u8[] { return 1 }", "dtype"),
    ],
)
def test_mistakes_are_pointed_at(text, message):
    with pytest.raises(UserError, match=message) as caught:
        parse(text, BY_NAME)
    assert "not a value" in message or caught.value.place.text is not None


@pytest.mark.parametrize("seed", seeds(300))
def test_damaged_text_ends_in_an_error_or_a_module(seed):
    rng = np.random.default_rng(seed)
    text = to_text(everything())
    at = int(rng.integers(len(text)))
    piece = ["", "(", "}", "%0", "1", '"', "f32[", " let "][seed % 8]
    with warnings.catch_warnings(), contextlib.suppress(WeftError):
        warnings.simplefilter("ignore")
        parse(text[:at] + piece + text[at + int(rng.integers(4)) :], BY_NAME)


def test_names_do_not_count_but_structure_does():
    def make(name, op, twice=False):
        n = build.size(name)
        x = build.var(name, (n, 3))
        a = call(op, [x], origin=Origin((name,)))
        return Module.of(build.function([x], call(add, [a, call(op, [x]) if twice else a])))

    assert structural_hash(make("a", relu)) == structural_hash(make("b", relu))
    assert structural_hash(make("a", relu)) != structural_hash(make("a", exp))
    assert not structural_equal(make("a", relu), make("a", relu, twice=True))


def test_the_verifier_finds_every_kind_of_error():
    x, y = build.var("x", (2, 3)), build.var("y", (2, 3))
    v = Var("v", F)
    nil, tree = Pattern("Nil"), DataType("List", (F,))
    lists = list_module()
    xs = Var("xs", tree)
    primitive = Function((x,), call(add, [x, y]), Attrs(primitive=True))
    wrong = [
        Module.of(build.function([x], call(add, [x, y]))),
        Module.of(Function((x,), call(add, [Let(v, x, v), v]))),
        Module.of(Function((x,), Call(relu, (x,), Attrs(), TensorType((4,), FLOAT32)))),
        Module.of(Function((x, y), apply(primitive, [x]))),
        Module.of(Function((x,), apply(build.global_var("f", [F], F), [x]))),
        Module.of(Function((x,), If(x, x, x, F))),
        Module.of(Function((x, Var("x", F)), x)),
        Module({"main": Function((xs,), Match(xs, ((nil, build.zeros(F)),), F))}, lists.types),
        Module(
            {"main": Function((xs,), Match(xs, ((Pattern("Cons"), build.zeros(F)), (Pattern(), build.zeros(F))), F))},
            lists.types,
        ),
    ]
    for module in wrong:
        with pytest.raises(InternalError, match="invalid graph"):
            verify(module)
    half = Pattern("Cons", (Pattern(), nil))
    more = Pattern("Cons", (Pattern(), Pattern("Cons", (Pattern(), Pattern()))))
    zero = build.zeros(F)
    full = Module({"main": Function((xs,), Match(xs, ((half, zero), (more, zero), (nil, zero)), F))}, lists.types)
    verify(full)
    with pytest.raises(InternalError, match="Cons"):
        verify(Module({"main": Function((xs,), Match(xs, ((half, zero), (nil, zero)), F))}, lists.types))


def test_sizes_can_be_bound():
    module = everything()
    made = BindSizes((("n", 2),)).run(module)
    verify(made)
    assert made.main.params[0].type == TensorType((2, 3), FLOAT32)
    assert all(
        e.tensor.is_static for e in post_order(made.main) if isinstance(e, Call) and isinstance(e.type, TensorType)
    )
    x = np.ones((2, 3), np.float32)
    for a, b in zip(interpret.run(made, [x, True])[:2], interpret.run(module, [x, True])[:2], strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(UserError, match="no symbolic size"):
        BindSizes((("batch", 2),)).run(module)
    with pytest.raises(ParseError):
        parse("def @main<", BY_NAME)
    assert isinstance(module.main.body.fields[1], Constant)
