"""Programs do not depend on the order in which Python walks sets: processes with different seeds of hashes make the
same loops and the same machine code, with sizes that are products of others too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

STAGES = """
import weft
from weft import te

n, m, k, b = (te.var(x) for x in "nmkb")
A, B = te.placeholder((n, m, k), name="A"), te.placeholder((n * m, k), name="B")
C = te.compute((b, n * m, k), lambda q, i, j: A[i // m, i % m, j] + B[i, j], name="C")
D = te.compute((b, m * n * k), lambda q, i: C[q, i // k, i % k] * 2.0, name="D")
E = te.compute((k * n, m), lambda i, j: D[0, i * m + j], name="E")
s = te.create_schedule(E.op)
s[C].compute_inline()
outer, inner = s[E].split(s[E].fuse(*E.op.axis), 16)
s[E].vectorize(inner)
s[D].compute_at(s[E], outer)
print(weft.lower(s, [A, B, E, b]))
print(weft.build(s, [A, B, E, b]).inspect("llvm"))
"""

MODEL = """
from weft.graph.build import function, size, var
from weft.graph.nodes import Call, Function, Module, call
from weft.graph.visit import post_order
from weft.kernels.machine_code import scheduled
from weft.ops.catalogue import op
from weft.pipeline import optimize, unscheduled
from weft.target import Target

b, s, h = size("b"), size("s"), size("h")
x, y = var("x", [b, s, h, 24]), var("y", [b, s, h, 24])
scores = call(op("einsum"), [x, y], {"equation": "bshd,bthd->bhst"})
module = optimize(Module({"main": function([x, y], call(op("softmax"), [scores], {"axis": -1}))}), Target("llvm"))
print(module)
for called in [e.target for e in post_order(module.main) if isinstance(e, Call) and isinstance(e.target, Function)]:
    print(scheduled(unscheduled(called)[0], Target("llvm")).program)
"""


@pytest.mark.parametrize("script", [STAGES, MODEL], ids=["stages", "model"])
def test_seeds_of_hashes_change_nothing(script: str) -> None:
    made = []
    for seed in ("0", "1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        made.append(done.stdout)
    assert "for " in made[0]
    assert made[1] == made[0]
    assert made[2] == made[0]
