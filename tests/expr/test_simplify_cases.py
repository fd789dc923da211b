"""Index expressions from kernels: no division, remainder or unnecessary check may remain."""

from __future__ import annotations

import pytest

from weft.expr.evaluate import evaluate
from weft.expr.folds import all_of, any_of
from weft.expr.nodes import Binary, Const, Expr, Select, Var, make, maximum, minimum, select
from weft.expr.prove import Facts
from weft.expr.simplify import simplify
from weft.expr.text import parse, to_text
from weft.expr.visit import post_order

NAMES = ("i", "j", "k", "p", "io", "ii", "jo", "ji", "n", "m", "H", "W", "C", "oh", "ow", "kh", "kw", "c", "x", "y")
V = {name: Var(name) for name in NAMES}


def facts(*bounds: str, sizes: str = "", given: tuple[str, ...] = ()) -> Facts:
    """Facts from text: ``i<8`` and ``2<=i<n`` bind loop variables."""
    made = Facts(sizes=[V[s] for s in sizes.split()])
    for text in bounds:
        parts = text.replace("<=", "<").split("<")
        start, name, stop = parts if len(parts) == 3 else ("0", *parts)
        low, high = parse(start, V), parse(stop, V)
        made.bind(V[name.strip()], low, high - low)
    for text in given:
        made.assume(parse(text, V))
    return made


