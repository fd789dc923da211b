"""Machines that lack a single feature: their code is right, and has no instruction of that feature.

A virtual machine hides features from its guests, and users remove them (``-mattr=-avx512f``). LLVM removes with a
feature all that need it, and ends the process at the first instruction that it does not have; so code is first made in
the helper process, and only then in this one, to be run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernel_runner import run_program

import weft
from weft import te
from weft.backends.catalogue import backend_of
from weft.backends.llvm import apart, emit_ir
from weft.graph.build import constant, function
from weft.graph.interpret import run as interpret
from weft.graph.nodes import Call, Function, Module
from weft.graph.parser import parse
from weft.graph.visit import post_order, substitute
from weft.kernels.machine_code import lowered
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import OPERATORS
from weft.pipeline import optimize, unscheduled
from weft.runtime.threads import SYSTEM_FEATURES, cpu_features
from weft.target import CPU_FEATURES, Target
from weft.target.features import NEEDS, added, removed, usable
from weft.target.machines import CODE_FEATURES
from weft.tir.interpret import run as interpret_loops
from weft.tir.nodes import Program

Array = np.ndarray[Any, Any]

GRAPHS = {
    "float16 casts": """def @main(%x: f32[3, 67], %h: f16[3, 67]) -> (f16[3, 67], f32[3, 67], i32[3, 67]) {
        %0: f16[3, 67] = cast(%x, to="float16")
        %1: f32[3, 67] = cast(%h, to="float32")
        %2: i32[3, 67] = cast(%h, to="int32")
        return (%0, %1, %2)
    }""",
    "float16 arithmetic": """def @main(%x: f16[5, 70], %y: f16[5, 70], %w: f16[70, 40]) -> (f16[5, 70], f16[5, 40]) {
        %0: f16[5, 70] = mul(%x, %y)
        %1: f16[5, 70] = add(%0, %y)
        %2: f16[5, 70] = sqrt(%1)
        %3: f16[5, 40] = matmul(%x, %w)
        return (%2, %3)
    }""",
    "bfloat16 casts": """def @main(%x: f32[3, 67], %b: bf16[3, 67]) -> (bf16[3, 67], f32[3, 67]) {
        %0: bf16[3, 67] = cast(%x, to="bfloat16")
        %1: f32[3, 67] = cast(%b, to="float32")
        return (%0, %1)
    }""",
    "bfloat16 product": """def @main(%x: bf16[40, 128], %w: bf16[128, 80]) -> f32[40, 80] {
        %0: f32[40, 80] = matmul(%x, %w, out_dtype="float32")
        return %0
    }""",
    "byte product": """def @main(%x: u8[40, 128], %w: i8[128, 80]) -> i32[40, 80] {
        %0: i32[40, 80] = matmul(%x, %w, out_dtype="int32")
        return %0
    }""",
    "float32 product": """def @main(%x: f32[9, 70], %w: f32[70, 40]) -> f32[9, 40] {
        %0: f32[9, 40] = matmul(%x, %w)
        %1: f32[9, 40] = gelu(%0)
        return %1
    }""",
    "softmax": """def @main(%x: f32[5, 70]) -> f32[5, 70] {
        %0: f32[5, 70] = softmax(%x, axis=1)
        return %0
    }""",
    "gathers": """def @main(%x: f32[30, 33], %i: i64[7], %j: i64[30, 21]) -> (f32[30, 7], f32[30, 21]) {
        %0: f32[30, 7] = gather(%x, %i, axis=1)
        %1: f32[30, 21] = gather_elements(%x, %j, axis=1)
        return (%0, %1)
    }""",
    "byte shuffles": """def @main(%x: u8[37, 66], %s: i16[66, 3]) -> (u8[66, 37], i16[3, 66], u8[37, 66]) {
        %0: u8[66, 37] = transpose(%x, perm=(1, 0))
        %1: i16[3, 66] = transpose(%s, perm=(1, 0))
        %2: u8[37, 66] = flip(%x, axes=(1,))
        return (%0, %1, %2)
    }""",
    "wide integers": """def @main(%x: i64[70], %y: i64[70], %d: f64[70]
    ) -> (i64[70], f64[70], i64[70], f64[70], i64[70]) {
        %0: i64[70] = mul(%x, %y)
        %1: f64[70] = cast(%x, to="float64")
        %2: i64[70] = cast(%d, to="int64")
        %3: f64[70] = sqrt(%d)
        %4: i64[70] = div(%x, %y)
        return (%0, %1, %2, %3, %4)
    }""",
    "narrow integers": """def @main(%x: u8[5, 70], %y: u8[5, 70], %s: i16[5, 70]
    ) -> (u8[5, 70], i16[5, 70], bool[5, 70], i32[5]) {
        %0: u8[5, 70] = maximum(%x, %y)
        %1: i16[5, 70] = mul(%s, %s)
        %2: bool[5, 70] = less(%x, %y)
        %3: i32[5, 70] = cast(%x, to="int32")
        %4: i32[5] = reduce_sum(%3, axes=(1,), keepdims=false)
        return (%0, %1, %2, %4)
    }""",
    "shifts": """def @main(%x: u32[70], %y: u32[70], %a: u8[70], %b: u8[70]) -> (u32[70], u32[70], u8[70]) {
        %0: u32[70] = shift_left(%x, %y)
        %1: u32[70] = shift_right(%x, %y)
        %2: u8[70] = shift_right(%a, %b)
        return (%0, %1, %2)
    }""",
    "roundings": """def @main(%x: f32[3, 67], %d: f64[67]
    ) -> (f32[3, 67], f32[3, 67], f64[67], f64[67], f32[3, 67], bool[3, 67]) {
        %0: f32[3, 67] = floor(%x)
        %1: f32[3, 67] = round(%x)
        %2: f64[67] = trunc(%d)
        %3: f64[67] = round(%d)
        %4: f32[3, 67] = sqrt(%x)
        %5: bool[3, 67] = isinf(%x)
        return (%0, %1, %2, %3, %4, %5)
    }""",
}
ROUGH = {"float16 arithmetic": 2e-3, "bfloat16 product": 1e-5, "float32 product": 1e-5, "softmax": 1e-5}
"""Relative tolerances of sums, whose order and roundings the machine chooses; all others are exact."""
KERNELS = (*GRAPHS, "bits")
LAST = 0x7FFF


def values(name: str, number: int, shape: tuple[int, ...], dtype: str) -> Array:
    """What a graph gets: numbers of the whole range, and where results must be exact also the odd ones."""
    rng = np.random.default_rng(number)
    if name in ROUGH and dtype in ("float16", "bfloat16", "float32"):
        positive = name == "float16 arithmetic" and number < 2  # below a root
        made = rng.uniform(0.1 if positive else -1, 1, shape).astype(np.float32)
        return made.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    if dtype == "float16":
        made = rng.integers(0, 1 << 16, shape).astype(np.uint16).view(np.float16)
        return made if number == 0 else np.where(np.isfinite(made), made, np.float16(LAST % 7))
    if dtype == "bfloat16":
        return rng.integers(0, 1 << 16, shape).astype(np.uint16).view(ml_dtypes.bfloat16)
    if dtype == "float32":
        made = (rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 6, shape)).astype(np.float32)
        odd = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 65519.9, 65520.0, 2.0**-25, 2.5, -3.5]
        made.reshape(-1)[: len(odd)] = odd
        return made
    if dtype == "float64":
        return np.abs(rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 15, shape))
    if name == "gathers":
        return rng.integers(-21, 21, shape)
    ends = np.iinfo(dtype)
    made = rng.integers(ends.min, ends.max, shape, dtype, endpoint=True)
    if name == "shifts" and number in (1, 3):
        return (made % ends.bits).astype(dtype)
    return np.where(made == 0, made.dtype.type(1), made) if dtype == "int64" else made


@cache
def graph(name: str) -> tuple[Module, list[Array], list[Array]]:
    """A graph, its inputs and its results by the interpreter. Factors ``w`` become constants."""
    main = parse(GRAPHS[name], OPERATORS).main
    given = [
        values(name, k, tuple(map(int, p.type.shape)), str(p.type.dtype))  # type: ignore[union-attr, arg-type]
        for k, p in enumerate(main.params)
    ]
    weights = {p: constant(x) for p, x in zip(main.params, given, strict=True) if p.name == "w"}
    inputs = {p: x for p, x in zip(main.params, given, strict=True) if p not in weights}
    module = Module({"main": function(list(inputs), substitute(main.body, weights))})
    with np.errstate(all="ignore"):
        made = interpret(module, list(inputs.values()))
    return module, list(inputs.values()), list(made) if isinstance(made, (tuple, list)) else [made]


@cache
def bits() -> tuple[Program, list[Array], list[Array]]:
    """Bits counted in vectors, which no operator of the catalogue does."""
    x8, x64 = te.placeholder((64,), "uint8", name="X8"), te.placeholder((16,), "uint64", name="X64")
    x16, x32 = te.placeholder((32,), "uint16", name="X16"), te.placeholder((16,), "uint32", name="X32")
    few = te.placeholder((3,), "uint64", name="F")
    inputs = [x8, x16, x32, x64, few]
    outs = [
        te.compute(x.shape, lambda i, x=x, f=f: f(x[i]), name=f"{f.__name__}{n}")
        for n, x in enumerate(inputs)
        for f in (te.popcount, te.clz)
    ]
    schedule = te.create_schedule([y.op for y in outs])
    for y in outs[:-2]:
        schedule[y].vectorize(y.op.axis[0])
    program = schedule.schedule.program
    rng = np.random.default_rng(5)
    arrays = {
        x.name: np.array([0, 1, *rng.integers(0, np.iinfo(str(x.dtype)).max, int(x.shape[0].value) - 2, str(x.dtype))])
        .astype(str(x.dtype))
        for x in inputs
    }  # fmt: skip
    given = [arrays[p.name] for p in program.params[: len(inputs)]]
    return program, given, interpret_loops(program, given)


def irs(name: str, target: Target) -> list[str]:
    """The LLVM IR of each kernel, before LLVM's own passes."""
    if name == "bits":
        return [emit_ir(tir_to_kernel(bits()[0], target), target)]
    fused = optimize(graph(name)[0], target).main
    groups = [e.target for e in post_order(fused, into_functions=False) if isinstance(e, Call)]
    return [emit_ir(lowered(unscheduled(g)[0], target), target) for g in groups if isinstance(g, Function)]


