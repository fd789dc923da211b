"""The cost model: estimates of the time that work takes on a machine.

:class:`Rates` holds the data: the rates of one core, with units. The other modules compute times from sizes and rates,
one module for each decision of the compiler. They take numbers only, not graphs, loops or targets, so that every
package may use them.
"""

from weft.cost.rates import REFERENCE, Rates

__all__ = ["REFERENCE", "Rates"]
