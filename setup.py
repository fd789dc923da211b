"""Builds the C runtime as the extension module ``weft.runtime._native``; everything else is in pyproject.toml."""

import sys
from glob import glob

from setuptools import Extension, setup

# Against mistakes of the runtime in handling files: checked copies, guarded stacks, tables that are read-only after
# loading. Only compilers and linkers of Linux take all of them.
HARDENED = sys.platform == "linux"
CHECKS = ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong", "-Wformat", "-Werror=format-security"]
LINKING = ["-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack"]

setup(
    ext_modules=[
        Extension(
            "weft.runtime._native",
            sources=sorted(glob("csrc/src/*.c") + glob("csrc/python/*.c")),
            include_dirs=["csrc/include", "csrc/src"],
            depends=sorted(glob("csrc/**/*.h", recursive=True)),
            extra_compile_args=["-std=c11", "-O2", "-fvisibility=hidden", "-pthread", *(CHECKS if HARDENED else [])],
            extra_link_args=["-pthread", *(LINKING if HARDENED else [])],
            libraries=["m"],
        )
    ]
)
