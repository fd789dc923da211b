"""Rewrite rules of operators: each applies where it should, does not apply elsewhere, and keeps the meaning."""

from __future__ import annotations

import pytest
from rule_cases import FIRES, STAYS, part
from rule_kit import RULES, Case, agree, o, operators, rewritten, x

from weft.expr.nodes import Var
from weft.ops.rules import SIMPLIFY_RULES


def label(case: Case) -> str:
    return case.rule


@pytest.mark.parametrize("case", FIRES, ids=label)
def test_rule_fires_alone_and_keeps_the_meaning(case: Case) -> None:
    before, after = rewritten(case.body, RULES[case.rule])
    assert after is not before
    if case.result is not None:
        assert operators(after) == case.result
    agree(before, after, case.low, case.high)
    if case.special:
        agree(before, after, special=True)


@pytest.mark.parametrize("case", STAYS, ids=label)
def test_rule_leaves_alone(case: Case) -> None:
    before, after = rewritten(case.body, RULES[case.rule])
    assert operators(after) == operators(before)


@pytest.mark.parametrize("case", (*FIRES, *STAYS), ids=label)
def test_all_rules_together_come_to_rest_and_keep_the_meaning(case: Case) -> None:
    before, after = rewritten(case.body)
    agree(before, after, case.low, case.high)
    again = rewritten(after.body)[1]
    assert operators(again) == operators(after)


def test_every_rule_has_a_case_and_a_name_of_its_own() -> None:
    names = [rule.name for rule in SIMPLIFY_RULES]
    assert len(set(names)) == len(names)
    assert set(names) == {case.rule for case in FIRES}


def test_parts_without_elements_vanish_together() -> None:
    """A rotation of whole heads is written like one of their first elements: the rest has none."""
    whole = x(2, 3, 8)
    turned, rest = (part(whole, (8, 0), i) for i in (0, 1))
    assert operators(rewritten(o("concat", o("neg", turned), rest, axis=-1))[1]) == "neg"


def test_open_parts_are_the_whole_where_the_others_have_no_elements() -> None:
    n, m = Var("n"), Var("m")
    assert operators(rewritten(o("neg", part(x(2, n, 4), (n, 0), 0, axis=1)))[1]) == "neg"
    assert operators(rewritten(o("neg", part(x(2, n + m, 4), (n, m), 0, axis=1)))[1]) == "split neg"
