"""Every relation between types: a program that breaks it is an error that points at the place and says what fits."""

from __future__ import annotations

import pytest

from weft.graph.parser import parse
from weft.ops.catalogue import OPERATORS
from weft.support.errors import TypeRelationError, UserError

LIST = "type L { N(); C(f32[3], L) }\n"
ANY = "type L<t> { N(); C(t, L<t>) }\n"


def main(*lines, params="%x: f32[3], %y: f32[4]", result="f32[3]", before="", sizes=""):
    body = "".join(f"  {line}\n" for line in lines)
    return f"{before}def @main{sizes}({params}) -> {result} {{\n{body}  return %0\n}}\n"


def match(*clauses, **more):
    return main(f"%0: f32[3] = match %l {{ {' '.join(clauses)} }}", params="%l: L, %x: f32[3]", before=LIST, **more)


def loop(body, given="%x", attrs="index=i, trips=3, count=3", what="%h: f32[3]"):
    return main(f"%1 = fn({what}) {{ {body} }}", f"%2: (f32[3],) = loop[{attrs}]({given}) do %1", "%0: f32[3] = %2[0]",
                sizes="<i>")  # fmt: skip


F = "def @f(%a: f32[3]) -> f32[3] { return %a }\n"
WRONG = {
    "a tensor is called": (main("%0: f32[3] = %x(%x)"), "T006", "%x(", "cannot be called"),
    "too many arguments": (main("%0: f32[3] = @f(%x, %x)", before=F), "T007", "@f(%x, ", "takes 1 arguments, not 2"),
    "another argument": (main("%0: f32[3] = @f(%y)", before=F), "T021", "%y", "argument 0 has type f32.4., not f32.3."),
    "a function of another type": (
        main("%1 = fn(%b: f32[4]) { return %b }", "%0: f32[3] = @g(%1, %x)",
             before="def @g(%k: fn(f32[3]) -> f32[3], %a: f32[3]) -> f32[3] { %9: f32[3] = %k(%a) return %9 }\n"),
        "T021", "%1, %x", "argument 0 has type fn"),
    "a call in a let": (main("let %v: f32[3] = @f(%x, %x)", "%0: f32[3] = exp(%v)", before=F), "T007", "@f(%x, ", "1"),
    "a field of a tensor": (main("%0: f32[3] = %x[0]"), "T005", "%x[", "no field 0"),
    "a field too many": (main("%1 = (%x, %y)", "%0: f32[3] = %1[2]"), "T005", "%1[", "no field 2"),
    "a tuple as a tensor": (main("%1 = (%x, %y)", "%0: f32[3] = exp(%1)"), "T004", "exp", "must be a tensor"),
    "shapes": (main("%0: f32[3] = add(%x, %y)"), "T013", "add", "sizes 3 and 4"),
    "dtypes": (main("%1: i32[3] = cast(%x, to=i32)", "%0: f32[3] = add(%x, %1)"), "T011", "add", "different dtypes"),
    "ranks": (main("%0: f32[3] = conv(%x, %y)"), "T012", "conv", "rank|dimensions"),
    "an attribute": (main("%0: f32[3] = transpose(%x, prem=(0,))"), "T002", "transpose", "no attribute 'prem'"),
    "a value of an attribute": (main("%0: f32[3] = softmax(%x, axis=3)"), "T014", "softmax", "axis"),
    "what a let holds": (main("let %v: f32[3] = %y", "%0: f32[3] = exp(%v)"), "P001", "%y", "f32.4., not f32.3."),
    "what a function gives": (main("%0: f32[3] = exp(%x)", result="f32[4]"), "P001", "%0", "f32.3., not f32.4."),
    "a condition": (main("%0: f32[3] = if %x { return %x } else { return %x }"), "T022", "if", "condition of an if"),
    "branches": (main("%0: f32[3] = if true { return %x } else { return %y }"), "T022", "if", "a branch"),
    "a field of data": (main("%1 = L::N()", "%2 = L::C(%y, %1)", "%0: f32[3] = exp(%x)", before=LIST), "T021", "%y, ",
                        "argument 0 has type f32.4., not f32.3."),
    "fields of data": (main("%1 = L::C(%x)", "%0: f32[3] = exp(%x)", before=LIST), "T007", "L::C", "takes 2"),
    "a constructor": (main("%1 = L::Q()", "%0: f32[3] = exp(%x)", before=LIST), "T001", "Q", "no constructor 'Q'"),
    "a parameter of a type": (
        main("%1 = L<f32[4]>::N()", "%2 = L<f32[4]>::C(%x, %1)", "%0: f32[3] = exp(%x)", before=ANY),
        "T021", "%x, ", "argument 0"),
    "parameters of a type": (main("%1 = L<f32[3], f32[3]>::N()", "%0: f32[3] = exp(%x)", before=ANY), "T001", "N()",
                             "takes 1 type arguments, not 2"),
    "clauses that are missing": (match("N() => { return %x }"), "T023", "match", "no clause for C"),
    "clauses of nested patterns": (match("N() => { return %x }", "C(_, N()) => { return %x }"), "T023", "match",
                                   "no clause for C"),
    "clauses of other types": (match("N() => { return %x }", "C(_, _) => { return 1.0f32 }"), "T022", "match",
                              "clause of a match"),
    "a variable of a pattern": (match("N() => { return %x }", "C(%a: f32[4], _) => { return %x }"), "T023", "match",
                                "variable 'a'"),
    "fields of a pattern": (match("N() => { return %x }", "C(_) => { return %x }"), "T023", "match", "with 1 fields"),
    "an unknown pattern": (match("Q() => { return %x }"), "T023", "match", "pattern Q"),
    "a tensor is matched": (main("%0: f32[3] = match %x { N() => { return %x } }", before=LIST), "T023", "match", "N"),
    "the first state": (loop("%3 = (%h,) return %3", given="%y"), "T024", "loop", "the first 'h' of a loop"),
    "the next state": (loop("%3: i32[3] = cast(%h, to=i32) %4 = (%3,) return %4"), "T024", "loop", "of the body"),
    "a loop without end": (loop("%3 = (%h,) return %3", attrs="index=i"), "T008", "loop", "number of iterations"),
    "no next state": (loop("return %h"), "T008", "loop", "gives no tuple"),
    "states of a loop": (loop("%3 = (%h,) return %3", given="%x, %y"), "T008", "loop", "must take its state"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_type_errors_point_at_the_wrong_operand(name):
    text, code, at, message = WRONG[name]
    with pytest.raises(UserError, match=message) as caught:
        parse(text, OPERATORS)
    error = caught.value
    assert error.code == code
    assert error.place is not None and error.place.text is not None
    assert error.place.text[error.place.column :].startswith(at), str(error)
    assert "^" in str(error)


def test_hints_name_operands_that_fit():
    for name in ("another argument", "branches", "clauses that are missing", "fields of a pattern", "the next state"):
        with pytest.raises(TypeRelationError) as caught:
            parse(WRONG[name][0], OPERATORS)
        assert caught.value.hint, name


def test_parameters_have_names_of_their_own():
    with pytest.raises(UserError, match="two parameters are called 'x'") as caught:
        parse(main("%0: f32[3] = exp(%x)", params="%x: f32[3], %x: f32[3]"), OPERATORS)
    assert caught.value.place is not None


def test_clauses_of_several_sizes_have_the_declared_type():
    text = """
type L { N(); C(f32[3], L) }

def @main<m>(%l: L) -> f32[m] {
  %0: f32[m] = match %l {
    N() => {
      return f32[1](0.0)
    }
    C(%x: f32[3], _) => {
      return %x
    }
  }
  return %0
}
"""
    module = parse(text, OPERATORS)
    assert str(module.main.body.type) == "f32[m]"
