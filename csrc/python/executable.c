/* _native.Executable: runs a program on Python objects.
 *
 * The path of a NumPy array or Tensor with the right dtype and layout never leaves C. Anything else goes through
 * `convert(index, object)`, a Python function that returns a fitting Tensor or raises. */
#include "binding.h"

#include <string.h>

typedef struct port {
    const element_type *element; /* NULL: passed as a value */
    PyObject *numpy_dtype;
} port;

typedef struct ExecutableObject {
    PyObject_HEAD
    weft_executable *executable;
    PyObject *codes;      /* referenced as long as the executable exists */
    PyObject *devices;    /* also referenced; an open device is shared by all executables */
    Py_buffer *constants; /* these buffers stay locked */
    Py_ssize_t constant_count;
    port *inputs, *outputs;
    int input_count, output_count, dimensions; /* dimensions: of all outputs together */
    PyObject *ndarray;                         /* numpy.ndarray */
    PyObject *convert, *convert_output, *fail, *host;
} ExecutableObject;

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* `numpy_dtypes` holds the dtypes of these ports, beginning at index `first`. */
static port *read_ports(PyObject *dtypes, PyObject *numpy_dtypes, Py_ssize_t first, int *count) {
    *count = (int)PyTuple_GET_SIZE(dtypes);
    port *ports = PyMem_Calloc((size_t)*count + 1, sizeof *ports);
    for (int i = 0; ports && i < *count; i++) {
        if (PyTuple_GET_ITEM(dtypes, i) != Py_None) {
            const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(dtypes, i));
            ports[i].element = name ? element_by_name(name) : NULL;
            if (!ports[i].element) return PyMem_Free(ports), NULL;
        }
    }
    for (int i = 0; ports && i < *count; i++) ports[i].numpy_dtype = Py_NewRef(PyTuple_GET_ITEM(numpy_dtypes, first + i));
    if (!ports) PyErr_NoMemory();
    return ports;
}

/* kernels: a tuple of (number of the code, name); a code is a Code, or for a device a tuple (format, bytes). */
static weft_kernel_code *find_kernels(PyObject *codes, PyObject *kernels) {
    Py_ssize_t count = PyTuple_GET_SIZE(kernels);
    weft_kernel_code *found = PyMem_Calloc((size_t)count + 1, sizeof *found);
    if (!found) return PyErr_NoMemory(), NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t code, size = 0;
        const char *name;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(kernels, i), "ns", &code, &name)) return PyMem_Free(found), NULL;
        PyObject *object = code >= 0 && code < PyTuple_GET_SIZE(codes) ? PyTuple_GET_ITEM(codes, code) : NULL;
        found[i].entry = name;
        if (object && Py_TYPE(object) == &CodeType) {
            found[i].function = weft_code_function(((CodeObject *)object)->code, name);
        } else if (object && PyTuple_Check(object)) {
            const char *bytes;
            if (!PyArg_ParseTuple(object, "sy#", &found[i].format, &bytes, &size)) return PyMem_Free(found), NULL;
            found[i].code = bytes;
            found[i].code_bytes = (size_t)size;
        }
        if (!found[i].function && !found[i].code) {
            PyErr_Format(PyExc_ValueError, "the code has no kernel '%s'", name);
            return PyMem_Free(found), NULL;
        }
    }
    return found;
}

/* The open devices in a tuple, as borrowed references. */
static weft_device **find_devices(PyObject *devices) {
    Py_ssize_t count = PyTuple_GET_SIZE(devices);
    weft_device **found = PyMem_Calloc((size_t)count + 1, sizeof *found);
    if (!found) return (weft_device **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *object = PyTuple_GET_ITEM(devices, i);
        if (Py_TYPE(object) != &DeviceType) {
            PyErr_SetString(PyExc_TypeError, "devices must be open");
            return PyMem_Free(found), NULL;
        }
        found[i] = ((DeviceObject *)object)->device;
    }
    return found;
}

