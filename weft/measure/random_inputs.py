"""Random inputs of a model, for measurements that need no others: seeded, and valid as tokens, masks and indices."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.support.dtypes import DType
from weft.support.errors import InputError

Array = NDArray[Any]


def random_inputs(
    specs: Sequence[Any], seed: int = 0, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> dict[str, Array]:
    """Seeded random arrays of the given ``shapes`` for input specifications (``name``, ``dtype``, ``shape``).

    Floats are normally distributed, integers are 0 or 1 (valid as tokens, masks and indices). The numbers depend only
    on the seed and on the name and shape of the input. Raises InputError I028 for an input that is no tensor of
    numbers.
    """
    made = {}
    for spec in specs:
        if spec.dtype in ("data", "string"):
            raise InputError(
                f"input '{spec.name}' is not a tensor of numbers, so it must be given",
                code="I028",
                hint=f"-i {spec.name}=FILE.data, a file that contains for example Node(Leaf([1.0]), Leaf([2.0]))",
            )
        shape = (shapes or {}).get(spec.name) or tuple(size_of(d) for d in spec.shape)
        source = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
        dtype = DType(spec.dtype)
        if dtype.is_float:
            made[spec.name] = source.standard_normal(shape, dtype=np.float32).astype(dtype.numpy)
        else:
            made[spec.name] = source.integers(0, 2, shape).astype(dtype.numpy)
    return made


def input_specs(module: Any) -> list[Any]:
    """The inputs of a graph as an executable describes them: name, dtype, and shape of ints and symbol names."""
    return [
        SimpleNamespace(
            name=p.name, dtype=p.tensor.dtype, shape=[d if isinstance(d, int) else str(d) for d in p.tensor.shape]
        )
        for p in module.main.params
    ]


def shapes_with(specs: Sequence[Any], given: Mapping[str, int | tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The shape of each input. ``given`` has whole shapes by the names of inputs, and numbers by those of open sizes;
    other open sizes are 1."""
    made = {}
    for spec in specs:
        whole = given.get(spec.name)
        if isinstance(whole, int) and len(spec.shape) == 1:
            whole = (whole,)
        made[spec.name] = whole if isinstance(whole, tuple) else tuple(size_of(d, given) for d in spec.shape)
    return made


def size_of(d: Any, given: Mapping[str, int | tuple[int, ...]] | None = None) -> int:
    """A dimension of a specification as a number; an open one is 1 unless it is ``given`` by name."""
    if isinstance(d, tuple) and len(d) == 1:
        (d,) = d
    if isinstance(d, int):
        return d
    size = (given or {}).get(d, 1) if isinstance(d, str) else 1
    return size if isinstance(size, int) else 1
