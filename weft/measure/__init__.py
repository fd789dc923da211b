"""Measuring: the peak rates of the machine, and the time of each kernel compared with them."""