static int hold_constants(ExecutableObject *self, PyObject *constants, void **pointers, int64_t *sizes) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); i++) {
        Py_buffer *view = &self->constants[i];
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(constants, i), view, PyBUF_SIMPLE)) return -1;
        self->constant_count = i + 1;
        if ((uintptr_t)view->buf % 64 && view->len) {
            PyErr_Format(PyExc_ValueError, "constant %zd is not aligned to 64 bytes", i);
            return -1;
        }
        pointers[i] = view->len ? view->buf : NULL;
        sizes[i] = view->len;
    }
    return 0;
}

/* The exception that a host operator or a signal handler raised on this thread during a run. It is set again when the run
 * has ended: until then, no Python code may be called with an exception set. */
static _Thread_local PyObject *pending[3];

static void keep_exception(void) {
    for (int i = 0; i < 3; i++) Py_CLEAR(pending[i]);
    PyErr_Fetch(&pending[0], &pending[1], &pending[2]);
}

static int raise_kept_exception(void) {
    if (!pending[0]) return 0;
    PyErr_Restore(pending[0], pending[1], pending[2]);
    pending[0] = pending[1] = pending[2] = NULL;
    return -1;
}

/* The weft_host of an executable: calls `host(number, arguments)`, which gives a tuple of values. An exception is kept
 * for `run`. */
static int32_t run_host(void *context, int32_t number, weft_value *const *arguments, int32_t argument_count,
                        weft_value **results, int32_t result_count) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *given = PyTuple_New(argument_count), *made = NULL;
    for (int32_t i = 0; given && i < argument_count; i++) {
        PyObject *value = value_object(weft_value_retain(arguments[i]));
        if (!value) Py_CLEAR(given);
        else PyTuple_SET_ITEM(given, i, value);
    }
    if (given) made = PyObject_CallFunction(((ExecutableObject *)context)->host, "iO", (int)number, given);
    int fits = made && PyTuple_Check(made) && PyTuple_GET_SIZE(made) == result_count;
    for (int32_t i = 0; fits && i < result_count; i++) fits = Py_TYPE(PyTuple_GET_ITEM(made, i)) == &ValueType;
    for (int32_t i = 0; fits && i < result_count; i++)
        results[i] = weft_value_retain(((ValueObject *)PyTuple_GET_ITEM(made, i))->value);
    if (!fits && !PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "a host operator did not give its results");
    if (!fits) keep_exception();
    Py_XDECREF(given);
    Py_XDECREF(made);
    PyGILState_Release(state);
    return !fits;
}

static int64_t element_bytes(const port *p) { return p->element ? p->element->bytes : 0; }

static int create(ExecutableObject *self, const Py_buffer *words, PyObject *kernels, PyObject *constants, PyObject *devices,
                  int threads) {
    size_t count = (size_t)PyTuple_GET_SIZE(constants);
    void **pointers = PyMem_Calloc(count + 1, sizeof *pointers);
    int64_t *sizes = PyMem_Calloc(count + 1, sizeof *sizes);
    self->constants = PyMem_Calloc(count + 1, sizeof *self->constants);
    weft_kernel_code *found = find_kernels(self->codes, kernels);
    weft_device **opened = found ? find_devices(devices) : NULL;
    weft_error error;
    int failed = -1;
    if (!pointers || !sizes || !self->constants) {
        PyErr_NoMemory();
    } else if (opened && hold_constants(self, constants, pointers, sizes) == 0) {
        const weft_parts parts = {found, (size_t)PyTuple_GET_SIZE(kernels), pointers, sizes, count, opened,
                                  (size_t)PyTuple_GET_SIZE(devices)};
        Py_BEGIN_ALLOW_THREADS;
        failed = weft_executable_create(words->buf, (size_t)words->len / 8, &parts, threads, &self->executable, &error);
        Py_END_ALLOW_THREADS;
        if (failed && failed != WEFT_ERROR_PROGRAM && PyTuple_GET_SIZE(devices)) raise_device_error(&error);
        else if (failed) PyErr_Format(PyExc_ValueError, "%s", error.message);
    }
    PyMem_Free(opened);
    PyMem_Free(pointers);
    PyMem_Free(sizes);
    PyMem_Free(found);
    if (failed) return -1;
    if (weft_executable_inputs(self->executable) != self->input_count ||
        weft_executable_outputs(self->executable) != self->output_count) {
        PyErr_SetString(PyExc_ValueError, "the dtypes do not fit the program");
        return -1;
    }
    int fits = 1;
    for (int i = 0; i < self->input_count; i++)
        fits &= element_bytes(&self->inputs[i]) == weft_executable_input_element(self->executable, i);
    for (int i = 0; i < self->output_count; i++)
        fits &= element_bytes(&self->outputs[i]) == weft_executable_output_element(self->executable, i);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the dtypes do not fit the program");
        return -1;
    }
    weft_executable_set_host(self->executable, run_host, self);
    for (int i = 0; i < self->output_count; i++) self->dimensions += weft_executable_output_ndim(self->executable, i);
    return 0;
}

