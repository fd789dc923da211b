"""Every rule of every differentiable operator against central differences in float64.

Gradients of whole programs, of gradients too, compiled, and against PyTorch.
"""

from __future__ import annotations

import numpy as np
import pytest
from operator_cases import operands

import weft
from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Call, Constant, Function, If, Let, Module, Project, Tuple, Var, call
from weft.graph.types import TensorType, TupleType
from weft.graph.verify import verify
from weft.ops.catalogue import OPERATORS, op
from weft.ops.gradients import DIFFERENTIABLE, differentiate, gradients
from weft.support.dtypes import DType
from weft.support.errors import ModelError, TypeRelationError

STEP = 1e-6
# Blocked layouts and packed weights are made by the compiler after differentiation; the rest is said in the error.
REFUSED = "layout|packed|mode|column-major|group_norm|einsum|symbolic"


def doubled(arrays):
    return [a.astype(np.float64) if DType(a.dtype).is_float else a for a in arrays]


def o(name, *args, **attrs):
    return call(op(name), list(args), attrs)


def parts(made):
    if isinstance(made.type, TupleType):
        return [Project(made, i) for i in range(len(made.type.fields))]
    return [made]


def built(entry, case):
    """The sum of all float results, each with weights of its own, as a function of the operands."""
    arrays = doubled(operands(case))
    params = [build.var(f"p{i}", a.shape, DType(a.dtype)) for i, a in enumerate(arrays)]
    attrs = dict(case.attrs)
    for name in ("out_dtype", "to"):  # differences need all digits
        if attrs.get(name) is not None and DType(attrs[name]).is_float:
            attrs[name] = "float64"
    made = call(entry, params, attrs)
    total = None
    for k, part in enumerate(parts(made)):
        if part.tensor.dtype.is_float:
            weights = np.random.default_rng(k).uniform(0.5, 1.5, tuple(part.tensor.shape))
            term = o(
                "reduce_sum",
                o("mul", o("cast", part, to="float64"), build.constant(weights, "float64")),
                keepdims=False,
            )
            total = term if total is None else o("add", total, term)
    return arrays, params, total


def slope(function, arrays, which, direction):
    """The derivative along a direction, by central differences; NaN at a bend or a jump."""
    values = []
    for step in (1, 0, -1):
        moved = list(arrays)
        moved[which] = arrays[which] + step * STEP * direction
        values.append(float(run(function, moved)))
    right, left = (values[0] - values[1]) / STEP, (values[1] - values[2]) / STEP
    smooth = abs(right - left) < 1e-3 * max(1.0, abs(right)) and abs(right) < 1e5
    return (right + left) / 2 if smooth else np.nan


def has_floats(entry, case):
    """Whether there is anything to differentiate."""
    try:
        arrays, _, total = built(entry, case)
    except TypeRelationError:  # the operator takes no float64
        return False
    return total is not None and any(a.dtype == np.float64 for a in arrays)


CASES = [
    pytest.param(OPERATORS[name], i, id=f"{name}-{i}")
    for name in sorted(DIFFERENTIABLE)
    for i, case in enumerate(OPERATORS[name].cases)
    if has_floats(OPERATORS[name], case)
]