CASES: list[tuple[str, tuple[str, ...], str, tuple[str, ...], str, str]] = [
    # name, loops, sizes, assumptions, before, after
    ("flatten-unflatten: high", ("i<32", "j<16"), "", (), "(i*16 + j)//16", "i"),
    ("flatten-unflatten: low", ("i<32", "j<16"), "", (), "(i*16 + j)%16", "j"),
    ("three levels: high", ("i<8", "j<6", "k<5"), "", (), "((i*6 + j)*5 + k)//30", "i"),
    ("three levels: middle", ("i<8", "j<6", "k<5"), "", (), "((i*6 + j)*5 + k)//5%6", "j"),
    ("three levels: low", ("i<8", "j<6", "k<5"), "", (), "((i*6 + j)*5 + k)%5", "k"),
    ("three levels: two low", ("i<8", "j<6", "k<5"), "", (), "((i*6 + j)*5 + k)%30", "j*5 + k"),
    ("fused and split again", ("io<8", "ii<16"), "", (), "(io*16 + ii)//8*8 + (io*16 + ii)%8", "io*16 + ii"),
    ("reshape 64 to 8x8, tile 4", ("io<16", "ii<4"), "", (), "(io*4 + ii)//8", "io//2"),
    ("reshape 64 to 8x8, low", ("io<16", "ii<4"), "", (), "(io*4 + ii)%8", "io%2*4 + ii"),
    ("symbolic: high", ("i<m", "j<n"), "m n", (), "(i*n + j)//n", "i"),
    ("symbolic: low", ("i<m", "j<n"), "m n", (), "(i*n + j)%n", "j"),
    ("symbolic image: channel", ("c<C", "y<H", "x<W"), "C H W", (), "((c*H + y)*W + x)//(H*W)", "c"),
    ("symbolic image: row", ("c<C", "y<H", "x<W"), "C H W", (), "((c*H + y)*W + x)//W%H", "y"),
    ("symbolic image: row, the other way", ("c<C", "y<H", "x<W"), "C H W", (), "((c*H + y)*W + x)%(H*W)//W", "y"),
    ("symbolic image: column", ("c<C", "y<H", "x<W"), "C H W", (), "((c*H + y)*W + x)%W", "x"),
    (
        "symbolic blocked channels",
        ("c<C", "ii<16", "x<W"),
        "C W",
        (),
        "((c*W + x)*16 + ii)//(W*16)*16 + ii",
        "c*16 + ii",
    ),
    ("symbolic sum as divisor", ("i<m", "j<n+2"), "m n", (), "(i*(n + 2) + j)//(n + 2)", "i"),
    ("symbolic sum as divisor, low", ("i<m", "j<n+2"), "m n", (), "(i*(n + 2) + j)%(n + 2)", "j"),
    ("symbolic, blocked", ("i<m", "j<n", "k<4"), "m n", (), "(i*n*4 + j*4 + k)//(4*n)", "i"),
    ("nested quotients", ("i<1000",), "", (), "i//4//8", "i//32"),
    ("quotient of remainder", ("i<1000",), "", (), "i%32//8", "i//8%4"),
    ("remainder of remainder", ("i<1000",), "", (), "i%32%8", "i%8"),
    ("quotient and remainder join", ("i<1000",), "", (), "i//7*7 + i%7", "i"),
    ("digits join", ("i<1000",), "", (), "i//4%8*4 + i%4", "i%32"),
    ("digits of a sum join", ("p<9", "i<40"), "", (), "(p*3 + i//4)%8*4 + i%4", "(p*12 + i)%32"),
    (
        "pieces of four fused axes",
        ("p<9", "i<140"),
        "",
        (),
        "(p*140 + i)//252*252 + (p*140 + i)//28%9*28 + (p*35 + i//4)%7*4 + i%4",
        "p*140 + i",
    ),
    ("symbolic quotient and remainder join", ("i<1000",), "n", (), "i//n*n + i%n", "i"),
    ("upsampling by two", ("oh<32", "kh<2"), "", (), "(oh*2 + kh)//2", "oh"),
    ("depth to space", ("oh<32", "kh<2", "c<16"), "", (), "(c*4 + kh*2 + (oh*2 + 1)%2)//4", "c"),
    ("grouped channels", ("i<4", "j<8", "k<3"), "", (), "(i*8 + j)//8*3 + k", "i*3 + k"),
    ("convolution interior: row", ("1<=oh<55", "kh<3"), "", (), "0 <= oh + kh - 1 and oh + kh - 1 < 56", "true"),
    ("convolution border stays", ("oh<1", "kh<3"), "", (), "0 <= oh + kh - 1 and oh + kh - 1 < 56", "1 <= oh + kh"),
    (
        "convolution stride 2 interior",
        ("2<=oh<100", "kh<7"),
        "",
        (),
        "0 <= oh*2 + kh - 3 and oh*2 + kh - 3 < 224",
        "true",
    ),
    ("pooling window inside", ("oh<27", "kh<3"), "", (), "oh*2 + kh < 56", "true"),
    ("symbolic interior", ("1<=oh<H-1", "kh<3"), "H", (), "0 <= oh + kh - 1 and oh + kh - 1 < H", "true"),
    ("pad: inside", ("2<=i<18",), "", (), "2 <= i and i < 18", "true"),
    ("pad: outside", ("18<=i<20",), "", (), "2 <= i and i < 18", "false"),
    ("matmul tail guard in a full tile", ("io<62", "ii<16"), "", (), "io*16 + ii < 1000", "true"),
    ("matmul tail: extent", ("io<62",), "", (), "min(16, 1000 - io*16)", "16"),
    ("matmul tail: last tile", ("62<=io<63",), "", (), "min(16, 1000 - io*16)", "8"),
    ("matmul tail within extent", ("io<63", "ii<min(16, 1000 - io*16)"), "", (), "io*16 + ii < 1000", "true"),
    ("symbolic tail within extent", ("io<(n + 15)//16", "ii<min(16, n - io*16)"), "n", (), "io*16 + ii < n", "true"),
    ("symbolic full tiles", ("io<n//16", "ii<16"), "n", (), "io*16 + ii < n", "true"),
    ("symbolic tail is within a tile", (), "n", (), "n - n//16*16 < 16", "true"),
    ("symbolic tail is a remainder", (), "n", (), "n - n//16*16", "n%16"),
    ("multiple of four", ("i<n//4", "j<4"), "n", ("n % 4 == 0",), "i*4 + j < n", "true"),
    ("guard implied by a tighter one", ("i<100", "j<100"), "", ("i*4 + j < 50",), "i*4 + j < 60", "true"),
    ("guard implied through a factor", ("i<100",), "", ("i*4 < 50",), "i < 13", "true"),
    ("redundant members", ("i<100",), "", (), "i < 40 and i < 20 and i < 30 and 0 <= i", "i < 20"),
    ("contradiction", ("i<100",), "", (), "i < 4 and 8 <= i", "false"),
    ("clamped gather", ("i<16",), "", (), "max(min(i, 15), 0)", "i"),
    ("common terms leave the minimum", ("i<16",), "n", (), "min(i*4 + 4, i*4 + n) - i*4", "min(4, n)"),
    ("select by loop", ("i<16",), "", (), "select(i < 16, i + 1, 0)", "i + 1"),
    ("select side under its condition", ("i<16",), "", (), "select(i < 4, i//4 + i%4, i)", "i"),
    ("reflected padding inside", ("2<=i<10",), "", (), "select(i < 2, 2 - i, select(i < 10, i - 2, 16 - i))", "i - 2"),
    ("equal modulo", ("i<16", "j<16"), "", (), "i*2 == j*2 + 1", "false"),
    ("equal after factoring", ("i<16", "j<16"), "", (), "i*4 == j*4", "i == j"),
    ("start of a split reduction", ("io<8", "ii<4"), "", (), "io*4 + ii == 0", "io == 0 and ii == 0"),
    ("not the start of a split reduction", ("io<8", "ii<4"), "", (), "io*4 + ii != 0", "io != 0 or ii != 0"),
    ("end of a split reduction", ("io<8", "ii<4"), "", (), "io*4 + ii == 31", "io == 7 and ii == 3"),
    ("loop of one step", ("i<1",), "", (), "i*4 + j", "j"),
    ("loop of one step, symbolic", ("n<=i<n+1",), "n", (), "i*4 - n*4", "0"),
    ("cancellation", ("i<16",), "n", (), "(i + n)*4 - n*4", "i*4"),
    ("truncation of what is not negative", ("i<16",), "", (), "truncdiv(i, 4)*4 + truncmod(i, 4)", "i"),
    ("negative divisor", ("i<16", "j<4"), "", (), "(i*4 + j)//-4", "(0 - i*4 - j)//4"),
    ("dilated window position", ("oh<28", "kh<3"), "", (), "(oh*1 + kh*2 - kh)%1 + oh", "oh"),
    ("transposed convolution, phase known", ("i<14", "kh<2"), "", (), "(i*2 + 2 - kh*2)%2", "0"),
    ("transposed convolution, position", ("i<14", "kh<2"), "", (), "(i*2 + 2 - kh*2)//2", "i - kh + 1"),
]


