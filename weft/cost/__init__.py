"""The cost model: what work takes on a machine, estimated from the machine's record.

:class:`Rates` is the data: what one core achieves, with units. The modules beside it turn sizes into times with it, one
module for each question that the compiler asks. They know numbers only, neither graphs nor loops nor targets, so that
every room may ask them.
"""

from weft.cost.rates import REFERENCE, Rates

__all__ = ["REFERENCE", "Rates"]