static PyObject *executable_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"words",   "codes",   "kernels", "constants",      "input_dtypes", "output_dtypes", "numpy_dtypes",
                            "threads", "ndarray", "convert", "convert_output", "fail",         "host",         "devices",
                            NULL};
    Py_buffer words;
    PyObject *codes, *kernels, *constants, *inputs, *outputs, *numpy_dtypes, *ndarray, *convert, *convert_output, *fail, *host, *devices;
    int threads;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*O!O!O!O!O!O!iOOOOOO!:Executable", names, &words, &PyTuple_Type, &codes,
                                     &PyTuple_Type, &kernels, &PyTuple_Type, &constants, &PyTuple_Type, &inputs,
                                     &PyTuple_Type, &outputs, &PyTuple_Type, &numpy_dtypes, &threads, &ndarray, &convert,
                                     &convert_output, &fail, &host, &PyTuple_Type, &devices))
        return NULL;
    ExecutableObject *self = (ExecutableObject *)type->tp_alloc(type, 0);
    int failed = self == NULL;
    if (self) {
        self->codes = Py_NewRef(codes);
        self->devices = Py_NewRef(devices);
        self->ndarray = Py_NewRef(ndarray);
        self->convert = Py_NewRef(convert);
        self->convert_output = Py_NewRef(convert_output);
        self->fail = Py_NewRef(fail);
        self->host = Py_NewRef(host);
        Py_ssize_t taken = PyTuple_GET_SIZE(inputs);
        if (PyTuple_GET_SIZE(numpy_dtypes) != taken + PyTuple_GET_SIZE(outputs)) {
            PyErr_SetString(PyExc_ValueError, "there must be a NumPy dtype for each input and output");
            failed = 1;
        }
        failed = failed || !(self->inputs = read_ports(inputs, numpy_dtypes, 0, &self->input_count)) ||
                 !(self->outputs = read_ports(outputs, numpy_dtypes, taken, &self->output_count)) ||
                 create(self, &words, kernels, constants, devices, threads);
    }
    PyBuffer_Release(&words);
    if (failed) Py_CLEAR(self);
    return (PyObject *)self;
}

static int executable_traverse(ExecutableObject *self, visitproc visit, void *arg) {
    Py_VISIT(self->codes);
    Py_VISIT(self->devices);
    Py_VISIT(self->ndarray);
    Py_VISIT(self->convert);
    Py_VISIT(self->convert_output);
    Py_VISIT(self->fail);
    Py_VISIT(self->host);
    return 0;
}

static int executable_clear(ExecutableObject *self) {
    Py_CLEAR(self->convert);
    Py_CLEAR(self->convert_output);
    Py_CLEAR(self->fail);
    Py_CLEAR(self->host);
    return 0;
}

