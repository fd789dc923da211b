/* _native.Value: a weft_value, made from and taken apart into a table of nodes, parts before what holds them:
 *
 *   tensor    0, dimensions n, n extents      its bytes are the next of `parts`
 *   data      1, tag, fields n, n node numbers
 *   foreign   2, dimensions n, n extents      an object of the host, the next of `parts`
 *
 * The last node is the value. A node used twice stands once, so that sharing survives and costs nothing. */
#include "binding.h"

#include <string.h>

enum { NODE_TENSOR, NODE_DATA, NODE_FOREIGN };

static void release_object(void *payload) {
    PyGILState_STATE state;
    if (!binding_lock(&state)) return; /* the process ends and takes the object with it */
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace); /* a finalizer must not meet the exception of its caller */
    Py_DECREF((PyObject *)payload);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(state);
}

PyObject *value_object(weft_value *value) {
    ValueObject *self = PyObject_New(ValueObject, &ValueType);
    if (!self) {
        weft_value_release(value);
        return NULL;
    }
    self->value = value;
    return (PyObject *)self;
}

static void value_dealloc(ValueObject *self) {
    weft_value_release(self->value);
    PyObject_Free(self);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

typedef struct source {
    const int64_t *next, *end;
    PyObject *parts;
    Py_ssize_t part;
    weft_value **nodes;
    Py_ssize_t count;
} source;

static int malformed(void) {
    PyErr_SetString(PyExc_ValueError, "malformed table of nodes");
    return -1;
}

static weft_value *read_tensor(source *s, int foreign) {
    int64_t rank = s->next < s->end ? *s->next++ : -1;
    if (rank < 0 || rank > WEFT_MAX_RANK || rank > s->end - s->next || s->part >= PyTuple_GET_SIZE(s->parts))
        return (void)malformed(), NULL;
    const int64_t *shape = s->next;
    s->next += rank;
    for (int64_t d = 0; d < rank; d++)
        if (shape[d] < 0) return (void)malformed(), NULL;
    PyObject *part = PyTuple_GET_ITEM(s->parts, s->part++);
    weft_value *made;
    if (foreign) {
        made = weft_value_foreign(part, release_object, (int32_t)rank, shape);
        if (made) Py_INCREF(part);
    } else {
        Py_buffer view;
        if (PyObject_GetBuffer(part, &view, PyBUF_C_CONTIGUOUS)) return NULL;
        made = weft_value_tensor((int32_t)rank, shape, view.len);
        if (made && view.len) memcpy(weft_value_payload(made), view.buf, (size_t)view.len);
        PyBuffer_Release(&view);
    }
    if (!made) PyErr_NoMemory();
    return made;
}

static weft_value *read_data(source *s) {
    if (s->end - s->next < 2) return (void)malformed(), NULL;
    int64_t tag = *s->next++, count = *s->next++;
    if (count < 0 || count > s->end - s->next || count > INT32_MAX) return (void)malformed(), NULL;
    weft_value *few[16], **fields = count > 16 ? PyMem_Calloc((size_t)count, sizeof *fields) : few;
    if (!fields) return (void)PyErr_NoMemory(), NULL;
    int failed = 0;
    for (int64_t i = 0; i < count && !failed; i++) {
        int64_t node = *s->next++;
        if (node < 0 || node >= s->count) failed = 1;
        else fields[i] = s->nodes[node];
    }
    weft_value *made = failed ? NULL : weft_value_data(tag, (int32_t)count, fields);
    if (fields != few) PyMem_Free(fields);
    if (failed) (void)malformed();
    else if (!made) PyErr_NoMemory();
    return made;
}

static weft_value *read_value(const Py_buffer *words, PyObject *parts) {
    source s = {words->buf, (const int64_t *)words->buf + words->len / 8, parts, 0, NULL, 0};
    s.nodes = PyMem_Calloc((size_t)(words->len / 8) + 1, sizeof *s.nodes);
    if (!s.nodes) return (void)PyErr_NoMemory(), NULL;
    weft_value *made = NULL;
    while (s.next < s.end) {
        int64_t kind = *s.next++;
        made = kind == NODE_DATA ? read_data(&s) : kind == NODE_TENSOR || kind == NODE_FOREIGN ? read_tensor(&s, kind == NODE_FOREIGN) : NULL;
        if (!made) break;
        s.nodes[s.count++] = made;
    }
    if (!made && !PyErr_Occurred()) (void)malformed();
    if (made) (void)weft_value_retain(made);
    for (Py_ssize_t i = 0; i < s.count; i++) weft_value_release(s.nodes[i]);
    PyMem_Free(s.nodes);
    return made;
}

static PyObject *value_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Py_buffer words;
    PyObject *parts;
    (void)type, (void)kwargs;
    if (!PyArg_ParseTuple(args, "y*O!:Value", &words, &PyTuple_Type, &parts)) return NULL;
    weft_value *made = read_value(&words, parts);
    PyBuffer_Release(&words);
    return made ? value_object(made) : NULL;
}

/* ---- taking apart ------------------------------------------------------------------------------------------------ */

/* Values found so far, by address, with the numbers of their nodes (-1: not written yet). */
typedef struct seen {
    const weft_value **keys;
    int64_t *numbers;
    size_t room, used;
} seen;

