"""Regular expressions of RE2: matched in time that is linear in the text, whatever the pattern."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from weft.support.errors import MissingExtra


@lru_cache(maxsize=64)
def re2_pattern(pattern: str) -> Any:
    """The compiled pattern. Raises ValueError with the reason if it is not in the syntax of RE2 (which has no
    backreferences and looks neither ahead nor behind), MissingExtra without the package ``google-re2``."""
    try:
        import re2
    except ImportError:
        raise MissingExtra("google-re2", "text", "matching regular expressions (RegexFullMatch)") from None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as wrong:
        reason = wrong.args[0] if wrong.args else ""
        raise ValueError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None
    except UnicodeEncodeError:
        raise ValueError("it is no valid Unicode") from None
