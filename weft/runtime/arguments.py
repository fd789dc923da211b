"""Inputs and outputs of a run: conversions that the C extension does not do, and errors for values that do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.runtime import _native
from weft.runtime.devices import failure
from weft.runtime.elements import numpy_dtype
from weft.runtime.numbers import NotHeld, Unfit, number_array
from weft.runtime.program import CallKernel, Check, CheckRange, ExecutableProgram, TensorSpec, describe
from weft.runtime.sizes import evaluate, to_text
from weft.runtime.tensor import Tensor, as_tensor, from_dlpack
from weft.runtime.values import FieldType, check_types, pack, unpack
from weft.support.errors import MALFORMED, ArtifactError, InputError, InternalError, UserError, WeftError
from weft.support.words import counted, did_you_mean

# weft_status of csrc/include/weft_runtime.h, and the binding's own from 100.
_MEMORY, _RANK, _SHAPE, _CHECK, _KERNEL, _ARITHMETIC, _BOUNDS, _UNALLOCATED = 1, 5, 6, 7, 8, 9, 10, 11
_DEPTH, _RANGE, _DEVICE, _TIMEOUT, _INTERRUPTED, _LIMIT = 12, 14, 15, 16, 17, 18
_COUNT, _OUTPUT_COUNT, _OVERLAP, _OUTPUT_SHAPE = 100, 101, 102, 103


class Arguments:
    """Conversions and error messages for the arguments of one program. Raises ArtifactError for types that are none."""

    def __init__(self, program: ExecutableProgram) -> None:
        self.program = program
        check_types(program.types, [self.field_type(s) for s in (*program.inputs, *program.outputs) if s.is_value])

    def field_type(self, spec: TensorSpec) -> FieldType:
        """The type of an input or output that is passed as a value."""
        if spec.dtype == "data":
            return "data", spec.type
        return "tensor", spec.dtype, [d[0] if isinstance(d[0], int) and len(d) == 1 else -1 for d in spec.shape]

    def results(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a run, with values converted to data and strings."""
        specs = zip(self.program.outputs, values, strict=True)
        try:
            return tuple(unpack(v, self.field_type(s), self.program.types) if s.is_value else v for s, v in specs)
        except MALFORMED as error:
            if isinstance(error, MemoryError):
                raise
            raise ArtifactError(f"malformed program: a result is not of its type ({error})", code="A010") from error

    def convert(self, index: int, value: Any) -> Tensor | _native.Value:
        """Input ``index`` as a compact tensor of the right dtype, or as a value if the program takes one. Raises
        InputError if it does not fit."""
        spec = self.program.inputs[index]
        if spec.is_value:
            return pack(value, self.field_type(spec), self.program.types, spec.name)
        if isinstance(value, Tensor) and value.home is not None and value.dtype == spec.dtype:
            return value
        array = self._array(spec, value)
        if array.dtype.name != spec.dtype:
            raise InputError(
                f"input '{spec.name}' must be {describe(spec)}, not {array.dtype.name}{list(array.shape)}",
                code="I002",
                hint=f"convert it, for example with .astype('{spec.dtype}')",
            )
        try:
            if array.ctypes.data % array.itemsize or not array.dtype.isnative:
                array = array.astype(numpy_dtype(spec.dtype))
            return as_tensor(array)
        except MemoryError:  # a view may have far more elements than memory
            raise UserError(
                f"out of memory: input '{spec.name}' takes {array.nbytes:,} bytes",
                code="I007",
                hint="the inputs are large for the memory of this machine",
            ) from None

    def _array(self, spec: TensorSpec, value: Any) -> NDArray[Any]:
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, Tensor):
            return value.numpy()
        if hasattr(value, "__dlpack__"):
            try:
                return from_dlpack(value).numpy()
            except InputError as error:
                raise InputError(f"input '{spec.name}': {error.message}", code=error.code) from error
        return self._from_python(spec, value)

    def _from_python(self, spec: TensorSpec, value: Any) -> NDArray[Any]:
        """Numbers and nested lists have no dtype: they get that of the input, unless this would change their kind or
        value."""
        try:
            return number_array(value, numpy_dtype(spec.dtype), spec.dtype)
        except NotHeld as error:
            raise InputError(f"input '{spec.name}' has values that {spec.dtype} cannot hold", code="I002") from error
        except Unfit as error:
            raise self._no_array(spec, value) from error

    def _no_array(self, spec: TensorSpec, value: Any) -> InputError:
        return InputError(
            f"input '{spec.name}' must be {describe(spec)}, not a {type(value).__name__}",
            code="I002",
            hint="give a NumPy array or anything with __dlpack__",
        )

    def convert_output(self, index: int, value: Any) -> Tensor:
        """The caller's memory for output ``index`` as a tensor. Raises InputError unless it can be written in place."""
        spec = self.program.outputs[index]
        if spec.is_value:
            raise InputError(f"output '{spec.name}' is no plain tensor and takes no memory", code="I005")
        wrong = f"the memory for output '{spec.name}' must be"
        if isinstance(value, np.ndarray):
            array = value
        elif isinstance(value, Tensor) and value.home is not None:
            if value.dtype != spec.dtype:
                raise InputError(f"{wrong} {describe(spec)}, not {value.dtype}{list(value.shape)}", code="I005")
            return value
        elif isinstance(value, Tensor) or hasattr(value, "__dlpack__"):
            tensor = value if isinstance(value, Tensor) else from_dlpack(value)
            if tensor.readonly:
                raise InputError(f"{wrong} writable", code="I005")
            array = tensor.numpy()
        else:
            raise InputError(f"{wrong} an array, not a {type(value).__name__}", code="I005")
        if array.dtype != numpy_dtype(spec.dtype):
            raise InputError(f"{wrong} {describe(spec)}, not {array.dtype.name}{list(array.shape)}", code="I005")
        if not array.flags.c_contiguous or not array.flags.writeable or array.ctypes.data % array.itemsize:
            raise InputError(f"{wrong} writable, compact in row-major order and aligned", code="I005")
        return as_tensor(array)

    def order(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Named inputs in the order of the program. Raises InputError for missing and unknown names."""
        names = [t.name for t in self.program.inputs]
        expected = frozenset(names)
        missing = [n for n in names if n not in inputs]
        unknown = [str(n) for n in inputs if n not in expected]
        if missing or unknown:
            wrong = [f"'{n}' is missing" for n in missing] + [f"'{n}' is unknown" for n in unknown]
            hint = self._inputs_hint()
            if unknown:
                hint = did_you_mean(unknown[0], missing or names, hint)
            raise InputError("inputs do not fit: " + ", ".join(wrong), code="I001", hint=hint)
        return tuple(inputs[n] for n in names)

    def merged(self, given: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs by name from a mapping and from keywords. Raises InputError for one that both have."""
        twice = next((n for n in named if n in given), None)
        if twice is not None:
            raise InputError(f"input '{twice}' is given twice", code="I001", hint=self._inputs_hint())
        return {**given, **named}

    def completed(self, first: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The inputs of a call: the first in order, the others by name. Raises InputError as :meth:`order` does, and
        for inputs that are given twice or are too many."""
        names = [t.name for t in self.program.inputs]
        if len(first) > len(names):
            raise self._wrong_count(len(first) + len(named))
        twice = next((n for n in names[: len(first)] if n in named), None)
        if twice is not None:
            raise InputError(f"input '{twice}' is given in order and by name", code="I001", hint=self._inputs_hint())
        return self.order({**dict(zip(names, first, strict=False)), **named})

    def symbols(self, inputs: Sequence[Any]) -> dict[str, int]:
        """The values of the open sizes for inputs in order. Raises InputError if one does not fit, as a run does."""
        if len(inputs) != len(self.program.inputs):
            raise self._wrong_count(len(inputs))
        shapes = [getattr(self.convert(i, x), "shape", ()) for i, x in enumerate(inputs)]
        values = bind_symbols(self.program, shapes)
        for i, (spec, shape) in enumerate(zip(self.program.inputs, shapes, strict=True)):
            if not spec.is_value and len(shape) != len(spec.shape):
                raise self._shape_error(i, -1, len(spec.shape), len(shape))
            for axis, (size, extent) in enumerate(zip(() if spec.is_value else spec.shape, shape, strict=False)):
                expected = evaluate(size, values)
                if expected is not None and expected != extent:
                    raise self._shape_error(i, axis, expected, extent)
        return values

    def _wrong_count(self, given: int) -> InputError:
        count = len(self.program.inputs)
        needed = "1 input is" if count == 1 else f"{count} inputs are"
        return InputError(f"{needed} needed, {given} given", code="I001", hint=self._inputs_hint())

    def _inputs_hint(self) -> str:
        return "the model takes " + (", ".join(f"{t.name}: {describe(t)}" for t in self.program.inputs) or "no inputs")

    # ---- errors of a run --------------------------------------------------------------------------------------------

    def fail(
        self, status: int, index: int, axis: int, instruction: int, expected: int, given: int, message: str
    ) -> WeftError | KeyboardInterrupt:
        """The exception for a failed run."""
        if status == _COUNT:
            return self._wrong_count(given)
        if status == _OUTPUT_COUNT:
            return InputError(f"memory for {counted(expected, 'output')} is needed, for {given} given", code="I005")
        if status in (_RANK, _SHAPE):
            return self._shape_error(index, axis, expected, given)
        if status in (_OVERLAP, _OUTPUT_SHAPE) or (status == _BOUNDS and "output" in message):
            return self._output_error(status, given if status >= _COUNT else index)
        if status == _CHECK:
            check = self.program.instructions[instruction]
            return InputError(check.message if isinstance(check, Check) else message, code="I004")
        if status == _RANGE:
            return self._range_error(instruction, given, message)
        if status == _ARITHMETIC:
            return InputError(f"{message}: the model does not fit inputs of these sizes", code="I004")
        if status == _DEVICE or message.startswith("device "):  # whose memory is exhausted, or whose kernel failed
            return failure(status, message)
        if status == _MEMORY:
            return UserError(message, code="I007", hint="the inputs are large for the memory of this machine")
        if status == _TIMEOUT:
            return UserError("the run took longer than its timeout and was stopped", code="I035")
        if status == _INTERRUPTED:  # by a watch of the program that runs Python: signals raise their own exceptions
            return KeyboardInterrupt("the run was interrupted")
        if status == _LIMIT:
            return UserError(
                f"out of memory: {message} bytes",
                code="I036",
                hint="set a larger memory_limit, or give smaller inputs",
            )
        if status == _DEPTH:
            name = self.program.functions[index].name if 0 <= index < len(self.program.functions) else "?"
            return UserError(
                f"the recursion of '@{name}' goes too deep",
                code="I008",
                hint="does the recursion end? Calls in tail position (returned unchanged) need no memory",
            )
        return self._internal(status, instruction, given, message)

    def _shape_error(self, index: int, axis: int, expected: int, given: int) -> InputError:
        spec = self.program.inputs[index]
        if axis < 0:
            detail = f"it has {given} dimensions, not {expected}"
        else:
            size = spec.shape[axis]
            why = "" if evaluate(size, {}) is not None else f" ({to_text(size)})"
            detail = f"dimension {axis} is {given}, not {expected}{why}"
        return InputError(f"input '{spec.name}' must be {describe(spec)}: {detail}", code="I003")

    def _range_error(self, instruction: int, given: int, message: str) -> InputError:
        check = self.program.instructions[instruction]
        what = check.message if isinstance(check, CheckRange) else ""
        return InputError(f"{what}: {message}" if what else message, code="I004")

    def _output_error(self, status: int, index: int) -> InputError:
        spec = self.program.outputs[index]
        what = f"the memory for output '{spec.name}' ({describe(spec)})"
        if status == _OVERLAP:
            return InputError(f"{what} overlaps with an input or another output", code="I005")
        return InputError(f"{what} does not have the right shape", code="I005")

    def _internal(self, status: int, instruction: int, given: int, message: str) -> WeftError:
        place = f"instruction {instruction}" if instruction >= 0 else "the program"
        if status == _KERNEL:
            call = self.program.instructions[instruction]
            if isinstance(call, CallKernel):
                name = self.program.kernels[call.kernel].name
                place += f", kernel '{name}'" + (f" ({call.label})" if call.label else "")
            return InternalError(f"a kernel returned error {given} ({place})", code="W020")
        return InternalError(f"{message} ({place})", code="W021")


def bind_symbols(program: ExecutableProgram, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """The values of the symbols for inputs of these shapes, bound in the same way as in the executor."""
    values: dict[str, int] = {}
    for spec, shape in zip(program.inputs, shapes, strict=True):
        if spec.is_value:
            continue
        for size, extent in zip(spec.shape, shape, strict=False):
            if len(size) == 1 and isinstance(size[0], str):
                values.setdefault(size[0], int(extent))
    return values
