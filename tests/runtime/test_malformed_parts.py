"""Wrong arguments of the runtime that no program can express: they are refused. Details of the Python binding."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from small_artifacts import artifact, vector_program

from weft.runtime import Executable, _native
from weft.runtime.encode import encode
from weft.runtime.program import (
    BufferSpec,
    CallKernel,
    CheckRange,
    Construct,
    Copy,
    ExecutableProgram,
    Extent,
    FunctionSpec,
    Invoke,
    Jump,
    KernelRef,
    NewTensor,
    NewView,
    SetSize,
    Share,
    Tag,
    TensorSpec,
)
from weft.runtime.serialize import program_from_json, program_to_json
from weft.support.errors import ArtifactError, InternalError, UserError

GOOD_ELEMENTS = {0, 1, 2, 4, 8, 17, 18, 20, 24}


def made(words: np.ndarray, kernels: bytes, dtype: str = "float32") -> _native.Executable:
    code = _native.Code(kernels)
    numpy_dtypes = (np.dtype(dtype), np.dtype(dtype))
    unused = lambda *_: None  # noqa: E731  # called for arguments only
    return _native.Executable(
        words, (code,), ((0, "double_plus_one"),), (), (dtype,), (dtype,), numpy_dtypes, 1, np.ndarray,
        unused, unused, unused, unused, (),
    )  # fmt: skip


@pytest.mark.parametrize("element", range(26))
def test_only_element_types_that_exist_are_accepted(kernels, element):
    program = vector_program("double_plus_one")
    words = encode(replace(program, buffers=tuple(replace(b, dtype="int64") for b in program.buffers)))
    (places,) = np.nonzero(words == 24)
    assert len(places) == 2
    words[places[0]] = element
    if element in GOOD_ELEMENTS:
        made(words, kernels)
    else:
        with pytest.raises(ValueError, match="malformed program"):
            made(words, kernels)


@pytest.mark.parametrize("dtype", ["float64", "uint8", "float16"])
def test_the_program_and_the_binding_agree_on_the_size_of_elements(kernels, dtype):
    words = encode(vector_program("double_plus_one"))
    made(words, kernels, "int32")  # as large as float32
    with pytest.raises(ValueError, match="do not fit the program"):
        made(words, kernels, dtype)


@pytest.mark.parametrize("define", [lambda n: SetSize(n, (3,)), lambda n: Tag(n, 0), lambda n: Extent(n, 0, 0)])
def test_each_symbol_has_one_meaning(define):
    """A dimension of an input or a register that an instruction sets: one of them, and no operation's name."""
    program = vector_program("double_plus_one", size="n")

    def defining(*names: str) -> ExecutableProgram:
        symbols = tuple(dict.fromkeys((*program.symbols, *names)))
        return replace(program, symbols=symbols, instructions=(*map(define, names), *program.instructions))

    assert len(encode(defining("m"))) and len(encode(defining("m", "k", "m"))), "set twice, to be read after each"
    for wrong, why in (
        (defining("n"), "'n' is bound from an input and set again"),
        (defining("m", "n"), "'n' is bound from an input and set again"),
        (defining("mul"), "'mul' is an operation"),
        (defining("not"), "'not' is an operation"),
        (replace(program, symbols=("n", "m")), "'m' is no dimension"),
        (replace(program, symbols=()), "'n' of an input is not among the symbols"),
    ):
        with pytest.raises(ArtifactError, match=why):
            encode(wrong)


@pytest.mark.parametrize("kind", ["input", "constant"])
@pytest.mark.parametrize("copy", [Copy(1, 2, (32,)), Copy(1, 2, (16,), (16,), (0,)), Copy(1, 2, (16,), (0,), (16,))])
def test_a_copy_to_an_input_or_a_constant_is_refused(kernels, kind, copy):
    program = vector_program("double_plus_one")
    buffers = (*program.buffers, BufferSpec(kind, 0, nbytes=(32,)))
    program = replace(program, buffers=buffers, instructions=(*program.instructions, copy))
    with pytest.raises(ArtifactError, match="copy to an input or a constant"):
        Executable(artifact(program, kernels, (np.zeros(8, np.float32),)))