@cache
def code(name: str, text: str) -> str:
    """The assembly of all kernels, made in the helper process: a TargetError where LLVM ends it."""
    target = Target(text)
    return "\n".join(apart.ask("assembly", ir, target, 3).decode() for ir in irs(name, target))


def agree(name: str, target: Target) -> None:
    """Run the code, and compare with the interpreter."""
    if name == "bits":
        program, given, wanted = bits()
        got: Any = run_program(program, given, target=target)
    else:
        module, given, wanted = graph(name)
        got = weft.compile(module, target=target, cache=False)(*given)
    got = [np.asarray(y) for y in (got if isinstance(got, (tuple, list)) else [got])]
    assert len(got) == len(wanted)
    for y, right in zip(got, wanted, strict=True):
        right = np.asarray(right)
        assert y.dtype == right.dtype
        if y.dtype == ml_dtypes.bfloat16:
            y, right = y.astype(np.float32), right.astype(np.float32)  # NumPy knows no NaN of it
        if name in ROUGH:
            y, right = y.astype(np.float64), right.astype(np.float64)
            np.testing.assert_allclose(y, right, rtol=ROUGH[name], atol=10 * ROUGH[name])
        else:
            np.testing.assert_array_equal(y, right)


_OF_ONE = r"vmov[dq]|v(insert|extract)ps|v\w+s[sdh]|vu?comis[sdh]|vcvt\w*s[sdi]2\w+"
"""Instructions on one number, which AVX-512 has with any register and any mask, without AVX512VL."""
HIGH = r"%[xy]mm(?:1[6-9]|2\d|3[01])\b"
INSTRUCTIONS = {
    "avx512f": rf"%zmm|{HIGH}|%k[0-7]\b",
    "avx512vl": rf"\t(?!({_OF_ONE})\b)v\w+\t(?!.*%zmm).*({HIGH}|%[xy]mm\d+.*\{{%k)",
    "avx512bw": r"\t(kmov[dq]|kunpck(wd|dq)|vmovdqu(8|16)|v?perm[it2]*w|vpmovm2[bw]|vpmov[bw]2m|vpmovwb)\b"
    r"|\tv(pshufb|pmaddwd|pmullw|pmovzxbw|padd[bw]|psub[bw]|pmax[us][bw]|psr[la]w|psllw|punpck\w*(bw|wd))\b.*%zmm",
    "avx512dq": r"\t(vpmullq|vcvtt?u?qq2\w+|vcvtt?p[sd]2u?qq|vpmov[dq]2m|vpmovm2[dq]|kmovb|vfpclassp[sd]"
    r"|v(range|reduce)p[sd]"
    r"|v(extract|insert)[fi](32x8|64x2)|vbroadcast[fi](32x2|32x8|64x2))\b|\tv(andn?|x?or)p[sd]\b.*%zmm",
    "avx512cd": r"\tv(plzcnt[dq]|pconflict[dq])\b",
    "avx512vbmi": r"\tvperm([it]2)?b\b|\tvpmultishiftqb",
    "avx512vbmi2": r"\tv(pcompress|pexpand)[bw]\b|\tvpsh[lr]dv?[wdq]\b",
    "avx512bitalg": r"\tvpopcnt[bw]\b|\tvpshufbitqmb",
    "avx512vpopcntdq": r"\tvpopcnt[dq]\b",
    "avx512ifma": r"(?<!\{vex\})\tvpmadd52",
    "avx512vnni": r"(?<!\{vex\})\tvpdp(bu|ws)sds?\b",
    "avxvnni": r"\{vex\}\tvpdp",
    "avx512bf16": r"\tvdpbf16ps|\tvcvtne2?ps2bf16",
    "avx512fp16": r"\tv(?!cvtph2ps\b|cvtps2ph\b)\w+(ph|phx|sh)\b|\tvcvtt?(ph|sh)2(?!ps\b)\w+|\tvmovw\b",
    "amx-tile": r"%tmm|\tldtilecfg|\ttilerelease",
    "amx-bf16": r"\ttdpbf16ps",
    "amx-int8": r"\ttdpb[us][us]d",
    "gfni": r"\tv?gf2p8",
    "vaes": r"\tvaes\w+\t.*%[yz]mm",
    "vpclmulqdq": r"\tvpclmul\w+\t.*%[yz]mm",
    "fma": r"\tvfn?m(add|sub)",
    "f16c": r"\tvcvt(ph2ps|ps2ph)\b",
    "avx2": r"\tvp(?!test|ermilp|erm2f)\w+\t.*%ymm|\tv(p?gather|permp[sd]|permd|permq|pbroadcast|ps[lr]lv|psrav)\w*\t"
    r"|\tv(insert|extract)i128",
    "avx": r"%ymm|\tv[a-z]",
    "sse4.2": r"\tpcmpgtq|\tcrc32",
    "sse4.1": r"\t(pmulld|pmuldq|pminu[wd]|pmaxu[wd]|pmins[bd]|pmaxs[bd]|roundp?s?[sd]|p?blend\w*|pinsr[bdq]|pextr[bdq]"
    r"|pmov[sz]x\w+|ptest|insertps|extractps|packusdw|pcmpeqq)\b",
    "ssse3": r"\t(pshufb|palignr|pabs[bwd]|psign[bwd]|phadd\w+|pmaddubsw|pmulhrsw)\b",
    "sse3": r"\t(movddup|movs[hl]dup|h(add|sub)p[sd]|addsubp[sd]|lddqu)\b",
    "popcnt": r"\tpopcnt",
    "lzcnt": r"\tlzcnt",
    "bmi": r"\t(andn|bextr|bls(r|i|msk)|tzcnt)[lqw]?\b",
    "bmi2": r"\t(shlx|sarx|shrx|rorx|mulx|pext|pdep|bzhi)[lq]?\b",
    "movbe": r"\tmovbe",
}
"""What code without a feature must not contain, with the names of all forms that LLVM may choose for these kernels."""
NEVER_USED = frozenset({"avx512ifma", "avx512vbmi2", "vaes", "vpclmulqdq", "movbe"})
"""Features whose instructions none of the kernels has."""
NO_INSTRUCTIONS = frozenset({"64bit", "cx16", "sahf", "xsave", "avx512vp2intersect", "sse", "sse2", "amx-fp16"})
"""Features that LLVM uses for nothing that kernels do, or without which it has no code at all; and one that no unit of
Weft has."""
X86 = frozenset().union(*(f for f in CPU_FEATURES.values() if "sse2" in f))
SAPPHIRE = "sapphire-rapids"
PATTERNS: dict[str, Callable[[str], re.Match[str] | None]] = {
    f: re.compile(pattern).search for f, pattern in INSTRUCTIONS.items()
}


