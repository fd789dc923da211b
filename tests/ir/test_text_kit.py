"""Tokens, errors that point, names and indentation."""

from __future__ import annotations

import pytest

from weft.ir.text import Names, Printer, TokenStream, clean_name, number_parts, quote, tokenize
from weft.support.errors import ParseError


def kinds(source: str, **options: bool) -> list[tuple[str, str]]:
    return [(t.kind, t.text) for t in tokenize(source, **options)][:-1]


def test_tokens() -> None:
    assert [t for _, t in kinds('for i in 0..n { A.v0[i] <= -1.5e-3f16 } # end\n"a\\"b"')] == (
        ["for", "i", "in", "0", "..", "n", "{", "A.v0", "[", "i", "]", "<=", "-", "1.5e-3f16", "}", '"a\\"b"']
    )
    assert kinds("%x @main % 4", sigils=True) == [
        ("sigil", "%x"),
        ("sigil", "@main"),
        ("punctuation", "%"),
        ("number", "4"),
    ]
    assert [t for _, t in kinds("i%n")] == ["i", "%", "n"]


@pytest.mark.parametrize(
    ("text", "value", "suffix"),
    [("3", 3, None), ("2i32", 2, "i32"), ("1.", 1.0, None), ("1e-5", 1e-5, None), ("0.5bf16", 0.5, "bf16")],
)
def test_numbers(text: str, value: float, suffix: str | None) -> None:
    assert kinds(text) == [("number", text)]
    assert number_parts(text) == (value, suffix)
    assert type(number_parts(text)[0]) is type(value)


def test_layout() -> None:
    made = [k for k, _ in kinds("for i:\n  a\n\n  # note\n  b[\n 1]\n  if x:\n    c\nd\n", layout=True)]
    assert [k for k in made if k in ("newline", "indent", "dedent")] == (
        ["newline", "indent", "newline", "newline", "newline", "indent", "newline", "dedent", "dedent", "newline"]
    )
    with pytest.raises(ParseError, match="indentation"):
        tokenize("a:\n    b\n  c\n", layout=True)


@pytest.mark.parametrize("source", ["a `", '"open', "12abc", "1..2..x 3z"])
def test_bad_text_points(source: str) -> None:
    with pytest.raises(ParseError) as caught:
        tokenize("first\n" + source)
    assert caught.value.place is not None and caught.value.place.line == 2
    assert "^" in str(caught.value)


def test_stream() -> None:
    tokens = TokenStream("f(1, -2, 3,) x 'y", file="m.txt")
    assert tokens.name() == "f" and tokens.expect("(").text == "("
    assert tokens.listed(tokens.integer, ")") == [1, -2, 3]
    assert tokens.peek("x", "y") and tokens.ahead().text == "'"
    mark = tokens.mark()
    assert tokens.accept("y") is None and tokens.accept("x") is not None
    tokens.reset(mark)
    with pytest.raises(ParseError) as caught:
        tokens.expect(",", ";")
    assert str(caught.value).splitlines() == [
        "error[P001] expected ',' or ';', found 'x'",
        " --> m.txt, line 1",
        "1 | f(1, -2, 3,) x 'y",
        "  |              ^",
    ]
    with pytest.raises(ParseError, match="expected the end"):
        tokens.finish()


def test_strings_come_back() -> None:
    text = 'a "quoted"\n\\ line é'
    assert TokenStream(quote(text)).string() == text


def test_names_are_unique_and_clean() -> None:
    names = Names(reserved=("for",))
    things = [object() for _ in range(5)]
    made = [names.of(t, h) for t, h in zip(things, ("i", "i", "i_1", "for", "/conv1/w:0"), strict=True)]
    assert made == ["i", "i_1", "i_2", "for_1", "_conv1_w_0"]
    assert names(things[0]) == "i"
    assert clean_name("") == "_" and clean_name("a..b.") == "a_.b_" and clean_name("0x") == "_0x"
    for name in made:
        assert kinds(name) == [("name", name)]


def test_printer() -> None:
    out = Printer()
    out.line("a {")
    with out.block():
        out.line("b")
        with out.block("c {", "}"):
            out.line()
            out.line("d")
    out.line("}")
    assert out.text() == "a {\n  b\n  c {\n\n    d\n  }\n}\n"
