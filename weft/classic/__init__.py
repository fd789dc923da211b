"""The classic notation: schedules of tensors, and building, timing and saving functions.

    A = te.placeholder((n,), name="A")
    B = te.compute(A.shape, lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    add = weft.build(s, [A, B], "llvm", name="add_one")
    add(a, b)

No other package uses tensor expressions, schedules and the runtime together. This one only connects them.
"""
