"""Reads assembly with LLVM's comments (AT&T notation of x86-64): the instructions of each block, by class."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

_FUNCTION = re.compile(r"^([\w.$]+):\s+# @")
_BLOCK = re.compile(r"^(?:\.(LBB\d+_\d+):|# %bb\.\d+:)\s*(?:# (%\S+))?")
_INSIDE = re.compile(r"#\s+in Loop: Header=(BB\d+_\d+)|#\s+=>\s*This (?:Inner )?Loop Header|Parent Loop (BB\d+_\d+)")
_CALL = re.compile(r"^call\w*\s+\*?([\w.$]+)")
_SCALAR = re.compile(r"s[sdh]$")
_DIVISION = re.compile(r"^v?(div|sqrt)[ps][sdh]$|^i?div[lqwb]?$")
_ARITHMETIC = re.compile(
    r"^v?(fn?m(add|sub)|add|sub|mul|max|min|dp|cmp|and|andn|or|xor|rndscale|round|getexp|getmant|scalef|reduce|range)"
    r"\w*[ps][sdh]$|^vdpbf16ps|^vpdp|^vp?(ternlog|blend)|^vp(abs|add|sub|mul|max|min|sll|srl|sra|and|or|xor|cmp|avg|madd)"
    r"|^v?(cvt|ucomis|comis|rcp|rsqrt)|^v?fixup|^vptest|^vcmp"
)
_SHUFFLE = re.compile(
    r"^v?p?(perm|shuf|unpck|insert|extract|align|movs[hl]dup|movddup|expand|compress|slldq|srldq)|^valign"
)
_GATHER = re.compile(r"^v?p?(gather|scatter)")
_ONE_LANE = re.compile(r"^v?(pinsr|insertps|pextr|extractps)")
_TILES = re.compile(r"^tdp")
_MEMORY = re.compile(r"-?\w*(?:[.\w]+)?\([^)]*\)")
_WIDTHS = (("%zmm", 512), ("%ymm", 256), ("%xmm", 128))


@dataclass(slots=True)
class MachineBlock:
    """Instructions of a block by class. ``ir``: its block in the IR (empty where code generation made it); ``loop``:
    label of the innermost loop around it. ``arithmetic``: numbers of instructions by the bits that they compute."""

    label: str
    ir: str
    loop: str = ""
    instructions: int = 0
    arithmetic: Counter[int] = field(default_factory=Counter)
    loads: Counter[int] = field(default_factory=Counter)
    stores: Counter[int] = field(default_factory=Counter)
    divisions: Counter[int] = field(default_factory=Counter)
    gathers: Counter[int] = field(default_factory=Counter)
    shuffles: int = 0
    lanes: int = 0
    spills: int = 0
    tiles: int = 0
    calls: list[str] = field(default_factory=list)


def machine_functions(text: str) -> Iterator[tuple[str, list[MachineBlock]]]:
    """Each function's name and blocks."""
    name, blocks = "", list[MachineBlock]()
    for raw in text.splitlines():
        if begun := _FUNCTION.match(raw):
            name, blocks = begun[1], []
        elif raw.startswith(".Lfunc_end"):
            yield name, blocks
        elif begun := _BLOCK.match(raw):
            blocks.append(MachineBlock(begun[1] or "", begun[2] or "", begun[1] or ""))
            _place(blocks[-1], raw)
        elif blocks and raw.lstrip().startswith("#"):
            _place(blocks[-1], raw)
        elif blocks and raw.startswith("\t") and not raw.startswith("\t."):
            _instruction(blocks[-1], raw.strip())


def _place(block: MachineBlock, comment: str) -> None:
    if (found := _INSIDE.search(comment)) and found[1]:
        block.loop = f"L{found[1]}"


def _instruction(block: MachineBlock, line: str) -> None:
    code, _, comment = line.partition("#")
    mnemonic, _, operands = code.strip().partition("\t")
    mnemonic = mnemonic.split()[0] if mnemonic.split() else ""
    block.instructions += 1
    bits = _bits(mnemonic, operands)
    if "Spill" in comment or "Reload" in comment:
        block.spills += 1
    if call := _CALL.match(code.strip().replace("\t", " ")):
        block.calls.append(call[1].removesuffix("@PLT"))
        return
    if _GATHER.match(mnemonic):
        block.gathers[bits] += 1
        return
    if _TILES.match(mnemonic):
        block.tiles += 1
    elif _DIVISION.match(mnemonic):
        block.divisions[bits] += 1
    elif _ONE_LANE.match(mnemonic):
        block.lanes += 1
        block.shuffles += 1
    elif _SHUFFLE.match(mnemonic) or (mnemonic.startswith(("vbroadcast", "vpbroadcast")) and "(" not in operands):
        block.shuffles += 1
    elif _ARITHMETIC.match(mnemonic):
        block.arithmetic[bits] += 1
    if not mnemonic.startswith(("lea", "nop", "prefetch")) and (places := _MEMORY.search(operands)):
        writes = operands.rstrip().endswith(places[0]) or re.search(r"\)(\s*\{%k\d\})+\s*$", operands) is not None
        compares = mnemonic.startswith(("cmp", "test", "vucomis", "vcomis", "bt"))
        (block.stores if writes and not compares and "," in operands else block.loads)[bits] += 1


def _bits(mnemonic: str, operands: str) -> int:
    """The bits that an instruction computes or moves: 32 or 64 where it works on one number."""
    if _SCALAR.search(mnemonic) and not mnemonic.startswith(("vbroadcast", "vpdp")):
        return 64 if mnemonic.endswith("d") else 32
    return next((bits for name, bits in _WIDTHS if name in operands), 64)