def without(base: str, *features: str) -> str:
    return f"{base} -mattr={','.join(f'-{f}' for f in features)}"


MACHINES = (
    *(SAPPHIRE, "zen4", "llvm -mcpu=skylake", "x86-64-v4", "x86-64-v2", "llvm -mcpu=x86-64"),
    *(without(SAPPHIRE, f) for f in INSTRUCTIONS),
    without(SAPPHIRE, "amx-tile", "avx512bf16"),
    without(SAPPHIRE, "amx-tile", "avx512vnni"),
    without(SAPPHIRE, "amx-tile", "avx512vnni", "avxvnni"),
    without(SAPPHIRE, "amx-tile", "avx512bw"),
    without(SAPPHIRE, "amx-tile", "avx512vl"),
    *(without("llvm -mcpu=skylake", f) for f in ("fma", "f16c", "avx2", "bmi2")),
    without("llvm -mcpu=skylake", "fma", "f16c"),
    without("zen4", "avx512bf16"),
    without("zen4", "avx512vl"),
    without("x86-64-v2", "sse4.1"),
    without("x86-64-v2", "sse3"),
)

OFTEN = frozenset(
    (*(without(SAPPHIRE, f) for f in ("amx-tile", "avx512f", "avx512bf16", "avx512fp16")), "llvm -mcpu=x86-64")
)
"""Machines tried in every run: the others take minutes, so they are slow tests."""


