"""The standard backend interface of ONNX (:class:`onnx.backend.base.Backend`) on compiled code.

    from weft.frontends.onnx import backend
    outputs = backend.run_model(model, [x, y])

``prepare`` compiles the model. Sometimes values of inputs decide shapes or attributes that Weft must know at compile
time (the target of a Reshape, the trip count of a loop, the length of a sequence). Then the first run compiles the
model and specializes the executable to the values of these inputs; each distinct value is compiled once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft import api
from weft.frontends.common.problems import ModelProblems, NeedsValue
from weft.frontends.onnx import load
from weft.frontends.onnx.importer import Given, Leaving
from weft.frontends.onnx.reader import read
from weft.graph.types import TensorType
from weft.runtime import Executable
from weft.runtime.values import string_array
from weft.support.dtypes import DType
from weft.support.errors import InputError, MissingExtra, ModelError

try:
    import onnx
    from onnx.backend.base import Backend, BackendRep
except ImportError:
    raise MissingExtra("onnx", "onnx", "importing ONNX models") from None

MAX_KEPT_EXECUTABLES = 32
"""Executables that are kept for one prepared model. The least recently used is dropped first."""
MAX_COMPILE_ATTEMPTS = 64
"""Most attempts to compile a model: each may show that the value of one more input is needed."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """An executable. ``known`` are the input values that it is specialized to, ``structure`` describes its outputs, and
    ``deciding`` are the inputs that decide sizes at run time."""

    executable: Executable
    known: frozenset[str]
    structure: tuple[Leaving, ...]
    deciding: frozenset[str]


class Prepared(BackendRep):
    """A model ready to run on lists of NumPy arrays (lists of arrays for sequences, None for absent optionals)."""

    def __init__(self, model: Any, **options: Any) -> None:
        self.model = read(model).model
        self.options = options
        weights = {t.name for t in self.model.graph.initializer}
        self.inputs = [i for i in self.model.graph.input if i.name not in weights]
        self.loose = {i.name for i in self.inputs if not _is_plain(i.type)}
        self.needed: set[str] = set()
        self._compiled: OrderedDict[Any, Compiled] = OrderedDict()
        if not self.loose:
            self._prepare_all()

    def _prepare_all(self) -> None:
        """Compile for all values of the inputs, unless some must be known."""
        try:
            self._compiled[_key({})] = self._compile({})
        except ModelError as why:
            self._learn(why)

    def _learn(self, why: ModelError) -> None:
        """Record the inputs whose values would avoid the error ``why``; raises ``why`` if there are none."""
        needs = (
            why.needs if isinstance(why, ModelProblems) else why.inputs if isinstance(why, NeedsValue) else frozenset()
        )
        shapes = why.needs_shape if isinstance(why, ModelProblems) else frozenset()
        if needs <= self.needed and shapes <= self.loose:
            raise why
        self.needed |= needs
        self.loose |= shapes

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for ``inputs`` in the model's order, or by name. Raises WeftError.

        If values of inputs violate an assumption of the code (a size of -1), the model is compiled for these values.
        """
        named = self._named(inputs)
        compiled = self._specialized(named)
        try:
            return self._run(compiled, named)
        except InputError:
            if compiled.deciding <= self.needed:
                raise
            self.needed |= compiled.deciding
        return self._run(self._specialized(named), named)

    @staticmethod
    def _run(compiled: Compiled, named: dict[str, Any]) -> tuple[Any, ...]:
        feeds: list[Any] = []
        for name, value in named.items():
            if name not in compiled.known:
                feeds += _flat(value)
        made = compiled.executable(*feeds)
        return _structured(made if isinstance(made, tuple) else (made,), compiled.structure)

    def _named(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, dict):
            return {i.name: _as_value(inputs.get(i.name)) for i in self.inputs}
        given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        if len(given) > len(self.inputs):
            raise InputError(f"the model takes {len(self.inputs)} inputs, {len(given)} are given", code="I001")
        given += [None] * (len(self.inputs) - len(given))
        return {i.name: _as_value(v) for i, v in zip(self.inputs, given, strict=True)}

    def _specialized(self, named: dict[str, Any]) -> Compiled:
        for _ in range(MAX_COMPILE_ATTEMPTS):
            known: dict[str, Given] = {n: _type_of(named[n]) for n in self.loose}
            known |= {n: _frozen(named[n]) for n in self.needed if named[n] is not None}
            key = _key(known)
            if key in self._compiled:
                self._compiled.move_to_end(key)
                return self._compiled[key]
            try:
                made = self._compiled[key] = self._compile(known)
            except ModelError as why:
                self._learn(why)
                continue
            if len(self._compiled) > MAX_KEPT_EXECUTABLES:
                self._compiled.popitem(last=False)
            return made
        raise ModelError("the model needs too many values of its inputs to be known")

    def _compile(self, known: dict[str, Given]) -> Compiled:
        module = load(self.model, known=known)
        fixed = frozenset(n for n, v in known.items() if _is_value(v))
        try:
            executable = api.compile(module, **self.options)
        except ModelError as why:
            raise NeedsValue(why.message, module.attrs.deciding).with_traceback(why.__traceback__) from None
        return Compiled(executable, fixed, module.attrs.structure, frozenset(module.attrs.deciding))


