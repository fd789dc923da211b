"""Programs that ``print`` and notebooks show as their text."""

from __future__ import annotations

from importlib import import_module
from typing import ClassVar

from weft.support.html import TextInNotebooks


class Printed(TextInNotebooks):
    """A program whose text is written by ``to_text`` of the module ``printer``.

    The module is named and not imported, because it imports the class: printers know the nodes, not the reverse.
    """

    __slots__ = ()
    printer: ClassVar[str]

    def __str__(self) -> str:
        return str(import_module(self.printer).to_text(self))
