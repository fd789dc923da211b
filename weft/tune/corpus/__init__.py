"""The corpus: measured schedules of many kernels, from which the shipped cost model learns.

* :mod:`weft.tune.corpus.kernels`: which kernels, from :mod:`weft.ops.workloads` and from models;
* :mod:`weft.tune.corpus.sampling`: which of their schedules;
* :mod:`weft.tune.corpus.stored`: their features, in the tuning database beside what was measured;
* :mod:`weft.tune.corpus.building`: measures until the time is over, and goes on where it was;
* :mod:`weft.tune.corpus.beside`: beside the default schedule, so that all times have one scale;
* :mod:`weft.tune.corpus.training`: a model from a database, and how well it does on operators that it has not seen.
"""