BEFORE = {
    "new": (NewTensor(3, (32,), ((8,),)),),
    "input": (NewView(3, 0, (32,), ((8,),)),),
    "constant": (NewView(3, 2, (32,), ((8,),)),),
    "value": (NewTensor(4, (32,), ((8,),)), NewView(3, 4, (32,), ((8,),))),
    "view of an input": (NewView(4, 0, (32,), ((8,),)), NewView(3, 4, (32,), ((8,),))),
    "shared": (NewTensor(3, (32,), ((8,),)), Share(3, 4)),
    "part of another": (NewTensor(3, (32,), ((8,),)), Construct(4, 0, (3,))),
}


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("held", BEFORE)
def test_a_copy_changes_no_memory_that_a_value_shows(kernels, held, part):
    """Not that of the caller, of a mapped constant or of another value: only that of a tensor that was just made."""
    program = vector_program("double_plus_one")
    buffers = (*program.buffers, BufferSpec("constant", 0, nbytes=(32,)), BufferSpec("object"), BufferSpec("object"))
    copy = Copy(1, 3, (16,), target_offset=(16,)) if part else Copy(1, 3, (32,))
    program = replace(program, buffers=buffers, instructions=(*program.instructions, *BEFORE[held], copy))
    constant, x = np.zeros(8, np.float32), np.arange(8, dtype=np.float32)
    exe = Executable(artifact(program, kernels, (constant,)))
    for _ in range(2):
        if held == "new":
            np.testing.assert_array_equal(exe(x), 2 * x + 1)
        else:
            with pytest.raises(InternalError, match="a copy to a value that is in use"):
                exe(x)
        np.testing.assert_array_equal(x, np.arange(8))
        np.testing.assert_array_equal(constant, np.zeros(8))


@pytest.mark.parametrize("port", ["inputs", "outputs"])
def test_a_kernel_gets_no_elements_of_a_value(kernels, port):
    program = vector_program("double_plus_one")
    program = replace(program, **{port: (TensorSpec("v", "string", ((8,),)),)})
    assert isinstance(program.instructions[0], CallKernel)
    with pytest.raises(ArtifactError, match="that is a value"):
        Executable(artifact(program, kernels))


def test_a_shape_that_changes_while_it_is_read():
    class Shrinks:
        def __init__(self, row: list[object]) -> None:
            self.row = row

        def __index__(self) -> int:
            self.row.clear()
            return 2

    for length in (1, 3, 30):
        row: list[object] = []
        row += [Shrinks(row) for _ in range(length)]
        assert _native.Tensor(row, "int8").shape == (2,) * length


def test_a_strided_tensor_is_not_a_contiguous_buffer():
    tensor = _native.Tensor.from_capsule(np.zeros((4, 6), np.float32)[:, ::2].__dlpack__())
    assert not tensor.contiguous
    assert memoryview(tensor).shape == (4, 3)
    for order in "CFA":
        with pytest.raises(BufferError):
            _native_contiguous(tensor, order)


def _native_contiguous(tensor: _native.Tensor, order: str) -> None:
    """Asks for a contiguous buffer as C code does."""
    import ctypes

    flags = {"C": 0x38, "F": 0x58, "A": 0x98}[order]  # PyBUF_*_CONTIGUOUS
    view = (ctypes.c_char * 512)()
    ask = ctypes.pythonapi.PyObject_GetBuffer
    ask.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    ask(tensor, ctypes.addressof(view), flags)


def test_numbers_of_a_size_fit_64_bits():
    program = vector_program("double_plus_one")
    for number in (-(1 << 63), (1 << 63) - 1):
        encode(replace(program, arena_bytes=(number,)))
    for number in (-(1 << 63) - 1, 1 << 63, 1 << 64):
        with pytest.raises(ArtifactError, match=r"size -?\d+ does not fit 64 bits"):
            encode(replace(program, arena_bytes=(number,)))


