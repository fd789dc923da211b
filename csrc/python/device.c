/* _native.Device: an open device; and the table of functions for a device that is written in Python.
 *
 * The functions of the table are called from C without the interpreter's lock, by any thread. Each takes the lock, calls
 * the method of the same name, and turns an exception into an error. The exception is kept for the thread, so that
 * whoever asked for the run can raise an error caused by it. */
#include "binding.h"

#include <stdio.h>

/* ---- exceptions -------------------------------------------------------------------------------------------------- */

static _Thread_local PyObject *raised; /* the first exception that was not passed on yet */

PyObject *take_device_exception(void) {
    PyObject *found = raised;
    raised = NULL;
    return found;
}

/* Clears the current Python exception, keeps it in `raised` and writes its text to `error`. */
static int32_t fail_python(weft_error *error) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (value && trace) PyException_SetTraceback(value, trace);
    PyObject *text = value ? PyUnicode_FromFormat("%s: %S", Py_TYPE(value)->tp_name, value) : NULL;
    const char *bytes = text ? PyUnicode_AsUTF8(text) : NULL;
    if (!bytes) PyErr_Clear();
    int32_t status = value && PyErr_GivenExceptionMatches(value, PyExc_MemoryError) ? WEFT_ERROR_MEMORY : WEFT_ERROR_DEVICE;
    (void)snprintf(error->message, sizeof error->message, "%s", bytes ? bytes : "an exception that cannot be told");
    if (!raised) raised = Py_XNewRef(value);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return status;
}

void raise_device_error(const weft_error *error) {
    PyObject *module = PyImport_ImportModule("weft.runtime.devices");
    PyObject *text = module ? binding_text(error->message) : NULL;
    PyObject *exception = text ? PyObject_CallMethod(module, "failure", "iO", (int)error->status, text) : NULL;
    PyObject *cause = take_device_exception();
    Py_XDECREF(text);
    Py_XDECREF(module);
    if (exception && cause && !PyObject_TypeCheck(cause, (PyTypeObject *)PyExc_Exception)) {
        PyErr_SetObject((PyObject *)Py_TYPE(cause), cause);
        Py_CLEAR(cause);
    } else if (exception) {
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
        if (cause) PyException_SetCause(exception, cause), cause = NULL;
    }
    Py_XDECREF(exception);
    Py_XDECREF(cause);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* 0 if a method returned normally; its result is dropped. */
static int32_t done(PyObject *result, weft_error *error) {
    if (!result) return fail_python(error);
    Py_DECREF(result);
    return WEFT_OK;
}

/* Functions that also run while the memory of a failed run is freed: they save the exception that is already set. */
typedef struct aside {
    PyGILState_STATE state;
    PyObject *type, *value, *trace;
} aside;

static aside step_aside(void) {
    aside p = {.state = PyGILState_Ensure()};
    PyErr_Fetch(&p.type, &p.value, &p.trace);
    return p;
}

static void step_back(aside p) {
    PyErr_Restore(p.type, p.value, p.trace);
    PyGILState_Release(p.state);
}

/* For functions that cannot fail. */
static void done_anyway(PyObject *result, PyObject *where) {
    if (!result) PyErr_WriteUnraisable(where);
    Py_XDECREF(result);
}

/* Calls a method with a tuple of arguments, which is given back; NULL: an exception is set already. PyObject_CallMethod
 * would keep objects that it should take over ("N") if there is no such method. */
static PyObject *call_with(PyObject *device, const char *name, PyObject *arguments) {
    PyObject *method = arguments ? PyObject_GetAttrString(device, name) : NULL;
    PyObject *result = method ? PyObject_CallObject(method, arguments) : NULL;
    Py_XDECREF(method);
    Py_XDECREF(arguments);
    return result;
}

static PyObject *address_object(const void *address) { return PyLong_FromVoidPtr((void *)address); }

static int32_t open_python(void *context, int32_t index, void **device, weft_error *error) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *made = PyObject_CallFunction(context, "i", (int)index);
    *device = made;
    int32_t status = made ? WEFT_OK : fail_python(error);
    PyGILState_Release(state);
    return status;
}

static void copy_text(PyObject *text, char *to, size_t room) {
    const char *bytes = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : NULL;
    if (bytes) (void)snprintf(to, room, "%s", bytes);
}