static void executable_dealloc(ExecutableObject *self) {
    PyObject_GC_UnTrack(self);
    (void)executable_clear(self);
    weft_executable_free(self->executable);
    for (Py_ssize_t i = 0; i < self->constant_count; i++) PyBuffer_Release(&self->constants[i]);
    for (int i = 0; self->inputs && i < self->input_count; i++) Py_XDECREF(self->inputs[i].numpy_dtype);
    for (int i = 0; self->outputs && i < self->output_count; i++) Py_XDECREF(self->outputs[i].numpy_dtype);
    PyMem_Free(self->constants);
    PyMem_Free(self->inputs);
    PyMem_Free(self->outputs);
    Py_CLEAR(self->codes);
    Py_CLEAR(self->devices);
    Py_CLEAR(self->ndarray);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* ---- inputs and outputs ------------------------------------------------------------------------------------------ */

/* The structure in the capsule that `array.__array_struct__` returns (NumPy's array interface, version 3). */
typedef struct array_interface {
    int two, ndim;
    char kind;
    int itemsize, flags;
    Py_ssize_t *shape, *strides;
    void *data;
    PyObject *description;
} array_interface;
enum { ARRAY_COMPACT = 0x1, ARRAY_ALIGNED = 0x100, ARRAY_NATIVE = 0x200, ARRAY_WRITABLE = 0x400 };

/* References that keep the memory of an argument alive during a run. */
typedef struct holder {
    Py_buffer view;   /* where view.obj is set: a buffer's, or filled from an array_interface, whose capsule is view.obj */
    PyObject *object; /* a Tensor */
} holder;

/* Memory for the arguments of one run; for few arguments it is on the C stack. */
typedef struct workspace {
    weft_tensor *tensors;
    holder *holders;
    int64_t *shapes;
    int held;
} workspace;

enum { SMALL_PORTS = 16, SMALL_DIMENSIONS = 96 };

static int use_value(PyObject *object, weft_tensor *tensor, holder *h) {
    if (Py_TYPE(object) != &ValueType) return 0;
    h->object = Py_NewRef(object);
    *tensor = (weft_tensor){.value = ((ValueObject *)object)->value};
    return 1;
}

static int use_tensor(const port *p, TensorObject *t, int writable, weft_tensor *tensor, holder *h) {
    if (t->element != p->element || !tensor_is_contiguous(t) || (writable && t->readonly)) return 0;
    if (!t->device && (uintptr_t)t->data % p->element->bytes) return 0;
    h->object = Py_NewRef((PyObject *)t);
    *tensor = (weft_tensor){t->data, (int64_t *)t->shape, t->nbytes, t->ndim, NULL,
                            t->device ? ((DeviceObject *)t->device)->device : NULL};
    return 1;
}

/* After an exception of an object that was asked for its memory: 0 if it must be converted, -1 if memory is exhausted. */
static int unusable(void) {
    if (PyErr_ExceptionMatches(PyExc_MemoryError)) return -1;
    PyErr_Clear();
    return 0;
}

/* For arrays of dtypes that the buffer protocol has no format letter for, such as bfloat16. */
static int use_array(const port *p, PyObject *object, int writable, weft_tensor *tensor, holder *h) {
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    int same = dtype == p->numpy_dtype;
    Py_XDECREF(dtype);
    PyObject *capsule = same ? PyObject_GetAttrString(object, "__array_struct__") : NULL;
    const array_interface *a = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
    int needed = ARRAY_COMPACT | ARRAY_ALIGNED | ARRAY_NATIVE | (writable ? ARRAY_WRITABLE : 0);
    if (!a || a->two != 2 || a->itemsize != p->element->bytes || (a->flags & needed) != needed) {
        int result = unusable();
        Py_XDECREF(capsule);
        return result;
    }
    Py_ssize_t nbytes = a->itemsize;
    for (int d = 0; d < a->ndim; d++) nbytes *= a->shape[d];
    h->view = (Py_buffer){.buf = a->data, .obj = capsule, .len = nbytes, .ndim = a->ndim, .shape = a->shape};
    *tensor = (weft_tensor){a->data, (int64_t *)a->shape, nbytes, a->ndim, NULL, NULL};
    return 1;
}

/* 1 if the array can be used without a conversion, otherwise 0; -1 and an exception if memory is exhausted. */
static int use_object(const port *p, PyObject *object, PyObject *ndarray, int writable, weft_tensor *tensor, holder *h) {
    if (!p->element) return writable ? 0 : use_value(object, tensor, h);
    if (PyObject_TypeCheck(object, &TensorType)) return use_tensor(p, (TensorObject *)object, writable, tensor, h);
    if (!PyObject_CheckBuffer(object)) return 0;
    if (!p->element->formats[0])
        return (PyObject *)Py_TYPE(object) == ndarray ? use_array(p, object, writable, tensor, h) : 0;
    if (PyObject_GetBuffer(object, &h->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0))) {
        h->view.obj = NULL;
        return unusable();
    }
    if (element_matches(p->element, h->view.format, h->view.itemsize) &&
        (uintptr_t)h->view.buf % p->element->bytes == 0) {
        *tensor = (weft_tensor){h->view.buf, (int64_t *)h->view.shape, h->view.len, h->view.ndim, NULL, NULL};
        return 1;
    }
    PyBuffer_Release(&h->view);
    h->view.obj = NULL;
    return 0;
}

