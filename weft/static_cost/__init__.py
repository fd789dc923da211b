"""The static cost of kernels: what their emitted code costs, beside the least that they must cost. No clock is read.

* :mod:`weft.static_cost.ir` reads the optimized LLVM IR, :mod:`weft.static_cost.trips` finds how often its blocks run;
* :mod:`weft.static_cost.machine` reads the assembly of the same code: instructions by class, spills, calls;
* :mod:`weft.static_cost.moved` counts the bytes that the accesses of the loops bring into each cache;
* :mod:`weft.static_cost.kernel` joins them to the cost of one kernel, in units of time;
* :mod:`weft.static_cost.bound` computes what the kernel's expressions cost at least;
* :mod:`weft.static_cost.judge` compares both for all kernels of a model, and says why one is slow.

The unit of time is one multiply-add of a whole vector at the peak of the machine.
"""
