"""Runs compiled models; needs no compiler, only NumPy and the C extension.

Everything below is imported when it is first used: ``weft.runtime.artifact`` alone does not need the C extension.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "Artifact": "artifact",
    "CodeObject": "artifact",
    "Device": "devices",
    "Executable": "executable",
    "Profile": "profile",
    "ExecutableProgram": "program",
    "Tensor": "tensor",
    "Variant": "artifact",
    "cpu_features": "threads",
    "device": "devices",
    "from_dlpack": "tensor",
    "load_executable": "executable",
}

__all__ = [
    "Artifact",
    "CodeObject",
    "Device",
    "Executable",
    "ExecutableProgram",
    "Profile",
    "Tensor",
    "Variant",
    "cpu_features",
    "device",
    "from_dlpack",
    "load_executable",
]

if TYPE_CHECKING:
    from weft.runtime.artifact import Artifact, CodeObject, Variant
    from weft.runtime.devices import Device, device
    from weft.runtime.executable import Executable, load_executable
    from weft.runtime.profile import Profile
    from weft.runtime.program import ExecutableProgram
    from weft.runtime.tensor import Tensor, from_dlpack
    from weft.runtime.threads import cpu_features


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(import_module(f"weft.runtime.{_PUBLIC[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'weft.runtime' has no attribute '{name}'")
