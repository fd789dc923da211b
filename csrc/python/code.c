/* _native.Code: a loaded object, and calling its kernels directly (for tests and measurements). */
#include "binding.h"

static PyObject *native_error(const weft_error *error) {
    return PyErr_Format(PyExc_ValueError, "%s", error->message);
}

static PyObject *code_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"object", "foreign", NULL};
    Py_buffer object;
    int foreign = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*|p:Code", names, &object, &foreign)) return NULL;
    weft_error error;
    weft_code *code;
    int32_t status =
        weft_code_load(object.buf, (size_t)object.len, foreign ? WEFT_LOAD_FOREIGN : 0, &code, &error);
    PyBuffer_Release(&object);
    if (status) return native_error(&error);
    CodeObject *self = (CodeObject *)type->tp_alloc(type, 0);
    if (self) self->code = code;
    else weft_code_free(code);
    return (PyObject *)self;
}

static void code_dealloc(CodeObject *self) {
    weft_code_free(self->code);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *code_symbol(CodeObject *self, PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    if (!text) return NULL;
    return PyLong_FromVoidPtr(weft_code_symbol(self->code, text));
}

static PyObject *code_has(CodeObject *self, PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    if (!text) return NULL;
    return PyBool_FromLong(weft_code_function(self->code, text) != NULL);
}

/* The arguments of a direct call. */
typedef struct call_arguments {
    Py_ssize_t buffer_count, held, size_count;
    Py_buffer *views;
    void **pointers;
    int64_t *sizes;
} call_arguments;

static void release_arguments(call_arguments *a) {
    for (Py_ssize_t i = 0; i < a->held; i++) PyBuffer_Release(&a->views[i]);
    PyMem_Free(a->views);
    PyMem_Free(a->pointers);
    PyMem_Free(a->sizes);
}

static int take_arguments(call_arguments *a, PyObject *buffers, PyObject *sizes) {
    a->buffer_count = PySequence_Size(buffers);
    a->size_count = PySequence_Size(sizes);
    if (a->buffer_count < 0 || a->size_count < 0) return -1;
    a->views = PyMem_Calloc((size_t)a->buffer_count + 1, sizeof *a->views);
    a->pointers = PyMem_Calloc((size_t)a->buffer_count + 1, sizeof *a->pointers);
    a->sizes = PyMem_Calloc((size_t)a->size_count + 1, sizeof *a->sizes);
    if (!a->views || !a->pointers || !a->sizes) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < a->buffer_count; i++) {
        PyObject *item = PySequence_GetItem(buffers, i);
        int failed = !item || PyObject_GetBuffer(item, &a->views[i], PyBUF_C_CONTIGUOUS);
        Py_XDECREF(item);
        if (failed) return -1;
        a->held = i + 1;
        a->pointers[i] = a->views[i].buf;
    }
    for (Py_ssize_t i = 0; i < a->size_count; i++) {
        PyObject *item = PySequence_GetItem(sizes, i);
        a->sizes[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (PyErr_Occurred()) return -1;
    }
    return 0;
}

/* `other`: memory of `evict` bytes that is touched before each call, NULL for none. */
static int32_t call_kernel(weft_kernel kernel, const call_arguments *a, int threads, int repeat, void *other,
                           int64_t evict, int64_t *times) {
    int32_t result = 0;
    void *token = weft_parallel_begin(threads);
    for (int i = 0; i < repeat && !result; i++) {
        if (other) weft_evict_caches(other, evict);
        int64_t start = weft_nanoseconds();
        result = kernel(a->pointers, a->sizes);
        times[i] = weft_nanoseconds() - start;
    }
    weft_parallel_end(token);
    return result;
}

static PyObject *times_list(const int64_t *times, int count) {
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++) {
        PyObject *time = PyLong_FromLongLong(times[i]);
        if (!time) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, time);
    }
    return list;
}

static PyObject *code_call(CodeObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"name", "buffers", "sizes", "threads", "repeat", "evict", NULL};
    const char *name;
    PyObject *buffers, *sizes = NULL, *list = NULL;
    int threads = 1, repeat = 1;
    long long evict = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO|OiiL:call", names, &name, &buffers, &sizes, &threads, &repeat,
                                     &evict))
        return NULL;
    weft_kernel kernel = weft_code_function(self->code, name);
    if (!kernel) return PyErr_Format(PyExc_KeyError, "the code has no function '%s'", name);
    if (repeat < 1) return PyErr_Format(PyExc_ValueError, "repeat must be at least 1");
    if (evict < 0) return PyErr_Format(PyExc_ValueError, "evict must be at least 0");
    call_arguments a = {0};
    PyObject *none = PyTuple_New(0);
    int64_t *times = PyMem_Calloc((size_t)repeat, sizeof *times);
    void *other = evict ? PyMem_RawCalloc((size_t)evict, 1) : NULL;
    const int missing = !times || (evict && !other);
    if (missing) PyErr_NoMemory();
    int32_t result = 0;
    if (none && !missing && take_arguments(&a, buffers, sizes ? sizes : none) == 0) {
        Py_BEGIN_ALLOW_THREADS;
        result = call_kernel(kernel, &a, threads, repeat, other, evict, times);
        Py_END_ALLOW_THREADS;
        list = times_list(times, repeat);
    }
    release_arguments(&a);
    PyMem_Free(times);
    PyMem_RawFree(other);
    Py_XDECREF(none);
    return list ? Py_BuildValue("(iN)", (int)result, list) : NULL;
}

static PyObject *get_bytes(CodeObject *self, void *u) {
    (void)u;
    return PyLong_FromSize_t(weft_code_bytes(self->code));
}

static PyGetSetDef code_attributes[] = {
    {"nbytes", (getter)get_bytes, NULL, "Bytes of memory mapped.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef code_methods[] = {
    {"symbol", (PyCFunction)code_symbol, METH_O, "symbol(name): address of a global symbol, or 0."},
    {"has", (PyCFunction)code_has, METH_O, "has(name): whether there is a function of that name."},
    {"call", (PyCFunction)(void (*)(void))code_call, METH_VARARGS | METH_KEYWORDS,
     "call(name, buffers, sizes=(), threads=1, repeat=1, evict=0): (result, nanoseconds of each call) of a kernel.\n\n"
     "Before each call so many bytes of other memory are read and written. "
     "The buffers are compact Python buffers; nothing checks that they fit the kernel."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject CodeType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "weft.runtime._native.Code",
    .tp_basicsize = sizeof(CodeObject),
    .tp_dealloc = (destructor)code_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Code(object, foreign=False): machine code loaded from a relocatable object; ValueError if malformed.",
    .tp_methods = code_methods,
    .tp_getset = code_attributes,
    .tp_new = code_new,
};
