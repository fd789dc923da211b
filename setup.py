"""Builds the C runtime as the extension module ``weft.runtime._native``; everything else is in pyproject.toml."""

from glob import glob

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "weft.runtime._native",
            sources=sorted(glob("csrc/src/*.c") + glob("csrc/python/*.c")),
            include_dirs=["csrc/include", "csrc/src"],
            depends=sorted(glob("csrc/**/*.h", recursive=True)),
            extra_compile_args=["-std=c11", "-O2", "-fvisibility=hidden", "-pthread"],
            extra_link_args=["-pthread"],
            libraries=["m"],
        )
    ]
)