@pytest.mark.parametrize(("entry", "number"), CASES)
def test_rules_agree_with_differences(entry, number):
    arrays, params, total = built(entry, entry.cases[number])
    chosen = [i for i, a in enumerate(arrays) if a.dtype == np.float64]
    try:
        made = gradients(total, [params[i] for i in chosen])
    except ModelError as why:
        assert why.code == "M030" and any(word in why.message for word in REFUSED.split("|")), why
        return
    function = Function(tuple(params), total)
    found = run(Function(tuple(params), Tuple(tuple(made))), arrays)
    rng = np.random.default_rng(7)
    with np.errstate(all="ignore"):
        for i, gradient in zip(chosen, found, strict=True):
            assert gradient.shape == arrays[i].shape and gradient.dtype == np.float64
            # Of different lengths: the same number for all elements would not tell weights of one sum from others.
            direction = rng.choice([-1.0, 1.0], arrays[i].shape) * rng.uniform(0.5, 1.5, arrays[i].shape)
            wanted = slope(function, arrays, i, direction)
            if np.isfinite(wanted):
                np.testing.assert_allclose((gradient * direction).sum(), wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("mode", "coordinates"),
    [(m, c) for m in ("nearest", "linear", "cubic") for c in ("half_pixel", "asymmetric", "align_corners")],
)
@pytest.mark.parametrize("scales", [None, (None, 1.65, 0.9), (1.0, 1.25, 1.1), (1.4, None, None)])
def test_resizing_by_factors_that_are_not_the_ratio_of_the_sizes(mode, coordinates, scales):
    """Each element of the Jacobian. An axis whose size stays may be resampled as well."""
    x = build.var("x", (2, 5, 3), "float64")
    attrs = {"sizes": (2, 8, 3), "mode": mode, "coordinates": coordinates}
    y = o("resize", x, **attrs) if scales is None else o("resize", x, scales=scales, **attrs)
    weights = np.random.default_rng(1).uniform(0.5, 1.5, (2, 8, 3))
    total = o("reduce_sum", o("mul", y, build.constant(weights, "float64")), keepdims=False)
    value = np.random.default_rng(0).standard_normal((2, 5, 3))
    (found,) = run(Function((x,), Tuple(tuple(gradients(total, [x])))), [value])
    base = float(run(Function((x,), total), [np.zeros((2, 5, 3))]))
    wanted = np.array([float(run(Function((x,), total), [unit.reshape(2, 5, 3)])) for unit in np.eye(30)]) - base
    np.testing.assert_allclose(found, wanted.reshape(2, 5, 3), rtol=1e-6, atol=1e-9)


def at(name, value, by=np.ones_like, **attrs):
    """The gradient of the weighted sum of an operator's result at a point, compiled and interpreted."""
    x = build.var("x", value.shape, str(value.dtype))
    y = o(name, x, **attrs)
    total = o(
        "reduce_sum",
        o("mul", y, build.constant(by(np.empty(y.tensor.shape, value.dtype)), str(value.dtype))),
        keepdims=False,
    )
    module = differentiate(Module({"main": Function((x,), total)}), ("x",))
    interpreted, compiled = run(module.main, [value])[1], weft.compile(module, threads=1)(value)[1]
    np.testing.assert_allclose(compiled, interpreted, rtol=1e-5, atol=1e-6)
    return interpreted