static int take(const ExecutableObject *self, const port *p, PyObject *object, int index, int writable,
                weft_tensor *tensor, holder *h) {
    int used = use_object(p, object, self->ndarray, writable, tensor, h);
    if (used) return used < 0 ? -1 : 0;
    PyObject *convert = writable ? self->convert_output : self->convert;
    PyObject *converted = PyObject_CallFunction(convert, "iO", index, object);
    if (!converted) return -1;
    used = use_object(p, converted, self->ndarray, writable, tensor, h);
    Py_DECREF(converted);
    if (used) return used < 0 ? -1 : 0;
    PyErr_Format(PyExc_SystemError, "the conversion of argument %d did not give a fitting tensor", index);
    return -1;
}

static int overlap(const weft_tensor *a, const weft_tensor *b) {
    const char *x = a->data, *y = b->data;
    return a->device == b->device && a->nbytes && b->nbytes && x < y + b->nbytes && y < x + a->nbytes;
}

static int set_failure(ExecutableObject *self, const weft_error *e) {
    PyObject *exception = NULL, *text = binding_text(e->message);
    if (text)
        exception = PyObject_CallFunction(self->fail, "iiiLLLO", (int)e->status, (int)e->index, (int)e->axis,
                                          (long long)e->instruction, (long long)e->expected, (long long)e->given, text);
    Py_XDECREF(text);
    PyObject *cause = take_device_exception();
    if (exception && cause && !PyObject_TypeCheck(cause, (PyTypeObject *)PyExc_Exception)) {
        PyErr_SetObject((PyObject *)Py_TYPE(cause), cause); /* an interruption, not an error */
        Py_DECREF(cause);
        Py_DECREF(exception);
        return -1;
    }
    if (exception) {
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
        if (cause) PyException_SetCause(exception, cause), cause = NULL;
        Py_DECREF(exception);
    }
    Py_XDECREF(cause);
    return -1;
}

/* Status codes of errors that only this binding finds; the codes of weft_status are smaller. */
enum { ERROR_ARGUMENT_COUNT = 100, ERROR_OUTPUT_COUNT = 101, ERROR_OVERLAP = 102, ERROR_OUTPUT_SHAPE = 103 };

static int set_count_failure(ExecutableObject *self, int status, Py_ssize_t expected, Py_ssize_t given) {
    weft_error error = {.status = status, .index = -1, .axis = -1, .instruction = -1, .expected = expected, .given = given};
    return set_failure(self, &error);
}

static int take_inputs(ExecutableObject *self, PyObject *arguments, workspace *w) {
    if (PyTuple_GET_SIZE(arguments) != self->input_count)
        return set_count_failure(self, ERROR_ARGUMENT_COUNT, self->input_count, PyTuple_GET_SIZE(arguments));
    for (int i = 0; i < self->input_count; i++) {
        w->held = i + 1;
        if (take(self, &self->inputs[i], PyTuple_GET_ITEM(arguments, i), i, 0, &w->tensors[i], &w->holders[i])) return -1;
    }
    return 0;
}