static int64_t *find(seen *s, const weft_value *key) {
    if (s->used * 2 >= s->room) {
        seen larger = {NULL, NULL, s->room ? s->room * 2 : 64, s->used};
        larger.keys = PyMem_Calloc(larger.room, sizeof *larger.keys);
        larger.numbers = PyMem_Calloc(larger.room, sizeof *larger.numbers);
        if (!larger.keys || !larger.numbers) {
            PyMem_Free(larger.keys);
            PyMem_Free(larger.numbers);
            return NULL;
        }
        for (size_t i = 0; i < s->room; i++) {
            if (!s->keys[i]) continue;
            size_t at = ((uintptr_t)s->keys[i] >> 4) * 0x9E3779B97F4A7C15u & (larger.room - 1);
            while (larger.keys[at]) at = (at + 1) & (larger.room - 1);
            larger.keys[at] = s->keys[i];
            larger.numbers[at] = s->numbers[i];
        }
        PyMem_Free(s->keys);
        PyMem_Free(s->numbers);
        *s = larger;
    }
    size_t at = ((uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u & (s->room - 1);
    while (s->keys[at] && s->keys[at] != key) at = (at + 1) & (s->room - 1);
    if (!s->keys[at]) {
        s->keys[at] = key;
        s->numbers[at] = -1;
        s->used++;
    }
    return &s->numbers[at];
}

typedef struct sink {
    int64_t *words;
    size_t used, room;
    PyObject *parts;
    const weft_value **stack;
    size_t depth, stack_room;
    int64_t nodes;
    seen seen;
} sink;

static int put_word(sink *s, int64_t word) {
    if (s->used == s->room) {
        size_t room = s->room ? s->room * 2 : 64;
        int64_t *larger = PyMem_Realloc(s->words, room * sizeof *larger);
        if (!larger) return PyErr_NoMemory(), -1;
        s->words = larger;
        s->room = room;
    }
    s->words[s->used++] = word;
    return 0;
}

static int push(sink *s, const weft_value *value) {
    if (s->depth == s->stack_room) {
        size_t room = s->stack_room ? s->stack_room * 2 : 64;
        const weft_value **larger = PyMem_Realloc(s->stack, room * sizeof *larger);
        if (!larger) return PyErr_NoMemory(), -1;
        s->stack = larger;
        s->stack_room = room;
    }
    s->stack[s->depth++] = value;
    return 0;
}

static int write_tensor(sink *s, const weft_value *v, int foreign) {
    int32_t rank = weft_value_count(v);
    if (put_word(s, foreign ? NODE_FOREIGN : NODE_TENSOR) || put_word(s, rank)) return -1;
    for (int32_t d = 0; d < rank; d++)
        if (put_word(s, weft_value_shape(v)[d])) return -1;
    PyObject *part = foreign ? Py_NewRef((PyObject *)weft_value_payload(v))
                             : PyBytes_FromStringAndSize(weft_value_payload(v), (Py_ssize_t)weft_value_nbytes(v));
    int failed = !part || PyList_Append(s->parts, part);
    Py_XDECREF(part);
    return failed ? -1 : 0;
}

/* Writes a node if all its parts are written; otherwise pushes the missing parts on the stack and returns 1. */
static int write_data(sink *s, const weft_value *v) {
    int waits = 0;
    for (int32_t i = weft_value_count(v); i-- > 0;) {
        int64_t *number = find(&s->seen, weft_value_field(v, i));
        if (!number) return PyErr_NoMemory(), -1;
        if (*number >= 0) continue;
        if (push(s, weft_value_field(v, i))) return -1;
        waits = 1;
    }
    if (waits) return 1;
    if (put_word(s, NODE_DATA) || put_word(s, weft_value_tag(v)) || put_word(s, weft_value_count(v))) return -1;
    for (int32_t i = 0; i < weft_value_count(v); i++)
        if (put_word(s, *find(&s->seen, weft_value_field(v, i)))) return -1;
    return 0;
}

static int write_value(sink *s, const weft_value *root) {
    if (push(s, root)) return -1;
    while (s->depth) {
        const weft_value *v = s->stack[s->depth - 1];
        int64_t *number = find(&s->seen, v);
        if (!number) return PyErr_NoMemory(), -1;
        if (*number < 0) {
            weft_value_kind kind = weft_value_kind_of(v);
            int status = kind == WEFT_VALUE_DATA ? write_data(s, v) : write_tensor(s, v, kind == WEFT_VALUE_FOREIGN);
            if (status < 0) return -1;
            if (status) continue;
            number = find(&s->seen, v);
            if (!number) return PyErr_NoMemory(), -1;
            *number = s->nodes++;
        }
        s->depth--;
    }
    return 0;
}

static PyObject *value_nodes(ValueObject *self, PyObject *unused) {
    (void)unused;
    sink s = {.parts = PyList_New(0)};
    PyObject *made = NULL;
    if (s.parts && write_value(&s, self->value) == 0)
        made = Py_BuildValue("(y#O)", (const char *)s.words, (Py_ssize_t)(s.used * sizeof *s.words), s.parts);
    Py_XDECREF(s.parts);
    PyMem_Free(s.words);
    PyMem_Free(s.stack);
    PyMem_Free(s.seen.keys);
    PyMem_Free(s.seen.numbers);
    return made;
}

static PyMethodDef value_methods[] = {
    {"nodes", (PyCFunction)value_nodes, METH_NOARGS, "nodes(): the words of the table of nodes, and the parts."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject ValueType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "weft.runtime._native.Value",
    .tp_basicsize = sizeof(ValueObject),
    .tp_dealloc = (destructor)value_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A value that compiled programs work on: data, closures, strings; see weft.runtime.values.",
    .tp_methods = value_methods,
    .tp_new = value_new,
};
