"""The classic notation, end to end: schedules of tensors, building, timing and saving functions.

    A = te.placeholder((n,), name="A")
    B = te.compute(A.shape, lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    add = weft.build(s, [A, B], "llvm", name="add_one")
    add(a, b)

This is the one place that knows tensor expressions, schedules and the runtime at once; everything here is glue.
"""