/* Given outputs; afterwards their expected shapes are written over `shape`, which therefore points to our own memory. */
static int take_outputs(ExecutableObject *self, PyObject *outs, workspace *w) {
    if (PyTuple_GET_SIZE(outs) != self->output_count)
        return set_count_failure(self, ERROR_OUTPUT_COUNT, self->output_count, PyTuple_GET_SIZE(outs));
    for (int i = 0; i < self->output_count; i++) {
        int at = self->input_count + i;
        w->held = at + 1;
        int64_t *shape = w->tensors[at].shape;
        if (take(self, &self->outputs[i], PyTuple_GET_ITEM(outs, i), i, 1, &w->tensors[at], &w->holders[at])) return -1;
        w->tensors[at].shape = shape;
        for (int k = 0; k < at; k++)
            if (overlap(&w->tensors[at], &w->tensors[k])) return set_count_failure(self, ERROR_OVERLAP, 0, i);
    }
    return 0;
}

/* Checks that outputs given by the caller have exactly the computed shapes. */
static int check_given(ExecutableObject *self, PyObject *outs, const workspace *w) {
    for (int i = 0; i < self->output_count; i++) {
        const weft_tensor *t = &w->tensors[self->input_count + i];
        const holder *h = &w->holders[self->input_count + i];
        const TensorObject *tensor = (TensorObject *)h->object;
        int ndim = tensor ? tensor->ndim : h->view.ndim;
        const Py_ssize_t *shape = tensor ? tensor->shape : h->view.shape;
        int same = ndim == t->ndim;
        for (int d = 0; d < t->ndim && same; d++) same = shape[d] == t->shape[d];
        if (!same) return set_count_failure(self, ERROR_OUTPUT_SHAPE, 0, i);
    }
    (void)outs;
    return 0;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static PyObject *make_array(ExecutableObject *self, int index, weft_tensor *t) {
    PyObject *shape = PyTuple_New(t->ndim);
    for (int d = 0; shape && d < t->ndim; d++) {
        PyObject *extent = PyLong_FromLongLong(t->shape[d]);
        if (!extent) Py_CLEAR(shape);
        else PyTuple_SET_ITEM(shape, d, extent);
    }
    void *memory = t->data;
    t->data = NULL;
    PyObject *tensor = tensor_from_memory(memory, self->outputs[index].element, t->ndim, t->shape);
    PyObject *array = NULL;
    if (shape && tensor) {
        PyObject *arguments[] = {shape, self->outputs[index].numpy_dtype, tensor};
        array = PyObject_Vectorcall(self->ndarray, arguments, 3, NULL);
    }
    Py_XDECREF(shape);
    Py_XDECREF(tensor);
    return array;
}

static PyObject *make_results(ExecutableObject *self, workspace *w) {
    weft_tensor *outputs = w->tensors + self->input_count;
    PyObject *results = PyTuple_New(self->output_count);
    for (int i = 0; results && i < self->output_count; i++) {
        weft_value *value = outputs[i].value;
        outputs[i].value = NULL;
        PyObject *array = value ? value_object(value) : make_array(self, i, &outputs[i]);
        if (!array) Py_CLEAR(results);
        else PyTuple_SET_ITEM(results, i, array);
    }
    for (int i = 0; !results && i < self->output_count; i++) {
        weft_free(outputs[i].data);
        weft_value_release(outputs[i].value);
    }
    return results;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Handles signals during a run: an exception, such as KeyboardInterrupt, ends it. Only the main thread handles signals. */
static int32_t poll_signals(void *context) {
    PyThreadState **saved = context;
    PyEval_RestoreThread(*saved);
    int raised = PyErr_CheckSignals();
    if (raised) keep_exception();
    *saved = PyEval_SaveThread();
    return raised;
}

/* A run takes the interpreter's lock for signals only if it lasts longer than this, and then at such intervals. */
enum { SIGNAL_INTERVAL = 20000000 /* nanoseconds */ };

/* Runs without the interpreter's lock. `timeout`: nanoseconds, or -1. */
static int32_t run_unlocked(ExecutableObject *self, workspace *w, weft_profile *profile, int64_t timeout, weft_error *error) {
    int32_t status;
    const int is_main = binding_is_main_thread();
    PyThreadState *saved = PyEval_SaveThread();
    weft_watch *watch = NULL;
    if (is_main || timeout >= 0) {
        int64_t now = timeout >= 0 ? weft_nanoseconds() : 0;
        watch = weft_watch_begin(timeout >= 0 && timeout < INT64_MAX - now ? now + timeout : INT64_MAX,
                                 is_main ? poll_signals : NULL, &saved, SIGNAL_INTERVAL);
        if (!watch) { /* a run that nothing can stop is not what was asked for */
            PyEval_RestoreThread(saved);
            *error = (weft_error){.status = WEFT_ERROR_MEMORY, .index = -1, .axis = -1, .instruction = -1,
                                  .message = "out of memory for the time limit of a run"};
            return error->status;
        }
    }
    status = weft_run(self->executable, w->tensors, w->tensors + self->input_count, profile, error);
    weft_watch_end(watch);
    PyEval_RestoreThread(saved);
    return status;
}

static PyObject *run_with(ExecutableObject *self, PyObject *inputs, PyObject *outs, weft_profile *profile, int64_t timeout,
                          workspace *w) {
    int64_t *shape = w->shapes;
    for (int i = 0; i < self->output_count; i++) {
        w->tensors[self->input_count + i].shape = shape;
        shape += weft_executable_output_ndim(self->executable, i);
    }
    if (take_inputs(self, inputs, w) || (outs != Py_None && take_outputs(self, outs, w))) return NULL;
    weft_error error;
    int32_t status = run_unlocked(self, w, profile, timeout, &error);
    if (raise_kept_exception()) return NULL;
    if (status) return set_failure(self, &error), NULL;
    if (outs == Py_None) return make_results(self, w);
    return check_given(self, outs, w) ? NULL : Py_NewRef(outs);
}

static void release(workspace *w) {
    for (int i = 0; i < w->held; i++) {
        if (w->holders[i].view.obj) PyBuffer_Release(&w->holders[i].view);
        Py_XDECREF(w->holders[i].object);
    }
}

static PyObject *run_in_workspace(ExecutableObject *self, PyObject *inputs, PyObject *outs, weft_profile *profile,
                                  int64_t timeout) {
    size_t ports = (size_t)(self->input_count + self->output_count);
    weft_tensor small_tensors[SMALL_PORTS];
    holder small_holders[SMALL_PORTS];
    int64_t small_shapes[SMALL_DIMENSIONS];
    if (ports <= SMALL_PORTS && self->dimensions <= SMALL_DIMENSIONS) {
        memset(small_tensors, 0, ports * sizeof small_tensors[0]);
        memset(small_holders, 0, ports * sizeof small_holders[0]);
        workspace w = {small_tensors, small_holders, small_shapes, 0};
        PyObject *results = run_with(self, inputs, outs, profile, timeout, &w);
        release(&w);
        return results;
    }
    workspace w = {PyMem_Calloc(ports, sizeof(weft_tensor)), PyMem_Calloc(ports, sizeof(holder)),
                   PyMem_Calloc((size_t)self->dimensions + 1, sizeof(int64_t)), 0};
    PyObject *results = NULL;
    if (w.tensors && w.holders && w.shapes) {
        results = run_with(self, inputs, outs, profile, timeout, &w);
        release(&w);
    } else {
        PyErr_NoMemory();
    }
    PyMem_Free(w.tensors);
    PyMem_Free(w.holders);
    PyMem_Free(w.shapes);
    return results;
}

static PyObject *executable_run(ExecutableObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count < 1 || count > 4 || !PyTuple_Check(args[0]) || (count > 1 && args[1] != Py_None && !PyTuple_Check(args[1])))
        return PyErr_Format(PyExc_TypeError, "run(inputs: tuple, outputs: tuple | None = None, profile: buffer | None = None, "
                                             "timeout: int = -1)");
    PyObject *outs = count > 1 ? args[1] : Py_None;
    int64_t timeout = count > 3 ? PyLong_AsLongLong(args[3]) : -1;
    if (timeout == -1 && PyErr_Occurred()) return NULL;
    if (count < 3 || args[2] == Py_None) return run_in_workspace(self, args[0], outs, NULL, timeout);
    Py_buffer view;
    if (PyObject_GetBuffer(args[2], &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)) return NULL;
    int64_t instructions = weft_executable_instructions(self->executable);
    PyObject *results = NULL;
    if (view.len == 16 * instructions) {
        weft_profile profile = {view.buf, (int64_t *)view.buf + instructions};
        results = run_in_workspace(self, args[0], outs, &profile, timeout);
    } else {
        PyErr_SetString(PyExc_ValueError, "the profile buffer must hold two 64-bit integers for each instruction");
    }
    PyBuffer_Release(&view);
    return results;
}

static PyObject *get_threads(ExecutableObject *self, void *u) {
    (void)u;
    return PyLong_FromLong(weft_executable_threads(self->executable));
}

static int set_threads(ExecutableObject *self, PyObject *value, void *u) {
    (void)u;
    long threads = value ? PyLong_AsLong(value) : 0;
    if (threads == -1 && PyErr_Occurred()) return -1;
    if (threads < 1 || threads > 1024) {
        PyErr_SetString(PyExc_ValueError, "the number of threads must be between 1 and 1024");
        return -1;
    }
    weft_executable_set_threads(self->executable, (int32_t)threads);
    return 0;
}

static PyObject *get_held_bytes(ExecutableObject *self, void *u) {
    (void)u;
    return PyLong_FromLongLong(weft_executable_held_bytes(self->executable));
}

static PyObject *get_memory_limit(ExecutableObject *self, void *u) {
    (void)u;
    return PyLong_FromLongLong(weft_executable_memory_limit(self->executable));
}

static int set_memory_limit(ExecutableObject *self, PyObject *value, void *u) {
    (void)u;
    long long bytes = value ? PyLong_AsLongLong(value) : 0;
    if (bytes == -1 && PyErr_Occurred()) return -1;
    if (bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "the limit must not be negative (0: none)");
        return -1;
    }
    weft_executable_set_memory_limit(self->executable, bytes);
    return 0;
}