static int32_t python_info(void *device, weft_device_info *info, weft_error *error) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *made = PyObject_CallMethod(device, "info", NULL);
    PyObject *formats = NULL, *joined = NULL, *name = NULL, *comma = PyUnicode_FromString(",");
    long long bytes = 0;
    if (made && comma && PyArg_ParseTuple(made, "UOL", &name, &formats, &bytes)) joined = PyUnicode_Join(comma, formats);
    if (joined) {
        copy_text(name, info->name, sizeof info->name);
        copy_text(joined, info->formats, sizeof info->formats);
        info->memory_bytes = bytes;
    }
    int32_t status = joined ? WEFT_OK : fail_python(error);
    Py_XDECREF(made);
    Py_XDECREF(joined);
    Py_XDECREF(comma);
    PyGILState_Release(state);
    return status;
}

static int32_t python_allocate(void *device, int64_t nbytes, void **address, weft_error *error) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *made = PyObject_CallMethod(device, "allocate", "L", (long long)nbytes);
    *address = made ? PyLong_AsVoidPtr(made) : NULL;
    int32_t status = PyErr_Occurred() ? fail_python(error) : WEFT_OK;
    Py_XDECREF(made);
    PyGILState_Release(state);
    return status;
}

static void python_free(void *device, void *address) {
    aside p = step_aside();
    done_anyway(call_with(device, "free", Py_BuildValue("(N)", address_object(address))), device);
    step_back(p);
}

/* Calls a method with an address and a memoryview of main memory; the method must not keep the view. */
static int32_t python_copy(void *device, const char *method, const void *address, void *memory, int64_t nbytes, int flags,
                           weft_error *error) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *view = PyMemoryView_FromMemory(memory, (Py_ssize_t)nbytes, flags);
    PyObject *result = view ? call_with(device, method, Py_BuildValue("(NO)", address_object(address), view)) : NULL;
    int32_t status = done(result, error);
    if (view) {
        int32_t released = done(PyObject_CallMethod(view, "release", NULL), error); /* fails if the view is still in use */
        if (!status) status = released;
    }
    Py_XDECREF(view);
    PyGILState_Release(state);
    return status;
}

static int32_t python_copy_in(void *device, void *to, const void *from, int64_t nbytes, weft_error *error) {
    return python_copy(device, "copy_in", to, (void *)from, nbytes, PyBUF_READ, error);
}

static int32_t python_copy_out(void *device, void *to, const void *from, int64_t nbytes, weft_error *error) {
    return python_copy(device, "copy_out", from, to, nbytes, PyBUF_WRITE, error);
}

static int32_t python_copy_across(void *device, void *to, const void *from, int64_t nbytes, weft_error *error) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *arguments = Py_BuildValue("(NNL)", address_object(to), address_object(from), (long long)nbytes);
    PyObject *result = call_with(device, "copy_across", arguments);
    int32_t status = done(result, error);
    PyGILState_Release(state);
    return status;
}

static int32_t python_load(void *device, const char *format, const void *code, size_t nbytes, const char *entry,
                           void **kernel, weft_error *error) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *made = PyObject_CallMethod(device, "load", "sy#s", format, code, (Py_ssize_t)nbytes, entry);
    *kernel = made;
    int32_t status = made ? WEFT_OK : fail_python(error);
    PyGILState_Release(state);
    return status;
}

static void python_unload(void *device, void *kernel) {
    aside p = step_aside();
    done_anyway(PyObject_CallMethod(device, "unload", "(O)", kernel), device);
    Py_DECREF((PyObject *)kernel);
    step_back(p);
}

