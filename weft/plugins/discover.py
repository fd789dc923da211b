"""Plugins of installed packages: entry points of the group ``weft.plugins``."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from weft.plugins.plugin import Plugin
from weft.support import settings
from weft.support.errors import UserError

GROUP: Final = "weft.plugins"


def installed() -> tuple[Plugin, ...]:
    """The plugins of installed packages, by name; none if ``WEFT_PLUGINS=0``. Raises UserError X011 for one that
    cannot be loaded."""
    return _installed() if settings.use_installed_plugins() else ()


@cache
def _installed() -> tuple[Plugin, ...]:
    return tuple(_loaded(point) for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)))


def _loaded(point: EntryPoint) -> Plugin:
    try:
        found = point.load()
    except Exception as error:  # a package may raise anything when it is imported
        raise _broken(point, f"{type(error).__name__}: {error}") from error
    if not isinstance(found, Plugin):
        raise _broken(point, f"'{point.value}' is a {type(found).__name__}, not a weft.Plugin")
    return found


def _broken(point: EntryPoint, why: str) -> UserError:
    package = f" of {point.dist.name} {point.dist.version}" if point.dist is not None else ""
    return UserError(
        f"the plugin '{point.name}'{package} cannot be loaded: {why}",
        code="X011",
        hint="uninstall the package, or set WEFT_PLUGINS=0 to do without installed plugins",
    )
