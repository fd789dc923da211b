"""Makers of control flow and sequences for ``fuzz_control``."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from fuzz_control import KINDS, MAX_DEPTH, NUMBERS, PLAIN, Block, Cases, Item, Shared, code_of, type_of
from fuzz_graphs import Unfit
from onnx import helper

Maker = Callable[[Block], None]


def makers(g: Block) -> Sequence[Maker]:
    """What a block may hold: control flow only as deep as allowed."""
    flow: tuple[Maker, ...] = (branch, repetition, repetition, scan) if g.depth < MAX_DEPTH else ()
    return (*PLAIN, *PLAIN[:4], *flow, *flow, *SEQUENCES)


def inner(g: Block) -> Block:
    if g.depth >= MAX_DEPTH:
        raise Unfit
    return Block(g.model, g)


def condition(g: Block, fits: Callable[[Item], bool] = lambda t: True) -> Item:
    """A bool of one element: constant, an input, or computed."""
    found = [t for t in g.visible() if t.is_tensor and t.kind == "bool" and t.shape in ((), (1,)) and fits(t)]
    if found and g.chance(0.4):
        return g.of(found)
    value = np.asarray(g.chance(0.6)).reshape(g.of(((), (), (1,))))
    return g.weight(value) if g.chance(0.3) else g.given(value.shape, "bool", lambda rng, s: rng.random(s) > 0.4, 0)


def number(g: Block, choices: Sequence[int]) -> Item:
    """An int64 of one element: constant, an input, or a size."""
    shape = g.of(((), (), (1,)))
    if g.chance(0.4):
        return g.weight(np.full(shape, g.of(choices), np.int64))
    found = [t for t in g.visible() if t.is_tensor and t.kind == "int64" and t.shape == () and 0 <= int(t.value) < 6]
    if found and g.chance(0.4):
        return g.of(found)
    return g.given(shape, "int64", lambda rng, s: np.full(s, rng.choice(list(choices)), np.int64), 0)


def declared(g: Block, name: str, value: Any, *, exact: bool) -> Any:
    """The input of a body: with its shape, with open sizes, or without a shape."""
    shape: Any = None
    if isinstance(value, np.ndarray):
        how = g.pick.random()
        if exact and how < 0.4:
            shape = list(value.shape)
        elif how < 0.7:
            shape = [None if g.chance(0.5) else f"{name}_{i}" for i in range(value.ndim)]
    return helper.make_value_info(name, type_of(value, shape))


def branch(g: Block) -> None:
    flag = condition(g)
    first = inner(g)
    before = g.model.count
    first.grow(g.pick.randint(1, 4), makers(first))
    candidates = [t for t in first.items if t.is_tensor] or [g.tensor()]
    results = [g.of(candidates[-4:]) for _ in range(g.pick.randint(1, 2))]
    made = first.results(results)
    after, second = g.model.count, inner(g)
    if g.chance(0.4) and not any(i.name == f"x{k}" for i in g.model.inputs for k in range(before, after + 1)):
        g.model.count = max(before, _used(g, before))  # both branches may use the same names
    second.grow(g.pick.randint(0, 4), makers(second))
    others = []
    for t in made:
        same = [o for o in second.visible() if o.is_tensor and o.kind == t.kind and o not in others]
        alike = [o for o in same if o.shape == t.shape]
        near = [o for o in same if len(o.shape) == len(t.shape)]
        pool = (alike if g.chance(0.5) else near) or near or (same if g.chance(0.3) else [])
        others.append(g.of(pool))
    other = second.results(others)
    g.model.count = max(g.model.count, after)
    g.add("If", [flag], len(made), then_branch=first.proto([], made, "then"),
          else_branch=second.proto([], other, "otherwise"))  # fmt: skip


def _used(g: Block, low: int) -> int:
    """The highest number of a name that other blocks see."""
    names = [t.name for t in g.visible()] + [w.name for w in g.model.weights]
    return max([low, *(int("".join(c for c in n if c.isdigit())) for n in names)])


def repetition(g: Block) -> None:
    """A Loop with any trip count and conditions, states that may change shape, and rows."""
    limit = number(g, (0, 1, 2, 3, 3, 9)) if g.chance(0.85) else None
    start = condition(g) if g.chance(0.4) else None
    with_sequence = g.chance(0.15)
    states = [g.tensor() for _ in range(g.pick.randint(0, 2))]
    if with_sequence:
        states.append(sequence(g))
    body = inner(g)
    i, on = Item(body.name("i"), np.array(0, np.int64)), Item(body.name("c"), np.array(True))
    held = [Item(body.name("s"), t.value, t.optional) for t in states]
    body.items += [i, on, *held]
    body.grow(g.pick.randint(1, 6), makers(body))
    end: Item
    if limit is None or g.chance(0.4):
        bound = g.weight(g.pick.randint(0, 4), "int64") if g.chance(0.5) else number(g, (0, 1, 2, 4))
        if bound.shape:
            bound = body.add("Reshape", [bound, body.weight(np.zeros(0, np.int64))])[0]
        end = body.add("Less", [i, bound])[0]
    elif g.chance(0.3):
        end = condition(body, lambda t: t.shape == ())
        if end.shape:
            raise Unfit
    else:
        end = on if g.chance(0.7) else body.weight(np.array(True))
    after = [_next(body, t, h) for t, h in zip(states, held, strict=True)]
    rows = [g.of([t for t in body.items if t.is_tensor]) for _ in range(g.pick.randint(0 if states else 1, 2))]
    through = g.chance(0.2)  # an input that is a result, without a node
    results = [end if through and end is on else body.results([end])[0], *body.results([*after, *rows])]
    exact = [isinstance(t.value, np.ndarray) and t.value.shape == a.value.shape
             for t, a in zip(states, after, strict=True)]  # fmt: skip
    inputs = [
        helper.make_value_info(i.name, type_of(i.value, [])),
        helper.make_value_info(on.name, type_of(on.value, [])),
        *(declared(g, h.name, h.value, exact=e) for h, e in zip(held, exact, strict=True)),
    ]
    g.add("Loop", [limit, start, *states], len(states) + len(rows), body=body.proto(inputs, results, "body"))


def _next(body: Block, before: Item, held: Item) -> Item:
    """The next value of a state: of its dtype, mostly of its shape."""
    if isinstance(before.value, list):
        found = [t for t in body.items if isinstance(t.value, list) and not t.optional and t is not held]
        return body.of([*found[-2:], held])
    same = [t for t in body.items if t.is_tensor and t.kind == before.kind and t is not held]
    alike = [t for t in same if t.shape == before.shape]
    near = [t for t in same if len(t.shape) == len(before.shape)]
    pool = alike if body.chance(0.7) else near
    return body.of(pool) if pool else held


def scan(g: Block) -> None:
    """A Scan over any axes, in any directions, with any number of states."""
    length = g.of((1, 2, 3, 4, 5))
    count = g.pick.randint(1, 2)
    scanned = [g.tensor(KINDS[:-1], lambda t: length in t.shape) for _ in range(count)]
    axes = [g.of([k for k, d in enumerate(t.shape) if d == length]) for t in scanned]
    states = [g.tensor(KINDS[:-1]) for _ in range(g.pick.randint(0, 2))]
    body = inner(g)
    held = [Item(body.name("s"), t.value) for t in states]
    backward = [int(g.chance(0.3)) for _ in scanned]
    parts = [
        Item(body.name("p"), np.take(t.value, -b, axis=a)) for t, a, b in zip(scanned, axes, backward, strict=True)
    ]
    body.items += [*held, *parts]
    body.grow(g.pick.randint(1, 5), makers(body))
    after = []
    for t, h in zip(states, held, strict=True):
        found = [o for o in body.items if o.is_tensor and o.kind == t.kind and o.shape == t.shape and o is not h]
        after.append(g.of(found) if found else h)
    rows = [g.of([t for t in body.items if t.is_tensor and t.kind != "object"])
            for _ in range(g.pick.randint(0 if states else 1, 2))]  # fmt: skip
    results = body.results([*after, *rows])
    inputs = [declared(g, t.name, t.value, exact=True) for t in (*held, *parts)]
    attrs: dict[str, Any] = {}
    if any(axes) or g.chance(0.2):
        attrs["scan_input_axes"] = [
            a - len(t.shape) if g.chance(0.2) else a for a, t in zip(axes, scanned, strict=True)
        ]
    if any(backward) or g.chance(0.2):
        attrs["scan_input_directions"] = backward
    if rows and g.chance(0.4):
        attrs["scan_output_axes"] = [g.pick.randint(-1 - len(t.shape), len(t.shape)) for t in rows]
    if rows and g.chance(0.4):
        attrs["scan_output_directions"] = [int(g.chance(0.5)) for _ in rows]
    g.add("Scan", [*states, *scanned], len(results), body=body.proto(inputs, results, "body"), num_scan_inputs=count,
          **attrs)  # fmt: skip


# --- sequences and optionals ------------------------------------------------------------------------------------------


def sequence(g: Block) -> Item:
    """A sequence in sight that holds something, or a new one."""
    found = [t for t in g.visible() if isinstance(t.value, list) and t.value and not t.optional]
    return g.of(found) if found and g.chance(0.8) else construct(g)


def construct(g: Block) -> Item:
    first = g.tensor()
    items = [first, *(g.tensor((first.kind,)) for _ in range(g.pick.randint(0, 3)))]
    return g.add("SequenceConstruct", items)[0]


def place(g: Block, low: int, high: int) -> Item:
    if low > high:
        raise Unfit
    kind = g.of(("int64", "int32"))
    if g.chance(0.6):
        return g.weight(g.pick.randint(low, high), kind)
    return g.given((), kind, lambda rng, s: np.asarray(rng.integers(low, high + 1), kind), 0)


def at(g: Block) -> None:
    s = sequence(g)
    g.add("SequenceAt", [s, place(g, -len(s.value), len(s.value) - 1)])


def insert(g: Block) -> None:
    s = sequence(g)
    new = g.tensor((str(s.value[0].dtype),))
    g.add("SequenceInsert", [s, new, *([place(g, -len(s.value), len(s.value))] if g.chance(0.6) else [])])


def start_empty(g: Block) -> None:
    new = g.tensor(("float32", "int64"))
    empty = g.placed(helper.make_node("SequenceEmpty", [], [g.name("y")], dtype=code_of(new.kind)), [])
    g.placed(helper.make_node("SequenceInsert", [empty.name, new.name], [g.name("y")]), [new.value])


def erase(g: Block) -> None:
    s = sequence(g)
    if len(s.value) > 1:
        g.add("SequenceErase", [s, *([place(g, -len(s.value), len(s.value) - 1)] if g.chance(0.6) else [])])


def length(g: Block) -> None:
    g.add("SequenceLength", [sequence(g)])


def joined(g: Block) -> None:
    s = sequence(g)
    rank = s.value[0].ndim
    new = int(g.chance(0.4))
    if rank + new == 0:
        raise Unfit
    g.add("ConcatFromSequence", [s], axis=g.pick.randint(-rank - new, rank + new - 1), new_axis=new)


def split(g: Block) -> None:
    x = g.tensor((*NUMBERS, "bool"), lambda t: len(t.shape) > 0)
    axis = g.pick.randrange(len(x.shape))
    how = g.pick.randrange(3)
    attrs: dict[str, Any] = {"axis": axis - len(x.shape) if g.chance(0.3) else axis}
    operands = [x]
    if how == 0:
        attrs["keepdims"] = int(g.chance(0.5))
    elif how == 1:
        operands.append(g.weight(g.pick.randint(1, 3), "int64"))
    else:
        middle = g.pick.randint(0, x.shape[axis])
        operands.append(g.weight([middle, x.shape[axis] - middle], "int64"))
    g.add("SplitToSequence", operands, **attrs)


def mapped(g: Block) -> None:
    s = sequence(g)
    if len({v.ndim for v in s.value}) > 1:
        raise Unfit
    further = [g.tensor() for _ in range(g.pick.randint(0, 1))]
    body = inner(g)
    item = Item(body.name("q"), s.value[0])
    whole = [Item(body.name("q"), t.value) for t in further]
    body.items += [item, *whole]
    body.grow(g.pick.randint(1, 3), PLAIN)
    results = body.results([g.of([t for t in body.items if t.is_tensor and t.kind != "object"])])
    inputs = [helper.make_value_info(t.name, type_of(t.value)) for t in (item, *whole)]
    g.add("SequenceMap", [s, *further], body=body.proto(inputs, results, "body"))


def optional(g: Block) -> None:
    x = g.tensor() if g.chance(0.7) else sequence(g)
    made = g.add("Optional", [x])[0]
    if g.chance(0.5):
        g.add("OptionalHasElement", [made])
    g.add("OptionalGetElement", [made])


SEQUENCES: tuple[Maker, ...] = (at, at, insert, start_empty, erase, length, joined, split, mapped, optional)


def grown(pick: random.Random, nodes: int = 8) -> Cases:
    """A model, the values of its inputs that it grew with, and others of other sizes."""
    main = Block(Shared(pick))
    while not any(n.op_type in FLOW for n in main.nodes):
        main = Block(Shared(pick))
        main.grow(pick.randint(2, nodes), makers(main))
    return main.finished()


FLOW = ("If", "Loop", "Scan", "SequenceAt", "SequenceInsert", "SequenceErase", "SequenceMap", "ConcatFromSequence",
        "SplitToSequence", "Optional")  # fmt: skip