ROWS = np.array([[3.0, -4.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [1.0, 2.0, -2.0]], np.float32)
"""With a row of zeros, and rows with one and with two of them."""


@pytest.mark.parametrize(
    "name", ["reduce_l1", "reduce_l2", "reduce_prod", "reduce_max", "reduce_min", "reduce_sum_square"]
)
@pytest.mark.parametrize("keepdims", [True, False])
def test_reductions_of_rows_with_zeros(name, keepdims):
    """Where there is no derivative, norms have that of least length, and equal extremes share theirs: as in PyTorch."""
    torch = pytest.importorskip("torch")
    x = torch.tensor(ROWS, requires_grad=True)
    made = {
        "reduce_l1": lambda: x.abs().sum(1),
        "reduce_l2": lambda: torch.linalg.vector_norm(x, dim=1),
        "reduce_prod": lambda: x.prod(1),
        "reduce_max": lambda: x.amax(1),
        "reduce_min": lambda: x.amin(1),
        "reduce_sum_square": lambda: (x * x).sum(1),
    }[name]()
    (made * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    by = lambda y: np.arange(1, 5, dtype=y.dtype).reshape(y.shape)  # noqa: E731
    np.testing.assert_allclose(at(name, ROWS, by, axes=(1,), keepdims=keepdims), x.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_of_windows_of_zeros(p):
    value = np.array([0.0, 0.0, 0.0, 3.0, -4.0, 0.0, 2.0, 0.0], np.float32).reshape(1, 1, 8)
    found = at("lp_pool", value, kernel=(2,), strides=(2,), p=p)
    pairs = value.reshape(4, 2).astype(np.float64)
    norms = (np.abs(pairs) ** p).sum(1, keepdims=True) ** (1 / p)
    wanted = np.sign(pairs) * np.abs(pairs) ** (p - 1) / np.where(norms, norms, 1.0) ** (p - 1)
    np.testing.assert_allclose(found, wanted.reshape(value.shape), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("pads", [(3, 0), (0, 3), (3, 4), (2, 2)])
def test_means_of_windows_some_of_which_hold_only_padding(count_include_pad, pads):
    """Such a window has no mean, which is the affair of no element."""
    value = np.arange(1.0, 6.0, dtype=np.float32).reshape(1, 1, 5)
    found = at("avg_pool", value, kernel=(2,), pads=pads, count_include_pad=count_include_pad)
    ones = np.concatenate([np.zeros(pads[0]), np.ones(5), np.zeros(pads[1])])
    wanted = np.zeros(len(ones))
    for start in range(len(ones) - 1):
        inside = 2 if count_include_pad else ones[start : start + 2].sum()
        if inside:
            wanted[start : start + 2] += 1 / inside
    np.testing.assert_allclose(found.ravel(), wanted[pads[0] : pads[0] + 5], rtol=1e-6)


def test_most_cases_have_derivatives():
    names = {p.values[0].name for p in CASES}
    assert names == {n for n in DIFFERENTIABLE if OPERATORS[n].cases}
    assert len(DIFFERENTIABLE) > 85


def network():
    """Two layers with a norm and a softmax: loss, and what it depends on."""
    x, w, v, b = build.var("x", (5, 8)), build.var("w", (8, 6)), build.var("v", (6, 3)), build.var("b", (6,))
    hidden = o("gelu", o("layer_norm", o("add", o("matmul", x, w), b)))
    scores = o("log_softmax", o("matmul", hidden, v))
    loss = o("neg", o("reduce_mean", o("slice", scores, begin=(0,), end=(1,), axes=(1,)), keepdims=False))
    return Module.of(build.function([x, w, v, b], loss))


def values(module, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(tuple(p.tensor.shape)).astype(p.tensor.dtype.numpy) for p in module.main.params]


def test_a_network_against_pytorch():
    torch = pytest.importorskip("torch")
    module = network()
    trained = differentiate(module, ("w", "v", "b"))
    verify(trained)
    exe = weft.compile(trained, threads=1)
    assert [s.name for s in exe.outputs] == ["output0", "d_w", "d_v", "d_b"]
    arrays = values(module)
    x, w, v, b = (torch.tensor(a, requires_grad=True) for a in arrays)
    hidden = torch.nn.functional.gelu(torch.nn.functional.layer_norm(x @ w + b, (6,)))
    loss = -torch.log_softmax(hidden @ v, -1)[:, :1].mean()
    loss.backward()
    wanted = [loss.detach(), w.grad, v.grad, b.grad]
    for got, want in zip(exe(*arrays), wanted, strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5)


def test_a_convolutional_network_against_pytorch():
    torch = pytest.importorskip("torch")
    x, w, d = build.var("x", (2, 4, 9, 9)), build.var("w", (6, 4, 3, 3)), build.var("d", (6, 1, 3, 3))
    y = o("relu", o("conv", x, w, strides=(2, 2), pads=(1, 1, 1, 1)))
    y = o("conv", y, d, pads=(1, 1, 1, 1), groups=6)
    y = o("add", o("max_pool", y, kernel=(2, 2), strides=(2, 2)), o("avg_pool", y, kernel=(2, 2), strides=(2, 2)))
    module = Module.of(build.function([x, w, d], o("reduce_sum_square", y, keepdims=False)))
    exe = weft.compile(differentiate(module), threads=1)
    arrays = values(module)
    tx, tw, td = (torch.tensor(a, requires_grad=True) for a in arrays)
    ty = torch.relu(torch.conv2d(tx, tw, stride=2, padding=1))
    ty = torch.conv2d(ty, td, padding=1, groups=6)
    ty = torch.max_pool2d(ty, 2) + torch.nn.functional.avg_pool2d(ty, 2)
    (ty * ty).sum().backward()
    for got, want in zip(exe(*arrays)[1:], (tx.grad, tw.grad, td.grad), strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-3, atol=1e-3)


def test_gradients_of_gradients():
    x = build.var("x", (3,), "float64")
    (first,) = gradients(o("reduce_sum", o("mul", o("sin", x), o("exp", x)), keepdims=False), [x])
    (second,) = gradients(first, [x])
    at = np.array([0.3, -1.0, 2.0])
    np.testing.assert_allclose(run(Function((x,), second), [at]), 2 * np.cos(at) * np.exp(at), rtol=1e-12)


def test_shared_operands_add_up():
    x = build.var("x", (4,), "float64")
    y = o("exp", x)
    (made,) = gradients(o("mul", o("add", y, y), y), [x])
    at = np.linspace(-1, 1, 4)
    np.testing.assert_allclose(run(Function((x,), made), [at]), 4 * np.exp(2 * at), rtol=1e-12)


def test_gradients_of_unused_inputs_are_zero():
    x, y = build.var("x", (4,)), build.var("y", (2, 3))
    (_dx, dy) = gradients(o("exp", x), [x, y])
    assert run(Function((x, y), dy), [np.zeros(4, np.float32), np.ones((2, 3), np.float32)]).tolist() == [[0.0] * 3] * 2


def test_symbolic_sizes():
    n = build.size("n")
    x, w = build.var("x", (n, 4)), build.var("w", (4, 3))
    loss = o("reduce_mean", o("sigmoid", o("matmul", x, w)), keepdims=False)
    exe = weft.compile(differentiate(Module.of(build.function([x, w], loss))), threads=1)
    for count in (1, 5):
        a, b = np.ones((count, 4), np.float32) / 3, np.ones((4, 3), np.float32)
        s = 1 / (1 + np.exp(-(a @ b)))
        inner = s * (1 - s) / s.size
        _, dx, dw = exe(a, b)
        np.testing.assert_allclose(dx, inner @ b.T, rtol=1e-5)
        np.testing.assert_allclose(dw, a.T @ inner, rtol=1e-5)


def test_operators_without_a_derivative_are_refused():
    x, flag = build.var("x", (4,)), build.var("flag", (), "bool")
    with pytest.raises(ModelError, match=r"no derivative of argsort|of or by") as caught:
        gradients(o("argsort", x), [x])
    assert caught.value.code in ("M030", "M032")
    with pytest.raises(ModelError, match="there is no derivative of bitcast") as caught:
        gradients(o("bitcast", o("bitcast", x, to="int32"), to="float32"), [x])
    assert caught.value.code == "M030"
    part = o("slice", x, begin=(0,), end=(2,))
    with pytest.raises(ModelError, match="branches of different sizes") as caught:
        gradients(o("exp", If(flag, x, part, TensorType((build.size("m"),), DType("float32")))), [x])
    assert caught.value.code == "M031"
    with pytest.raises(ModelError, match="no input 'q'") as caught:
        differentiate(network(), ("q",))
    assert caught.value.code == "M033"
    assert isinstance(x.type, TensorType) and isinstance(o("exp", x), Call)


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
def test_enlarged_and_pooled_pictures_against_pytorch(mode: str) -> None:
    torch = pytest.importorskip("torch")
    x = build.var("x", (2, 3, 5, 7))
    attrs = {"nearest": {"coordinates": "asymmetric", "rounding": "floor"}, "cubic": {"cubic_coeff": -0.75}}.get(
        mode, {}
    )
    wide = o("resize", x, sizes=(2, 3, 10, 14), scales=(1.0, 1.0, 2.0, 2.0), mode=mode, **attrs)
    pooled = o("avg_pool", wide, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), ceil_mode=True)
    loss = o("reduce_sum", o("mul", pooled, o("tanh", pooled)), keepdims=False)
    exe = weft.compile(differentiate(Module({"main": Function((x,), loss)}), ("x",)), threads=1)
    value = np.random.default_rng(0).standard_normal((2, 3, 5, 7)).astype(np.float32)
    tx = torch.tensor(value, requires_grad=True)
    name = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}[mode]
    y = torch.nn.functional.interpolate(tx, scale_factor=2, mode=name)
    y = torch.nn.functional.avg_pool2d(y, 3, 2, 1, ceil_mode=True, count_include_pad=False)
    (y * torch.tanh(y)).sum().backward()
    np.testing.assert_allclose(exe(value)[1], tx.grad.numpy(), rtol=1e-4, atol=1e-5)


def numeric(module, inputs, which):
    """The derivatives of the sum of the first result by one input, by central differences."""
    found = np.zeros(inputs[which].size)
    for i in range(found.size):
        values = []
        for step in (1e-6, -1e-6):
            moved = [np.array(v) for v in inputs]
            moved[which].reshape(-1)[i] += step
            values.append(np.sum(run(module, moved)))
        found[i] = (values[0] - values[1]) / 2e-6
    return found.reshape(inputs[which].shape)


def against_numeric(params, body, *runs):
    """Derivatives by all parameters of floats: interpreted and compiled, against differences."""
    plain = Module({"main": Function(tuple(params), body)})
    module = differentiate(plain)
    verify(module)
    exe = weft.compile(module, threads=1)
    for inputs in runs:
        wide, made = run(module, inputs), exe(*inputs)
        floats = [i for i, p in enumerate(params) if p.tensor.dtype.is_float]
        for k, i in enumerate(floats, 1):
            np.testing.assert_allclose(wide[k], numeric(plain, inputs, i), rtol=1e-5, atol=1e-7)
            np.testing.assert_allclose(made[k], wide[k], rtol=1e-6, atol=1e-9)


def doubles(*shape, seed=0):
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape)


def total(x):
    return o("reduce_sum", x, keepdims=False)


BOTH = [np.array(c) for c in (True, False)]


def test_branches():
    x, y, flag = build.var("x", (3, 4), "float64"), build.var("y", (4,), "float64"), build.var("flag", (), "bool")
    shared = o("exp", x)  # needed by one branch and after it
    alone = o("mul", shared, o("tanh", y))
    made = If(flag, o("mul", alone, alone), o("sub", shared, o("mul", x, x)), x.type)
    body = total(o("mul", o("tanh", made), shared))
    against_numeric((flag, x, y), body, *[(c, doubles(3, 4), doubles(4, seed=1)) for c in BOTH])


def test_branches_in_branches_that_give_several_values():
    x, y = build.var("x", (3,), "float64"), build.var("y", (3,), "float64")
    a, b = build.var("a", (), "bool"), build.var("b", (), "bool")
    inner = If(b, o("mul", x, y), o("add", o("exp", x), y), x.type)
    pair = If(a, Tuple((o("sin", inner), o("mul", y, y))), Tuple((inner, x)), TupleType((x.type, x.type)))
    again = If(b, o("mul", Project(pair, 0), inner), Project(pair, 1), x.type)
    body = total(o("mul", again, Project(pair, 1)))
    against_numeric((a, b, x, y), body, *[(c, d, doubles(3), doubles(3, seed=1)) for c in BOTH for d in BOTH])


def test_lets_and_values_of_other_types_in_branches():
    x, flag, i = build.var("x", (5,), "float64"), build.var("flag", (), "bool"), build.var("i", (2,), "int64")
    v = Var("v", x.type)
    held = Let(v, o("exp", x), o("mul", v, o("sin", v)))
    w = Var("w", TensorType((2,), x.tensor.dtype))
    body = total(If(flag, Let(w, o("gather", held, i, axis=0), o("mul", w, w)), o("gather", x, i, axis=0), w.type))
    against_numeric((flag, i, x), body, *[(c, np.array([3, 1]), doubles(5)) for c in BOTH])


def test_second_derivatives_through_branches():
    x, flag = build.var("x", (3,), "float64"), build.var("flag", (), "bool")
    made = total(If(flag, o("mul", x, o("mul", x, x)), o("exp", x), x.type))
    (first,) = gradients(made, [x])
    against_numeric((flag, x), total(o("mul", first, x)), *[(c, doubles(3)) for c in BOTH])


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_products_with_zeros_against_pytorch(exclusive, reverse):
    torch = pytest.importorskip("torch")
    x, g = build.var("x", (4, 6), "float64"), build.var("g", (4, 6), "float64")
    made = o("cumprod", x, axis=1, exclusive=exclusive, reverse=reverse)
    exe = weft.compile(differentiate(Module({"main": Function((x, g), total(o("mul", made, g)))}), ("x",)), threads=1)
    value, weights = doubles(4, 6), doubles(4, 6, seed=1)
    value[0, 2] = value[1, [0, 3]] = value[2, 5] = 0
    tx = torch.tensor(value, requires_grad=True)
    y = torch.flip(tx, (1,)) if reverse else tx
    y = torch.cat([torch.ones_like(y[:, :1]), y[:, :-1]], 1) if exclusive else y
    y = torch.cumprod(y, 1)
    y = torch.flip(y, (1,)) if reverse else y
    (y * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(exe(value, weights)[1], tx.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("order", [2, 3])
def test_further_derivatives_of_running_products_at_zeros_against_pytorch(exclusive, reverse, order):
    torch = pytest.importorskip("torch")
    x = build.var("x", (3, 5), "float64")
    weights = doubles(order, 3, 5, seed=1)
    value = doubles(3, 5)
    value[0, 2] = value[1, [0, 3]] = value[2, 4] = 0
    made = total(o("mul", o("cumprod", x, axis=1, exclusive=exclusive, reverse=reverse), Constant(weights[0])))
    for w in weights[1:]:
        made = total(o("mul", gradients(made, [x])[0], Constant(w)))
    exe = weft.compile(differentiate(Module({"main": Function((x,), made)})), threads=1)
    tx = torch.tensor(value, requires_grad=True)
    y = torch.flip(tx, (1,)) if reverse else tx
    y = torch.cat([torch.ones_like(y[:, :1]), y[:, :-1]], 1) if exclusive else y
    parts = [torch.stack([y[:, : k + 1].prod(1) for k in range(5)], 1)]  # cumprod's own derivatives divide
    last = (torch.flip(parts[0], (1,)) if reverse else parts[0]).mul(torch.tensor(weights[0])).sum()
    for w in weights[1:]:
        last = (torch.autograd.grad(last, tx, create_graph=True)[0] * torch.tensor(w)).sum()
    last.backward()
    np.testing.assert_allclose(exe(value)[1], tx.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
def test_recurrences_and_products_of_open_sizes(axis, reverse):
    n = build.size("n")
    x, y = build.var("x", (n, 4), "float64"), build.var("y", (n, 4), "float64")
    made = o("linear_recurrence", x, y, axis=axis, reverse=reverse)
    runs = [(doubles(k, 4), doubles(k, 4, seed=1)) for k in (5, 1, 0)]
    against_numeric((x, y), total(o("mul", made, o("cumprod", x, axis=axis, reverse=not reverse))), *runs)
    holes = doubles(5, 4)
    holes[[0, 2, 4], [1, 2, 0]] = 0
    (again,) = gradients(total(o("reduce_prod", o("mul", x, y), axes=(axis,), keepdims=True)), [x])
    against_numeric((x, y), total(o("mul", again, y)), (holes, doubles(5, 4, seed=1)))


def test_rows_gathered_in_batches_of_open_size():
    n = build.size("n")
    x, i = build.var("x", (n, 3, 4), "float64"), build.var("i", (n, 5, 1), "int64")
    picked = o("gather_nd", x, i, batch_dims=1)
    places = np.array([[[0], [2], [2], [1], [0]], [[1], [1], [1], [1], [2]]])
    against_numeric((x, i), total(o("mul", picked, picked)), (doubles(2, 3, 4), places))
