"""Plugins, from a folder that is not part of the package."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import weft
from weft import te
from weft.graph import build
from weft.graph.nodes import Call, Module, call
from weft.graph.text import to_text
from weft.graph.types import TupleType
from weft.graph.visit import post_order
from weft.ops.catalogue import OPERATORS
from weft.ops.definition import OpDef
from weft.ops.gradients import gradients
from weft.pipeline import Options, graph_passes, optimize
from weft.plugins import Frontend, OnnxConverter, PlacedPass, Registry, registry_of
from weft.plugins.check import check_operator
from weft.support.errors import InputError, ModelError, UserError

OUTSIDE = Path(__file__).parent / "outside"
sys.path.insert(0, str(OUTSIDE))

from shrinking import PLUGIN, SOFT_SHRINK, JoinShrinks  # noqa: E402 (found by the line before)

SHRUNK = np.array([-1.0, 0.0, 0.0, 2.0], np.float32)
GIVEN = np.array([-2, -0.5, 0.5, 3], np.float32)


def model(*thresholds: float) -> Module:
    x = build.var("x", (build.size("n"),))
    made = x
    for t in thresholds:
        made = call(SOFT_SHRINK, [made], {"threshold": t})
    return Module.of(build.function([x], made))


def shrinks(module: Module) -> int:
    return sum(isinstance(e, Call) and e.target is SOFT_SHRINK for e in post_order(module.main))


# -- what they bring ---------------------------------------------------------------------------------------------------


def test_an_operator_and_a_pass() -> None:
    assert (weft.compile(model(0.25, 0.75), plugins=[PLUGIN])(GIVEN) == SHRUNK).all()
    target = weft.Target("x86-64-v3")
    assert shrinks(optimize(model(0.25, 0.75), target)) == 2
    assert shrinks(optimize(model(0.25, 0.75), target, registry=Registry((PLUGIN,)))) == 1


@pytest.mark.parametrize("at", ["imported", "simplified", "before-fusion", "fused"])
def test_a_pass_runs_at_the_requested_place(at: str) -> None:
    target = weft.Target("x86-64-v3")
    plain = [p.name for p in graph_passes(target, Options())]
    mine = replace(PLUGIN, graph_passes=(PlacedPass(JoinShrinks(), at),))
    names = [p.name for p in graph_passes(target, Options(), Registry((mine,)))]
    place = names.index("join-shrinks")
    assert names[:place] + names[place + 1 :] == plain
    fused = plain.index("fuse")
    assert {
        "imported": place == 1,
        "simplified": 2 < place < fused,
        "before-fusion": plain[place] == "record_requirements" and plain[place + 1] == "fuse",
        "fused": place > fused,
    }[at], names


def test_a_graph_file(tmp_path: Path) -> None:
    path = tmp_path / "model.graph"
    path.write_text(to_text(model(1.0)))
    assert (weft.compile(path, plugins=[PLUGIN])(GIVEN) == SHRUNK).all()
    with pytest.raises(UserError, match="soft_shrink"):
        weft.compile(path)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "model.toy"
    path.write_text("0.25\n0.75\n")
    assert (weft.compile(path, plugins=[PLUGIN])(GIVEN) == SHRUNK).all()
    assert "n: " not in to_text(weft.load(path, shapes={"n": 4}, plugins=[PLUGIN]))
    path.write_text("0.25\nmuch\n")
    with pytest.raises(weft.UserError, match="'much' is no threshold"):
        weft.load(path, plugins=[PLUGIN])
    with pytest.raises(UserError, match="no known kind"):
        weft.load(path)


def test_a_node_of_a_domain_of_its_own() -> None:
    node = helper.make_node("SoftShrink", ["x"], ["y"], domain="com.example", lambd=1.0)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    proto = helper.make_model(helper.make_graph([node], "g", inputs, outputs), opset_imports=opsets)
    assert (weft.compile(proto, plugins=[PLUGIN])(GIVEN) == SHRUNK).all()
    with pytest.raises(UserError, match=r"com\.example\.SoftShrink"):
        weft.compile(proto)
    assert isinstance(onnx.__version__, str)


def test_a_machine_by_name() -> None:
    target = registry_of([PLUGIN]).target("our-server")
    assert target == weft.Target("llvm -mcpu=x86-64-v3 -num-cores=12")
    assert "-num-cores=3 " in f"{registry_of([PLUGIN]).target('our-server -num-cores=3')} "
    artifact = weft.compile_artifact(model(1.0), "our-server", plugins=[PLUGIN])
    assert artifact.target == str(target)
    with pytest.raises(UserError, match="unknown target 'our-server'"):
        weft.compile(model(1.0), "our-server")


# -- what is wrong with them -------------------------------------------------------------------------------------------


def test_names_are_taken_once() -> None:
    with pytest.raises(UserError, match=r"'mine 1' brings the operator 'relu', which Weft has already"):
        Registry((weft.Plugin("mine", "1", operators=(replace(SOFT_SHRINK, name="relu"),)),))
    with pytest.raises(
        UserError, match=r"'other 1' brings the operator 'soft_shrink', which 'shrinking 1.2' has already"
    ):
        Registry((PLUGIN, weft.Plugin("other", "1", operators=(SOFT_SHRINK,))))
    with pytest.raises(UserError, match="which is Weft's own"):
        Registry((weft.Plugin("mine", "1", onnx_converters=(OnnxConverter("", "Relu", lambda n: n.data(0)),)),))
    with pytest.raises(UserError, match=r"front end '.onnx'"):
        Registry((weft.Plugin("mine", "1", frontends=(Frontend(".onnx", lambda p: model()),)),))
    assert registry_of([PLUGIN]).operators["soft_shrink"] is SOFT_SHRINK


def test_plugins_of_another_kind_are_refused() -> None:
    with pytest.raises(InputError, match="plugins"):
        weft.compile(model(1.0), plugins=["shrinking"])  # type: ignore[list-item]  # on purpose
    with pytest.raises(UserError, match="'operators' must be a tuple of OpDef"):
        weft.Plugin("mine", "1", operators=(len,))  # type: ignore[arg-type]  # on purpose
    with pytest.raises(UserError, match="'version' must be a text"):
        weft.Plugin("mine", "")
    with pytest.raises(UserError, match="cannot stand at 'last'"):
        PlacedPass(JoinShrinks(), "last")
    with pytest.raises(UserError, match="cannot have the suffix 'toy'"):
        Frontend("toy", lambda p: model())


def test_operators_are_checked_by_their_cases() -> None:
    check_operator(SOFT_SHRINK)
    wrong = replace(SOFT_SHRINK, reference=lambda attrs, x: np.abs(x))
    with pytest.raises(UserError, match=r"case 0 of 'soft_shrink': 'compute' gives .* but 'reference' gives"):
        check_operator(wrong)
    wide = replace(SOFT_SHRINK, reference=lambda attrs, x: SOFT_SHRINK.reference(attrs, x).astype(np.float64))
    with pytest.raises(UserError, match=r"'reference' gives f64\[2, 3\], but 'infer' says f32\[2, 3\]"):
        check_operator(wide)
    broken = replace(SOFT_SHRINK, reference=lambda attrs, x: x.no_such_thing)
    with pytest.raises(UserError, match="AttributeError"):
        check_operator(broken)
    with pytest.raises(UserError, match="has no cases"):
        check_operator(replace(SOFT_SHRINK, cases=()))


def test_an_expression_of_another_type_is_refused_when_it_is_compiled() -> None:
    from weft import te

    def narrow(attrs, out, x):
        return te.compute((*out.shape, 1), lambda *i: x[i[:-1]], name="narrow")

    x = build.var("x", (3,))
    module = Module.of(build.function([x], call(replace(SOFT_SHRINK, compute=narrow), [x], {"threshold": 1.0})))
    with pytest.raises(UserError, match=r"'compute' of soft_shrink gives f32\[3, 1\], but 'infer' says f32\[3\]"):
        weft.compile(module)


# -- installed packages ------------------------------------------------------------------------------------------------


def install(folder: Path, value: str) -> dict[str, str]:
    """A package that names a plugin; the environment in which Python finds it."""
    info = folder / "shrinking-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shrinking\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[weft.plugins]\nshrinking = {value}\n")
    path = os.pathsep.join((str(folder), str(OUTSIDE), str(Path(weft.__file__).parent.parent)))
    return {**os.environ, "PYTHONPATH": path, "WEFT_CACHE_DIR": str(folder / "cache")}


def weft_command(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "weft", *words], env=environment, capture_output=True, text=True)


def test_commands_find_installed_plugins(tmp_path: Path) -> None:
    environment = install(tmp_path, "shrinking:PLUGIN")
    text, made = tmp_path / "model.graph", tmp_path / "model.weft"
    text.write_text(to_text(model(0.25, 0.75)))
    joined = weft_command(environment, "opt", str(text), "-p", "join-shrinks")
    assert joined.returncode == 0 and "threshold=1" in joined.stdout, joined.stderr
    assert "join-shrinks" in weft_command(environment, "opt", "--list").stdout
    assert "our-server" in weft_command(environment, "targets").stdout
    assert "x86-64-v3" in weft_command(environment, "targets", "our-server").stdout
    assert weft_command(environment, "compile", str(text), "-o", str(made)).returncode == 0
    shown = weft_command(environment, "inspect", str(made), "--stage", "te")
    assert shown.returncode == 0 and "soft_shrink" in shown.stdout, shown.stderr

    without = {**environment, "WEFT_PLUGINS": "0"}
    refused = weft_command(without, "opt", str(text))
    assert refused.returncode == 1 and "soft_shrink" in refused.stderr
    shown = weft_command(without, "inspect", str(made), "--stage", "te")
    assert shown.returncode == 1 and "made with the plugin shrinking 1.2; which is not installed" in shown.stderr
    ran = weft_command(without, "run", str(made), "--shape", "n=4")
    assert ran.returncode == 0, ran.stderr  # the runtime needs no plugin


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("no_such_module:PLUGIN", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("shrinking:NOTHING", "AttributeError"),
        ("shrinking:SOFT_SHRINK", "is a OpDef, not a weft.Plugin"),
    ],
)
def test_broken_plugins_are_named(tmp_path: Path, value: str, says: str) -> None:
    environment = install(tmp_path, value)
    text = tmp_path / "model.graph"
    x = build.var("x", (4,))
    text.write_text(to_text(Module.of(build.function([x], x))))
    failed = weft_command(environment, "opt", str(text))
    assert failed.returncode == 1, failed.stderr
    assert "the plugin 'shrinking' of shrinking 1.2 cannot be loaded" in failed.stderr and says in failed.stderr
    assert weft_command({**environment, "WEFT_PLUGINS": "0"}, "opt", str(text)).returncode == 0


def test_importing_a_plugin_changes_nothing() -> None:
    code = "import weft.ops.catalogue as c; n = len(c.OPERATORS); import shrinking; assert len(c.OPERATORS) == n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(OUTSIDE), str(Path(weft.__file__).parent.parent)))}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


@pytest.mark.parametrize(
    ("element", "code"),
    [
        (lambda x, i: x[i + 1], "T092"),
        (lambda x, i: x[i * 1000], "T092"),
        (lambda x, i: x[x[i].astype("int64")], "T092"),
        (lambda x, i: te.sum(x[te.reduce_axis((0, 4), "k")], axis=te.reduce_axis((0, 4), "k")) * 2.0, "E"),
        (lambda x, i: x[te.max(te.min(x[i].astype("int64"), x.shape[0] - 1), 0)], None),
    ],
)
def test_reads_of_custom_operators_are_in_bounds(element: Any, code: str | None) -> None:
    """The tensor expression of an operator is checked before code is made of it."""
    picks = OpDef("picks", (), lambda attrs, x: x, lambda attrs, x: x, compute=lambda attrs, out, x: te.compute(
        out.shape, lambda i: element(x, i), name="picks"))  # fmt: skip
    x = build.var("x", [build.size("n")])
    module = Module.of(build.function([x], call(picks, [x])))
    if code is None:
        run = weft.compile(module)
        np.testing.assert_array_equal(run(np.array([2, 0, 9], np.float32)), [9, 2, 9])
        return
    with pytest.raises(weft.WeftError) as refusal:
        weft.compile(module)
    assert refusal.value.code.startswith(code)


def custom(compute: Any, *arguments: Any, infer: Any = None) -> Module:
    made = OpDef("made_up", (), infer or (lambda attrs, *types: types[0]), lambda attrs, *x: x[0], compute=compute)
    return Module.of(build.function(list(arguments), call(made, list(arguments))))


@pytest.mark.parametrize(
    ("size", "fits"),
    [
        (lambda n, m: n, True),
        (lambda n, m: n + m - m, True),
        (lambda n, m: te.max(n, 0), True),
        (lambda n, m: 4 * n // 4, True),
        (lambda n, m: n * 2000, False),
        (lambda n, m: n + 1, False),
        (lambda n, m: n // 2, False),
        (lambda n, m: n * n, False),
        (lambda n, m: te.max(n, 1), False),
        (lambda n, m: m, False),
        (lambda n, m: 8, False),
    ],
)
@pytest.mark.parametrize("results", [1, 2])
def test_results_of_custom_operators_have_the_size_of_their_type(size: Any, fits: bool, results: int) -> None:
    """The memory of a result is planned by its type, and written by the code of its tensor expression."""

    def compute(attrs: Any, out: Any, x: Any, y: Any) -> Any:
        made = te.compute((size(x.shape[0], y.shape[0]),), lambda i: te.const(3.0, "float32"), name="made")
        right = te.compute(x.shape, lambda i: x[i], name="right")
        return made if results == 1 else (right, made)

    x, y = build.var("x", [build.size("n")]), build.var("y", [build.size("m")])
    both = None if results == 1 else (lambda attrs, a, b: TupleType((a, a)))
    module = custom(compute, x, y, infer=both)
    if not fits:
        with pytest.raises(UserError, match="'compute' of made_up gives") as refusal:
            weft.compile(module)
        assert refusal.value.code == "T091"
        return
    for n in (0, 1, 5):
        found = weft.compile(module)(np.ones(n, np.float32), np.ones(3, np.float32))
        np.testing.assert_array_equal(found if results == 1 else found[1], np.full(n, 3, np.float32))


def test_a_known_size_is_not_an_open_one() -> None:
    """Whether it is smaller or larger."""
    x = build.var("x", [build.size("n")])
    fixed = lambda attrs, out, x: te.compute(x.shape, lambda i: x[i], name="fixed")  # noqa: E731
    with pytest.raises(UserError) as refusal:
        weft.compile(custom(fixed, x, infer=lambda attrs, x: x.with_shape((8,))))
    assert refusal.value.code == "T091"


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (lambda s, i, x: ((i,), s[i] * 2.0), None),
        (lambda s, i, x: ((te.max(te.min(te.cast(x[i], "int64"), x.shape[0] - 1), 0),), 1.0), None),
        (lambda s, i, x: ((te.cast(x[i], "int64"),), 1.0), "T092"),
        (lambda s, i, x: ((i + 10**8,), 1.0), "T092"),
        (lambda s, i, x: ((i,), x[i + 1]), "T092"),
        (lambda s, i, x: ((i,), s[i + 1]), "T092"),
        (lambda s, i, x: ((i,), 1.0, x[i + 1] > 0.0), "T092"),
    ],
)
def test_steps_of_custom_operators_are_in_bounds(step: Any, code: str | None) -> None:
    x = build.var("x", [build.size("n")])
    module = custom(lambda attrs, out, x: te.update(x, out.shape, lambda s, i: step(s, i, x), name="steps"), x)
    if code is None:
        weft.compile(module)(np.ones(4, np.float32))
        return
    with pytest.raises(UserError) as refusal:
        weft.compile(module)
    assert refusal.value.code == code


@te.hybrid.script
def shifted(a: Any, by: Any = 0) -> Any:
    b = output_tensor(a.shape, a.dtype)  # type: ignore[name-defined]  # noqa: F821  # a name of hybrid functions
    for i in range(a.shape[0]):
        b[i] = a[i + by]
    return b


@pytest.mark.parametrize(("by", "code"), [(0, None), (10**8, "T092"), (-1, "T092"), (1, "T092")])
def test_hybrid_functions_of_custom_operators_are_in_bounds(by: int, code: str | None) -> None:
    x = build.var("x", [build.size("n")])
    module = custom(lambda attrs, out, x: shifted(x, by), x)
    if code is None:
        np.testing.assert_array_equal(weft.compile(module)(np.arange(4, dtype=np.float32)), np.arange(4))
        return
    with pytest.raises(UserError) as refusal:
        weft.compile(module)
    assert refusal.value.code in (code, "E209")


# -- derivatives -------------------------------------------------------------------------------------------------------


def shrink_gradient(e: Call, adjoints: Any) -> list[Any]:
    """1 where something is left, 0 elsewhere."""
    kept = call(OPERATORS["not_equal"], [e, build.constant(np.zeros((), np.float32))])
    return [call(OPERATORS["mul"], [call(OPERATORS["cast"], [kept], {"to": "float32"}), adjoints[0]])]


def test_operators_bring_their_derivatives() -> None:
    op = replace(SOFT_SHRINK, gradient=shrink_gradient)
    for shape in ((4,), (build.size("n"),)):
        x = build.var("x", shape)
        made = call(OPERATORS["exp"], [call(op, [x], {"threshold": 1.0})])
        (d_x,) = gradients(made, [x])
        found = weft.compile(Module.of(build.function([x], d_x)))(GIVEN)
        np.testing.assert_allclose(found, np.where(np.abs(GIVEN) > 1, np.exp(SHRUNK), 0), rtol=1e-6)


def test_no_adjoint_means_zeros() -> None:
    x = build.var("x", (4,))
    (d_x,) = gradients(call(replace(SOFT_SHRINK, gradient=lambda e, adjoints: [None]), [x]), [x])
    assert (weft.compile(Module.of(build.function([x], d_x)))(GIVEN) == 0).all()


@pytest.mark.parametrize(
    ("adjoints", "says"),
    [
        (lambda x: [], "gives 0 adjoints for 1 operands"),
        (lambda x: [x, x], "gives 2 adjoints for 1 operands"),
        (lambda x: [build.constant(np.zeros(4))], r"a f64\[4\] for operand 0, which is a f32\[4\]"),
        (lambda x: [build.constant(np.zeros(3, np.float32))], r"a f32\[3\] for operand 0, which is a f32\[4\]"),
    ],
)
def test_derivatives_of_other_types_are_refused(adjoints: Any, says: str) -> None:
    x = build.var("x", (4,))
    op = replace(SOFT_SHRINK, gradient=lambda e, given: adjoints(given[0]))
    with pytest.raises(ModelError, match=says) as caught:
        gradients(call(op, [x]), [x])
    assert caught.value.code == "M034"


def test_operators_without_a_derivative_say_how_to_bring_it() -> None:
    x = build.var("x", (4,))
    with pytest.raises(ModelError, match="no derivative of soft_shrink") as caught:
        gradients(call(SOFT_SHRINK, [x]), [x])
    assert caught.value.code == "M030" and "gradient=" in str(caught.value.hint)
