"""The cost model that is shipped with the package: what was learned of many kernels before a search begins.

The file of a set of features is made on a quiet machine:
``weft tune-corpus --db corpus.db --minutes 22 --train weft/tune/model/pretrained-nests.txt.gz``.
"""

from __future__ import annotations

import gzip
import os
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Final

from weft.support.errors import UserError
from weft.support.files import existing_file, replaced_file
from weft.tune.model.boosted import BoostedTrees, BoostingOptions
from weft.tune.model.sets import FeatureSet, feature_set

LEARNING_ON: Final = BoostingOptions(analytic_weight=0.1)
"""How searches learn from features that mean the same for all kernels, whether they begin with a shipped model or with
nothing."""
FOLDER: Final = Path(__file__).parent
"""Where the shipped models are."""
MAX_BYTES: Final = 64 << 20
"""Longest text that is read; models take about a megabyte."""


def shipped(name: str) -> Path:
    """The file of the shipped model over the set of features ``name``, if there is one."""
    return FOLDER / f"pretrained-{name}.txt.gz"


def pretrained(name: str = "nests", options: BoostingOptions | None = None) -> BoostedTrees:
    """A model over the set of features ``name`` that goes on learning, with ``options``.

    It knows what the shipped model knows, if there is one for these features in their present version and for this
    kind of objective; otherwise nothing. Raises MissingExtra without LightGBM, UserError U054 if the file is damaged,
    U056 for an unknown set of features.
    """
    chosen = feature_set(name)
    options = options or LEARNING_ON
    empty = BoostedTrees(chosen.model_columns, options, feature_set=chosen.name, version=chosen.version)
    if not shipped(name).exists():
        return empty
    found = _read_once(shipped(name), shipped(name).stat().st_mtime_ns)
    if not _fits(found, chosen) or (found.options.objective, found.options.residual) != (
        options.objective,
        options.residual,
    ):
        return empty
    return found.begun(options)


@lru_cache(maxsize=4)
def _read_once(path: Path, modified: int) -> BoostedTrees:
    """The model in a file: a tuner needs it for every kernel, and reading takes some milliseconds."""
    return read_model(path)


def read_model(path: str | os.PathLike[str]) -> BoostedTrees:
    """The model in a file. Raises UserError U054 for a file that does not exist or holds no model."""
    file = existing_file(path, "cost model", code="U054")
    try:
        with gzip.open(file, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"it is longer than {MAX_BYTES >> 20} MiB")
        text = data.decode()
    except (OSError, EOFError, ValueError, zlib.error) as problem:
        raise UserError(f"'{file}' is not a cost model: {problem}", code="U054") from problem
    return BoostedTrees.from_text(text)


def write_model(model: BoostedTrees, path: str | os.PathLike[str], options: BoostingOptions | None = None) -> None:
    """Write a model to a file, equal bytes for equal models. ``options`` are those with which it learns when it is read
    again (default: as before). Raises UserError U057 where the file cannot be written."""
    packed = gzip.compress(model.to_text(options).encode(), mtime=0)
    try:
        with replaced_file(path) as file:
            file.write(packed)
    except OSError as problem:
        raise UserError(f"the cost model cannot be written to '{path}': {problem.strerror}", code="U057") from problem


def _fits(model: BoostedTrees, chosen: FeatureSet) -> bool:
    return (model.feature_set, model.version, model.columns) == (chosen.name, chosen.version, chosen.model_columns)