static PyObject *executable_trim(ExecutableObject *self, PyObject *unused) {
    (void)unused;
    int64_t bytes;
    Py_BEGIN_ALLOW_THREADS;
    bytes = weft_executable_trim(self->executable);
    weft_trim();
    Py_END_ALLOW_THREADS;
    return PyLong_FromLongLong(bytes);
}

static PyGetSetDef executable_attributes[] = {
    {"threads", (getter)get_threads, (setter)set_threads, "Threads that one run uses.", NULL},
    {"held_bytes", (getter)get_held_bytes, NULL, "Bytes held for intermediate results at present.", NULL},
    {"memory_limit", (getter)get_memory_limit, (setter)set_memory_limit, "Most of these bytes; 0: no limit.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef executable_methods[] = {
    {"run", (PyCFunction)(void (*)(void))executable_run, METH_FASTCALL,
     "run(inputs, outputs=None, profile=None, timeout=-1): a tuple of arrays.\n\n"
     "profile: a buffer of 2*instructions int64, nanoseconds then calls, which are added to.\n"
     "timeout: nanoseconds after which the run is stopped; -1: never."},
    {"trim", (PyCFunction)executable_trim, METH_NOARGS, "trim(): free the memory that no run uses; its bytes."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject ExecutableType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "weft.runtime._native.Executable",
    .tp_basicsize = sizeof(ExecutableObject),
    .tp_dealloc = (destructor)executable_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "An executable program; see weft.runtime.executable.",
    .tp_traverse = (traverseproc)executable_traverse,
    .tp_clear = (inquiry)executable_clear,
    .tp_methods = executable_methods,
    .tp_getset = executable_attributes,
    .tp_new = executable_new,
};