@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_simplifies_to(case: tuple[str, tuple[str, ...], str, tuple[str, ...], str, str]) -> None:
    _, loops, sizes, given, before, after = case
    known = facts(*loops, sizes=sizes, given=given)
    made = known.simplify(parse(before, V))
    wanted = parse(after, V)
    assert to_text(made) == to_text(wanted) or made is known.simplify(wanted), f"{made}, not {wanted}"


def has(e: Expr, *ops: str) -> bool:
    return any(isinstance(n, Binary) and n.op in ops for n in post_order(e))


def test_deeply_nested_selects_do_not_recurse_without_end() -> None:
    i = V["i"]
    e: Expr = i
    for at in range(300):
        e = Select(i < at, i + at, e)
    assert facts("i<1000").simplify(e) is not None


def test_a_long_sum_is_linear_in_time() -> None:
    e: Expr = V["i"]
    for at in range(3000):
        e = e + V["j"] * (at % 3) if at % 2 else e - V["i"]
    assert to_text(facts().simplify(e)) == "j * 1500 - i * 1499"


def test_scopes_forget() -> None:
    known = facts("i<10")
    i, n = V["i"], V["n"]
    with known.assuming(n > 20):
        assert known.prove(i < n)
        with known.scope():
            known.bind(V["j"], 0, i)
            assert known.prove(V["j"] < n)
    assert not known.prove(i < n)


def test_equality_of_sizes_is_used() -> None:
    known = Facts(sizes=(V["n"], V["m"]))
    known.assume(V["n"] == V["m"])
    assert known.prove(V["n"] <= V["m"])
    assert known.equal(V["n"] * 4, V["m"] * 4)


def test_conditions_that_are_no_inequalities_are_remembered() -> None:
    flag = Var("flag", "bool")
    known = Facts()
    with known.assuming(flag):
        assert known.simplify(select(flag, V["i"], V["j"])) is V["i"]
        assert known.prove(any_of(flag, V["i"] < 3))
    assert not known.prove(all_of(flag))


def test_minimum_of_bounds() -> None:
    known = facts("i<n", sizes="n")
    assert known.prove(minimum(V["i"], 7) < V["n"])
    assert known.prove(maximum(V["i"], 0) >= V["i"])


@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge"])
@pytest.mark.parametrize("bound", [2**63 - 1, -(2**63)])
@pytest.mark.parametrize("value", [2**63 - 1, 2**63 - 2, 0, 1 - 2**63, -(2**63)])
def test_comparisons_with_the_ends_of_the_range(op: str, bound: int, value: int) -> None:
    """A bound moved by one does not wrap around."""
    holds = {"lt": value < bound, "le": value <= bound, "gt": value > bound, "ge": value >= bound}[op]
    mirrored = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}[op]
    i = V["i"]
    for e in (make(op, i, Const(bound)), make(mirrored, Const(bound), i)):
        assert bool(evaluate(simplify(e), {i: value})) == holds


def test_facts_with_a_common_factor() -> None:
    """The constant may round to nothing when the factor is taken out: ``3 * i - 3 * j + 1 >= 0`` says ``i >= j``."""
    i, j = V["i"], V["j"]
    known = Facts()
    with known.assuming(i * 3 - j * 3 + 1 >= 0):
        assert known.prove(i >= j)
        assert known.prove(i * 2 + 5 >= j * 2)
        assert not known.prove(i > j)
