"""Planted mistakes that change nothing that counts, with the reason: no test could find them."""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, ...], str] = {
    (
        "weft/expr/normalize.py",
        "if type(condition) is not Binary or condition.a.dtype is not INDEX or condition.lanes > 1:",
        "if type(condition) is not Binary or condition.a.dtype is not INDEX or condition.lanes > 2:",
    ): "facts about vectors are never asked for: questions are about scalars",
    (
        "weft/expr/normalize.py",
        "if any(c > 0 for c in shared) and self.solver.nonnegative(add(p, q, -1)):",
        "if any((c >= 0) for c in shared) and self.solver.nonnegative(add(p, q, -1)):",
    ): "coefficients that are 0 are not kept",
    (
        "weft/expr/normalize.py",
        "if any(c > 0 for c in shared) and self.solver.nonnegative(add(p, q, -1)):",
        "if any(c > -1 for c in shared) and self.solver.nonnegative(add(p, q, -1)):",
    ): "coefficients that are 0 are not kept",
    (
        "weft/expr/normalize.py",
        "opposed = i < j and any(c < 0 for c in shared)",
        "opposed = i < j and any((c <= 0) for c in shared)",
    ): "coefficients that are 0 are not kept",
    (
        "weft/expr/normalize.py",
        "opposed = i < j and any(c < 0 for c in shared)",
        "opposed = i < j and any(c < 1 for c in shared)",
    ): "coefficients that are 0 are not kept",
    (
        "weft/expr/normalize.py",
        "right = {m: -c for m, c in p.items() if m and c < 0}",
        "right = {m: -c for m, c in p.items() if m and (c <= 0)}",
    ): "coefficients that are 0 are not kept",
    (
        "weft/expr/normalize.py",
        "if p[min(m for m in p if m)] < 0:",
        "if p[min(m for m in p if m)] < 1:",
    ): "coefficients that are 0 are not kept",
    (
        "weft/expr/normalize.py",
        "if p[min(m for m in p if m)] < 0:",
        "if (p[min((m for m in p if m))] <= 0):",
    ): "coefficients that are 0 are not kept",
    (
        "weft/expr/normalize.py",
        "value = ends.lo if (c > 0) == (within.lo == 0) else ends.hi",
        "value = ends.lo if (c > -1) == (within.lo == 0) else ends.hi",
    ): "coefficients that are 0 are not kept",
    (
        "weft/expr/normalize.py",
        "value = ends.lo if (c > 0) == (within.lo == 0) else ends.hi",
        "value = ends.lo if ((c >= 0)) == (within.lo == 0) else ends.hi",
    ): "coefficients that are 0 are not kept",
    (
        "weft/lowering/place.py",
        "taken = _nbytes(e.type) if e in results else 0",
        "taken = _nbytes(e.type) if e in results else 1",
    ): "one byte more in an estimate of time",
    (
        "weft/expr/normalize.py",
        "always = TRUE if k > 0 else FALSE # for bounds that do not fit into 64 bits: no index reaches them",
        "always = TRUE if k > 1 else FALSE # for bounds that do not fit into 64 bits: no index reaches them",
    ): "it is only used where the number does not fit into 64 bits, which 0 and 1 do",
    (
        "weft/expr/normalize.py",
        "if k < 0:",
        "if (k <= 0):",
        "2",
    ): "0 is added to one side or to the other",
    (
        "weft/expr/normalize.py",
        'elif isinstance(part, Binary) and part.op == "eq" and part.a.dtype is INDEX and part.lanes == 1:',
        "elif (isinstance(part, Binary) and part.op == 'eq' and (part.a.dtype is INDEX)):",
    ): "facts about vectors are never asked for: questions are about scalars",
    (
        "weft/schedule/dependence.py",
        "if tree.position[writer] > tree.position[other]:",
        "if (tree.position[writer] >= tree.position[other]):",
    ): "no two blocks have the same position",
    (
        "weft/expr/normalize.py",
        "opposed = i < j and any(c < 0 for c in shared)",
        "opposed = (i < j)",
    ): "a filter: what has no opposed terms is not proved contradictory, this only saves the attempt",
    (
        "weft/expr/normalize.py",
        "if opposed and self.solver.nonnegative(plus(scaled(add(p, q), -1), -1)):",
        "if (self.solver.nonnegative(plus(scaled(add(p, q), -1), -1))):",
    ): "a filter: what has no opposed terms is not proved contradictory, this only saves the attempt",
    (
        "weft/expr/normalize.py",
        "right = {m: -c for m, c in p.items() if m and c < 0}",
        "right = {m: -c for m, c in p.items() if m and c < 1}",
    ): "coefficients are integers, and those that are 0 are not kept",
    (
        "weft/expr/normalize.py",
        "if k and value is not None: return constant(value % k if want_remainder else value // k)",
        "pass",
    ): "the rules for positive divisors, and their sign for negative ones, find the same number",
    (
        "weft/expr/normalize.py",
        "if k < 0:",
        "if k < 1:",
        "2",
    ): "0 is added to one side or to the other",
    (
        "weft/schedule/dependence.py",
        "if inner != [term] or inner[0] in used or factor < 0:",
        "if inner != [term] or inner[-1] in used or factor < 0:",
    ): "a list of one",
    (
        "weft/lowering/place.py",
        "return [0, *(n for n in range(1, self.count) if self.claims.can_run(n, group))]",
        "return [0, *(n for n in range(0, self.count) if self.claims.can_run(n, group))]",
    ): "the same alternative twice, at the same cost",
    (
        "csrc/src/decode.c",
        "if (value >= 0 && value < limit && value < INT32_MAX) return (int32_t)value;",
        "if (value >= 0 && value < limit && value <= INT32_MAX) return (int32_t)value;",
    ): "larger limits are counts of the words of a program, of which there are fewer",
    (
        "weft/schedule/dependence.py",
        "if inner != [term] or inner[0] in used or factor < 0:",
        "if inner != [term] or inner[0] in used or (factor <= 0):",
    ): "the factor of a term is not 0",
    (
        "weft/schedule/dependence.py",
        "if inner != [term] or inner[0] in used or factor < 0:",
        "if inner != [term] or inner[0] in used or factor < 1:",
    ): "the factor of a term is not 0",
    (
        "weft/schedule/dependence.py",
        "used.add(inner[0])",
        "used.add(inner[-1])",
    ): "a list of one",
    (
        "weft/schedule/dependence.py",
        "width = inside[inner[0]][1] - inside[inner[0]][0]",
        "width = inside[inner[-1]][1] - inside[inner[0]][0]",
    ): "a list of one",
    (
        "weft/schedule/dependence.py",
        "width = inside[inner[0]][1] - inside[inner[0]][0]",
        "width = inside[inner[0]][1] - inside[inner[-1]][0]",
    ): "a list of one",
    (
        "weft/schedule/dependence.py",
        "blocks = state.tree.blocks_under(before[-1].body)",
        "blocks = state.tree.blocks_under(before[1].body)",
    ): "each loop of a nest is around the same blocks",
    (
        "weft/schedule/dependence.py",
        "blocks = state.tree.blocks_under(before[-1].body)",
        "blocks = state.tree.blocks_under(before[-0].body)",
    ): "each loop of a nest is around the same blocks",
    (
        "weft/schedule/dependence.py",
        "blocks = state.tree.blocks_under(before[-1].body)",
        "blocks = state.tree.blocks_under(before[-2].body)",
    ): "each loop of a nest is around the same blocks",
    (
        "weft/schedule/dependence.py",
        "return []",
        "return None",
    ): "both hold no loop",
    (
        "weft/schedule/dependence.py",
        "if have is None or need is None:",
        "if (need is None):",
    ): "what is written is dense, so it has a box",
    (
        "weft/lowering/verify_memory.py",
        "self.bits[p] = 1 << len(self.bits)",
        "self.bits[p] = 2 << len(self.bits)",
    ): "all bits are one place further left",
    (
        "weft/lowering/verify_memory.py",
        "live = [0] * (len(self.items) + 1)",
        "live = [0] * (len(self.items) + 2)",
    ): "a number that nobody reads",
    (
        "weft/lowering/verify_memory.py",
        "changed |= now != live[at] and isinstance(item, Label)",
        "changed |= (now != live[at])",
    ): "one more round finds the same",
    (
        "weft/lowering/verify_memory.py",
        "count = 0",
        "count = 1",
    ): "each place begins before it ends, so at least one is counted",
    (
        "weft/lowering/verify_memory.py",
        'return p.root.kind == "output" or (p.root.kind == "arena" and not p.root.late)',
        'return p.root.kind == "output" or ((not p.root.late))',
    ): "only outputs and places of the arena are written",
    (
        "weft/expr/normalize.py",
        "always = TRUE if k > 0 else FALSE # for bounds that do not fit into 64 bits: no index reaches them",
        "always = TRUE if (k >= 0) else FALSE # for bounds that do not fit into 64 bits: no index reaches them",
    ): "it is only used where the number does not fit into 64 bits, which 0 does",
    (
        "weft/expr/normalize.py",
        "return e.args[0]",
        "return e.args[-1]",
    ): "a hint has one argument",
    (
        "weft/expr/prove.py",
        "return int(e) if type(e) is int or type(e) is Const else None",
        "return int(e) if (type(e) is int) else None",
    ): "the way for symbolic bounds states the same",
    (
        "weft/lowering/verify_memory.py",
        "if target is None or not any(a is operand and b is target for a, b in pairs):",
        "if (not any((a is operand and b is target for a, b in pairs))):",
    ): "no pair has nothing as its result; the first part is for the types",
    (
        "weft/lowering/place.py",
        "taken = _nbytes(e.type) if e in results else 0",
        "taken = _nbytes(e.type) if e in results else -1",
    ): "one byte less in an estimate of time",
    (
        "weft/expr/bounds.py",
        "if factor >= 0:",
        "if (factor > 0):",
    ): "all ends times 0 are 0",
    (
        "weft/expr/bounds.py",
        "if factor >= 0:",
        "if factor >= 1:",
    ): "all ends times 0 are 0",
    (
        "weft/expr/bounds.py",
        'if dtype.kind == "float" or dtype.bits >= 64:',
        'if dtype.kind == "float" or dtype.bits >= 63:',
    ): "no type has 63 bits",
    (
        "weft/expr/bounds.py",
        "for v in e.vectors[1:]:",
        "for v in e.vectors[0:]:",
    ): "the union of an interval and itself",
    (
        "weft/expr/bounds.py",
        "return memo[e.args[0]]",
        "return memo[e.args[-1]]",
    ): "a hint has one argument",
    (
        "csrc/src/loader.c",
        "for (uint64_t i = 0; i < count; i++) {",
        "for (uint64_t i = 0; i <= count; i++) {",
    ): "looks at one relocation twice before it gives up",
    (
        "csrc/src/loader.c",
        "code->entries = malloc((l->symbol_count + 1) * sizeof *code->entries);",
        "code->entries = malloc((l->symbol_count + 0) * sizeof *code->entries);",
    ): "there are no more entries than symbols; one more for systems where no bytes are no memory",
    (
        "csrc/src/loader.c",
        "l->section_at = malloc((l->section_count + 1) * sizeof(uint64_t));",
        "l->section_at = malloc((l->section_count + 0) * sizeof(uint64_t));",
    ): "one for each section, of which there is at least one",
    (
        "csrc/src/pool.c",
        "WEFT_PAUSE();",
        ";",
    ): "a hint to the processor",
    (
        "csrc/src/pool.c",
        "if (p->spins) leave_caller(p);",
        "if (!p->spins) leave_caller(p);",
    ): "a hint to the system where a thread runs",
    (
        "csrc/python/value.c",
        "size_t room = s->stack_room ? s->stack_room * 2 : 64;",
        "size_t room = s->stack_room ? s->stack_room * 2 : 65;",
    ): "the room to begin with",
    (
        "csrc/python/executable.c",
        "PyMem_Calloc((size_t)self->dimensions + 1, sizeof(int64_t)), 0};",
        "PyMem_Calloc((size_t)self->dimensions + 0, sizeof(int64_t)), 0};",
    ): "Python gives memory for no bytes, too",
    (
        "csrc/python/executable.c",
        "Py_VISIT(self->codes);",
        ";",
    ): "codes take no part in garbage collection",
    (
        "csrc/python/executable.c",
        "Py_VISIT(self->devices);",
        ";",
    ): "devices take no part in garbage collection",
    (
        "csrc/python/executable.c",
        "return -1;",
        "return 0;",
        "6",
    ): "where a device was interrupted, the caller returns the exception in any case",
    (
        "csrc/python/value.c",
        "if (shape[d] < 0) return (void)malformed(), NULL;",
        "if (shape[d] < 0) return 0;",
    ): "the caller says the same of what is not made",
    (
        "csrc/python/value.c",
        "if (s->end - s->next < 2) return (void)malformed(), NULL;",
        "if (s->end - s->next < 2) return 0;",
    ): "the caller says the same of what is not made",
    (
        "csrc/python/value.c",
        "return (void)malformed(), NULL;",
        "return 0;",
    ): "the caller says the same of what is not made",
    (
        "csrc/python/value.c",
        "if (count < 0 || count > s->end - s->next || count > INT32_MAX) return (void)malformed(), NULL;",
        "if (count < 0 || count > s->end - s->next || count > INT32_MAX) return 0;",
    ): "the caller says the same of what is not made",
    (
        "csrc/python/value.c",
        "if (!number) return PyErr_NoMemory(), -1;",
        "if (!number) return 0;",
        "3",
    ): "the value was looked up before, so the table does not grow now",
    (
        "csrc/python/executable.c",
        "port *ports = PyMem_Calloc((size_t)*count + 1, sizeof *ports);",
        "port *ports = PyMem_Calloc((size_t)*count + 0, sizeof *ports);",
    ): "Python gives memory for no bytes, too",
    (
        "csrc/python/executable.c",
        "weft_kernel_code *found = PyMem_Calloc((size_t)count + 1, sizeof *found);",
        "weft_kernel_code *found = PyMem_Calloc((size_t)count + 0, sizeof *found);",
    ): "Python gives memory for no bytes, too",
    (
        "csrc/python/executable.c",
        "weft_device **found = PyMem_Calloc((size_t)count + 1, sizeof *found);",
        "weft_device **found = PyMem_Calloc((size_t)count + 0, sizeof *found);",
    ): "Python gives memory for no bytes, too",
    (
        "csrc/python/executable.c",
        "void **pointers = PyMem_Calloc(count + 1, sizeof *pointers);",
        "void **pointers = PyMem_Calloc(count + 0, sizeof *pointers);",
    ): "Python gives memory for no bytes, too",
    (
        "csrc/python/executable.c",
        "int64_t *sizes = PyMem_Calloc(count + 1, sizeof *sizes);",
        "int64_t *sizes = PyMem_Calloc(count + 0, sizeof *sizes);",
    ): "Python gives memory for no bytes, too",
    (
        "csrc/python/executable.c",
        "self->constants = PyMem_Calloc(count + 1, sizeof *self->constants);",
        "self->constants = PyMem_Calloc(count + 0, sizeof *self->constants);",
    ): "Python gives memory for no bytes, too",
    (
        "csrc/python/tensor.c",
        "t->shape = PyMem_Calloc(2 * (size_t)ndim + 1, sizeof(Py_ssize_t));",
        "t->shape = PyMem_Calloc(2 * (size_t)ndim + 0, sizeof(Py_ssize_t));",
    ): "Python gives memory for no bytes, too",
    (
        "csrc/python/value.c",
        "s.nodes = PyMem_Calloc((size_t)(words->len / 8) + 1, sizeof *s.nodes);",
        "s.nodes = PyMem_Calloc((size_t)(words->len / 8) + 0, sizeof *s.nodes);",
    ): "Python gives memory for no bytes, too",
    (
        "csrc/python/code.c",
        "a->views = PyMem_Calloc((size_t)a->buffer_count + 1, sizeof *a->views);",
        "a->views = PyMem_Calloc((size_t)a->buffer_count + 0, sizeof *a->views);",
    ): "Python gives memory for no bytes, too",
    (
        "csrc/python/code.c",
        "a->pointers = PyMem_Calloc((size_t)a->buffer_count + 1, sizeof *a->pointers);",
        "a->pointers = PyMem_Calloc((size_t)a->buffer_count + 0, sizeof *a->pointers);",
    ): "Python gives memory for no bytes, too",
    (
        "csrc/python/value.c",
        "size_t room = s->room ? s->room * 2 : 64;",
        "size_t room = s->room ? s->room * 2 : 63;",
    ): "the room to begin with",
    (
        "csrc/python/value.c",
        "size_t room = s->room ? s->room * 2 : 64;",
        "size_t room = s->room ? s->room * 2 : 65;",
    ): "the room to begin with",
    (
        "csrc/python/value.c",
        "size_t room = s->stack_room ? s->stack_room * 2 : 64;",
        "size_t room = s->stack_room ? s->stack_room * 2 : 63;",
    ): "the room to begin with",
    (
        "csrc/python/value.c",
        "size_t room = s->room ? s->room * 2 : 64;",
        "size_t room = s->room ? s->room * 3 : 64;",
    ): "more room than is needed",
    (
        "csrc/python/value.c",
        "size_t room = s->stack_room ? s->stack_room * 2 : 64;",
        "size_t room = s->stack_room ? s->stack_room * 3 : 64;",
    ): "more room than is needed",
    (
        "csrc/python/executable.c",
        "for (int i = 0; self->inputs && i < self->input_count; i++) Py_XDECREF(self->inputs[i].numpy_dtype);",
        "for (int i = 0; self->inputs && i <= self->input_count; i++) Py_XDECREF(self->inputs[i].numpy_dtype);",
    ): "there is one more port than there are inputs, without a dtype",
    (
        "csrc/python/executable.c",
        "for (int i = 0; self->outputs && i < self->output_count; i++) Py_XDECREF(self->outputs[i].numpy_dtype);",
        "for (int i = 0; self->outputs && i <= self->output_count; i++) Py_XDECREF(self->outputs[i].numpy_dtype);",
    ): "there is one more port than there are outputs, without a dtype",
    (
        "weft/tensor_expr/bounds.py",
        'if isinstance(at, Binary) and at.op == "floordiv" and isinstance(at.b, Const) and int(at.b.value) > 0:',
        "if (isinstance(at, Binary) and at.op == 'floordiv' and isinstance(at.b, Const)):",
    ): "ends that are exchanged are not those that _are_values finds",
    (
        "weft/tensor_expr/bounds.py",
        'if isinstance(at, Binary) and at.op == "floordiv" and isinstance(at.b, Const) and int(at.b.value) > 0:',
        'if isinstance(at, Binary) and at.op == "floordiv" and isinstance(at.b, Const) and int(at.b.value) > -1:',
    ): "quotients by 0 have no ends that _are_values finds",
    (
        "weft/tensor_expr/bounds.py",
        'if isinstance(at, Binary) and at.op == "floordiv" and isinstance(at.b, Const) and int(at.b.value) > 0:',
        'if isinstance(at, Binary) and at.op == "floordiv" and isinstance(at.b, Const) and (int(at.b.value) >= 0):',
    ): "quotients by 0 have no ends that _are_values finds",
    (
        "weft/tensor_expr/bounds.py",
        'if isinstance(at, Binary) and at.op == "floordiv" and isinstance(at.b, Const) and int(at.b.value) > 0:',
        'if isinstance(at, Binary) and at.op == "floordiv" and isinstance(at.b, Const) and int(at.b.value) > 1:',
    ): "quotients by 1 are folded",
    (
        "csrc/python/code.c",
        "CodeObject *self = (CodeObject *)type->tp_alloc(type, 0);",
        "CodeObject *self = (CodeObject *)type->tp_alloc(type, 1);",
    ): "objects of a type without items",
    (
        "csrc/python/device.c",
        "DeviceObject *self = (DeviceObject *)type->tp_alloc(type, 0);",
        "DeviceObject *self = (DeviceObject *)type->tp_alloc(type, 1);",
    ): "objects of a type without items",
    (
        "csrc/python/tensor.c",
        "TensorObject *t = (TensorObject *)type->tp_alloc(type, 0);",
        "TensorObject *t = (TensorObject *)type->tp_alloc(type, 1);",
    ): "objects of a type without items",
    (
        "csrc/python/executable.c",
        "ExecutableObject *self = (ExecutableObject *)type->tp_alloc(type, 0);",
        "ExecutableObject *self = (ExecutableObject *)type->tp_alloc(type, 1);",
    ): "objects of a type without items",
    (
        "csrc/src/pool.c",
        "if (grain < 1) grain = 1;",
        "if (grain < 2) grain = 1;",
    ): "1 becomes 1",
    (
        "csrc/src/pool.c",
        "if (grain < 1) grain = 1;",
        "if (grain <= 1) grain = 1;",
    ): "1 becomes 1",
    (
        "csrc/python/executable.c",
        "int64_t timeout = count > 3 ? PyLong_AsLongLong(args[3]) : -1;",
        "int64_t timeout = count > 3 ? PyLong_AsLongLong(args[3]) : -2;",
    ): "no negative number is a time limit",
}
"""File, lines before and lines after (as ``Mutant.change`` has them), and which of them if there are several and
not all are meant ("2": the second) → why results and promises stay the same."""
ARBITRARY: dict[tuple[str, str], str] = {
    ("weft/lowering/verify_memory.py", "ASSUMED_SIZES = (16, 100, 1000, 1 << 14)"): "a sample of sizes",
    ("weft/expr/normalize.py", "_MAX_CONTEXT_DEPTH: Final = 24"): "a limit on work",
    ("weft/expr/normalize.py", "_MAX_CONTEXT_WORK: Final = 5_000"): "a limit on work",
    ("weft/expr/normalize.py", "work.left -= 1"): "a limit on work",
    ("weft/expr/normalize.py", "for _ in range(8):"): "a limit on work",
    ("csrc/src/decode.c", "p->constant_count = take_below(r, 1 << 24);"): "a limit beyond all real programs",
    ("csrc/src/decode.c", "p->kernel_count = take_below(r, 1 << 24);"): "a limit beyond all real programs",
}
"""File and line → why its numbers could as well be others. Mutants of the line of other kinds are mistakes."""
