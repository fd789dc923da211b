"""Extensions of Weft from outside of the package: see ``docs/plugins.md``.

Importing a plugin changes nothing. Its values are passed to the calls that should use them, or found through the
entry-point group ``weft.plugins``. A :class:`Registry` holds both the package's own values and those of plugins.
"""

from weft.expr.intrinsic_table import Intrinsic, NativeCode
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
from weft.plugins.registry import Registry, registry_of, using

__all__ = [
    "AT",
    "Frontend",
    "Intrinsic",
    "NamedMachine",
    "NativeCode",
    "OnnxConverter",
    "PlacedPass",
    "Plugin",
    "PluginDevice",
    "Registry",
    "ScheduleRule",
    "registry_of",
    "using",
]
