"""Learned cost models: which schedules are probably fast, from schedules that were measured.

* :mod:`weft.tune.model.features` describes a lowered kernel by numbers: one row for each statement that computes, from
  :mod:`~weft.tune.model.statements` (loops and copies), :mod:`~weft.tune.model.operations` (arithmetic),
  :mod:`~weft.tune.model.accesses` (addresses, reuse), :mod:`~weft.tune.model.traffic` and
  :mod:`~weft.tune.model.hardware`;
* :mod:`weft.tune.model.sets` makes one vector of it; :mod:`~weft.tune.model.knobs` are the decisions of a schedule;
* :mod:`weft.tune.model.cost_model` says what a model is, :mod:`~weft.tune.model.boosted` is one of boosted trees;
* :mod:`weft.tune.model.pretrained` reads what was learned before; :mod:`~weft.tune.model.metrics` tell how good it is.

>>> model = pretrained("stores")
>>> row = feature_set("stores").of(kernel, target)
>>> model.update(task.identity, [row], [seconds])
>>> scores = model.predict(task.identity, rows_of_candidates)
"""