class WeftBackend(Backend):
    """Weft as a backend of the ``onnx`` package."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether ``prepare`` may be called; it decides which models are supported."""
        return bool(cls.supports_device(device))

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Compile ``model``; ``kwargs`` are options of :func:`weft.compile`. Raises ModelError, TargetError."""
        if not cls.supports_device(device):
            raise InputError(f"there is no device '{device}'", code="I030", hint="only CPU")
        return Prepared(model, **{k: v for k, v in kwargs.items() if k in ("target", "threads", "options", "cache")})

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compile and run once."""
        return tuple(cls.prepare(model, device, **kwargs).run(inputs))

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run a single node; ``opset_version`` may be given."""
        helper = onnx.helper
        names = [n for n in node.input if n]
        values = [_as_value(v) for v in (inputs.values() if isinstance(inputs, dict) else inputs)]
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in zip(names, values, strict=True)
        ]
        outputs = [onnx.ValueInfoProto(name=o) for o in node.output if o]
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        model = helper.make_model(
            helper.make_graph([node], "node", infos, outputs), opset_imports=[helper.make_opsetid(node.domain, version)]
        )
        return cls.run_model(model, values, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether code can be made for an ONNX device name."""
        return isinstance(device, str) and device.split(":")[0] == "CPU"


def _is_plain(declared: Any) -> bool:
    return bool(declared.WhichOneof("value") == "tensor_type" and declared.tensor_type.HasField("shape"))


def _as_value(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [_as_value(v) for v in value]
    array = np.asarray(value)
    return string_array(array) if array.dtype.kind in "USO" else array


def _type_of(value: Any) -> Given:
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(_type_of(v) for v in value)
    return TensorType(value.shape, DType(value.dtype))


def _frozen(value: Any) -> Given:
    """A value that becomes a constant: sequences are tuples."""
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


def _is_value(given: Given) -> bool:
    return all(_is_value(g) for g in given) if isinstance(given, tuple) else isinstance(given, np.ndarray)


def _key(known: dict[str, Given]) -> Any:
    return tuple(sorted((n, _value_key(v)) for n, v in known.items()))


def _value_key(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_value_key(v) for v in value)
    if not isinstance(value, np.ndarray):
        return repr(value)
    return repr((value.dtype.name, value.shape, value.tolist() if value.dtype == object else value.tobytes()))


def _flat(value: Any) -> list[Any]:
    if value is None:
        return []
    return [leaf for v in value for leaf in _flat(v)] if isinstance(value, list) else [value]


def _structured(flat: Sequence[Any], structure: Sequence[Leaving]) -> tuple[Any, ...]:
    """The outputs: for each a tensor (-1), a list of that length, maps with these keys, or None."""
    rest, made = list(flat), list[Any]()
    for count in structure:
        if count is None:
            made.append(None)
        elif isinstance(count, tuple):
            made.append([dict(zip(count, row.tolist(), strict=True)) for row in np.asarray(rest.pop(0))])
        elif count < 0:
            made.append(rest.pop(0))
        else:
            made.append(rest[:count])
            del rest[:count]
    return tuple(made)


is_compatible = WeftBackend.is_compatible
prepare = WeftBackend.prepare
run_model = WeftBackend.run_model
run_node = WeftBackend.run_node
supports_device = WeftBackend.supports_device
