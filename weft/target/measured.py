"""Measured rates of the machine at hand, in a file of the cache directory.

``weft targets --measure`` writes the file; nothing else does, and no compilation measures anything. Without it
the machine at hand has the reference rates.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from weft.cost import Rates
from weft.support import settings
from weft.support.errors import MALFORMED, TargetError
from weft.support.files import replace_text
from weft.target.cpu import Cpu


def rates_file() -> Path:
    """Where measured rates are kept."""
    return settings.cache_directory() / "rates.json"


def read_rates(cpu: Cpu) -> Rates | None:
    """The measured rates of ``cpu``; None where there are none, the file is about another CPU (a directory may be
    shared by several machines), or the cache directory cannot be read: nothing needs it. Raises TargetError G008 where
    the file cannot be understood."""
    path = rates_file()
    try:
        text = path.read_bytes()
    except OSError:  # of a user that may not look there, with a name that is too long, below a file, …
        return None
    try:
        content = json.loads(text.decode("utf-8"))
        rates = Rates.parse(content["rates"])
        return rates if content["cpu"] == _identity(cpu) else None
    except MALFORMED as wrong:
        raise TargetError(
            f"the measured rates in '{path}' cannot be read: {wrong}",
            code="G008",
            hint="measure again with 'weft targets --measure', or remove the file",
        ) from wrong


def write_rates(cpu: Cpu, rates: Rates) -> Path:
    """Keep the rates of ``cpu``; processes that are started from now on use them. Returns the file. Raises OSError."""
    path = rates_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"cpu": _identity(cpu), "name": cpu.mcpu, "rates": rates.text}, indent=2)
    replace_text(path, text + "\n")
    return path


def forget_rates() -> bool:
    """Remove the file, so that the machine at hand has the reference rates again. Whether there was one."""
    try:
        rates_file().unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _identity(cpu: Cpu) -> str:
    """What tells one kind of core from another: all but the number of cores."""
    text = f"{cpu.mcpu} {cpu.triple} {cpu.l1} {cpu.l2} {cpu.l3} {' '.join(sorted(cpu.features))}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
