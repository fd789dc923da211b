"""What extends Weft from outside of the package: see ``docs/plugins.md``.

Importing a plugin changes nothing. Its values are passed to the calls that are to use them, or found through the
entry-point group ``weft.plugins``; a :class:`Registry` holds the package's own and the plugins' side by side.
"""

from weft.plugins.plugin import (
    AT,
    Frontend,
    NamedMachine,
    OnnxConverter,
    PlacedPass,
    Plugin,
    PluginDevice,
    ScheduleRule,
)
from weft.plugins.registry import Registry, registry_of

__all__ = [
    "AT",
    "Frontend",
    "NamedMachine",
    "OnnxConverter",
    "PlacedPass",
    "Plugin",
    "PluginDevice",
    "Registry",
    "ScheduleRule",
    "registry_of",
]