def test_every_feature_of_x86_is_looked_at() -> None:
    assert set(INSTRUCTIONS) == X86 - NO_INSTRUCTIONS


def test_the_instructions_are_there_with_the_features() -> None:
    """Else the other tests would look for nothing."""
    tiles = [code(name, SAPPHIRE) for name in KERNELS]
    vectors = [code(name, without(SAPPHIRE, "amx-tile")) for name in KERNELS]
    older = [code(name, m) for name in KERNELS for m in ("llvm -mcpu=alderlake", "x86-64-v2")]
    every = "\n".join([*tiles, *vectors, *older])
    assert {f for f, search in PATTERNS.items() if search(every) is None} == NEVER_USED


@pytest.mark.thinned(2)
@pytest.mark.parametrize("machine", [m if m in OFTEN else pytest.param(m, marks=pytest.mark.slow) for m in MACHINES])
@pytest.mark.parametrize("name", KERNELS)
def test_right_without(name: str, machine: str) -> None:
    target = Target(machine)
    text = code(name, machine)
    for feature, search in PATTERNS.items():
        if feature not in target.cpu.features:
            found = search(text)
            assert found is None, f"{found and found[0]} without {feature}"
    base = machine.partition(" -mattr=")[0]
    if machine != base and text == code(name, base):
        return  # the same code, which is run for the machine with the feature
    if target.cpu.features & CODE_FEATURES <= cpu_features() | SYSTEM_FEATURES:
        agree(name, target)


