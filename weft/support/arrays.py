"""Files of NumPy's for arrays, which are there completely or not at all."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.support.files import replaced_file


def save_array(path: str | os.PathLike[str], array: NDArray[Any]) -> None:
    """Write an array to a ``.npy`` file. Raises OSError."""
    with replaced_file(path) as file:
        np.save(file, array)


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to a ``.npz`` file under any names: those of arguments of ``np.savez`` too. Raises OSError."""
    with replaced_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.asanyarray(array))