static PyObject *numbers(const int64_t *values, int32_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (int32_t i = 0; tuple && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(values[i]);
        if (!number) Py_CLEAR(tuple);
        else PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

static PyObject *addresses(void *const *values, int32_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (int32_t i = 0; tuple && i < count; i++) {
        PyObject *number = address_object(values[i]);
        if (!number) Py_CLEAR(tuple);
        else PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

static int32_t python_launch(void *device, void *kernel, void *const *buffers, int32_t buffer_count, const int64_t *sizes,
                             int32_t size_count, const weft_launch *launch, weft_error *error) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *arguments = Py_BuildValue("(ONNNNL)", kernel, addresses(buffers, buffer_count), numbers(sizes, size_count),
                                        numbers(launch->grid, 3), numbers(launch->block, 3), (long long)launch->shared_bytes);
    PyObject *result = call_with(device, "launch", arguments);
    int32_t status = done(result, error);
    PyGILState_Release(state);
    return status;
}

static int32_t python_synchronize(void *device, weft_error *error) {
    aside p = step_aside();
    int32_t status = done(PyObject_CallMethod(device, "synchronize", NULL), error);
    step_back(p);
    return status;
}

static void python_close(void *device) {
    aside p = step_aside();
    done_anyway(PyObject_CallMethod(device, "close", NULL), device);
    Py_DECREF((PyObject *)device);
    step_back(p);
}

static const weft_device_table python_table = {
    WEFT_DEVICE_VERSION, open_python,        python_info, python_allocate, python_free,   python_copy_in,     python_copy_out,
    python_copy_across,  python_load,        python_unload, python_launch, python_synchronize, python_close};

/* ---- the type ---------------------------------------------------------------------------------------------------- */

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"kind", "index", "opener", "table", "context", NULL};
    const char *kind;
    int index;
    PyObject *opener = Py_None;
    unsigned long long address = 0, context = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "si|OKK:Device", names, &kind, &index, &opener, &address, &context))
        return NULL;
    const weft_device_table *table = (const weft_device_table *)(uintptr_t)address;
    weft_error error;
    weft_device *device;
    int32_t status;
    Py_BEGIN_ALLOW_THREADS;
    if (table)
        status = weft_device_open_table(kind, table, (void *)(uintptr_t)context, index, &device, &error);
    else
        status = opener == Py_None ? weft_device_open(kind, index, &device, &error)
                                   : weft_device_open_table(kind, &python_table, opener, index, &device, &error);
    Py_END_ALLOW_THREADS;
    if (status) return raise_device_error(&error), NULL;
    DeviceObject *self = (DeviceObject *)type->tp_alloc(type, 0);
    if (self) self->device = device;
    else weft_device_release(device);
    return (PyObject *)self;
}

static void device_dealloc(DeviceObject *self) {
    if (self->weak_references) PyObject_ClearWeakRefs((PyObject *)self);
    weft_device_release(self->device);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *device_info(DeviceObject *self, PyObject *unused) {
    (void)unused;
    weft_device_info info;
    weft_error error;
    int32_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = weft_device_ask(self->device, &info, &error);
    Py_END_ALLOW_THREADS;
    if (status) return raise_device_error(&error), NULL;
    PyObject *name = binding_text(info.name), *formats = name ? binding_text(info.formats) : NULL;
    PyObject *made = formats ? Py_BuildValue("(OOL)", name, formats, (long long)info.memory_bytes) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(formats);
    return made;
}

static PyObject *device_synchronize(DeviceObject *self, PyObject *unused) {
    (void)unused;
    weft_error error;
    int32_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = weft_device_synchronize(self->device, &error);
    Py_END_ALLOW_THREADS;
    if (status) return raise_device_error(&error), NULL;
    Py_RETURN_NONE;
}

static PyObject *get_kind(DeviceObject *self, void *u) { (void)u; return PyUnicode_FromString(weft_device_kind(self->device)); }
static PyObject *get_index(DeviceObject *self, void *u) { (void)u; return PyLong_FromLong(weft_device_index(self->device)); }
static PyObject *get_allocations(DeviceObject *self, void *u) {
    (void)u;
    return PyLong_FromLongLong(weft_device_allocations(self->device));
}
static PyObject *get_kernels(DeviceObject *self, void *u) {
    (void)u;
    return PyLong_FromLongLong(weft_device_kernels(self->device));
}

static PyGetSetDef device_attributes[] = {
    {"kind", (getter)get_kind, NULL, "The kind of device.", NULL},
    {"index", (getter)get_index, NULL, "Its number among those of its kind.", NULL},
    {"allocations", (getter)get_allocations, NULL, "Addresses allocated at present.", NULL},
    {"kernels", (getter)get_kernels, NULL, "Kernels loaded at present.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef device_methods[] = {
    {"info", (PyCFunction)device_info, METH_NOARGS, "info(): name, formats of code separated by commas, bytes of memory."},
    {"synchronize", (PyCFunction)device_synchronize, METH_NOARGS, "synchronize(): wait until all that was asked for is done."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject DeviceType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "weft.runtime._native.Device",
    .tp_basicsize = sizeof(DeviceObject),
    .tp_dealloc = (destructor)device_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Device(kind, index, opener=None): an open device; `opener(index)` makes the object of one written in Python.",
    .tp_weaklistoffset = offsetof(DeviceObject, weak_references),
    .tp_methods = device_methods,
    .tp_getset = device_attributes,
    .tp_new = device_new,
};