@pytest.mark.parametrize("feature", sorted(NEEDS))
def test_a_feature_comes_and_goes_with_what_it_needs(feature: str) -> None:
    every = added(frozenset(), feature)
    assert NEEDS[feature] < every and usable(every) == every
    for needed in every:
        left = removed(every, needed)
        assert feature not in left and usable(left) == left
        assert feature not in usable(every - {needed})


@pytest.mark.parametrize("feature", sorted(CODE_FEATURES))
def test_removing_and_adding_keeps_features_whole(feature: str) -> None:
    for features in CPU_FEATURES.values():
        assert usable(features) == features
        fewer = removed(features, feature)
        assert feature not in fewer and usable(fewer) == fewer
        assert added(fewer, feature) >= {feature} and usable(added(fewer, feature)) == added(fewer, feature)


def test_the_order_of_features_counts() -> None:
    assert Target("x86-64-v2 -mattr=+avx512f,-fma").cpu.vector_bits == 256
    assert Target("x86-64-v2 -mattr=-fma,+avx512f").cpu.has("avx512f", "fma", "f16c", "avx2", "avx")
    assert not Target("cpu -mattr=-sse3").cpu.has("avx")


@pytest.mark.parametrize("machine", ["cpu", SAPPHIRE, "zen4", "c -mcpu=sapphirerapids", "graviton3", "riscv64"])
def test_a_machine_without_a_feature_has_a_text(machine: str) -> None:
    for feature in Target(machine).cpu.features & CODE_FEATURES:
        target = Target(without(machine, feature))
        assert feature not in target.cpu.features and Target(str(target)) == target
        assert target.kind.name == "c" or backend_of(target).version(target)