@pytest.mark.parametrize("field", ["inputs", "outputs"])
@pytest.mark.parametrize("dtype", ["float31", "", "Float32", "object"])
def test_only_dtypes_that_exist_are_read(field, dtype):
    value = program_to_json(vector_program("double_plus_one"))
    program_from_json(value)
    value[field][0][1] = dtype
    with pytest.raises(ArtifactError, match=f"unknown dtype '{dtype}'"):
        program_from_json(value)


def ranged(low, high):
    """Copies 8 integers whose ranges are checked, in turns."""
    return ExecutableProgram(
        symbols=(),
        inputs=(TensorSpec("x", "int64", ((8,),)),),
        outputs=(TensorSpec("y", "int64", ((8,),)),),
        buffers=(BufferSpec("input", 0, dtype="int64"), BufferSpec("output", 0, dtype="int64")),
        kernels=(KernelRef("double_plus_one", 0),),
        instructions=(CheckRange(0, (8,), low, high, "the number"), Copy(0, 1, (64,))),
    )


def test_ranges_have_a_low_and_a_high_bound_for_each_column(kernels):
    exe = Executable(artifact(ranged(((0,), (10,)), ((3,), (15,))), kernels))
    good = np.array([0, 10, 3, 15, 1, 12, 2, 11])
    np.testing.assert_array_equal(exe(good), good)
    for at, wrong in ((0, -1), (0, 4), (6, 10), (1, 9), (3, 16), (7, 3)):
        values = good.copy()
        values[at] = wrong
        with pytest.raises(UserError, match="the number"):
            exe(values)


def test_functions_and_their_calls_are_read_as_they_were_written():
    plain = vector_program("double_plus_one")
    program = replace(
        plain,
        buffers=(*plain.buffers, BufferSpec("dynamic"), BufferSpec("object"), BufferSpec("object")),
        instructions=(
            NewView(3, 0, (32,), ((8,),)),
            Invoke(0, None, (3,), (), tail=False),
            Invoke(0, None, (4,), (), tail=True),
        ),
        functions=(FunctionSpec("f", 2, 3, (4, 5), (4,), (), 0),),
    )
    assert program_from_json(json.loads(json.dumps(program_to_json(program)))) == program


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 1 << 64])
def test_numbers_of_instructions_buffers_and_functions_fit_64_bits(number):
    program = vector_program("double_plus_one")
    for wrong in (
        replace(program, buffers=(replace(program.buffers[0], index=number), *program.buffers[1:])),
        replace(program, instructions=(*program.instructions, Jump(number))),
        replace(program, instructions=(*program.instructions, Copy(number, 0, (4,)))),
        replace(program, kernels=(KernelRef("double_plus_one", 0, number),)),
        replace(program, functions=(FunctionSpec("f", number, 0, (0, 0), (), (), 0),)),
    ):
        with pytest.raises(ArtifactError, match="does not fit 64 bits") as caught:
            encode(wrong)
        assert caught.value.code == "A010"


def test_a_jump_without_a_size_as_its_condition_is_refused(kernels):
    """It was a jump in any case."""
    program = vector_program("double_plus_one")
    jumping = replace(program, instructions=(Jump(1, (0,)), *program.instructions))
    Executable(artifact(jumping, kernels))
    with pytest.raises(ArtifactError):
        Executable(artifact(replace(program, instructions=(Jump(1, ()), *program.instructions)), kernels))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 2, 0)])
def test_constants_are_counted_in_any_order(kernels, order):
    program = vector_program("double_plus_one")
    buffers = (*program.buffers, *(BufferSpec("constant", n, nbytes=(32,)) for n in order))
    constants = tuple(np.zeros(8, np.float32) for _ in range(3))
    Executable(artifact(replace(program, buffers=buffers), kernels, constants))
    for count in (0, 1, 2):
        with pytest.raises(ArtifactError):
            Executable(artifact(replace(program, buffers=buffers), kernels, constants[:count]))
