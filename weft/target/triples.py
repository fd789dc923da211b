"""What a target triple says about memory addresses and object files."""

from __future__ import annotations

from typing import Final

from weft.support.errors import TargetError

_LOADED: Final = ("x86_64", "aarch64", "arm64", "riscv64", "armv7", "armv7a", "thumbv7", "thumbv7a")
"""Architectures whose objects the C runtime relocates."""
_BITS_32: Final = ("arm", "thumb", "i386", "i486", "i586", "i686", "riscv32", "mips-", "mipsel", "powerpc-")
_ARM_32: Final = ("arm", "thumb")
_HARD_FLOAT: Final = ("gnueabihf", "musleabihf")
"""Ends of triples of 32-bit Arm whose calling convention the runtime has."""
_NOT_ELF: Final = ("apple", "darwin", "macos", "ios", "windows", "win32", "cygwin", "mingw", "uefi", "wasi")
_ELF_MACHINES: Final = {
    62: ("x86_64", "amd64"),
    183: ("aarch64", "arm64"),
    40: ("arm", "thumb"),
    243: ("riscv",),
    21: ("powerpc64", "ppc64"),
    22: ("s390x",),
    258: ("loongarch",),
    8: ("mips",),
    3: ("i386", "i486", "i586", "i686"),
}
"""Numbers of machines in ELF files, each with how triples of this machine begin (the registry of e_machine values). The
first that fits counts: arm64 stands before arm."""
_HINT: Final = (
    "objects run on x86-64, AArch64, 64-bit RISC-V and ARMv7, as ELF files (-mtriple=aarch64-unknown-linux-gnu, for "
    "example); "
    "'weft inspect --stage assembly' shows the code for other targets"
)


def is_arm_32(triple: str) -> bool:
    """Whether the architecture is 32-bit Arm."""
    return triple.startswith(_ARM_32) and not triple.startswith("arm64")


def pointer_bits(triple: str) -> int:
    """Bits of an address: 32 or 64."""
    return 32 if triple.startswith(_BITS_32) and not triple.startswith("arm64") else 64


def require_known_pointers(triple: str) -> None:
    """Refuse machines with 32-bit addresses other than Arm: their code was never executed.

    Raises TargetError G025.
    """
    if pointer_bits(triple) == 32 and not is_arm_32(triple):
        raise TargetError(
            f"'{triple}' has addresses of 32 bits, which is supported for Arm alone", code="G025", hint=_HINT
        )


def require_loadable(triple: str) -> None:
    """Refuse machines whose object files the C runtime cannot load, before anything is compiled.

    Raises TargetError G025 or G026.
    """
    require_known_pointers(triple)
    architecture, _, system = triple.partition("-")
    if architecture not in _LOADED:
        raise TargetError(f"the runtime cannot load code for '{architecture}'", code="G026", hint=_HINT)
    if any(word in system for word in _NOT_ELF):
        raise TargetError(f"the runtime cannot load object files of '{system}'", code="G026", hint=_HINT)
    if is_arm_32(triple) and not system.endswith(_HARD_FLOAT):
        raise TargetError(
            f"the runtime cannot load code for '{triple}', which passes floating-point numbers in core registers",
            code="G026",
            hint="-mtriple=armv7-unknown-linux-gnueabihf passes them in registers of their own",
        )


def other_machine(image: bytes, triple: str) -> str | None:
    """The architecture that an ELF file is for, if that is not the one of ``triple``; None if it is, for files that are
    no ELF files, and if neither is known."""
    if image[:4] != b"\x7fELF":
        return None
    number = int.from_bytes(image[18:20], "little" if image[5] == 1 else "big")
    wanted = next((n for n, starts in _ELF_MACHINES.items() if triple.startswith(starts)), None)
    if number == wanted or (wanted is None and number not in _ELF_MACHINES):
        return None
    return _ELF_MACHINES[number][0] if number in _ELF_MACHINES else f"ELF machine {number}"
